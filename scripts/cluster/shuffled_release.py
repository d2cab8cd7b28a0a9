"""spark-submit shuffled_release.py TABLE BUNDLE OUTPUT: what scripts/chaos loses a shuffle of.

A table is released under a fresh key, put below itself and shuffled; each part of the shuffle is
then released once more, which takes a while. If noise were drawn anew when Spark computes a row
again, its two copies would differ.
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from dptext_spark import Laplace, privatize

table, bundle, output = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()


def released(df: DataFrame) -> DataFrame:
    """Sanitize a frame under a fresh key."""
    return privatize(
        df,
        embedding=bundle,
        mechanism=Laplace(epsilon=10),
        id="id",
        text="text",
        keep="id",
        trust_id=True,
    )


once = released(spark.read.parquet(f"{table}/0.parquet", f"{table}/1.parquet"))
released(once.unionByName(once).repartition(6, "id")).write.parquet(output)
