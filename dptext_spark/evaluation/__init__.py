"""Evaluation: what attackers get back from a release of a table, and what is left of its use."""
