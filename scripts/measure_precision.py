"""Prints what half precision changes of a bundle.

    python -m scripts.measure_precision SOURCE --normalize unit --epsilon 30

Builds the bundle of SOURCE in single and in half precision. Both draw by the same uniforms, so that
the share of outputs that differ bounds how much any statistic of outputs, or any attacker's
success, can differ. Rates are words a second of one core in rows of 100 words, by processor time.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark import Embedding, Exponential, Laplace
from dptext_spark.embedding.build import build_embedding
from dptext_spark.mechanisms.mechanism import Mechanism
from dptext_spark.search.exact import ExactSearch
from scripts.measure_embeddings import LENGTH, WORDS, rate

PRECISIONS: Final = ("single", "half")
SAMPLED: Final = 2000  # words whose nearest words are compared
RUNS: Final = 50  # draws of each of them


def nearest_words(embedding: Embedding, words: Any) -> tuple[Any, Any]:
    """Return the nearest other word of words (k,), and its distance."""
    ids, distances, _ = embedding.space.metric().nearest(words, (1,))
    return ids[:, 0], distances[:, 0]


def outputs_of(embedding: Embedding, mechanism: Mechanism, words: Any) -> Any:
    """Return outputs of words (k,), by uniforms that do not depend on the bundle: (k * RUNS,)."""
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    rng = np.random.default_rng(1)
    width = mechanism.uniforms_per_token(embedding.dimension)
    return np.concatenate([bound(words, rng.random((len(words), width))) for _ in range(RUNS)])


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--normalize", type=click.Choice(["none", "unit"]), default="none")
@click.option("--limit", type=int, default=None)
@click.option("--epsilon", type=float, required=True)
def main(source: Path, normalize: Any, limit: int | None, epsilon: float) -> None:
    """Print a line for each thing that is compared."""
    mechanism = Laplace(epsilon=epsilon)
    with tempfile.TemporaryDirectory(prefix="dptext-precision-") as folder, threadpool_limits(1):
        bundles = {}
        for precision in PRECISIONS:
            path = Path(folder, precision)
            bundles[precision] = build_embedding(
                source, path, normalize=normalize, limit=limit, precision=precision
            )
            size = sum(file.stat().st_size for file in path.iterdir())
            click.echo(f"{precision}: {bundles[precision]!r}, {size / 1e6:.0f} MB")
        single, half = bundles["single"], bundles["half"]
        words = np.linspace(0, single.releasable - 1, SAMPLED).astype(np.int64)
        neighbours, distances = nearest_words(single, words)
        half_neighbours, half_distances = nearest_words(half, words)
        change = np.abs(half_distances - distances) / distances
        click.echo(f"nearest words that differ: {(neighbours != half_neighbours).mean():.2%}")
        click.echo(f"change of their distances: median {np.median(change):.1e}, {change.max():.1e}")
        outputs = [outputs_of(embedding, mechanism, words) for embedding in (single, half)]
        unchanged = [float((output == np.tile(words, RUNS)).mean()) for output in outputs]
        click.echo(f"words unchanged by {mechanism}: {unchanged[0]:.4f}, {unchanged[1]:.4f}")
        differ = (outputs[0] != outputs[1]).mean()
        click.echo(f"outputs that differ, of {len(outputs[0]):,}: {differ:.3%}")
        # Words of the vocabulary at random, the frequent ones more often.
        ranks = np.random.default_rng(2).zipf(1.2, 4 * WORDS)
        drawn = ranks[ranks <= single.releasable][:WORDS] - 1
        texts = single.words.take(drawn).to_pylist()
        rows = [" ".join(texts[i : i + LENGTH]) for i in range(0, len(texts), LENGTH)]
        for measured in (mechanism, Exponential(epsilon=epsilon)):
            rates = [rate(embedding, measured, rows) for embedding in (single, half)]
            share = rates[1] / rates[0]
            click.echo(
                f"words a second of {measured.name}: {rates[0]:,.0f}, half {share:.2f} times"
            )


if __name__ == "__main__":
    main()
