"""Blocks of words measured in Python workers, and what they come to in Spark SQL."""
