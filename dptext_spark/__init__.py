"""Sanitize text columns on Spark under metric differential privacy.

Each name is imported when it is first used: the command line is to hear signals before the libraries are
loaded, and what runs on Spark alone needs pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dptext_spark.accounting.row_budget import RowBudget
    from dptext_spark.embedding.build import build_embedding
    from dptext_spark.embedding.bundle import Embedding
    from dptext_spark.errors import DptextError
    from dptext_spark.evaluation.comparison import Comparison, Target, evaluate
    from dptext_spark.evaluation.measures import Risk
    from dptext_spark.guarantee import Guarantee
    from dptext_spark.jobs.privatize import privatize_table
    from dptext_spark.mechanisms import (
        Exponential,
        Hyperbolic,
        HyperbolicIcdm,
        Laplace,
        Mahalanobis,
        Projection,
    )
    from dptext_spark.noise import NoiseKey
    from dptext_spark.release import Release
    from dptext_spark.sanitizer import Sanitizer
    from dptext_spark.spark.java import ensure_java
    from dptext_spark.tables.dataframes import ReleaseCounts, privatize, privatize_udf, register_udf
    from dptext_spark.tables.transformer import TextPrivatizer
    from dptext_spark.text.policies import TextPolicy
    from dptext_spark.version import __version__

__all__ = [
    "Comparison",
    "DptextError",
    "Embedding",
    "Exponential",
    "Guarantee",
    "Hyperbolic",
    "HyperbolicIcdm",
    "Laplace",
    "Mahalanobis",
    "NoiseKey",
    "Projection",
    "Release",
    "ReleaseCounts",
    "Risk",
    "RowBudget",
    "Sanitizer",
    "Target",
    "TextPolicy",
    "TextPrivatizer",
    "__version__",
    "build_embedding",
    "ensure_java",
    "evaluate",
    "privatize",
    "privatize_table",
    "privatize_udf",
    "register_udf",
]

_HOMES: Final = {
    "accounting.row_budget": "RowBudget",
    "embedding.build": "build_embedding",
    "embedding.bundle": "Embedding",
    "errors": "DptextError",
    "evaluation.comparison": "Comparison Target evaluate",
    "evaluation.measures": "Risk",
    "guarantee": "Guarantee",
    "jobs.privatize": "privatize_table",
    "noise": "NoiseKey",
    "release": "Release",
    "sanitizer": "Sanitizer",
    "spark.java": "ensure_java",
    "tables.dataframes": "ReleaseCounts privatize privatize_udf register_udf",
    "tables.transformer": "TextPrivatizer",
    "text.policies": "TextPolicy",
    "version": "__version__",
}
"""Modules and what they have; all other names are mechanisms."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        homes = (home for home, names in _HOMES.items() if name in names.split())
        return globals().setdefault(
            name, getattr(import_module(f"{__name__}.{next(homes, 'mechanisms')}"), name)
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
