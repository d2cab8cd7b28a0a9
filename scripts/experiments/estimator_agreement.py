"""Shared rays against plain runs: do words stay equally often, and become the same words?

    python -m scripts.experiments.estimator_agreement BUNDLE [BUNDLE ...]

For each bundle, mechanism, epsilon and word, both estimators run the word equally often, and two numbers of
runs are compared that are binomial with one and the same p if the estimators agree: how often the word stays
(two-sided Fisher's exact test), and all its outputs (chi-square of two samples, those seen less than ten
times taken together). The smallest p-value times their number must be above 0.001, which a right estimator
misses in one of a thousand tables at most, however its words' errors go together; the share of values beyond
1.96 standard errors should be about 5 %. The same shared rays at 1.2 epsilon, held against plain runs at
epsilon, show what the test would find. Exits with 1 where estimators disagree, or where that is not found.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism, mechanism
from scripts.benchmarks.estimator_speed import epsilons, made

STAYS = (0.9, 0.7, 0.5, 0.3, 0.1)
CASES: tuple[tuple[str, dict[str, Any]], ...] = (("laplace", {}), ("mahalanobis", {"lambda": 0.5}))
WRONG = 1.2
LEAST = 1e-3
FOUND = 1e-6


def drawn(
    embedding: Embedding, grid: list[Mechanism], words: NDArray[np.int64], runs: int, name: str
) -> NDArray[np.int32]:
    """Outputs (epsilons, words, runs)."""
    outputs: NDArray[np.int32] = made(embedding, grid, runs, name).draws(words, block=0)  # type: ignore[attr-defined]
    return outputs


def same_outputs(one: NDArray[np.int32], other: NDArray[np.int32]) -> float:
    """p-value of two samples (runs,) being of one law."""
    size = max(one.max(), other.max()) + 1
    counts = np.stack([np.bincount(one, minlength=size), np.bincount(other, minlength=size)])
    rare = counts.sum(axis=0) < 10
    table = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    table = table[:, table.sum(axis=0) > 0]
    return float(stats.chi2_contingency(table, correction=False).pvalue) if table.shape[1] > 1 else 1.0


def compared(
    one: NDArray[np.int32], other: NDArray[np.int32], words: NDArray[np.int64]
) -> tuple[float, float, float]:
    """Corrected p-values of staying and of all outputs, and the share of staying beyond 1.96 errors."""
    runs = one.shape[-1]
    here, there = ((sample == words[:, None]).sum(axis=-1).ravel() for sample in (one, other))
    tables = (np.array([[a, runs - a], [b, runs - b]]) for a, b in zip(here, there, strict=True))
    staying = [stats.fisher_exact(table).pvalue for table in tables]
    pairs = zip(one.reshape(-1, runs), other.reshape(-1, runs), strict=True)
    outputs = [same_outputs(*pair) for pair in pairs]
    p = (here + there) / (2 * runs)
    error = np.sqrt(2 * p * (1 - p) / runs)
    beyond = np.abs(here - there)[error > 0] / runs > 1.96 * error[error > 0]
    return len(staying) * min(staying), len(outputs) * min(outputs), float(beyond.mean())


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--words", "count", default=200, show_default=True)
@click.option("--runs", default=1000, show_default=True)
def main(bundles: tuple[Path, ...], count: int, runs: int) -> None:
    """Print a line for each bundle and mechanism."""
    wrong = 0
    click.echo(f"{count} words x 5 epsilons x {runs} runs; p-values are corrected for their number")
    for path in bundles:
        embedding = Embedding.open(path, verify=False)
        words = np.linspace(0, len(embedding.words) - 1, count, dtype=np.int64)
        for name, parameters in CASES:
            chosen = epsilons(embedding, name, parameters, words[:: -(-count // 48)], STAYS)
            grid, other = (
                [mechanism(name, epsilon=factor * e, **parameters) for e in chosen.tolist()]
                for factor in (1.0, WRONG)
            )
            plain = drawn(embedding, grid, words, runs, "plain")
            staying, outputs, beyond = compared(
                plain, drawn(embedding, grid, words, runs, "shared-ray"), words
            )
            false = min(compared(plain, drawn(embedding, other, words, runs, "shared-ray"), words)[:2])
            wrong += min(staying, outputs) < LEAST or false > FOUND
            click.echo(
                f"{embedding.releasable:,} x {embedding.dimension} {name:11} epsilon "
                f"{chosen.min():.3g} to {chosen.max():.3g}: staying p {min(staying, 1):.3f}, "
                f"{beyond:.1%} beyond 1.96 errors; outputs p {min(outputs, 1):.3f}; "
                f"{WRONG:g} epsilon p {false:.1g}"
            )
    sys.exit(int(wrong > 0))


if __name__ == "__main__":
    main()
