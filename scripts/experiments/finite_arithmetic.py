"""What finite arithmetic does to outputs, on a bundle: what cannot come out, and what roundings move.

    python -m scripts.experiments.finite_arithmetic BUNDLE --epsilon 10

The first table counts outputs of ``exponential`` that are rarer than one uniform of 52 bits, and those that
no uniforms give, and holds the computed laws against delta_num. The second one displaces the noisy points of
``laplace`` by a random direction, 2^-bits of the noise long, and counts the words that change: so few outputs
hang on the bits after.
"""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from dptext_spark.binomial import upper_limit
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.mechanisms.exponential import ExponentialChoice
from dptext_spark.noise import UNIFORM_BITS
from dptext_spark.search.exact import ExactSearch


def on_the_grid(shares: np.ndarray) -> np.ndarray:
    """The share of all uniforms (k + 1/2) / 2^52 that lie below a share: exact in double precision."""
    return np.clip(np.ceil(shares * 2.0**UNIFORM_BITS - 0.5), 0.0, 2.0**UNIFORM_BITS) / 2.0**UNIFORM_BITS


def law_of_rounds(bound: ExponentialChoice, words: np.ndarray) -> np.ndarray:
    """The computed law (k, V), but for how evenly far words share their uniforms."""
    rows = np.arange(bound.near.release_words)
    lists, law = bound.lists(words, bound.reach(words)[0]), np.empty((len(words), len(rows)))
    for number, word in enumerate(words):
        start, length = lists.starts[number], lists.lengths[number]
        part = slice(start, start + length)
        places = on_the_grid(lists.shares[part])
        excess = bound.near.between(np.full(len(rows), word), rows) - lists.radii[number]
        accepted = on_the_grid(np.exp(-bound.epsilon / 2.0 * excess.clip(0.0)))
        law[number] = (1.0 - places[-1]) / max(len(rows) - length, 1) * accepted
        law[number, np.arange(length) + lists.skips[part]] = np.diff(places, prepend=0.0)
    return law / law.sum(axis=1, keepdims=True)


def never(embedding: Embedding, epsilon: float, words: int) -> None:
    """Print the share of outputs of the first words that cannot come out."""
    mechanism = Exponential(epsilon=epsilon)
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    probabilities = bound.probabilities(np.arange(words))
    law = law_of_rounds(bound, np.arange(words))
    rare = (probabilities < 2.0 ** -(UNIFORM_BITS + 1)).mean()
    lost = ((law == 0.0) & (probabilities > 0.0)).mean()
    distance = np.abs(law - probabilities).sum(axis=1).max() / 2.0
    stated = mechanism.claim(embedding).delta_num
    click.echo(f"| {epsilon:g} | {rare:.1%} | {lost:.2%} | {distance:.2g} | {stated:.2g} |")


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
    click.echo(
        "| ε | outputs below 2^-53 | outputs that cannot come out | computed law away by | delta_num |\n"
        "|---|---|---|---|---|"
    )
    for factor in (0.5, 1.0, 2.0):
        never(embedding, epsilon * factor, words)
    click.echo("\n| bits | words that change | share, at most | over 2^-bits |\n|---|---|---|---|")
    for bits in (8, 12, 16):
        moved(embedding, epsilon, bits, draws)


if __name__ == "__main__":
    main()
