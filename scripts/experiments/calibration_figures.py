"""Figures 2 to 6 of Feyisetan et al. 2020, "Calibrating Mechanisms for Privacy Preserving Text Analysis".

    OMP_NUM_THREADS=1 python scripts/experiments/calibration_figures.py VECTORS --output FOLDER \
        [--other VECTORS]

A figure of N_w or S_w counts 1,000 runs of evenly spread words with Laplace noise, as the paper's do.

    figure2.png     distances to the k nearest words: quantiles by k, and their distribution at k = 10
    figure3.png     average S_w and N_w by epsilon
    figure4.png     with --other: the words' S_w and N_w where the two embeddings' averages are equal
    figure5.png     with --other: the words' S_w and N_w of the other embedding, by epsilon
    figure6.png     the words' S_w and N_w by epsilon

The paper compares GloVe with fastText; any embedding that ``dptext embedding`` reads may stand for either.
Time grows faster than the vocabulary: take --limit 100000 of a large one. The averages and
percentiles behind the figures are printed as Markdown.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch

RUNS: Final = 1000
QUANTILES: Final = (5, 20, 50, 80, 95)
NEIGHBOURS: Final = 1000
BLOCK: Final = 512
# Epsilons of the paper's Figures 6 (GloVe, 50 dimensions) and 5 (fastText, 300 dimensions).
SHOWN: Final = (5.0, 7.0, 9.0, 11.0, 12.0)
OTHER_SHOWN: Final = (18.0, 24.0, 30.0, 36.0, 42.0)
# The averages at which the paper compares GloVe with fastText (Figure 4), of 1,000 runs.
MATCHED: Final = {"s_w": 750.0, "n_w": 136.0}
LABELS: Final = {"s_w": "$S_w$: distinct words", "n_w": "$N_w$: count of M(w) = w"}


@dataclass(frozen=True, kw_only=True)
class World:
    """An embedding and the words that stand for all of it.

    Attributes:
        name: For the figures.
        embedding: The bundle.
        words: int64 (k,), rows.
        epsilons: Those whose distributions are shown.
    """

    name: str
    embedding: Embedding
    words: np.ndarray
    epsilons: tuple[float, ...]

    def grid(self) -> list[float]:
        """The epsilons shown, and others around them, ascending."""
        around = np.linspace(min(self.epsilons) / 2.0, 1.5 * max(self.epsilons), 8)
        return sorted({*self.epsilons, *around.tolist()})

    def statistics(self, epsilons: Sequence[float], seed: int) -> dict[str, np.ndarray]:
        """N_w and S_w of 1,000 runs, float64 (epsilons, words)."""
        draw = estimator(
            [mechanism("laplace", epsilon=epsilon) for epsilon in epsilons],
            self.embedding,
            search=ExactSearch.over(self.embedding),
            runs=RUNS,
            seed=seed,
        )
        parts = [
            draw(self.words[start : start + BLOCK], block=start) for start in range(0, len(self.words), BLOCK)
        ]
        table = pa.concat_tables(map(word_statistics, parts))
        table = table.sort_by([("epsilon_index", "ascending"), ("word", "ascending")])
        return {
            name: scale * table[name].to_numpy().reshape(len(epsilons), -1)
            for name, scale in (("n_w", RUNS), ("s_w", 1))
        }

    def distances(self) -> np.ndarray:
        """Distances of the words to their nearest others, in order, float64 (k, neighbours)."""
        metric = self.embedding.space.metric()
        count = min(NEIGHBOURS, len(self.embedding.words) - 1)
        groups = (self.words[start : start + 16] for start in range(0, len(self.words), 16))
        nearest = [np.partition(metric.to_all(group), count, axis=1)[:, : count + 1] for group in groups]
        return np.sort(np.concatenate(nearest))[:, 1:]  # the first is the word itself


def open_world(
    source: Path,
    folder: Path,
    *,
    normalize: Any,
    limit: int | None,
    count: int,
    epsilons: tuple[float, ...],
) -> World:
    """Build a bundle of the source and choose its words."""
    vocabulary = source.with_name("vocab.txt") if source.suffix == ".npy" else None
    embedding = build_embedding(source, folder, normalize=normalize, limit=limit, vocabulary=vocabulary)
    words = np.linspace(0, len(embedding.words) - 1, min(count, len(embedding.words)), dtype=np.int64)
    name = f"{source.parent.name or source.stem} ({len(embedding.words):,} words)"
    return World(name=name, embedding=embedding, words=words, epsilons=epsilons)


def axes(plt: Any, rows: int, columns: int) -> Any:
    return plt.subplots(
        rows, columns, figsize=(3.2 * columns, 2.8 * rows), squeeze=False, constrained_layout=True
    )


def draw_distances(plt: Any, worlds: list[World]) -> Any:
    """Figure 2."""
    figure, panels = axes(plt, len(worlds), 2)
    for world, (left, right) in zip(worlds, panels, strict=True):
        distances = world.distances()
        for level, line in zip(QUANTILES, np.percentile(distances, QUANTILES, axis=0), strict=True):
            left.plot(np.arange(1, len(line) + 1), line, label=f"{level}th percentile")
        left.set(xscale="log", xlabel="k", ylabel="distance to the k-th nearest", title=world.name, ylim=0)
        left.legend(fontsize=6)
        tenth = distances[:, min(9, distances.shape[1] - 1)]
        right.hist(tenth, bins=50)
        right.set(xlabel="distance", ylabel="words", title="at k = 10")
        shown = ", ".join(f"{value:.2f}" for value in np.percentile(tenth, QUANTILES))
        click.echo(f"{world.name}: distance to the 10th nearest word, percentiles {QUANTILES}: {shown}\n")
    return figure


def draw_averages(plt: Any, worlds: list[World], found: list[dict[str, np.ndarray]]) -> Any:
    """Figure 3."""
    figure, panels = axes(plt, 1, 2)
    for panel, statistic in zip(panels[0], LABELS, strict=True):
        for world, values in zip(worlds, found, strict=True):
            panel.plot(world.grid(), values[statistic].mean(axis=1), marker=".", label=world.name)
        panel.set(xlabel="ε", ylabel=f"average {LABELS[statistic].split(':')[0]}", ylim=(0, RUNS))
        panel.legend(fontsize=6)
    return figure


def histogram(panel: Any, values: np.ndarray, statistic: str, title: str) -> None:
    panel.hist(values, bins=np.linspace(0, RUNS, 41))
    panel.set(yscale="log", xlabel=f"{LABELS[statistic]} (of {RUNS:,})", ylabel="words", title=title)
    panel.set(xlim=(0, RUNS), ylim=0.7)
    panel.xaxis.label.set_size(8)
    panel.title.set_size(8)


def draw_distributions(plt: Any, world: World, values: dict[str, np.ndarray]) -> Any:
    """Figures 5 and 6."""
    figure, panels = axes(plt, 2, len(world.epsilons))
    for row, statistic in zip(panels, LABELS, strict=True):
        for panel, epsilon in zip(row, world.epsilons, strict=True):
            title = f"{statistic.capitalize()} at ε = {epsilon:g}"
            histogram(panel, values[statistic][world.grid().index(epsilon)], statistic, title)
    figure.suptitle(world.name)
    return figure


def draw_matched(plt: Any, worlds: list[World], found: list[dict[str, np.ndarray]], seed: int) -> Any:
    """Figure 4."""
    figure, panels = axes(plt, len(MATCHED), len(worlds))
    for column, (world, values) in enumerate(zip(worlds, found, strict=True)):
        epsilons = [epsilon_of(world, values, statistic) for statistic in MATCHED]
        matched = world.statistics(epsilons, seed + 1)
        for row, (statistic, epsilon) in enumerate(zip(MATCHED, epsilons, strict=True)):
            here = matched[statistic][row]
            title = f"{world.name}\nε = {epsilon:.3g}, average {here.mean():.0f}"
            histogram(panels[row][column], here, statistic, title)
            click.echo(f"{world.name}: {statistic} at ε = {epsilon:.3g}: {described(here)}")
    click.echo()
    return figure


def epsilon_of(world: World, values: dict[str, np.ndarray], statistic: str) -> float:
    """The epsilon at which a statistic's average is the paper's, between those of the grid."""
    means, grid = values[statistic].mean(axis=1), np.array(world.grid())
    order = np.argsort(means, kind="stable")
    if not means.min() <= MATCHED[statistic] <= means.max():
        raise click.UsageError(
            f"{world.name}: no epsilon of {grid[0]:g} to {grid[-1]:g} gives an average {statistic} of "
            f"{MATCHED[statistic]:g}; choose other epsilons."
        )
    return float(np.interp(MATCHED[statistic], means[order], grid[order]))


def described(values: np.ndarray) -> str:
    low, middle, high = np.percentile(values, (5, 50, 95), method="inverted_cdf")
    return f"mean {values.mean():.1f}, sd {values.std():.1f}, percentiles 5/50/95 {low:g}/{middle:g}/{high:g}"


def print_averages(world: World, values: dict[str, np.ndarray]) -> None:
    click.echo(f"{world.name}, {len(world.words):,} words, {RUNS:,} runs each\n")
    click.echo("| ε | mean N_w | 5 / 50 / 95% | max | mean S_w | 5 / 50 / 95% | min |")
    click.echo("|---|---|---|---|---|---|---|")
    for row, epsilon in enumerate(world.grid()):
        cells = []
        for statistic, extreme in (("n_w", np.max), ("s_w", np.min)):
            here = values[statistic][row]
            shown = " / ".join(f"{v:g}" for v in np.percentile(here, (5, 50, 95), method="inverted_cdf"))
            cells += [f"{here.mean():.1f}", shown, f"{extreme(here):g}"]
        mark = "**" if epsilon in world.epsilons else ""
        click.echo(f"| {mark}{epsilon:.3g}{mark} | {' | '.join(cells)} |")
    click.echo()


@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), required=True, help="folder for the figures")
@click.option("--other", type=click.Path(exists=True, path_type=Path), help="a second embedding")
@click.option("--normalize", type=click.Choice(["unit", "none"]), default="unit", show_default=True)
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=SHOWN, show_default=True)
@click.option("--other-epsilon", "others", type=float, multiple=True, default=OTHER_SHOWN, show_default=True)
@click.option("--words", "count", default=300, show_default=True, help="evenly spread over the vocabulary")
@click.option("--limit", type=int, help="take the first words of each embedding alone")
@click.option("--seed", default=0, show_default=True)
def main(
    source: Path,
    output: Path,
    other: Path | None,
    normalize: str,
    epsilons: tuple[float, ...],
    others: tuple[float, ...],
    count: int,
    limit: int | None,
    seed: int,
) -> None:
    """Draw the figures; the words of a .npy are read from vocab.txt beside it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    output.mkdir(parents=True, exist_ok=True)
    chosen = [(source, epsilons)] + ([(other, others)] if other else [])
    figures = {}
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        worlds = [
            open_world(
                path, Path(folder, str(i)), normalize=normalize, limit=limit, count=count, epsilons=own
            )
            for i, (path, own) in enumerate(chosen)
        ]
        figures["figure2"] = draw_distances(plt, worlds)
        found = [world.statistics(world.grid(), seed) for world in worlds]
        for world, values in zip(worlds, found, strict=True):
            print_averages(world, values)
        figures["figure3"] = draw_averages(plt, worlds, found)
        figures["figure6"] = draw_distributions(plt, worlds[0], found[0])
        if other:
            figures["figure5"] = draw_distributions(plt, worlds[1], found[1])
            figures["figure4"] = draw_matched(plt, worlds, found, seed)
    for name, figure in figures.items():
        figure.savefig(output / f"{name}.png", dpi=120)


if __name__ == "__main__":
    main()
