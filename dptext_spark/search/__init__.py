"""Nearest words of noisy points."""
