"""Embedding bundles: a public vocabulary and its vectors, built from a source, opened on every machine."""
