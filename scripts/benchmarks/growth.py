"""How the whole job grows: with words, vocabulary and dimension.

    python -m scripts.benchmarks.growth --data DATA [--series words ...]

Every run is a process of its own, Spark's start included, which a run of few words tells. Words of the tables
follow Zipf's law.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from scripts.benchmarks.processes import watch
from scripts.benchmarks.section import SOURCES, Given, section
from scripts.benchmarks.turns import Texts
from tests.helpers.cluster import Cluster

ROOT: Final = Path(__file__).resolve().parents[2]
FEW: Final = 1_000
# Multiplications and additions of a run whose number of words is not given: about half a minute of two cores.
OPERATIONS: Final = 1.5e12
FILES: Final = 16


@dataclass(frozen=True)
class Run:
    """One run of the job.

    Attributes:
        source: The bundle that words are taken from, the first so many, with as many of their coordinates.
        words: Of the table.
        cores: Of this machine, which all processes of the run share; or of executors, one each, where
            ``cluster`` says so.
    """

    source: str
    vocabulary: int
    dimension: int
    words: int
    cores: int = 2
    cluster: bool = False


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a run took: seconds on the clock and of processors, and peaks of memory in MB."""

    seconds: float
    processor: float
    peaks: dict[str, float]


class Jobs:
    """Runs jobs in a folder; of equal runs one is enough."""

    def __init__(self, given: Given, folder: Path) -> None:
        self.given, self.folder = given, folder
        self._found: dict[Run, Found] = {}

    def found(self, run: Run) -> Found:
        """Run a job, or say what it took."""
        if run not in self._found:
            with tempfile.TemporaryDirectory(dir=self.folder) as place:
                self._found[run] = self._run(run, Path(place))
        return self._found[run]

    def beyond_start(self, run: Run) -> Found:
        """Give a run less the time of one of few words; whole where it is only tried."""
        if self.given.small:
            return self.found(run)
        found, start = self.found(run), self.found(replace(run, words=FEW))
        seconds, processor = found.seconds - start.seconds, found.processor - start.processor
        return replace(found, seconds=seconds, processor=processor)

    def _run(self, run: Run, place: Path) -> Found:
        bundle = self._bundle(run)
        table(bundle, run.words, place / "table")
        options = f"--input {place}/table --output {place}/out --embedding {bundle.path} --text text --id id"
        given = [*options.split(), "--trust-id", "--mechanism", "laplace", "--epsilon", "10", "--quiet"]
        if not run.cluster:
            local = ["--spark-conf", f"spark.master=local[{run.cores}]"]
            command = [sys.executable, "-m", "dptext_spark", "privatize", *given, *local]
            with confined(run.cores):
                job = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            return watched(job)
        conf = {"spark.executor.cores": "1", "spark.executor.memory": "1g"}
        with Cluster(place / "cluster", workers=run.cores) as cluster:
            job = cluster.start(
                *("--properties-file", ROOT / "conf" / "spark-defaults.conf", ROOT / "jobs" / "privatize.py"),
                *given,
                conf=conf,
                stdout=subprocess.DEVNULL,
            )
            return watched(job, os.getpid())

    def _bundle(self, run: Run) -> Embedding:
        """Build the bundle of a run's vocabulary and dimension, once."""
        folder = self.folder / f"{run.vocabulary}-{run.dimension}"
        if not folder.exists():
            source = self.given.data / SOURCES[run.source]
            vectors = np.load(source / "vectors.npy", mmap_mode="r")
            np.save(self.folder / "vectors.npy", vectors[: run.vocabulary, : run.dimension])
            with (source / "vocab.txt").open(encoding="utf-8") as names:
                words = [line for _, line in zip(range(run.vocabulary), names, strict=False)]
            (self.folder / "vocab.txt").write_text("".join(words), encoding="utf-8")
            build_embedding(self.folder / "vectors.npy", folder)
        return Embedding.open(folder, verify=False)


