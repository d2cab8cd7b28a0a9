"""Poincaré embeddings of the same pairs in several dimensions and radii: quality, and what noise does there.

    OMP_NUM_THREADS=1 python scripts/experiments/poincare_quality.py --pairs PAIRS --dimension 2 \
        --dimension 10

Prints Markdown: what each filter left, one row of quality for every embedding, and N_w of the mechanisms that
work in the ball, all at the same *proven* epsilon: ``hyperbolic`` and ``exponential`` at this epsilon,
``hyperbolic-icdm``, which proves epsilon + n, at n less. ``--output`` keeps the bundles.

With ``--gensim`` (``pip install gensim``; the package does without it) the last rows are gensim's, of the
same pairs, with the same number of epochs and 10 negatives for every pair.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.jobs.poincare import filtered_relations, read_words
from dptext_spark.mechanisms import mechanism
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Relations, Settings, measure, train
from dptext_spark.poincare.summary import filter_lines
from dptext_spark.search.exact import ExactSearch

MECHANISMS: Final = ("hyperbolic", "hyperbolic-icdm", "exponential")
BLOCK: Final = 512
BURN_IN: Final = 10


@dataclass(frozen=True, kw_only=True)
class Made:
    """An embedding, and how it came about."""

    trainer: str
    settings: Settings
    vectors: np.ndarray
    epochs: int
    seconds: float

    @property
    def label(self) -> str:
        """The first columns of its row."""
        radius = f"{self.settings.radius:.3g}" if self.trainer == "dptext" else "-"
        return f"{self.trainer} | {self.settings.dimension} | {radius}"


def trained(relations: Relations, settings: Settings, checkpoint: Path | None) -> Made:
    """Train as ``dptext poincare`` does."""
    began = time.process_time()
    vectors, training = train(relations, settings, checkpoint=checkpoint)
    seconds = time.process_time() - began
    return Made(
        trainer="dptext",
        settings=settings,
        vectors=vectors,
        epochs=training["best_epoch"],
        seconds=seconds,
    )


def trained_by_gensim(relations: Relations, settings: Settings) -> Made:
    """Train with gensim, at its own defaults but for the number of epochs, with a burn-in as Nickel's."""
    from gensim.models.poincare import PoincareModel

    logging.disable(logging.WARNING)
    pairs = [(relations.words[low], relations.words[high]) for low, high in relations.pairs]
    began = time.process_time()
    model = PoincareModel(pairs, size=settings.dimension, burn_in=BURN_IN, seed=1)
    model.train(epochs=settings.epochs - BURN_IN, batch_size=50, print_every=10**9)
    seconds = time.process_time() - began
    vectors = np.stack([model.kv[word] for word in relations.words]).astype(np.float64)
    return Made(trainer="gensim", settings=settings, vectors=vectors, epochs=settings.epochs, seconds=seconds)


def bundle_of(made: Made, relations: Relations, folder: Path) -> Embedding:
    """Make a bundle in a folder."""
    source = folder / f"{made.trainer}-{made.settings.dimension}-{made.settings.radius:.3g}.npy"
    np.save(source, made.vectors)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in relations.words), encoding="utf-8")
    return build_embedding(
        source,
        source.with_suffix(""),
        geometry="poincare",
        vocabulary=folder / "vocab.txt",
        overwrite=True,
    )


def quality_row(made: Made, relations: Relations, words: int) -> str:
    """One row of the first table."""
    found = measure(made.vectors, relations, words=words)
    ranks, correlation = found["reconstruction"], found["norm_depth_correlation"]
    low, half, high = found["nearest_distances"]
    return (
        f"| {made.label} | {made.epochs} | {made.seconds:.0f} | {ranks['mean_rank']:.2f} "
        f"| {ranks['mean_average_precision']:.3f} | {'-' if correlation is None else f'{correlation:.2f}'} "
        f"| {found['largest_norm']:.5f} | {low:.2f} / {half:.2f} / {high:.2f} |"
    )


def stays(embedding: Embedding, name: str, epsilons: list[float], rows: np.ndarray, runs: int) -> np.ndarray:
    """N_w as probabilities: float64 (epsilons, rows)."""
    draw = estimator(
        [mechanism(name, epsilon=epsilon) for epsilon in epsilons],
        embedding,
        search=ExactSearch.over(embedding),
        runs=runs,
        seed=0,
    )
    size = min(BLOCK, draw.block_words)
    tables = [
        word_statistics(draw(rows[start : start + size], block=start)) for start in range(0, len(rows), size)
    ]
    return np.concatenate([t["n_w"].to_numpy().reshape(len(epsilons), -1) for t in tables], axis=1)


