"""The Spark jobs; nothing outside this package imports pyspark."""

from dptext_spark.spark.audit import run_audit
from dptext_spark.spark.calibrate import run_calibrate
from dptext_spark.spark.frames import privatize, privatize_udf
from dptext_spark.spark.poincare import run_poincare
from dptext_spark.spark.texts import run_privatize
from dptext_spark.spark.vectors import run_vectors

__all__ = [
    "privatize",
    "privatize_udf",
    "run_audit",
    "run_calibrate",
    "run_poincare",
    "run_privatize",
    "run_vectors",
]
