"""What the noise of ``projection`` is scaled by: the paper's 1 + beta, or the exact stretch of a vocabulary.

    python scripts/experiments/projection_constants.py --embedding BUNDLE --beta 0.9 --delta 1e-6 \
        --seed 0 --seed 1

The last column compares the time for all pairs of words with that of one plain single-precision product
per pair, of the same size and on the same threads.
"""

from __future__ import annotations

import time
from pathlib import Path

import click
import numpy as np

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.projection import (
    RandomProjection,
    gaussian_projection,
    least_dimension,
    spectral_constant,
    vocabulary_constant,
)


def product_seconds(words: int, terms: int) -> float:
    """Time for the scores of words (words - 1) / 2 pairs, by a few products of 4096 x 512 of them."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((rows, terms), dtype=np.float32) for rows in (4096, 512))
    scores = left @ right.T
    start = time.perf_counter()
    for _ in range(20):
        np.matmul(left, right.T, out=scores)
    return (time.perf_counter() - start) / 20 / scores.size * words * (words - 1) / 2


@click.command()
@click.option("--embedding", "path", type=click.Path(path_type=Path), required=True)
@click.option("--beta", default=0.9, show_default=True)
@click.option("--delta", default=1e-6, show_default=True)
@click.option("--dimension", type=int, help="default: by beta and delta")
@click.option("--seed", "seeds", type=int, multiple=True, default=(0, 1, 2), show_default=True)
def main(path: Path, beta: float, delta: float, dimension: int | None, seeds: tuple[int, ...]) -> None:
    """Print the constants of a bundle for some seeds, and the noise saved against the paper's."""
    embedding = Embedding.open(path, verify=False)
    words, columns = embedding.vectors.shape
    rows = dimension or least_dimension(columns, beta, delta)
    click.echo(f"{words:,} words, {columns} dimensions projected to {rows}\n")
    click.echo("| seed | paper | vocabulary | spectral | noise saved | seconds | of a plain product |")
    click.echo("|---|---|---|---|---|---|---|")
    for seed in seeds:
        projection = RandomProjection(gaussian_projection(seed, rows, columns))
        start = time.perf_counter()
        exact = vocabulary_constant(embedding.vectors, projection)
        seconds = time.perf_counter() - start
        click.echo(
            f"| {seed} | {1 + beta:.3f} | {exact:.3f} | {spectral_constant(projection.matrix):.3f} "
            f"| {1 - exact / (1 + beta):.1%} | {seconds:.1f} "
            f"| {seconds / product_seconds(words, rows + columns):.2f} x |"
        )


if __name__ == "__main__":
    main()
