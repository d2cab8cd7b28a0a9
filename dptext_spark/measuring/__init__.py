"""Words and rows measured in Python workers, and what they come to in Spark SQL."""
