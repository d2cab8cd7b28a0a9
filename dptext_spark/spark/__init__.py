"""The Spark jobs; nothing outside this package imports pyspark.

Each name is imported when it is first used: a client of Spark Connect has no JVM, which the jobs need and
``privatize`` does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dptext_spark.spark.frames import privatize, privatize_udf
    from dptext_spark.spark.jobs.audit import run_audit
    from dptext_spark.spark.jobs.calibrate import run_calibrate
    from dptext_spark.spark.jobs.poincare import run_poincare
    from dptext_spark.spark.jobs.privatize import run_privatize
    from dptext_spark.spark.jobs.vectors import run_vectors

__all__ = [
    "privatize",
    "privatize_udf",
    "run_audit",
    "run_calibrate",
    "run_poincare",
    "run_privatize",
    "run_vectors",
]

_HOMES = {
    "privatize": "frames",
    "privatize_udf": "frames",
    "run_audit": "jobs.audit",
    "run_calibrate": "jobs.calibrate",
    "run_poincare": "jobs.poincare",
    "run_privatize": "jobs.privatize",
    "run_vectors": "jobs.vectors",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
