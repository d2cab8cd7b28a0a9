"""What a second core, or a second executor, brings to the whole job, and to nothing but matrix products.

    python -m scripts.benchmarks.scaling --data DATA [--rounds 1]

Measured as the growth of the job is. Executors are those of a standalone cluster on this machine. Hosts drift
by more than is asked here, and two of their cores are not twice one: counts take turns, and each run has the
machine's rate of sgemm on as many cores measured before and after it.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from scripts.benchmarks.growth import FEW, Found, Jobs, Run, compared, confined, section_of
from scripts.benchmarks.kernel_and_job import on_cores, sgemm_flops
from scripts.benchmarks.section import Given, section

# As many as the whole job is measured with: its first seconds, in which Java compiles, and its last task are
# little beside them.
WORDS: Final = 1_200_000
COUNTS: Final = (1, 2)
SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A run less its start, the whole run's seconds, and the rate of sgemm on as many cores beside it."""

    found: Found
    whole: float
    sgemm: float


def turn(run: Run, jobs: Jobs) -> Turn:
    """Measure a run, and the machine beside it."""

    def sgemm() -> float:
        with confined(run.cores):
            return on_cores(run.cores, sgemm_flops, 0.2 if jobs.given.small else SECONDS)

    before, found = sgemm(), jobs.beyond_start(run)
    return Turn(found=found, whole=jobs.found(run).seconds, sgemm=(before + sgemm()) / 2)


def together(turns: Sequence[Turn]) -> Found:
    """Give what the turns of a run took on average, and their highest peaks."""
    found = [each.found for each in turns]
    return Found(
        seconds=float(np.mean([each.seconds for each in found])),
        processor=float(np.mean([each.processor for each in found])),
        peaks={role: max(each.peaks[role] for each in found) for role in found[0].peaks},
    )


def rows(name: str, turns: Mapping[Run, Sequence[Turn]]) -> Iterator[dict[str, Any]]:
    """Give what each count of a series reaches, of the first one's."""
    first, ratios = next(iter(turns)), {}
    beyond = {run: np.array([each.found.seconds for each in of_run]) for run, of_run in turns.items()}
    whole = {run: float(np.mean([each.whole for each in of_run])) for run, of_run in turns.items()}
    sgemm = {run: float(np.mean([each.sgemm for each in of_run])) for run, of_run in turns.items()}
    for run in turns:
        of_rounds = beyond[first] / beyond[run]
        ratios[run] = {
            "lowest of the rounds": float(of_rounds.min()),
            "highest": float(of_rounds.max()),
            "rate / first, start included": whole[first] / whole[run],
            "sgemm / first": sgemm[run] / sgemm[first],
        }
    return compared(name, {run: together(of_run) for run, of_run in turns.items()}, ratios)


@section
@click.option("--words", default=WORDS, show_default=True, help="of the table")
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="of a run of each count")
def main(given: Given, words: int, rounds: int) -> dict[str, Any]:
    """Run both series."""
    whole = Run("glove-300d", 20_000, 300, words)
    if given.small:
        whole, rounds = Run("glove-300d", 1_000, 20, FEW), 1
    told: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dptext-scaling-") as folder:
        for name in ("cores", "executors"):
            runs = [replace(whole, cores=count, cluster=name == "executors") for count in COUNTS]
            turns: dict[Run, list[Turn]] = defaultdict(list)
            for number in range(rounds):
                jobs = Jobs(given, Path(folder))  # a round runs everything again
                for run in runs[:: -1 if number % 2 else 1]:
                    turns[run].append(turn(run, jobs))
            told += rows(name, {run: turns[run] for run in runs})
    found = section_of("A second core, a second executor", given.small, told)
    found["notes"] += [
        f"Rounds: {rounds}, in which counts take turns. Matrix products (sgemm): in as many processes, one a "
        "core, before and after each run.",
        "A run on one core has that core alone, for its Java and its driver, too.",
        "Executors have one core each, in a standalone cluster on this machine, all of whose cores they, the "
        "driver and the cluster's own processes share.",
    ]
    return found


if __name__ == "__main__":
    main()