def noise_rows(
    made: Made, embedding: Embedding, above: tuple[float, ...], words: int, runs: int
) -> Iterator[str]:
    """The rows of the second table: N_w at proven epsilons, n + each of ``above``."""
    n = embedding.dimension
    rows = np.linspace(0, len(embedding.words) - 1, min(words, len(embedding.words)), dtype=np.int64)
    proven = [n + more for more in above]
    given = {"hyperbolic-icdm": list(above)}
    tables = [stays(embedding, name, given.get(name, proven), rows, runs) for name in MECHANISMS]
    distances = np.sort(embedding.space.metric().to_all(rows), axis=1)
    nearest, tenth = np.median(distances[:, 1]), np.median(distances[:, 10])
    for number, epsilon in enumerate(proven):
        cells = " | ".join(
            f"{t.mean():.3f} / {np.quantile(t, 0.95):.3f} / {t.max():.3f}"
            for t in (x[number] for x in tables)
        )
        yield f"| {made.label} | {epsilon:g} | {epsilon * nearest:.3g} / {epsilon * tenth:.3g} | {cells} |"


@click.command()
@click.option("--pairs", required=True)
@click.option("--vocabulary", type=click.Path(exists=True, path_type=Path))
@click.option("--min-count", default=10, show_default=True)
@click.option("--min-links", default=0, show_default=True)
@click.option("--transitive-closure", is_flag=True)
@click.option("--dimension", "dimensions", type=int, multiple=True, default=(10,), show_default=True)
@click.option("--max-radius", "radii", type=float, multiple=True, help="default: each dimension's own")
@click.option("--epochs", default=200, show_default=True)
@click.option("--learning-rate", default=0.3, show_default=True)
@click.option("--above", type=float, multiple=True, help="proven epsilons, above n; none: no second table")
@click.option("--words", default=300, show_default=True, help="measured for N_w, evenly spread")
@click.option("--runs", default=1000, show_default=True)
@click.option("--reconstructed", default=10_000, show_default=True, help="words measured for ranks")
@click.option("--output", type=click.Path(path_type=Path), help="folder that keeps the bundles")
@click.option("--checkpoint", type=click.Path(path_type=Path), help="folder from which training goes on")
@click.option("--gensim", is_flag=True, help="train with gensim as well")
def main(
    pairs: str,
    vocabulary: Path | None,
    min_count: int,
    min_links: int,
    transitive_closure: bool,
    dimensions: tuple[int, ...],
    radii: tuple[float, ...],
    epochs: int,
    learning_rate: float,
    above: tuple[float, ...],
    words: int,
    runs: int,
    reconstructed: int,
    output: Path | None,
    checkpoint: Path | None,
    gensim: bool,
) -> None:
    """Print the tables."""
    options = PoincareOptions(
        pairs=pairs,
        output=Path("unused"),
        min_count=min_count,
        min_links=min_links,
        transitive_closure=transitive_closure,
    )
    known = None if vocabulary is None else read_words(vocabulary, "--vocabulary")
    relations, facts = filtered_relations(options, known, [])
    click.echo("\n".join(["```", *filter_lines(facts), "```\n"]))
    settings = [
        Settings(dimension=n, max_radius=radius, epochs=epochs, learning_rate=learning_rate)
        for n in dimensions
        for radius in radii or (None,)
    ]
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = output or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        click.echo(
            "| trainer | n | radius | epoch | CPU s | mean rank | MAP | norm and depth | largest norm "
            "| nearest word 5 / 50 / 95% |"
        )
        click.echo("|---|---|---|---|---|---|---|---|---|---|")
        second: list[tuple[Made, Embedding]] = []
        for one in settings:
            state = checkpoint and checkpoint / f"{one.dimension}-{one.radius:.3g}"
            made = trained(relations, one, state)
            click.echo(quality_row(made, relations, reconstructed))
            second.append((made, bundle_of(made, relations, folder)))
        for n in dimensions if gensim else ():
            made = trained_by_gensim(relations, replace(settings[0], dimension=n, max_radius=None))
            click.echo(quality_row(made, relations, reconstructed))
        if above:
            click.echo(
                "\n| trainer | n | radius | proven ε | nats to the nearest / tenth word | "
                + " | ".join(f"`{name}` mean / p95 / max" for name in MECHANISMS)
                + " |"
            )
            click.echo("|---|---|---|---|---|---|---|---|")
        for made, bundle in second if above else ():
            for row in noise_rows(made, bundle, above, words, runs):
                click.echo(row)


if __name__ == "__main__":
    main()
