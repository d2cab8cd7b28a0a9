"""What finite arithmetic does to outputs, on a bundle: what cannot come out, and what roundings move.

    python -m scripts.experiments.finite_arithmetic BUNDLE --epsilon 10

The first table counts outputs of ``exponential`` that have a probability but no uniform of 52 bits, and holds
the computed laws against delta_num. The second one displaces the noisy points of ``laplace`` by a random
direction, 2^-bits of the noise long, and counts the words that change: so few outputs hang on the bits after.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from dptext_spark.binomial import upper_limit
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.noise import UNIFORM_BITS
from dptext_spark.search.exact import ExactSearch


def never(embedding: Embedding, epsilon: float, words: int) -> None:
    """Print the share of outputs of the first words that cannot come out."""
    mechanism = Exponential(epsilon=epsilon)
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    chosen = np.arange(words)
    probabilities = bound.probabilities(chosen)
    shares = bound.lists(chosen).shares.reshape(probabilities.shape)
    below = np.clip(np.ceil(shares * 2.0**UNIFORM_BITS - 0.5), 0.0, 2.0**UNIFORM_BITS)
    uniforms = np.diff(below, prepend=0.0, axis=1)
    share = ((uniforms == 0.0) & (probabilities > 0.0)).mean()
    distance = np.abs(uniforms * 2.0**-UNIFORM_BITS - probabilities).sum(axis=1).max() / 2.0
    click.echo(f"| {epsilon:g} | {share:.1%} | {distance:.2g} | {mechanism.claim(embedding).delta_num:.2g} |")


def moved(embedding: Embedding, epsilon: float, bits: int, draws: int) -> None:
    """Print the share of words that change when noise keeps so many bits."""
    bound = Laplace(epsilon=epsilon).bind(embedding, search := ExactSearch.over(embedding))
    rng, n, changed = np.random.default_rng(0), embedding.dimension, 0
    nearest = search.of_words(embedding)
    for _ in range(0, draws, 2048):
        words = rng.integers(0, len(embedding.words), 2048)
        noise = bound.noise(rng.random((2048, n + 1)))
        lengths = np.sqrt(np.square(noise).sum(axis=1, keepdims=True))
        points = bound.centres(words) + noise
        astray = uniform_directions(rng.random((2048, n))) * lengths * 2.0**-bits
        changed += int((nearest(points) != nearest(points + astray)).sum())
    runs = -(-draws // 2048) * 2048
    most = float(upper_limit(np.array([changed]), runs, 0.025)[0])
    click.echo(f"| {bits} | {changed:,} of {runs:,} | {most:.2g} | {most * 2.0**bits:.2g} |")


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--epsilon", default=10.0, show_default=True)
@click.option("--words", default=200, show_default=True)
@click.option("--draws", default=200_000, show_default=True)
def main(bundle: Path, epsilon: float, words: int, draws: int) -> None:
    """Print both tables."""
    embedding = Embedding.open(bundle, verify=False)
    click.echo("| ε | outputs that cannot come out | computed law away by | delta_num |\n|---|---|---|---|")
    for factor in (0.5, 1.0, 2.0):
        never(embedding, epsilon * factor, words)
    click.echo("\n| bits | words that change | share, at most | over 2^-bits |\n|---|---|---|---|")
    for bits in (8, 12, 16):
        moved(embedding, epsilon, bits, draws)


if __name__ == "__main__":
    main()
