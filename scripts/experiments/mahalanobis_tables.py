"""Tables 1 to 4 of Xu et al. 2020 again: N_w and S_w of the Mahalanobis mechanism against Laplace noise.

    OMP_NUM_THREADS=1 python scripts/experiments/mahalanobis_tables.py BUNDLE

The paper runs every word of its vocabulary 100 times. Here evenly spread words of the bundle are run as
often, in blocks. Words of a block share their noise, at all epsilons; two blocks, or two lambdas, share none.
Each ordering that the paper calls significant is tested: the words' differences between lambda and 0 are
averaged over each block, and the blocks' averages, which are independent and alike, enter a one-sided
Student test. All claims together are held with a false-alarm rate of LEVEL at most, by Bonferroni.

Prints Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch

LAMBDAS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
EPSILONS: Final = (1.0, 5.0, 10.0, 20.0, 40.0)
CLAIMED: Final = (5.0, 10.0, 20.0)
PERCENTILES: Final = (5, 50, 95)
RUNS: Final = 100
LEVEL: Final = 0.001

# Means and standard deviations over words, by lambda (rows) and epsilon, of 100 runs.
PAPER: Final = {
    ("N_w", "FastText, Table 1"): (
        ((0.19, 0.46), (26.89, 14.49), (68.93, 17.97), (95.28, 6.46), (99.85, 0.68)),
        ((0.15, 0.41), (16.66, 10.53), (50.31, 18.68), (86.34, 12.41), (98.69, 2.81)),
        ((0.13, 0.38), (12.68, 8.60), (40.40, 17.41), (78.44, 15.40), (96.91, 4.88)),
        ((0.12, 0.36), (10.46, 7.49), (34.14, 16.03), (71.81, 17.00), (94.85, 6.79)),
        ((0.10, 0.35), (8.97, 6.74), (29.73, 14.83), (66.24, 17.90), (92.80, 8.31)),
    ),
    ("S_w", "FastText, Table 2"): (
        ((99.23, 0.87), (70.27, 15.07), (25.82, 15.06), (4.53, 4.56), (1.13, 0.55)),
        ((99.18, 0.90), (81.42, 11.12), (42.59, 16.56), (10.31, 8.08), (1.93, 1.80)),
        ((99.07, 0.96), (85.69, 9.10), (52.26, 15.96), (15.66, 10.18), (2.98, 2.83)),
        ((98.95, 1.03), (88.08, 7.96), (58.66, 15.13), (20.38, 11.46), (4.16, 3.75)),
        ((98.88, 1.04), (89.58, 7.17), (63.28, 14.25), (24.60, 12.37), (5.32, 4.51)),
    ),
    ("N_w", "GloVe, Table 3"): (
        ((0.16, 0.41), (23.71, 10.69), (65.29, 15.53), (94.49, 6.48), (99.81, 0.74)),
        ((0.11, 0.34), (13.82, 6.89), (44.83, 14.17), (83.17, 11.61), (98.22, 3.31)),
        ((0.09, 0.31), (10.20, 5.57), (34.91, 12.12), (73.78, 13.59), (95.85, 5.56)),
        ((0.08, 0.29), (8.16, 4.87), (28.97, 10.72), (66.29, 14.35), (93.26, 7.30)),
        ((0.08, 0.28), (6.81, 4.36), (24.90, 9.60), (60.27, 14.54), (90.60, 8.65)),
    ),
    ("S_w", "GloVe, Table 4"): (
        ((99.46, 0.74), (73.20, 11.60), (28.56, 13.61), (5.18, 4.64), (1.16, 0.62)),
        ((99.45, 0.73), (84.30, 7.62), (46.08, 13.98), (12.12, 7.69), (2.21, 2.02)),
        ((99.38, 0.79), (88.39, 6.08), (56.07, 12.92), (17.96, 9.33), (3.55, 3.06)),
        ((99.30, 0.83), (90.71, 5.27), (62.69, 11.84), (23.11, 10.42), (4.94, 3.90)),
        ((99.24, 0.86), (92.17, 4.65), (67.45, 10.86), (27.51, 11.12), (6.39, 4.57)),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Statistics of words at one lambda.

    Attributes:
        values: N_w and S_w, each float64 (epsilons, words), block after block.
        block: int64 (words,), the block of each word.
    """

    values: dict[str, np.ndarray]
    block: np.ndarray

    def block_means(self, statistic: str, epsilon: int) -> np.ndarray:
        """Average over each block's words."""
        means: np.ndarray = np.bincount(self.block, self.values[statistic][epsilon])
        means /= np.bincount(self.block)
        return means


