"""The calibration job against plain runs through the search kernel, in one run, on all cores.

    python -m scripts.benchmarks.calibration_job BUNDLE [--words 10000] [--runs 1000]

Runs ``dptext calibrate`` on six epsilons at which words stay with probability 0.95 to 0.05, from its start to
its last table. Plain runs, one single-threaded process a core, are measured before and after. Prints JSON:
report the ratios, the seconds belong to the machine. Processor time hardly depends on what else it does.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from scripts.benchmarks.estimator_speed import epsilons, made
from scripts.benchmarks.kernel_and_job import CORES, on_all_cores, run_job


def plain_draws(bundle: Path, name: str, grid: list[float], seconds: float) -> float:
    """Single-threaded rate of plain runs, draws in a second of processor time, as many of each epsilon."""
    embedding = Embedding.open(bundle, verify=False)
    mechanisms = [mechanism(name, epsilon=e) for e in grid]
    draw, words = made(embedding, mechanisms, 256, "plain"), np.arange(2) * (len(embedding.words) // 3)
    with threadpool_limits(1):
        draw(words, block=0)
        turns, start = 0, time.process_time()
        while time.process_time() - start < seconds:
            draw(words, block=0)
            turns += 1
        return turns * len(words) * 256 * len(grid) / (time.process_time() - start)


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--words", default=10_000, show_default=True)
@click.option("--runs", default=1000, show_default=True)
@click.option("--mechanism", "name", default="laplace", show_default=True)
@click.option("--seconds", default=30.0, show_default=True, help="of each measurement of plain runs")
def main(bundle: Path, words: int, runs: int, name: str, seconds: float) -> None:
    """Measure the job and plain runs."""
    embedding = Embedding.open(bundle, verify=False)
    some = np.linspace(0, len(embedding.words) - 1, 48, dtype=np.int64)
    grid = [float(f"{e:.4g}") for e in epsilons(embedding, name, {}, some)]
    plain = [on_all_cores(plain_draws, bundle, name, grid, seconds)]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(sys.executable, "-m", "dptext_spark.cli", "calibrate", "--embedding", str(bundle)),
            *("--output", f"{folder}/calibration", "--mechanism", name, "--epsilon", *map(str, grid)),
            *("--words", str(words), "--runs", str(runs)),
        ]
        job_seconds, use = run_job(command)
        draws = words * runs * len(grid)
        summary = json.loads(Path(folder, "calibration", "calibration.json").read_text())["summary"]
    plain.append(on_all_cores(plain_draws, bundle, name, grid, seconds))
    result = {
        "embedding": f"{embedding.releasable:,} x {embedding.dimension}",
        "cores": CORES,
        "epsilons": grid,
        "mean N_w": [round(row["mean"], 3) for row in summary if row["statistic"] == "n_w"],
        "draws": draws,
        "plain runs, draws in a second of processor time, before and after": [
            round(p / CORES) for p in plain
        ],
        "job, draws in a second of processor time, all of its processes": round(draws / use.processor),
        "job, draws/s, end to end with Spark's start and all tables": round(draws / job_seconds),
        "job / plain runs, processor time": round(draws / use.processor / float(np.mean(plain) / CORES), 1),
        "job / plain runs on all cores": round(draws / job_seconds / float(np.mean(plain)), 1),
        "peak memory, MB": {name: round(value) for name, value in sorted(use.peaks.items())},
    }
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
