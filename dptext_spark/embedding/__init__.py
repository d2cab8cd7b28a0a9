"""Embedding bundles: public vocabularies and their vectors, built once, opened on every machine."""
