"""Texts and token lists as arrays of words and back, and what becomes of the words that are not perturbed."""
