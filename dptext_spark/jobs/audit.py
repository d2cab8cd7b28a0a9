"""The audit of a bundle's words by Spark, the way tables are sanitized."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dptext_spark.audit import sampling, verdict
from dptext_spark.audit.sampling import Samples
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.options import AuditOptions
from dptext_spark.search.nearest import Search


def run(options: AuditOptions) -> verdict.AuditReport:
    """Run ``dptext audit``: small worlds on the driver, the bundle's words by Spark.

    Raises:
        DptextError: Options, bundle and mechanism do not go together, or the job failed.
    """
    return verdict.run_audit(options, bundle_sampler=sampled)


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: NDArray[np.int64],
    runs: int,
    key: NoiseKey,
    search: Search,
) -> Samples:
    """Sample by Spark; see :class:`sampling.Sampler`. The counts are those of :func:`sampling.sampled`."""
    if mechanism.releases != "words":
        return sampling.sampled(embedding, mechanism, words, runs, key, search)
    # Small worlds do without pyspark, which takes a while to load.
    from pyspark.sql import functions as F

    from dptext_spark.spark.failures import plain_errors
    from dptext_spark.spark.progress import progress
    from dptext_spark.spark.session import session
    from dptext_spark.tables.dataframes import privatize

    spark = session("dptext audit")
    rows = spark.createDataFrame(sampling.rows_of(embedding, words, runs))
    tokens = F.array_repeat("text", F.col("times").cast("int")).alias(sampling.COLUMN)
    table = rows.repartition(4 * spark.sparkContext.defaultParallelism).select("id", "place", tokens)
    with plain_errors("The Spark job of the audit failed"), progress(spark, "Sampling"):
        released = privatize(
            table,
            embedding=embedding,
            mechanism=mechanism,
            id="id",
            tokens=sampling.COLUMN,
            keep="place",
            key=key,
            name=sampling.SALT,
            search=search,
            trust_id=True,
        )
        tally = released.select("place", F.explode(sampling.COLUMN).alias("output"))
        return Samples.of(embedding, len(words), tally.groupBy("place", "output").count().toArrow())
