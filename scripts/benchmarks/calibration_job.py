"""The calibration job against plain runs through the search kernel, in one run, on all cores.

    python -m scripts.benchmarks.calibration_job --data DATA [--embedding glove-300d] [--words 10000]

Runs ``dptext calibrate`` on six epsilons at which words stay with probability 0.95 to 0.05, from its start to
its last table. Plain runs, one single-threaded process a core, are measured before and after; of some of the
words they are held against the job's table. Report the ratios, the seconds belong to the machine. Processor
time hardly depends on what else it does.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from scripts.benchmarks.estimator_speed import epsilons, made
from scripts.benchmarks.kernel_and_job import CORES, on_all_cores
from scripts.benchmarks.processes import run_job
from scripts.benchmarks.section import SOURCES, Given, section

PLAIN_RUNS = 256


def plain_draws(bundle: Path, name: str, grid: list[float], seconds: float) -> float:
    """Single-threaded rate of plain runs, draws in a second of processor time, as many of each epsilon."""
    embedding = Embedding.open(bundle, verify=False)
    mechanisms = [mechanism(name, epsilon=e) for e in grid]
    draw, words = made(embedding, mechanisms, PLAIN_RUNS, "plain"), np.arange(2) * (len(embedding.words) // 3)
    with threadpool_limits(1):
        draw(words, block=0)
        turns, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            draw(words, block=0)
            turns += 1
        return turns * len(words) * PLAIN_RUNS * len(grid) / (time.process_time() - start)


def agreement(
    embedding: Embedding, name: str, words: Path, runs: int, sample: int
) -> tuple[float, float, float]:
    """Compare how often words stay in the job's table and in plain runs.

    Returns:
        The least p-value of Fisher's exact tests of each word and epsilon, times their number (1 at most);
        the share of differences beyond 1.96 standard errors; the largest difference of the words' mean.
    """
    table = ds.dataset(words, format="parquet").to_table(columns=["epsilon", "word", "n_w"]).to_pandas()
    table = table.pivot_table(index="word", columns="epsilon", values="n_w")
    chosen = table.iloc[np.linspace(0, len(table) - 1, sample, dtype=np.int64)]
    rows = pc.index_in(pa.array(chosen.index), pa.array(embedding.words)).to_numpy()
    mechanisms = [mechanism(name, epsilon=e) for e in chosen.columns]
    drawn = made(embedding, mechanisms, PLAIN_RUNS, "plain").draws(rows, block=0)
    plain = (drawn == rows[:, None]).sum(axis=-1).T
    job = np.rint(chosen.to_numpy() * runs).astype(np.int64)
    tables = np.stack([job, runs - job, plain, PLAIN_RUNS - plain], axis=-1).reshape(-1, 2, 2)
    least = min(stats.fisher_exact(each).pvalue for each in tables)
    share = (job + plain) / (runs + PLAIN_RUNS)
    error = np.sqrt(share * (1 - share) * (1 / runs + 1 / PLAIN_RUNS))
    difference = job / runs - plain / PLAIN_RUNS
    beyond = np.abs(difference)[error > 0] > 1.96 * error[error > 0]
    return min(1.0, least * len(tables)), float(beyond.mean()), float(np.abs(difference.mean(axis=0)).max())


@section
@click.option(
    "--embedding", "source", type=click.Choice(list(SOURCES)), default="glove-50d", show_default=True
)
@click.option("--words", default=10_000, show_default=True)
@click.option("--runs", default=1000, show_default=True)
@click.option("--mechanism", "name", default="laplace", show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="of each measurement of plain runs")
def main(given: Given, source: str, words: int, runs: int, name: str, seconds: float) -> dict[str, Any]:
    """Measure the job and plain runs."""
    sample = 48
    if given.small:
        words, runs, sample, seconds = 20, 50, 4, 0.2
    embedding = given.bundle(source)
    some = np.linspace(0, len(embedding.words) - 1, 48, dtype=np.int64)
    grid = [float(f"{e:.4g}") for e in epsilons(embedding, name, {}, some)]
    arguments = (embedding.path, name, grid, seconds)
    plain = [on_all_cores(plain_draws, *arguments)]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dptext_spark.cli", "calibrate", "--embedding", str(embedding.path)),
            *("--output", f"{folder}/calibration", "--mechanism", name, "--epsilon", *map(str, grid)),
            *("--words", str(words), "--runs", str(runs)),
        ]
        taken, use = run_job(command)
        draws = words * runs * len(grid)
        summary = json.loads(Path(folder, "calibration", "calibration.json").read_text())["summary"]
        least, beyond, apart = agreement(embedding, name, Path(folder, "calibration", "words"), runs, sample)
    plain.append(on_all_cores(plain_draws, *arguments))
    each = float(np.mean(plain)) / CORES
    kept = ", ".join(f"{row['mean']:.2f}" for row in summary if row["statistic"] == "n_w")
    job = draws / taken
    found = {
        "job / plain runs, processor time": draws / use.processor / each,
        "job / plain runs on all cores, with Spark's start and all tables": job / each / CORES,
        "staying in plain runs: least p-value times their number": least,
        "staying in plain runs: share beyond 1.96 standard errors": beyond,
        "staying in plain runs: largest difference of a mean": apart,
        "draws": draws,
        "job, draws in a second of processor time, all of its processes": draws / use.processor,
        "plain runs, draws in a second of processor time, before": plain[0] / CORES,
        "plain runs, draws in a second of processor time, after": plain[1] / CORES,
        "job, draws/s": job,
        **{f"{role}, peak, MB": value for role, value in sorted(use.peaks.items())},
    }
    return {
        "title": "The calibration job",
        "rows": [{"what": what, "measured": value} for what, value in found.items()],
        "notes": [
            f"{embedding.releasable:,} words x {embedding.dimension}, `{name}`, {words:,} words x {runs:,} "
            f"runs at epsilon {', '.join(map(str, grid))}, where mean N_w is {kept}; {CORES} cores. "
            f"How often {sample} of these words stay in {PLAIN_RUNS} plain runs at each epsilon is held "
            "against the job's table: Fisher's exact test of each, and their means."
        ],
    }


if __name__ == "__main__":
    main()
