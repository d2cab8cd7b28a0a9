"""Sanitize text columns on Spark under metric differential privacy.

``privatize`` and ``privatize_udf`` need pyspark, which is loaded when they are first used; all else
works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import DptextError
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms import Exponential, Hyperbolic, HyperbolicIcdm, Laplace, Mahalanobis, Projection
from dptext_spark.noise import NoiseKey
from dptext_spark.privatizer import Privatizer
from dptext_spark.spark.java import ensure_java
from dptext_spark.text.policies import TextPolicy
from dptext_spark.version import __version__

if TYPE_CHECKING:
    from dptext_spark.spark import privatize, privatize_udf

__all__ = [
    "DptextError",
    "Embedding",
    "Exponential",
    "Guarantee",
    "Hyperbolic",
    "HyperbolicIcdm",
    "Laplace",
    "Mahalanobis",
    "NoiseKey",
    "Privatizer",
    "Projection",
    "TextPolicy",
    "__version__",
    "build_embedding",
    "ensure_java",
    "privatize",
    "privatize_udf",
]


def __getattr__(name: str) -> Any:
    if name in ("privatize", "privatize_udf"):
        from dptext_spark import spark

        return getattr(spark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
