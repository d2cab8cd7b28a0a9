"""Measures what the cut of a table costs, and what a second core brings: the same words in several tables.

    python -m scripts.benchmarks.row_groups --data DATA [--words 1200000] [--cores 1 --cores 2] [--uncut]

Texts of ten words are drawn by Zipf's law from the bundle's own words, and written as one row group, as many,
and as many small files. The jobs run by turns, those of equally many cores in one session, of which Spark's
start is left out. There is a row for each table and number of cores: rates as shares of those of many
row groups, and as multiples of those on the first number of cores. With --uncut the one row group is one task
as well, as Spark has it.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import click
import numpy as np
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


def run(source: Path, output: Path, bundle: Path, seconds: float) -> dict[str, Any]:
    """Run the job once; give its seconds, and how many tasks had rows."""
    given: dict[str, Any] = {"mechanism": "laplace", "epsilon": 10.0, "task-seconds": seconds}
    given |= {"input": str(source), "output": str(output), "embedding": str(bundle), "text": ["text"]}
    start = time.perf_counter()
    privatize.run(PrivatizeOptions.of(given))
    return {
        "seconds": time.perf_counter() - start,
        "tasks": len(list(output.glob("part-*"))),
    }


def by_turns(
    runs: dict[str, Path], warm: Path, bundle: Path, cores: int, seconds: float
) -> dict[str, dict[str, Any]]:
    """Run the job over each table once, in one session of so many cores."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        with session_settings({"spark.master": f"local[{cores},4]"}, verbose=False):
            run(warm, Path(place, "warm"), bundle, seconds)
        for name, path in runs.items():
            as_it_is = patch.object(Cutting, "spread", lambda _, selected, __: selected)
            with as_it_is if name == UNCUT else nullcontext():
                found[name] = run(path, Path(place, name), bundle, seconds)
    return found


@section
@click.option("--words", default=1_200_000, show_default=True)
@click.option("--repetitions", default=1, show_default=True)
@click.option("--cores", multiple=True, default=(len(os.sched_getaffinity(0)),), show_default=True)
@click.option("--task-seconds", default=30.0, show_default=True)
@click.option("--uncut", is_flag=True, help="Take the one row group uncut, too.")
def main(
    given: Given, words: int, repetitions: int, cores: tuple[int, ...], task_seconds: float, uncut: bool
) -> dict[str, Any]:
    """Run the job over the same words in several tables, with each number of cores, by turns."""
    bundle = given.bundle("glove-300d").path
    if given.small:
        words, repetitions = SMALL * LENGTH, 1
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place, "in")).mkdir()
        runs = tables(folder, bundle, words)
        if uncut:
            runs[UNCUT] = runs["one row group"]
        warm = tables_of_few_words(Path(place, "warm"), bundle)
        for _ in range(repetitions):
            for number in cores:  # a session keeps its cores, and a process its session
                with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                    each = fresh.submit(by_turns, runs, warm, bundle, number, task_seconds).result()
                for name, one in each.items():
                    found.setdefault((number, name), []).append(one)
    rows = []
    for (number, name), own in found.items():
        many, fewer = found[number, f"{MANY} row groups"], found[cores[0], name]
        rows.append(
            {
                "table": name,
                "cores": number,
                "rate / rate of many row groups": share(many, own, "seconds"),
                f"rate / rate on {cores[0]}": share(fewer, own, "seconds"),
                "words a second": round(median(words / one["seconds"] for one in own)),
                "tasks": own[0]["tasks"],
            }
        )
    return {
        "title": "The cut of a table",
        "rows": rows,
        "notes": [
            f"{words:,} words, tasks of {task_seconds:g} seconds at most, medians of {repetitions} runs by "
            "turns. Ratios are of runs of one turn. Spark's start is left out."
        ],
    }


def tables_of_few_words(folder: Path, bundle: Path) -> Path:
    """Write a table that starts Spark's workers."""
    folder.mkdir()
    return tables(folder, bundle, SMALL * LENGTH)["one row group"]


def share(base: list[dict[str, Any]], runs: list[dict[str, Any]], what: str) -> float:
    """Divide turn by turn, and give the median."""
    return round(median(first[what] / run[what] for first, run in zip(base, runs, strict=True)), 3)


if __name__ == "__main__":
    main()
