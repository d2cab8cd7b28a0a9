"""The Spark jobs; nothing outside this package imports pyspark."""

from dptext_spark.spark.frames import privatize, privatize_udf
from dptext_spark.spark.poincare import run_poincare
from dptext_spark.spark.tables import run_privatize

__all__ = ["privatize", "privatize_udf", "run_poincare", "run_privatize"]
