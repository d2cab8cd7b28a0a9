"""Whole jobs against their kernels: ``privatize`` and its search, ``calibrate`` and plain runs.

``privatize`` sanitizes novels, at 33,860 x 300 and with the first 20,000 words of 50 dimensions.
``calibrate`` measures six epsilons at which words stay with probability 0.95 to 0.05. Rates are
sums over one single-threaded process per core, as Spark runs them. Kernels, sgemm and a bare Spark
session are measured before and after each job. Report the ratios: the seconds belong to the
machine.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.java import ensure_java
from scripts.benchmarks.shared import SOURCES, Setup, epsilons, run_job, section, shape
from scripts.experiments.shared import by_epsilon

CORES: Final = len(os.sched_getaffinity(0))
DPTEXT: Final = (sys.executable, "-m", "dptext_spark")
EPSILON: Final = 15.0
FEW_WORDS: Final = 20_000
STAYS: Final = (0.95, 0.8, 0.6, 0.4, 0.2, 0.05)
PLAIN_RUNS: Final = 256
BARE: Final = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()
"""
"""A bare session: Spark, and one task in one Python worker that gives back what it gets."""


@section
def main(setup: Setup) -> dict[str, Any]:
    """Measure both jobs, each between two measurements of its kernel."""
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    seconds = 20.0
    words = 1_200_000
    calibrated = 10_000
    runs = 1_000
    if setup.small:
        seconds = 0.2
        words = 2_000
        calibrated = 20
        runs = 50
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        novels = folder / "novels"
        paragraphs(setup.data / "novels_98" / "novels_98.parquet", novels, words)
        vectors = setup.data / SOURCES["glove-50d"] / "vectors.npy"
        few = build_embedding(vectors, folder / "few", limit=FEW_WORDS)
        flat = setup.bundle("glove-50d")
        rows = [
            privatized(setup.bundle("glove-300d"), novels, seconds),
            privatized(few, novels, seconds),
            calibration(flat, folder / "tables", calibrated, runs, seconds),
        ]
    notes = [
        f"Novels, a row for each paragraph, about {words:,} words, `laplace` at epsilon "
        f"{EPSILON:g}, on {CORES} cores; kernel and sgemm in one process per core. Rates are of "
        "perturbed words.",
        f"Calibration: {calibrated:,} words x {runs:,} runs at {len(STAYS)} epsilons of `laplace`; "
        "processor time is that of all processes, Spark and all tables included.",
    ]
    return {"title": "Whole jobs", "rows": rows, "notes": notes}


def paragraphs(novels: Path, target: Path, words: int) -> None:
    """Write the first words of the novels as one row a paragraph."""
    texts = pq.read_table(novels, columns=["text"])["text"].combine_chunks()
    texts = pc.list_flatten(pc.split_pattern_regex(texts, r"\r?\n(?:\r?\n)+"))
    texts = texts.filter(pc.greater(pc.utf8_length(texts), 0)).cast(pa.string())
    counts = pc.list_value_length(pc.utf8_split_whitespace(texts)).to_numpy()
    rows = min(len(texts), int(np.searchsorted(np.cumsum(counts), words)) + 1)
    target.mkdir()
    # Several files, so that every core has partitions to read.
    for part, ids in enumerate(np.array_split(np.arange(rows), 8 * CORES)):
        table = pa.table({"id": ids, "text": texts.take(ids)})
        pq.write_table(table, target / f"part-{part:03}.parquet")


