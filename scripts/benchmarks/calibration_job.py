"""The calibration job against plain runs through the search kernel, in one run, on all cores.

    python -m scripts.benchmarks.calibration_job --data DATA [--words 10000] [--runs 1000]

Runs ``dptext calibrate`` on six epsilons at which words stay with probability 0.95 to 0.05, from its start to
its last table. Plain runs, one single-threaded process a core, are measured before and after. Report the
ratios, the seconds belong to the machine. Processor time hardly depends on what else it does.
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
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from scripts.benchmarks.estimator_speed import epsilons, made
from scripts.benchmarks.kernel_and_job import CORES, on_all_cores, run_job
from scripts.benchmarks.section import Given, section


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


@section
@click.option("--words", default=3_000, show_default=True)
@click.option("--runs", default=1000, show_default=True)
@click.option("--mechanism", "name", default="laplace", show_default=True)
@click.option("--seconds", default=20.0, show_default=True, help="of each measurement of plain runs")
def main(given: Given, words: int, runs: int, name: str, seconds: float) -> dict[str, Any]:
    """Measure the job and plain runs."""
    if given.small:
        words, runs, seconds = 20, 50, 0.2
    embedding = given.bundle("glove-300d")
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
    plain.append(on_all_cores(plain_draws, *arguments))
    each = float(np.mean(plain)) / CORES
    kept = ", ".join(f"{row['mean']:.2f}" for row in summary if row["statistic"] == "n_w")
    job = draws / taken
    found = {
        "job / plain runs, processor time": draws / use.processor / each,
        "job / plain runs on all cores, with Spark's start and all tables": job / each / CORES,
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
            f"runs at epsilon {', '.join(map(str, grid))}, where mean N_w is {kept}; {CORES} cores."
        ],
    }


if __name__ == "__main__":
    main()
