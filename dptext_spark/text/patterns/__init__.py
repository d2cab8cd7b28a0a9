"""Patterns of identifiers: texts in, spans with the names of their types out."""