def privatized(embedding: Embedding, table: Path, seconds: float) -> dict[str, Any]:
    """Measure ``privatize``, and the kernel before and after it."""
    output = table.with_name(f"out-{embedding.dimension}")

    def rates() -> tuple[float, ...]:
        """Measure rates of sgemm and of the kernel, and the seconds of a bare session."""
        kernel = on_all_cores(kernel_words, embedding.path, seconds)
        sgemm = on_all_cores(sgemm_flops, seconds)
        return sgemm, kernel, run_job([sys.executable, "-c", BARE]).seconds

    before = rates()
    options = f"--input {table} --output {output} --embedding {embedding.path} --text text --id id"
    options += f" --mechanism laplace --epsilon {EPSILON}"
    job_seconds = run_job([*DPTEXT, "privatize", *options.split()]).seconds
    after = rates()
    report = json.loads(Path(f"{output}.private/report.json").read_text())["columns"]["text"]
    words = report["replaced"] + report["unchanged"]
    sgemm, kernel, bare = np.mean([before, after], axis=0).tolist()
    operations = 2 * embedding.releasable * embedding.dimension
    return {
        "embedding": shape(embedding),
        "search kernel / sgemm": kernel * operations / sgemm,
        "whole job / search kernel": words / job_seconds / kernel,
        "job without a bare session / search kernel": words / (job_seconds - bare) / kernel,
        "search kernel, after / before": after[1] / before[1],
    }


def calibration(
    embedding: Embedding, output: Path, words: int, runs: int, seconds: float
) -> dict[str, Any]:
    """Measure ``calibrate``, and plain runs around it: draws in a second of processor time."""
    grid = [float(f"{epsilon:.4g}") for epsilon in epsilons(embedding, STAYS)]
    options = f"--embedding {embedding.path} --output {output} --words {words} --runs {runs}"
    options += " --mechanism laplace --epsilon"
    before = on_all_cores(plain_draws, embedding.path, grid, seconds)
    use = run_job([*DPTEXT, "calibrate", *options.split(), *map(str, grid)])
    after = on_all_cores(plain_draws, embedding.path, grid, seconds)
    plain = (before + after) / 2 / CORES
    draws = words * runs * len(grid) / sum(use.spent.values())
    return {
        "embedding": shape(embedding),
        "calibration / plain runs, draws in a second of processor time": draws / plain,
    }


# Rates of one single-threaded process


def on_all_cores(function: Callable[..., float], *arguments: Any) -> float:
    """Add up the rates of as many processes as there are cores."""
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(function, *arguments) for _ in range(CORES)]
        return sum(future.result() for future in futures)


def rate(
    step: Callable[[], object],
    work: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Repeat a step of some work for some seconds; return the work of a second."""
    with threadpool_limits(1):
        step()
        total = 0
        start = clock()
        while clock() - start < seconds:
            step()
            total += work
        return total / (clock() - start)


def sgemm_flops(seconds: float) -> float:
    """Measure operations a second: products of large square matrices in single precision."""
    a, b = np.ones((2, 2048, 2048), dtype=np.float32)
    out = np.empty_like(a)
    return rate(lambda: np.matmul(a, b, out=out), 2 * 2048**3, seconds)


def kernel_words(bundle: Path, seconds: float) -> float:
    """Measure words a second of the search kernel alone, on points noisy as in the job."""
    embedding = Embedding.open(bundle, verify=False)
    laplace = Laplace(epsilon=EPSILON)
    bound = laplace.bind(embedding, ExactSearch.over(embedding))
    words = np.arange(12_288) * 13 % embedding.releasable
    width = laplace.uniforms_per_token(embedding.dimension)
    uniforms = np.random.default_rng(0).random((len(words), width))
    points = bound.points(words, uniforms[:, :-1])
    return rate(lambda: bound.search(points), len(points), seconds)


def plain_draws(bundle: Path, grid: list[float], seconds: float) -> float:
    """Measure draws in a second of processor time of plain runs, as many of each epsilon."""
    embedding = Embedding.open(bundle, verify=False)
    mechanisms = by_epsilon("laplace", grid)
    draw = estimator(mechanisms, embedding, search=ExactSearch.over(embedding), runs=PLAIN_RUNS)
    words = np.arange(2) * (len(embedding.words) // 3)
    work = 2 * PLAIN_RUNS * len(grid)
    return rate(
        lambda: replace(draw, name="plain")(words, block=0), work, seconds, time.process_time
    )


if __name__ == "__main__":
    main()
