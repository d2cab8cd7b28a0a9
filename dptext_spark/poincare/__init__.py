"""Poincaré embeddings of is-a pairs: relations, training, quality and pictures.

Only ``pairs`` needs Spark.

Source: Nickel and Kiela 2017, "Poincaré Embeddings for Learning Hierarchical Representations".
"""

from dptext_spark.poincare.relations import Relations, measure
from dptext_spark.poincare.training import Settings, train

__all__ = ["Relations", "Settings", "measure", "train"]
