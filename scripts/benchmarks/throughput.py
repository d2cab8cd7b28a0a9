"""Words a second of every mechanism that draws noise, as a multiple of ``laplace`` in the same run.

    python -m scripts.benchmarks.throughput --data DATA [--only mahalanobis]

One process and one thread run the privatizer, without Spark, on token lists whose words follow Zipf's law
over the vocabulary; time is the processor's. Each mechanism's turns lie between two turns of ``laplace``, for
machines are never quite idle. The Poincaré bundle is the same matrix shrunk into the ball: it tells speed,
and has no meaning.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.sanitizer import Sanitizer
from scripts.benchmarks.section import SOURCES, Given, section
from scripts.benchmarks.turns import Turns, compared


def ball_of(vectors: Path, folder: Path) -> Embedding:
    """Shrink a matrix into the unit ball, its longest row to 0.95."""
    matrix = np.load(vectors).astype(np.float64)
    matrix *= 0.95 / np.sqrt(np.square(matrix).sum(axis=1).max())
    np.save(folder / "ball.npy", matrix)
    return build_embedding(
        folder / "ball.npy", folder / "ball", vocabulary=vectors.parent / "vocab.txt", geometry="poincare"
    )


def cases(euclidean: Embedding, ball: Embedding) -> list[tuple[str, Embedding, dict[str, Any]]]:
    """Name, bundle and parameters of all that is measured."""
    n = euclidean.dimension
    vickrey = {"select": "vickrey", "t": 0.5}
    return [
        ("laplace", euclidean, vickrey),
        ("mahalanobis", euclidean, {"lambda": 0.5}),
        ("projection", euclidean, {"sensitivity": "spectral", "dimension": min(54, n // 2)}),
        ("hyperbolic", ball, {"epsilon": 2.0 * n}),
        ("hyperbolic", ball, {"epsilon": 2.0 * n, **vickrey}),
        ("hyperbolic-icdm", ball, {"epsilon": 2.0 * n}),
    ]


@section
@click.option("--epsilon", default=15.0, show_default=True)
@click.option("--seconds", default=2.0, show_default=True, help="length of a turn")
@click.option("--rounds", default=2, show_default=True)
@click.option("--only", default="", help="measure mechanisms alone whose name and parameters hold this")
def main(given: Given, epsilon: float, seconds: float, rounds: int, only: str) -> dict[str, Any]:
    """Measure every mechanism."""
    if given.small:
        seconds = 0.05
    rows: list[dict[str, Any]] = []
    for name, source in SOURCES.items():
        euclidean = given.bundle(name)
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            ball = ball_of(given.data / source / "vectors.npy", Path(folder))
            laplace = mechanism("laplace", epsilon=epsilon)
            reference = Turns(partial(Sanitizer, embedding=euclidean, mechanism=laplace), seconds=seconds)
            for kind, embedding, parameters in cases(euclidean, ball):
                said = described(parameters)
                if only not in f"{kind} {said}":
                    continue
                configured = mechanism(kind, **({"epsilon": epsilon} | parameters))
                own = Turns(partial(Sanitizer, embedding=embedding, mechanism=configured), seconds=seconds)
                rows.append(
                    {
                        "embedding": f"{len(euclidean.words):,} x {euclidean.dimension}",
                        "mechanism": kind,
                        "parameters": said,
                        "multiple of laplace": compared(reference, own, rounds).multiple,
                    }
                )
    note = (
        f"One thread, processor time, words by Zipf's law, epsilon {epsilon:g} where none is given; turns of "
        f"{seconds:g} s between turns of `laplace`. Hyperbolic mechanisms have the same matrix, "
        "shrunk into the ball."
    )
    return {"title": "Mechanisms compared", "rows": rows, "notes": [note]}


def described(parameters: dict[str, Any]) -> str:
    """Write a mechanism's parameters."""
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in parameters.items())


if __name__ == "__main__":
    main()
