"""Words a second of every mechanism, as a multiple of ``laplace`` in the same run.

    OMP_NUM_THREADS=1 python scripts/benchmarks/throughput.py VECTORS.npy

One process and one thread run the privatizer, without Spark, on token lists whose words follow Zipf's law
over the vocabulary. Each mechanism's turns lie between two turns of ``laplace``, for machines are never quite
idle. The Poincaré bundle is the same matrix shrunk into the ball: it tells speed, and has no meaning.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.privatizer import Privatizer

ROWS, TOKENS = 20, 100


def ball_of(vectors: Path, folder: Path) -> Embedding:
    """Shrink a matrix into the unit ball, its longest row to 0.95."""
    matrix = np.load(vectors).astype(np.float64)
    matrix *= 0.95 / np.sqrt(np.square(matrix).sum(axis=1).max())
    np.save(folder / "ball.npy", matrix)
    return build_embedding(
        folder / "ball.npy", folder / "ball", vocabulary=vectors.parent / "vocab.txt", geometry="poincare"
    )


class Turns:
    """A privatizer that works for some seconds at a time and goes on where it stopped."""

    def __init__(self, embedding: Embedding, configured: Mechanism) -> None:
        self.words = embedding.words
        self.privatizer = Privatizer(embedding=embedding, mechanism=configured)
        # The frequencies of a text: Zipf-Mandelbrot over the vocabulary's order.
        self.weights = np.cumsum(1.0 / (np.arange(len(embedding.words)) + 2.7))
        self.rng = np.random.default_rng(0)

    def rate(self, seconds: float) -> float:
        """Words a second over about that many seconds."""
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            draws = self.rng.random(ROWS * TOKENS) * self.weights[-1]
            words = self.words.take(pa.array(np.searchsorted(self.weights, draws)))
            rows = pa.ListArray.from_arrays(pa.array(np.arange(ROWS + 1, dtype=np.int32) * TOKENS), words)
            self.privatizer.sanitize(rows, pa.array(range(ROWS)), column="tokens")
            done += ROWS * TOKENS
        return done / (time.perf_counter() - start)


def near_distance(embedding: Embedding, near: int) -> float:
    """Distance within which a typical word has that many neighbours."""
    sample = np.arange(0, len(embedding.words), -(-len(embedding.words) // 64))
    return float(np.median(np.partition(embedding.space.metric().to_all(sample), near, axis=1)[:, near]))


def cases(euclidean: Embedding, ball: Embedding) -> list[tuple[str, Embedding, dict[str, Any]]]:
    """Name, bundle and parameters of all that is measured."""
    n = euclidean.dimension
    vickrey = {"select": "vickrey", "t": 0.5}
    found: list[tuple[str, Embedding, dict[str, Any]]] = [
        ("laplace", euclidean, vickrey),
        ("mahalanobis", euclidean, {"lambda": 0.5}),
        ("projection", euclidean, {"sensitivity": "spectral", "dimension": min(54, n // 2)}),
        ("exponential", euclidean, {}),
        ("hyperbolic", ball, {"epsilon": 2.0 * n}),
        ("hyperbolic", ball, {"epsilon": 2.0 * n, **vickrey}),
        ("hyperbolic-icdm", ball, {"epsilon": 2.0 * n}),
    ]
    near = near_distance(euclidean, 1)
    found += [("exponential", euclidean, {"truncate": near * share}) for share in (0.8, 1.0, 1.2)]
    return found


@click.command()
@click.argument("vectors", type=click.Path(exists=True, path_type=Path))
@click.option("--epsilon", default=15.0, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="length of a turn")
@click.option("--rounds", default=2, show_default=True)
@click.option(
    "--warmup", default=40.0, show_default=True, help="seconds for the truncated exponential's cache"
)
@click.option("--only", default="", help="measure mechanisms alone whose name and parameters hold this")
def main(vectors: Path, epsilon: float, seconds: float, rounds: int, warmup: float, only: str) -> None:
    """Print the throughput of every mechanism on VECTORS, an .npy file with its vocab.txt."""
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        euclidean = build_embedding(vectors, Path(folder, "bundle"))
        ball = ball_of(vectors, Path(folder))
        reference = Turns(euclidean, mechanism("laplace", epsilon=epsilon))
        reference.rate(2.0)
        click.echo(f"{len(euclidean.words):,} x {euclidean.dimension}; words/s as multiples of laplace's\n")
        for name, embedding, parameters in cases(euclidean, ball):
            if only not in f"{name} {parameters}":
                continue
            turns = Turns(embedding, mechanism(name, **({"epsilon": epsilon} | parameters)))
            turns.rate(warmup if "truncate" in parameters else seconds)  # lists of words fill the cache
            laplace, own = [reference.rate(seconds)], []
            for _ in range(rounds):
                own.append(turns.rate(seconds))
                laplace.append(reference.rate(seconds))
            said = " ".join(
                f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in parameters.items()
            )
            click.echo(f"{np.mean(own) / np.mean(laplace):8.2f}  {name} {said} ({embedding.space.geometry})")


if __name__ == "__main__":
    main()
