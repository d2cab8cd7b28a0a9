"""What the job adds to a bare Spark session before its first task and after its last one, piece by piece.

    python -m scripts.benchmarks.job_start --data DATA [--bundles FOLDER] [--small] [--turns 3]

A bare session (Spark, and one task in one Python worker that gives back what it gets), ``dptext privatize``
on 50 rows at 33,860 x 300 and its dry run at 400,000 x 50, with and without an archive of Java's classes
(docs/operations.md), take turns, each in a process of its own; and bare sessions whose Java has the options
that the job gives it. Each moment of a run belongs to the innermost of the pieces below that its main thread
is in; processor time is that of all processes then, so it counts what Spark's own threads and the driver's do
meanwhile, too. Times are medians; a share is that of the bare session's in the same run of this script, and
hardly depends on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from functools import wraps
from io import StringIO
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread
from typing import Any, Final
from unittest.mock import patch

import click
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.spark.class_archive import archive_option
from dptext_spark.spark.java import ensure_java
from dptext_spark.spark.session import java_options
from dptext_spark.spark.settings import Wanted
from scripts.benchmarks.section import Given, section

BARE: Final = "bare session"
ROWS: Final = 50
IMPORTED: Final = "libraries loaded"
WRITTEN: Final = "rows sanitized and written"
LAST: Final = "reports, and all else"


class Watch:
    """Adds up the seconds of each piece, and the processor's in all processes below this one."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._process = psutil.Process()
        self._piece, self._since = IMPORTED, (self._process.create_time(), 0.0)

    def _now(self) -> tuple[float, float]:
        processor = 0.0
        for process in [self._process, *self._process.children(recursive=True)]:
            try:
                processor += sum(process.cpu_times()[:4])  # its own, and of its children that have ended
            except psutil.Error:  # it ended meanwhile
                continue
        return time.time(), processor

    def turn(self, piece: str) -> str:
        """Begin a piece; give the one that it cuts off."""
        now, before = self._now(), self._piece
        for i in range(2):
            self.spent[before][i] += now[i] - self._since[i]
        self._piece, self._since = piece, now
        return before

    def of(self, function: Callable[..., Any], piece: str) -> Callable[..., Any]:
        """Watch a function, where the main thread calls it."""

        @wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            if current_thread() is not main_thread():
                return function(*arguments, **options)
            before = self.turn(piece)
            try:
                return function(*arguments, **options)
            finally:
                self.turn(before)

        return watched


def bare_session() -> None:
    """Start Spark, and have a Python worker give back a row."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()


def watched(arguments: list[str]) -> dict[str, list[float]]:
    """Run a command of dptext in this process, or a bare session where there is none; give its pieces."""
    watch = Watch()
    if not arguments:
        bare_session()
        watch.turn(LAST)
        return {BARE: watch.spent[IMPORTED]}
    from dptext_spark.cli import main as dptext
    from dptext_spark.spark.distribution import BundleFiles
    from dptext_spark.spark.jobs import privatize
    from dptext_spark.spark.table import run
    from dptext_spark.spark.table.formats import files
    from dptext_spark.spark.table.partitioning import Partitioning
    from dptext_spark.spark.table.sample import Sample

    places = (
        (privatize, "Release", "bundle verified, its distances measured"),
        (run, "session", "Spark started, beyond what was ahead"),
        (run.Job, "open", "table opened, columns checked"),
        (privatize, "await_check", "ids checked, beyond what the sample hides"),
        (BundleFiles, "send", "bundle sent"),
        (Partitioning, "spread", "rows counted"),
        (Sample, "__call__", "sample of coverage"),
        (files, "write_whole", WRITTEN),
    )
    watch.turn(LAST)
    with ExitStack() as patches, redirect_stdout(StringIO()):
        for owner, name, piece in places:
            patches.enter_context(patch.object(owner, name, watch.of(getattr(owner, name), piece)))
        if code := dptext(arguments, prog_name="dptext", standalone_mode=False):
            sys.exit(code)
        watch.turn("")
    return watch.spent


def pieces(arguments: list[str], java: str = "") -> dict[str, list[float]]:
    """Run :func:`watched` in a process of its own, with options for Java."""
    command = [sys.executable, "-m", "scripts.benchmarks.job_start", "--watched", *arguments]
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": java}
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, list[float]] = json.loads(printed.splitlines()[-1])
    return found


def rows_of(run: str, turns: list[dict[str, list[float]]], bare: tuple[float, float]) -> list[dict[str, Any]]:
    """Make the table's rows of one kind of run: its pieces, what comes before the first task, and all."""
    sums = {piece: [turn[piece] for turn in turns] for piece in turns[0]}
    if WRITTEN in sums:
        before = [piece for piece in sums if piece not in (WRITTEN, LAST)]
        sums["all before the first row is sanitized"] = [_sum(turn, before) for turn in turns]
    if len(sums) > 1:
        sums["all"] = [_sum(turn, list(turn)) for turn in turns]
    return [
        {
            "run": run,
            "piece": piece,
            "share": round(wall / bare[0], 3),
            "share of processor time": round(processor / bare[1], 3),
            "seconds": round(wall, 2),
            "processor, seconds": round(processor, 2),
        }
        for piece, spent in sums.items()
        for wall, processor in [_median(spent)]
    ]


