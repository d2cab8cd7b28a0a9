"""Texts and token lists as arrays of tokens and back, and what becomes of tokens that are not perturbed."""
