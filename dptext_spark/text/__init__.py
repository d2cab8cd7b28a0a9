"""Texts and token lists as arrays of tokens and back, and what becomes of unperturbed tokens."""
