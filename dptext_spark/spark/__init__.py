"""The Spark jobs; nothing outside this package imports pyspark.

Each name is imported when it is first used: a client of Spark Connect has no JVM, which the jobs need and
``privatize`` does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dptext_spark.spark.frames import privatize, privatize_udf, register_udf
    from dptext_spark.spark.release_counts import ReleaseCounts
    from dptext_spark.spark.transformer import TextPrivatizer

__all__ = ["ReleaseCounts", "TextPrivatizer", "privatize", "privatize_udf", "register_udf"]

_MODULES: Final = {"ReleaseCounts": "release_counts", "TextPrivatizer": "transformer"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'frames')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
