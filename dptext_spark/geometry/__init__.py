"""Formulas of the spaces that words lie in: arrays in, arrays out."""
