"""Sanitize text columns on Spark under metric differential privacy.

``privatize``, ``privatize_udf``, ``register_udf``, ``ReleaseCounts`` and ``TextPrivatizer`` need pyspark,
which is loaded when they are first used; all else works without it.
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
    from dptext_spark.spark import ReleaseCounts, TextPrivatizer, privatize, privatize_udf, register_udf

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
    "ReleaseCounts",
    "TextPolicy",
    "TextPrivatizer",
    "__version__",
    "build_embedding",
    "ensure_java",
    "privatize",
    "privatize_udf",
    "register_udf",
]


def __getattr__(name: str) -> Any:
    if name in __all__:  # and is not imported above
        from dptext_spark import spark

        return getattr(spark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