def _sum(turn: dict[str, list[float]], names: list[str]) -> list[float]:
    return [sum(column) for column in zip(*(turn[name] for name in names), strict=True)]


def _median(spent: list[list[float]]) -> tuple[float, float]:
    wall, processor = zip(*spent, strict=True)
    return median(wall), median(processor)


@section
@click.option("--turns", default=3, show_default=True)
def main(given: Given, turns: int) -> dict[str, Any]:
    """Measure what the job adds to a bare session."""
    notes = [
        f"{ROWS} rows; fresh processes by turns, medians; shares are of the bare session's time in the same "
        "run. Processor time is that of all processes while a piece lasts."
    ]
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.parquet")
        texts = ["the quick brown fox jumps over the lazy dog"] * ROWS
        pq.write_table(pa.table({"id": range(ROWS), "text": texts}), table)
        common = ["privatize", "--input", str(table), "--text", "text", "--id", "id", "--overwrite"]
        common += ["--mechanism", "laplace", "--epsilon", "15", "--output", f"{folder}/out"]
        plain = ["--spark-conf", "spark.driver.extraJavaOptions=-XX:SharedArchiveFile=none"]
        options = java_options(Wanted(reads=str(table)))
        job = [*common, "--embedding", str(given.bundle("glove-300d").path)]
        runs = {BARE: ([], ""), "job, 33,860 x 300": ([*job, *plain], "")}
        if not given.small:
            dry_run = [*common, "--embedding", str(given.bundle("glove-50d").path), "--dry-run"]
            runs["dry run, 400,000 x 50"] = [*dry_run, *plain], ""
            runs[f"{BARE}, Java optimizes nothing"] = [], f"{options} -XX:SharedArchiveFile=none"
            if archive_option():
                runs[f"{BARE}, Java optimizes nothing, classes archived"] = [], options
                runs["job, 33,860 x 300, classes archived"] = job, ""
                runs["dry run, 400,000 x 50, classes archived"] = dry_run, ""
            else:
                notes.append("This environment has no archive of Java's classes.")
        found = defaultdict(list)
        for _ in range(1 if given.small else turns):
            for name, (arguments, java) in runs.items():
                found[name].append(pieces(arguments, java))
    bare = _median([turn[BARE] for turn in found[BARE]])
    return {
        "title": "What the job adds to a bare Spark session",
        "rows": [row for name in runs for row in rows_of(name, found[name], bare)],
        "notes": notes,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        print(json.dumps(watched(sys.argv[2:])))
    else:
        main()
