"""Sanitize text columns on Spark under metric differential privacy.

    from dptext_spark import Laplace, privatize

    released = privatize(
        df, text="text", id="id", embedding="glove-50d", mechanism=Laplace(epsilon=8)
    )

Without Spark, texts in and sanitized texts out:

    from dptext_spark import Laplace, Release, Sanitizer

    release = Release.open(embedding="glove-50d", mechanism=Laplace(epsilon=8))
    result = Sanitizer.open(release).sanitize(["play some jazz"], [1], column="text")
    print(release.guarantee(), result.values)

``build_embedding`` makes the bundle "glove-50d" from public word vectors.
"""

# Each name is imported when it is first used: the command line is to hear signals before the
# libraries are loaded, and what runs on Spark alone needs pyspark.

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dptext_spark.accounting.row_budget import RowBudget as RowBudget
    from dptext_spark.embedding.build import build_embedding as build_embedding
    from dptext_spark.embedding.bundle import Embedding as Embedding
    from dptext_spark.errors import DptextError as DptextError
    from dptext_spark.evaluation.comparison import Comparison as Comparison
    from dptext_spark.evaluation.local import evaluate as evaluate
    from dptext_spark.evaluation.measures import Risk as Risk
    from dptext_spark.evaluation.target import Target as Target
    from dptext_spark.guarantee import Guarantee as Guarantee
    from dptext_spark.jobs.privatize import privatize_table as privatize_table
    from dptext_spark.mechanisms import Exponential as Exponential
    from dptext_spark.mechanisms import Hyperbolic as Hyperbolic
    from dptext_spark.mechanisms import HyperbolicIcdm as HyperbolicIcdm
    from dptext_spark.mechanisms import HyperbolicLebesgue as HyperbolicLebesgue
    from dptext_spark.mechanisms import Laplace as Laplace
    from dptext_spark.mechanisms import Mahalanobis as Mahalanobis
    from dptext_spark.mechanisms import Projection as Projection
    from dptext_spark.noise import NoiseKey as NoiseKey
    from dptext_spark.release import Release as Release
    from dptext_spark.sanitizer import Sanitizer as Sanitizer
    from dptext_spark.spark.java import ensure_java as ensure_java
    from dptext_spark.tables.dataframes import ReleaseCounts as ReleaseCounts
    from dptext_spark.tables.dataframes import privatize as privatize
    from dptext_spark.tables.dataframes import privatize_udf as privatize_udf
    from dptext_spark.tables.dataframes import register_udf as register_udf
    from dptext_spark.tables.transformer import TextPrivatizer as TextPrivatizer
    from dptext_spark.text.policies import TextPolicy as TextPolicy
    from dptext_spark.version import __version__ as __version__

_MODULES: Final = {
    "accounting.row_budget": "RowBudget",
    "embedding.build": "build_embedding",
    "embedding.bundle": "Embedding",
    "errors": "DptextError",
    "evaluation.comparison": "Comparison",
    "evaluation.local": "evaluate",
    "evaluation.measures": "Risk",
    "evaluation.target": "Target",
    "guarantee": "Guarantee",
    "jobs.privatize": "privatize_table",
    "mechanisms": "Exponential Hyperbolic HyperbolicIcdm HyperbolicLebesgue Laplace Mahalanobis "
    "Projection",
    "noise": "NoiseKey",
    "release": "Release",
    "sanitizer": "Sanitizer",
    "spark.java": "ensure_java",
    "tables.dataframes": "ReleaseCounts privatize privatize_udf register_udf",
    "tables.transformer": "TextPrivatizer",
    "text.policies": "TextPolicy",
    "version": "__version__",
}
_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name))


def __dir__() -> list[str]:
    return [*__all__]
