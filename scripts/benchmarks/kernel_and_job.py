"""Measures the job against its search kernel and the machine's sgemm rate, all in one run.

    python -m scripts.benchmarks.kernel_and_job --data DATA [--words 13900000] [-- --mechanism exponential]

Sanitizes novels, at 33,860 x 300 and with the first 20,000 words of 50 dimensions. Rates are sums over one
single-threaded process per core, as Spark runs them; kernel, sgemm and a bare Spark session, whose time the
job's rate is also given without, are measured before and after the job. Report the ratios, the seconds belong
to the machine; ratios of processor time hardly depend on what else it does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dptext_spark import Embedding, Laplace, NoiseKey, build_embedding
from dptext_spark.noise import ReleaseNoise, to_uniform
from dptext_spark.sanitizer import CHUNK
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.java import ensure_java
from dptext_spark.text.token_columns import Tokens
from scripts.benchmarks.processes import run_job
from scripts.benchmarks.section import SOURCES, Given, section

CORES = len(os.sched_getaffinity(0))
SECONDS = 20.0
FEW_WORDS = 20_000
BARE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1, numPartitions=1).mapInArrow(lambda batches: batches, "id long").collect()
"""
"""A bare session: Spark, and one task in one Python worker that gives back what it gets."""


def paragraphs(novels: Path, target: Path, words: int) -> int:
    """Write the novels as one row a paragraph; give the number of words as the job counts them."""
    texts = pq.read_table(novels, columns=["text"])["text"].combine_chunks()
    texts = pc.list_flatten(pc.split_pattern_regex(texts, r"\r?\n(?:\r?\n)+"))
    texts = texts.filter(pc.greater(pc.utf8_length(texts), 0)).cast(pa.string())
    counts, start = np.empty(0, dtype=np.int64), 0
    while counts.sum() < words and start < len(texts):
        counts = np.append(counts, np.diff(Tokens.of(texts[start : start + 5000]).offsets))
        start += 5000
    rows = min(len(counts), int(np.searchsorted(np.cumsum(counts), words)) + 1)
    target.mkdir()
    # Several files, so that every core has partitions to read.
    for part, start in enumerate(range(0, rows, -(-rows // (8 * CORES)))):
        stop = min(start + -(-rows // (8 * CORES)), rows)
        table = pa.table({"id": pa.array(range(start, stop)), "text": texts[start:stop]})
        pq.write_table(table, target / f"part-{part:03}.parquet")
    return int(counts[:rows].sum())


def _repeat(step: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Run a step for some seconds; give its work per second of a clock."""
    with threadpool_limits(1):
        step()
        done, start = 0, clock()
        while clock() - start < seconds:
            done += step()
        return done / (clock() - start)


def sgemm_flops(seconds: float) -> float:
    """Single-threaded sgemm rate of large square matrices, flop/s."""
    a, b = np.ones((2, 2048, 2048), dtype=np.float32)
    out = np.empty_like(a)

    def step() -> int:
        np.matmul(a, b, out=out)
        return 2 * 2048**3

    return _repeat(step, seconds)


def kernel_tokens(
    bundle: Path, epsilon: float, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Single-threaded rate of the search kernel alone, tokens/s, on points noisy as in the job."""
    embedding = Embedding.open(bundle, verify=False)
    points = _points(embedding, epsilon)
    search = Laplace(epsilon=epsilon).bind(embedding, ExactSearch.over(embedding)).search

    def step() -> int:
        search(points)
        return len(points)

    return _repeat(step, seconds, clock)


def noise_tokens(bundle: Path, epsilon: float, seconds: float) -> float:
    """Single-threaded rate of drawing noise alone, tokens/s: cipher, normals, radius; no search."""
    embedding = Embedding.open(bundle, verify=False)

    def step() -> int:
        return len(_points(embedding, epsilon))

    return _repeat(step, seconds)


def _points(embedding: Embedding, epsilon: float) -> np.ndarray[Any, Any]:
    mechanism = Laplace(epsilon=epsilon)
    law = mechanism.law(embedding.dimension)
    release = ReleaseNoise.of(NoiseKey(b"b" * 32), salt="", law=law, fingerprint=embedding.fingerprint)
    per_word = mechanism.uniforms_per_token(embedding.dimension)
    column = release.column("text", purpose="word", uint64s_per_token=per_word)
    words = np.empty((CHUNK, per_word), dtype=np.uint64)
    for row in range(0, CHUNK, 64):  # rows of 64 words: about a paragraph
        column.fill(words[row : row + 64], column.row_key(str(row).encode(), (b"",)), 0)
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    return bound.points(np.arange(CHUNK) * 13 % embedding.releasable, to_uniform(words)[:, :-1])


def on_cores(count: int, function: Callable[..., float], *arguments: Any) -> float:
    """Run a rate in so many processes at once; give the sum of the rates."""
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        return sum(future.result() for future in [pool.submit(function, *arguments) for _ in range(count)])


def on_all_cores(function: Callable[..., float], *arguments: Any) -> float:
    """Run a rate in one process per core at once; give the sum of the rates."""
    return on_cores(CORES, function, *arguments)


def beside_the_job(bundle: Path, epsilon: float, seconds: float) -> tuple[float, ...]:
    """Rates of sgemm and kernel, the kernel's in processor time, and a bare session's seconds, also in it."""
    kernel = partial(on_all_cores, kernel_tokens, bundle, epsilon, seconds)
    taken, use = run_job([sys.executable, "-c", BARE])
    rates = on_all_cores(sgemm_flops, seconds), kernel(), kernel(time.process_time) / CORES
    return *rates, taken, use.processor


@section
@click.option("--words", default=1_200_000, show_default=True, help="about that many")
@click.option("--epsilon", default=15.0, show_default=True)
@click.argument("options", nargs=-1)
def main(given: Given, words: int, epsilon: float, options: tuple[str, ...]) -> dict[str, Any]:
    """Measure the job against the search kernel under laplace noise, and that against sgemm.

    OPTIONS, after --, go to the job: -- --mechanism exponential:truncate=4. Default: --mechanism laplace.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    seconds = 0.2 if given.small else SECONDS
    options = options or ("--mechanism", "laplace")
    with tempfile.TemporaryDirectory() as folder:
        few = Path(folder, "few words")
        vectors = given.data / SOURCES["glove-50d"] / "vectors.npy"
        embeddings = [given.bundle("glove-300d"), build_embedding(vectors, few, limit=FEW_WORDS)]
        table = Path(folder, "novels")
        tokens = paragraphs(
            given.data / "novels_98" / "novels_98.parquet", table, 2_000 if given.small else words
        )
        columns = {
            f"{each.releasable:,} x {each.dimension}": measured(
                each, table, Path(folder, f"sanitized {number}"), epsilon, seconds, options
            )
            for number, each in enumerate(embeddings)
        }
    return {
        "title": "The whole job",
        "rows": [
            {"what": what, **{size: found.get(what) for size, found in columns.items()}}
            for what in dict.fromkeys(what for found in columns.values() for what in found)
        ],
        "notes": [
            f"Novels, a row for each paragraph, {tokens:,} words, {' '.join(options)} at epsilon "
            f"{epsilon:g}, on {CORES} cores; kernel and sgemm in one process per core. Rates are of "
            "perturbed words; processor time is that of all processes."
        ],
    }


def measured(
    embedding: Embedding, table: Path, output: Path, epsilon: float, seconds: float, options: tuple[str, ...]
) -> dict[str, float | None]:
    """Measure the job with an embedding, and what it is compared with."""
    noise = on_all_cores(noise_tokens, embedding.path, epsilon, seconds)
    beside = [beside_the_job(embedding.path, epsilon, seconds)]
    taken, use = run_job(
        [
            *(sys.executable, "-m", "dptext_spark.cli", "privatize", "--input", str(table)),
            *("--output", str(output), "--embedding", str(embedding.path), "--text", "text", "--id", "id"),
            *("--epsilon", str(epsilon), *options),
        ]
    )
    beside.append(beside_the_job(embedding.path, epsilon, seconds))
    report = json.loads(Path(f"{output}.private/report.json").read_text())["columns"]["text"]
    words = report["replaced"] + report["unchanged"]
    sgemm, kernel, of_processor, bare, bare_processor = np.mean(beside, axis=0).tolist()
    flops = 2 * embedding.releasable * embedding.dimension
    matrix = embedding.vectors.nbytes / 2**20
    # Sampled while workers start, shares are of different moments: take those of all processes.
    shares = [v for k, v in sorted(use.peaks.items()) if k.startswith("matrix PSS, sum")]
    of_session = {"whole job": (0.0, 0.0), "job without a bare session": (bare, bare_processor)}
    return {
        "search kernel / sgemm": kernel * flops / sgemm,
        **{
            f"{what} / search kernel": words / (taken - less) / kernel
            for what, (less, _) in of_session.items()
        },
        **{
            f"{what} / search kernel, processor time": words / (use.processor - less) / of_processor
            for what, (_, less) in of_session.items()
        },
        "drawing the noise / whole cost of a word": words / taken / noise,
        "the matrix, proportional share of all processes / matrix": shares[-1] / matrix if shares else None,
        "the matrix, MB": matrix,
        "job, words/s": words / taken,
        "a bare session / whole job, seconds": bare / taken,
        "processor time, of watching / of the job": use.own / use.processor,
        "search kernel, words/s, before": beside[0][1],
        "search kernel, words/s, after": beside[1][1],
        "sgemm, Gflop/s, before": beside[0][0] / 1e9,
        "sgemm, Gflop/s, after": beside[1][0] / 1e9,
        **{
            f"{name}, peak, MB": value
            for name, value in sorted(use.peaks.items())
            if not name.startswith("matrix PSS")
        },
    }


if __name__ == "__main__":
    main()
