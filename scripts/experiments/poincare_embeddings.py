"""Poincaré embeddings of the same pairs in several dimensions and radii: quality, room for noise.

``--proven`` adds N_w at the same *proven* epsilon: ``hyperbolic-icdm``, which proves epsilon + n,
runs at n less. ``--gensim`` (``pip install gensim``) adds gensim's embeddings of the same pairs and
epochs, with 10 negatives for every pair.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.jobs.poincare import filtered_relations, read_words
from dptext_spark.mechanisms import mechanism
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Relations, Settings, measure, train
from scripts.experiments.shared import FILE, evenly, made_embedding, markdown, staying

MECHANISMS: Final = {"hyperbolic": (0, 1), "hyperbolic-icdm": (1, 1), "exponential": (0, 0)}
"""And by how many dimensions what they prove is above epsilon, and above 0 (one less at first)."""
BURN_IN: Final = 10
WORDS: Final = 200
RUNS: Final = 300


@click.command()
@click.argument("pairs")
@click.option("--vocabulary", type=FILE)
@click.option("--min-links", default=0, show_default=True)
@click.option(
    "--dimension", "dimensions", type=int, multiple=True, default=(10,), show_default=True
)
@click.option(
    "--max-radius", "radii", type=float, multiple=True, help="default: each dimension's own"
)
@click.option("--epochs", default=200, show_default=True)
@click.option("--reconstructed", default=10_000, show_default=True, help="words measured for ranks")
@click.option("--gensim", is_flag=True, help="train with gensim as well")
@click.option("--proven", type=float, multiple=True, help="epsilons to measure N_w at")
@click.option("--output", type=click.Path(path_type=Path), help="folder that keeps the bundles")
def main(
    pairs: str,
    vocabulary: Path | None,
    min_links: int,
    dimensions: Sequence[int],
    radii: Sequence[float],
    epochs: int,
    reconstructed: int,
    gensim: bool,
    proven: Sequence[float],
    output: Path | None,
) -> None:
    options: dict[str, Any] = {"pairs": pairs, "output": Path("unused"), "min_links": min_links}
    words = None if vocabulary is None else read_words(vocabulary)
    relations, filtered = filtered_relations(PoincareOptions.of(options), words)
    click.echo(f"```\n{json.dumps(filtered, indent=2)}\n```\n")
    quality: list[tuple[object, ...]] = []
    noise: list[tuple[object, ...]] = []
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = output or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for n, radius in product(dimensions, radii or (None,)):
            settings = Settings(dimension=n, max_radius=radius, epochs=epochs)
            size = settings.dimension
            extent = f"{settings.radius:.3g}"
            began = time.process_time()
            vectors, _ = train(relations, settings)
            numbers = of_vectors(vectors, relations, reconstructed, time.process_time() - began)
            quality.append(("dptext", size, extent, *numbers))
            place = folder / f"{size}-{extent}"
            bundle = made_embedding(relations.words, vectors, place, "poincare")
            noise += [(size, extent, *row) for row in of_noise(bundle, proven)]
        if gensim:
            for n in dimensions:
                vectors, seconds = trained_by_gensim(relations, n, epochs)
                numbers = of_vectors(vectors, relations, reconstructed, seconds)
                quality.append(("gensim", n, "-", *numbers))
    columns = ("trainer", "n", "radius", "CPU s", "mean rank", "MAP")
    click.echo(markdown(columns, quality))
    if proven:
        names = ("n", "radius", "proven ε", "nats to the nearest word", *MECHANISMS)
        click.echo(
            f"N_w as a probability: mean / 95th percentile / largest\n\n{markdown(names, noise)}"
        )


def of_vectors(
    vectors: NDArray[np.float64], relations: Relations, words: int, seconds: float
) -> tuple[str, ...]:
    """Write seconds and quality of trained vectors."""
    ranks = measure(vectors, relations, words=words)["reconstruction"]
    return f"{seconds:.0f}", f"{ranks['mean_rank']:.2f}", f"{ranks['mean_average_precision']:.3f}"


def trained_by_gensim(
    relations: Relations, dimension: int, epochs: int
) -> tuple[NDArray[np.float64], float]:
    """Train with gensim, at its defaults except for the epochs, with a burn-in like Nickel's."""
    from gensim.models.poincare import PoincareModel

    logging.disable(logging.WARNING)
    pairs = [(relations.words[low], relations.words[high]) for low, high in relations.pairs]
    began = time.process_time()
    model = PoincareModel(pairs, size=dimension, burn_in=BURN_IN, seed=1)
    model.train(epochs=epochs - BURN_IN, batch_size=50, print_every=10**9)
    vectors = np.stack([model.kv[word] for word in relations.words]).astype(np.float64)
    return vectors, time.process_time() - began


def of_noise(embedding: Embedding, proven: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """Write N_w at proven epsilons, of the mechanisms that have them."""
    n = embedding.dimension
    rows = evenly(WORDS, len(embedding.words))
    nearest = np.median(np.sort(embedding.space.metric().to_all(rows), axis=1)[:, 1])
    for epsilon in proven:
        cells = []
        for name, (less, least) in MECHANISMS.items():
            if epsilon <= n * least - (name == "hyperbolic"):
                cells.append("")
                continue
            configured = mechanism(name, epsilon=epsilon - n * less)
            (n_w,) = staying([configured], embedding, rows, runs=RUNS)["n_w"]
            cells.append(f"{n_w.mean():.3f} / {np.quantile(n_w, 0.95):.3f} / {n_w.max():.3f}")
        yield f"{epsilon:g}", f"{epsilon * nearest:.3g}", *cells


if __name__ == "__main__":
    main()