def measure(
    embedding: Embedding, mixing: float, epsilons: Sequence[float], words: np.ndarray, blocks: int, seed: int
) -> Measured:
    """Run words that are dealt out to blocks in turn, so that the blocks are alike."""
    draw = estimator(
        [mechanism("mahalanobis", epsilon=epsilon, **{"lambda": mixing}) for epsilon in epsilons],
        embedding,
        search=ExactSearch.over(embedding),
        runs=RUNS,
        seed=seed,
    )
    parts = [words[block::blocks] for block in range(blocks)]
    tables = [word_statistics(draw(part, block=block)) for block, part in enumerate(parts)]
    columns = {"N_w": ("n_w", float(RUNS)), "S_w": ("s_w", 1.0)}
    return Measured(
        values={
            name: scale
            * np.concatenate([t[column].to_numpy().reshape(len(epsilons), -1) for t in tables], axis=1)
            for name, (column, scale) in columns.items()
        },
        block=np.repeat(np.arange(blocks), [len(part) for part in parts]),
    )


def better(statistic: str, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How much the second set of values says more privacy: a lower N_w, a higher S_w."""
    return low - high if statistic == "N_w" else high - low


def p_value(statistic: str, base: Measured, other: Measured, epsilon: int) -> float:
    """One-sided p of 'no better than the base', from paired averages of blocks."""
    gain = better(statistic, base.block_means(statistic, epsilon), other.block_means(statistic, epsilon))
    if not gain.std():
        return 1.0 if gain[0] <= 0 else 0.0
    return float(stats.ttest_1samp(gain, 0.0, alternative="greater").pvalue)


def tables(results: dict[float, Measured]) -> Iterator[str]:
    """The paper's four tables beside ours."""
    for statistic in ("N_w", "S_w"):
        sources = [key for key in PAPER if key[0] == statistic]
        yield f"\n### {statistic} of {RUNS} runs: mean ± standard deviation over words\n"
        yield f"| ε | λ | {' | '.join(name for _, name in sources)} | here |"
        yield "|---|---|" + "---|" * (len(sources) + 1)
        for column, epsilon in enumerate(EPSILONS):
            for row, mixing in enumerate(LAMBDAS):
                cells = [PAPER[key][row][column] for key in sources]
                values = results[mixing].values[statistic][column]
                cells.append((float(values.mean()), float(values.std())))
                shown = " | ".join(f"{mean:.2f} ± {sd:.2f}" for mean, sd in cells)
                yield f"| {epsilon:g} | {mixing:g} | {shown} |"


def apart(statistic: str, base: tuple[float, float], other: tuple[float, float]) -> bool:
    """The paper's own criterion: intervals mean ± 1.96 sd / sqrt(100) that do not meet, in that order."""
    gap = base[0] - other[0] if statistic == "N_w" else other[0] - base[0]
    return gap > 1.96 * (base[1] + other[1]) / math.sqrt(RUNS)


def verdict(p: float, level: float) -> str:
    return "holds" if p < level else "does not hold"


def claims(results: dict[float, Measured]) -> Iterator[str]:
    """Every ordering against lambda = 0 that the paper calls significant, and those it leaves open."""
    level = LEVEL / (2 * len(CLAIMED) * (len(LAMBDAS) - 1))
    yield f"\n### Lower N_w and higher S_w than Laplace noise (λ = 0); holds: p < {level:.1e}\n"
    yield "| statistic | ε | claimed | λ | difference | p | verdict | paper's criterion, GloVe | here |"
    yield "|---|---|---|---|---|---|---|---|---|"
    base = results[0.0]
    for statistic in ("N_w", "S_w"):
        paper = PAPER[statistic, {"N_w": "GloVe, Table 3", "S_w": "GloVe, Table 4"}[statistic]]
        for column, epsilon in enumerate(EPSILONS):
            for row, mixing in enumerate(LAMBDAS[1:], 1):
                before, after = (results[m].values[statistic][column] for m in (0.0, mixing))
                p = p_value(statistic, base, results[mixing], column)
                own = apart(statistic, (before.mean(), before.std()), (after.mean(), after.std()))
                theirs = apart(statistic, paper[0][column], paper[row][column])
                yield (
                    f"| {statistic} | {epsilon:g} | {'yes' if epsilon in CLAIMED else 'no'} | {mixing:g} "
                    f"| {after.mean() - before.mean():+.2f} | {p:.1e} | {verdict(p, level)} "
                    f"| {'met' if theirs else 'not met'} | {'met' if own else 'not met'} |"
                )


def steps(results: dict[float, Measured]) -> Iterator[str]:
    """Whether each lambda does better than the one before it, which the paper's tables show."""
    level = LEVEL / (2 * len(EPSILONS) * (len(LAMBDAS) - 1))
    yield f"\n### Each λ against the one before it; holds: p < {level:.1e}, reversed: the other way round\n"
    yield "| statistic | ε | " + " | ".join(f"{a:g} to {b:g}" for a, b in pairwise(LAMBDAS)) + " |"
    yield "|---|---|" + "---|" * (len(LAMBDAS) - 1)
    for statistic in ("N_w", "S_w"):
        for column, epsilon in enumerate(EPSILONS):
            found = [p_value(statistic, results[a], results[b], column) for a, b in pairwise(LAMBDAS)]
            names = ["holds" if p < level else "reversed" if p > 1 - level else "open" for p in found]
            yield f"| {statistic} | {epsilon:g} | {' | '.join(names)} |"


def percentiles(results: dict[float, Measured]) -> Iterator[str]:
    """What the paper's Figures 4 and 5 plot."""
    names = ", ".join(f"{level}th" for level in PERCENTILES)
    yield f"\n### Percentiles over words ({names}), as in Figures 2 to 5\n"
    yield "| statistic | ε | " + " | ".join(f"λ = {m:g}" for m in LAMBDAS) + " | no worse than λ = 0 |"
    yield "|---|---|" + "---|" * (len(LAMBDAS) + 1)
    for statistic in ("N_w", "S_w"):
        for column, epsilon in enumerate(EPSILONS):
            found = [
                np.percentile(results[m].values[statistic][column], PERCENTILES, method="inverted_cdf")
                for m in LAMBDAS
            ]
            cells = [" / ".join(f"{value:g}" for value in values) for values in found]
            fine = all((better(statistic, found[0], values) >= 0).all() for values in found[1:])
            cells.append("holds" if fine else "does not hold")
            yield f"| {statistic} | {epsilon:g} | {' | '.join(cells)} |"


def equivalents(embedding: Embedding, words: np.ndarray, seed: int) -> Iterator[str]:
    """The epsilon at which the mean N_w here is the paper's: how the two sets of figures compare."""
    grid = np.geomspace(2.0, 80.0, 24)
    found = []
    for mixing, paper in zip(LAMBDAS, PAPER["N_w", "GloVe, Table 3"], strict=True):
        means = measure(embedding, mixing, grid.tolist(), words, 8, seed + 1).values["N_w"].mean(axis=1)
        found.append(np.exp(np.interp([mean for mean, _ in paper[1:]], means, np.log(grid))))
    yield "\n### The ε at which the mean N_w here is the paper's (GloVe)\n"
    yield "| λ | " + " | ".join(f"paper's ε = {epsilon:g}" for epsilon in EPSILONS[1:]) + " |"
    yield "|---|" + "---|" * 4
    for mixing, row in zip(LAMBDAS, found, strict=True):
        yield f"| {mixing:g} | {' | '.join(f'{epsilon:.1f}' for epsilon in row)} |"
    here = np.log(np.array(found)[:, : len(CLAIMED)])
    paper_logs = np.tile(np.log(CLAIMED), (len(LAMBDAS), 1))
    slope, offset = np.polyfit(paper_logs.ravel(), here.ravel(), 1)
    worst = np.abs(np.expm1(here - slope * paper_logs - offset)).max()
    law = f"{np.exp(offset):.2f} (paper's ε)^{slope:.2f}"
    yield f"\nε here = {law}, within {worst:.1%}, for its ε from 5 to 20."


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--words", "count", default=5000, show_default=True, help="evenly spread over the vocabulary")
@click.option("--blocks", default=50, show_default=True, help="of words that share their noise")
@click.option("--seed", default=0, show_default=True)
def main(bundle: Path, count: int, blocks: int, seed: int) -> None:
    """Print the tables, the tested orderings, the percentiles, and the paper's epsilons translated."""
    embedding = Embedding.open(bundle)
    count = min(count, len(embedding.words))
    if not 2 <= blocks <= count // 2:
        raise click.UsageError(f"--blocks must be from 2 to half the words, {count // 2}.")
    words = np.linspace(0, len(embedding.words) - 1, count, dtype=np.int64)
    click.echo(f"{len(embedding.words):,} words x {embedding.dimension}, {count:,} of them, {RUNS} runs each")
    results = {}
    with threadpool_limits(1):
        for mixing in LAMBDAS:
            click.echo(f"lambda {mixing:g}", err=True)
            results[mixing] = measure(embedding, mixing, EPSILONS, words, blocks, seed)
        for part in (tables, claims, steps, percentiles):
            click.echo("\n".join(part(results)))
        click.echo("\n".join(equivalents(embedding, words[:: -(-count // 400)], seed)))


if __name__ == "__main__":
    main()
