"""Vectors, and texts as averages of word vectors, released as projected noisy vectors."""
