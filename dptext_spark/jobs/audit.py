"""The job of ``dptext audit``: small worlds in this process, a bundle's words by Spark as tables are."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from dptext_spark.audit.trial import COLUMN, FACTORS, Tally, tallied, trial, worlds
from dptext_spark.bars import progress_bar
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Report
from dptext_spark.report.text import table

FORMAT_VERSION: Final = 2
RUNS: Final = 40_000
# What a bundle shows hardly grows with its runs.
BUNDLE_RUNS: Final = 4_000


def run(options: AuditOptions, *, bundle_tally: Tally | None = None) -> Report:
    """Run ``dptext audit``; its report ends with an error where there is a violation.

    ``bundle_tally`` is what sanitizes the words of a bundle; by default Spark.
    """
    if (path := options.report) is not None:
        # Before the work.
        fault = errno.EISDIR if path.is_dir() else 0 if path.absolute().parent.is_dir() else errno.ENOENT
        if fault:
            raise ConfigError(f"The report {path} cannot be written", got=os.strerror(fault))
    with tempfile.TemporaryDirectory(prefix="dptext-audit-") as folder:
        audited = [*worlds(options, Path(folder))]
        alpha, trials = (1.0 - options.confidence) / len(audited), []
        for world in progress_bar(audited, leave=False, unit=" worlds"):
            is_small = world.name != BUNDLE_WORLD
            runs = (options.runs or (RUNS if is_small else BUNDLE_RUNS)) // 2 * 2
            tally = tallied if is_small else bundle_tally or tallied_by_spark
            trials.append(trial(world, options, runs=runs, alpha=alpha, tally=tally))
    broken = ", ".join(dict.fromkeys(facts["world"] for facts in trials if facts["violations"]))
    facts = {
        "format_version": FORMAT_VERSION,
        "verdict": "VIOLATION" if broken else "PASS",
        "options": options.to_json(),
        "metric": audited[0].guarantee.metric,
        "worlds": trials,
    }
    failure = JobError(
        "The running code breaks its guarantee",
        got=f"violations in {broken}",
        do="Release nothing with this mechanism",
    )
    return Report(facts=facts, text="\n".join(_lines(facts)), failure=failure if broken else None)


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Say in plain words what was shown, what was found, and what could not be caught."""
    options = report["options"]
    yield f"Audit of {options['mechanism']}, epsilon {options['epsilon']:g}, in the {report['metric']}"
    yield "Losses in nats: the outputs show this much or more; the guarantee claims this"
    yield "much or less. Smaller is better for privacy."
    rows = [("world", "runs", "words compared", "shown", "claimed", "would catch")]
    violations = []
    for facts in report["worlds"]:
        world, caught = f"{facts['world']} ({facts['geometry']})", facts["caught"]
        would = f"epsilon x {caught:g}" if caught else f"nothing up to x {max(FACTORS):g}"
        if facts["violations"]:
            would = "VIOLATION"
            violations += [f"VIOLATION in {world}: {violation}." for violation in facts["violations"]]
            violations.append(f"  Repeat it: {facts['command']}")
        losses = f"{facts['nats']:.3g}", f"{facts['claim']:.3g}"
        rows.append((world, f"{facts['runs']:,}", " ".join(facts["pair"]), *losses, would))
    yield from table(rows, numbers=False)
    yield from violations
    if not violations:
        yield "PASS: no violation was found. That does not prove the guarantee: what costs less"
        yield "than the epsilon in the last column (tried once each) goes unnoticed, and so may"
        yield "noise that two words or rows share."


def tallied_by_spark(rows: pa.Table, release: Release, key: NoiseKey) -> pa.Table:
    """Sanitize rows by Spark; the counts are those of :func:`~dptext_spark.audit.trial.tallied`."""
    # Small worlds do without pyspark, which takes a while to load.
    from pyspark.sql import functions as F

    from dptext_spark.spark.failures import plain_errors
    from dptext_spark.spark.progress import progress
    from dptext_spark.spark.session import session
    from dptext_spark.spark.versions import from_arrow, to_arrow
    from dptext_spark.tables.dataframes import privatize

    spark = session("dptext audit")
    tokens = F.array_repeat("text", F.col("times").cast("int")).alias(COLUMN)
    df = from_arrow(spark, rows).repartition(4 * spark.sparkContext.defaultParallelism)
    with plain_errors("The Spark job of the audit failed"), progress(spark, "Sampling"):
        released = privatize(
            df.select("id", "place", tokens),
            embedding=release.embedding,
            mechanism=release.mechanism,
            id="id",
            tokens=COLUMN,
            keep="place",
            key=key,
            name=release.name,
            search=release.search,
            trust_id=True,
        )
        outputs = released.select("place", F.explode(COLUMN).alias("output"))
        return to_arrow(outputs.groupBy("place", "output").count())
