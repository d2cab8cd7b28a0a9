"""Poincaré embeddings of is-a pairs: relations, training, quality and pictures; no Spark.

Source: Nickel and Kiela 2017, "Poincaré Embeddings for Learning Hierarchical Representations".
"""

from dptext_spark.poincare.objective import Objective, exponential_map
from dptext_spark.poincare.quality import Quality, Reconstruction, measure, reconstruction
from dptext_spark.poincare.relations import Cycles, Relations
from dptext_spark.poincare.training import Settings, Trained, Trainer

__all__ = [
    "Cycles",
    "Objective",
    "Quality",
    "Reconstruction",
    "Relations",
    "Settings",
    "Trained",
    "Trainer",
    "exponential_map",
    "measure",
    "reconstruction",
]