@contextmanager
def confined(cores: int) -> Iterator[None]:
    """Have processes that are started meanwhile run on so many of this machine's cores."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def table(embedding: Embedding, words: int, folder: Path) -> None:
    """Write texts of so many words."""
    folder.mkdir()
    rows = pc.binary_join(Texts(embedding).rows(words), " ")
    for part in range(FILES):
        ids = np.arange(part, len(rows), FILES)
        pq.write_table(pa.table({"id": ids, "text": rows.take(ids)}), folder / f"part-{part:02}.parquet")


def watched(job: subprocess.Popen[Any], root: int | None = None) -> Found:
    """Wait for a job that was just started, and look at it and its children, or at all of another root."""
    seconds, use = watch(job, root=root, shares=False)
    return Found(seconds=seconds, processor=use.processor, peaks=dict(use.peaks))


def series(given: Given) -> dict[str, list[Run]]:
    """Give the runs of each series; what grows in it is the field of that name."""
    large, deep = "glove-50d", "glove-300d"
    rows, columns = shape(given, large)
    if given.small:
        base = Run(large, rows // 4, columns, FEW)
        return {
            "words": [base, replace(base, words=50 * FEW)],
            "vocabulary": [base, replace(base, vocabulary=rows)],
            "dimension": [base, replace(base, dimension=columns // 2)],
        }
    return {
        "words": [Run(large, 5_000, 50, words) for words in (100_000, 1_000_000, 10_000_000)],
        "vocabulary": [sized(Run(large, count, 50, 0)) for count in (10_000, 40_000, 100_000, 400_000)],
        "dimension": [sized(Run(deep, 20_000, count, 0)) for count in (50, 100, 200, 300)],
    }


def shape(given: Given, source: str) -> tuple[int, int]:
    """Give how many words an embedding has, and how many dimensions."""
    rows, columns = np.load(given.data / SOURCES[source] / "vectors.npy", mmap_mode="r").shape
    return int(rows), int(columns)


def sized(run: Run) -> Run:
    """Give a run as many words as take about as long as those of any other."""
    return replace(run, words=round(OPERATIONS / (2 * run.vocabulary * run.dimension)))


def compared(
    name: str, runs: Mapping[Run, Found], ratios: Mapping[Run, Mapping[str, float]] | None = None
) -> Iterator[dict[str, Any]]:
    """Compare the runs of a series with its first; with other ratios beside."""
    first = None
    for run, found in runs.items():
        rate, processor = run.words / found.seconds, found.processor / run.words
        first = first or (rate, processor)
        yield {
            "series": name,
            "words": run.words,
            "vocabulary": run.vocabulary,
            "dimension": run.dimension,
            "cores": None if run.cluster else run.cores,
            "executors": run.cores if run.cluster else None,
            "rate / first": rate / first[0],
            **(ratios or {}).get(run, {}),
            "processor time of a word / first": processor / first[1],
            "words/s": rate,
            "worker, MB": found.peaks["worker RSS"],
            "JVM, MB": found.peaks["JVM RSS"],
            "driver, MB": found.peaks["driver RSS"],
        }


def section_of(title: str, small: bool, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Make a section of the rows of several series, with a figure of each."""
    start = "Spark's start included" if small else f"less that of a run of {FEW:,} words"
    return {
        "title": title,
        "rows": rows,
        "notes": [
            f"The whole job of `dptext privatize` with `laplace`, words of Zipf's law. Time: {start}.",
            "Memory: the largest resident set of any one Python worker, JVM or driver, mapped files "
            "included, in a sample every quarter of a second. Workers share one copy of the matrix.",
        ],
    }


@section
@click.option("--series", "names", multiple=True, help="Only these; default: all")
def main(given: Given, names: tuple[str, ...]) -> dict[str, Any]:
    """Run all series."""
    every = series(given)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dptext-growth-") as folder:
        jobs = Jobs(given, Path(folder))
        for name in names or every:
            rows += compared(name, {run: jobs.beyond_start(run) for run in every[name]})
    found = section_of("Growth of the job", given.small, rows)
    found["notes"].append("Where words are not what grows, each run has as many as take about the same time.")
    return found


if __name__ == "__main__":
    main()
