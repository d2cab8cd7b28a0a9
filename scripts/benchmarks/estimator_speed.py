"""Draws a second of calibration's shared rays, as a multiple of plain runs in the same process.

    OMP_NUM_THREADS=1 python scripts/benchmarks/estimator_speed.py BUNDLE|VECTORS.npy

One process and one thread; turns of the shared rays lie between two of plain runs, for machines are never
quite idle. The epsilons are searched such that words stay as often as asked. Seconds belong to the machine:
report the ratio. With --select vickrey, both choose between two words.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import Estimator, estimator, rays, word_statistics
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch

STAYS = (0.95, 0.8, 0.6, 0.4, 0.2, 0.05)


def made(embedding: Embedding, mechanisms: list[Mechanism], runs: int, name: str) -> Estimator:
    """Make an estimator over the whole vocabulary."""
    return estimator(
        mechanisms,
        embedding,
        search=ExactSearch.over(embedding),
        runs=runs,
        name=name,  # type: ignore[arg-type]
    )


def stay(embedding: Embedding, mechanisms: list[Mechanism], words: np.ndarray) -> np.ndarray:
    """Mean N_w at each epsilon."""
    table = word_statistics(made(embedding, mechanisms, 100, "shared-ray")(words, block=0))
    return table["n_w"].to_numpy().reshape(len(mechanisms), -1).mean(axis=1)


def epsilons(
    embedding: Embedding,
    name: str,
    parameters: dict[str, Any],
    words: np.ndarray,
    stays: tuple[float, ...] = STAYS,
) -> np.ndarray:
    """Epsilons at which words stay that often on average, from a grid of 24."""
    norm = float(np.sqrt(np.square(embedding.vectors[words], dtype=np.float64).sum(axis=1)).mean())
    grid = np.geomspace(0.1, 3.0, 24) * embedding.dimension / norm
    seen = stay(embedding, [mechanism(name, epsilon=e, **parameters) for e in grid], words)
    return np.array(np.interp(stays, seen, grid))


@contextmanager
def counted_scans() -> Iterator[dict[int, int]]:
    """Count, by the number of words looked at on a ray, how many points that settled."""
    seen: dict[int, int] = {}
    real = rays._settle

    def settle(near: Any, *others: Any, **bounds: Any) -> Any:
        settled, found = real(near, *others, **bounds)
        width = 2 * near.shape[1]
        seen[width] = seen.get(width, 0) + int(settled.sum())
        return settled, found

    rays._settle = settle
    try:
        yield seen
    finally:
        rays._settle = real


def rate(draw: Estimator, words: np.ndarray, block: int) -> float:
    """Draws a second."""
    start = time.perf_counter()
    draw(words, block=block)
    return len(words) * draw.runs * len(draw.bound) / (time.perf_counter() - start)


def compare(
    embedding: Embedding, mechanisms: list[Mechanism], runs: int, words: np.ndarray, rounds: int
) -> tuple[float, float]:
    """Draws a second of shared rays and of plain runs, in turns."""
    shared, plain = (made(embedding, mechanisms, r, n) for r, n in ((runs, "shared-ray"), (256, "plain")))
    few = words[:2]
    rate(plain, few, 0)
    slow, fast = [rate(plain, few, 0)], []
    for turn in range(rounds):
        fast.append(rate(shared, words, turn))
        slow.append(rate(plain, few, turn))
    return float(np.mean(fast)), float(np.mean(slow))


def print_shares(embedding: Embedding, configured: Mechanism, runs: int, words: np.ndarray) -> None:
    """Print how far the search of one epsilon's draws had to look."""
    with counted_scans() as seen:
        made(embedding, [configured], runs, "shared-ray")(words, block=0)
    draws = len(words) * runs
    parts = ", ".join(f"{width:,}: {settled / draws:.2%}" for width, settled in sorted(seen.items()))
    left = 1.0 - sum(seen.values()) / draws
    click.echo(f"  epsilon {configured.epsilon:7.3f}  settled by words seen: {parts}; by all: {left:.3%}")


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--runs", default=1000, show_default=True)
@click.option("--words", "count", default=512, show_default=True, help="words of a block")
@click.option("--rounds", default=2, show_default=True)
@click.option("--select", type=click.Choice(["nearest", "vickrey"]), default="nearest", show_default=True)
def main(source: Path, runs: int, count: int, rounds: int, select: str) -> None:
    """Print both rates, their ratio, how far draws had to look, and the peak of memory."""
    parameters: dict[str, Any] = {"select": "vickrey", "t": 0.3} if select == "vickrey" else {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        if source.suffix == ".npy":
            embedding = build_embedding(source, Path(folder, "bundle"))
        else:
            embedding = Embedding.open(source, verify=False)
        words = np.linspace(0, len(embedding.words) - 1, count, dtype=np.int64)
        some = words[:: -(-count // 48)]
        chosen = epsilons(embedding, "laplace", {}, some)
        mechanisms = [mechanism("laplace", epsilon=e, **parameters) for e in chosen.tolist()]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fast, slow = compare(embedding, mechanisms, runs, words, rounds)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        click.echo(
            f"{embedding.releasable:,} x {embedding.dimension}, {count} words x {runs} runs x 6 epsilons"
        )
        click.echo(f"shared-ray {fast:,.0f} draws/s, plain {slow:,.0f} draws/s: {fast / slow:,.0f} times")
        click.echo(f"peak memory {after / 1024:,.0f} MiB ({before / 1024:,.0f} before)")
        for configured in mechanisms:
            print_shares(embedding, configured, runs, some)


if __name__ == "__main__":
    main()
