"""Measures what the cut of a table costs: the same words in one row group, in many, and in small files.

    python -m scripts.benchmarks.row_groups --data DATA [--words 1200000] [--repetitions 3] [--cores 2]

Texts of ten words are drawn by Zipf's law from the bundle's own words. The jobs run by turns in one session,
so Spark's start is left out. Given are words a second as shares of those of many row groups, the same for
processor time, which other work on the machine disturbs less, and how many tasks had rows. With --uncut the
one row group is one task as well, as Spark alone has it.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark import Embedding
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.jobs import privatize
from dptext_spark.spark.settings import session_settings
from dptext_spark.spark.table.cutting import Cutting
from scripts.benchmarks.section import Given, section

LENGTH = 10
MANY = 64
SMALL = 1000
UNCUT = "one row group, uncut"


def tables(folder: Path, bundle: Path, words: int) -> dict[str, Path]:
    """Write the same rows as one row group, as many, and as many small files."""
    known = np.array(Embedding.open(bundle, verify=False).words, dtype=object)
    law = 1.0 / np.arange(1, len(known) + 1)
    drawn = np.random.default_rng(0).choice(len(known), size=(words // LENGTH, LENGTH), p=law / law.sum())
    table = pa.table({"id": range(len(drawn)), "text": [" ".join(row) for row in known[drawn]]})
    rows = len(table)
    for name, row_group in (("one row group", rows), (f"{MANY} row groups", -(-rows // MANY))):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "x.parquet", row_group_size=row_group)
    small = folder / f"{SMALL} files"
    small.mkdir()
    for number, start in enumerate(range(0, rows, size := -(-rows // SMALL))):
        pq.write_table(table.slice(start, size), small / f"{number}.parquet")
    return {path.name: path for path in sorted(folder.iterdir())}


def processor_seconds() -> float:
    """Processor time of Spark's processes so far: the JVM and its workers."""
    spent = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended meanwhile
            continue
        spent += times.user + times.system
    return spent


def run(source: Path, output: Path, bundle: Path, seconds: float) -> dict[str, Any]:
    """Run the job once; give its seconds, its processor time, and how many tasks had rows."""
    given: dict[str, Any] = {"mechanism": "laplace", "epsilon": 10.0, "task-seconds": seconds}
    given |= {"input": str(source), "output": str(output), "embedding": str(bundle), "text": ["text"]}
    start, spent = time.perf_counter(), processor_seconds()
    privatize.run(PrivatizeOptions.of(given))
    return {
        "seconds": time.perf_counter() - start,
        "processor": processor_seconds() - spent,
        "tasks": len(list(output.glob("part-*"))),
    }


@section
@click.option("--words", default=200_000, show_default=True)
@click.option("--repetitions", default=3, show_default=True)
@click.option("--cores", default=len(os.sched_getaffinity(0)), show_default=True)
@click.option("--task-seconds", default=30.0, show_default=True)
@click.option("--uncut", is_flag=True, help="Take the one row group uncut, too.")
def main(
    given: Given, words: int, repetitions: int, cores: int, task_seconds: float, uncut: bool
) -> dict[str, Any]:
    """Run the job over the same words in several tables, by turns."""
    bundle = given.bundle("glove-300d").path
    if given.small:
        words, repetitions = SMALL * LENGTH, 1
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place, "in")).mkdir()
        runs = tables(folder, bundle, words)
        if uncut:
            runs[UNCUT] = runs["one row group"]
        warm = tables_of_few_words(Path(place, "warm"), bundle)
        with session_settings({"spark.master": f"local[{cores},4]"}, verbose=False):
            run(warm, Path(place, "warm out"), bundle, task_seconds)
        for number in range(repetitions):
            for name, path in runs.items():
                output = Path(place, f"{name} {number}")
                as_it_is = patch.object(Cutting, "spread", lambda _, selected, __: selected)
                with as_it_is if name == UNCUT else nullcontext():
                    found.setdefault(name, []).append(run(path, output, bundle, task_seconds))
    base = found[f"{MANY} row groups"]
    rows = [
        {
            "table": name,
            "rate / rate of many row groups": share(base, each_run, "seconds"),
            "processor time of many row groups / its own": share(base, each_run, "processor"),
            "words/s": words / float(np.median([each["seconds"] for each in each_run])),
            "tasks": each_run[0]["tasks"],
        }
        for name, each_run in found.items()
    ]
    note = (
        f"{words:,} words of {LENGTH} a row, {cores} cores, `laplace`; medians of {repetitions} repetitions."
    )
    return {"title": "How a table is cut", "rows": rows, "notes": [note]}


def tables_of_few_words(folder: Path, bundle: Path) -> Path:
    """Write a table that starts Spark's workers."""
    folder.mkdir()
    return tables(folder, bundle, SMALL * LENGTH)["one row group"]


def share(base: list[dict[str, Any]], runs: list[dict[str, Any]], what: str) -> float:
    """Divide by run, as those of one repetition ran one after the other; the median."""
    return float(np.median([first[what] / own[what] for first, own in zip(base, runs, strict=True)]))


if __name__ == "__main__":
    main()
