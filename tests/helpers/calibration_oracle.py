"""What Spark works out in SQL of a calibration, once more by brute force; and transitions made by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from dptext_spark.calibration import Transitions
from dptext_spark.calibration.grid import Grid
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.mechanisms import Laplace
from tests.helpers.worlds import among

# Word 1 becomes 1 six times and 2 four times of ten, word 2 becomes 2 always, word 7 many others.
DRAWS = np.array([[[1, 2, 1, 2, 1, 1, 2, 1, 1, 2], [2] * 10, [0, 1, 2, 3, 4, 5, 6, 8, 9, 9]]], np.int32)
WORDS = np.array([1, 2, 7])


def counted(draws: np.ndarray = DRAWS, words: np.ndarray = WORDS) -> Transitions:
    return Transitions.of_draws(words, draws.copy())


def cells(transitions: Transitions) -> pa.Table:
    """The cells as a table."""
    return pa.table(
        {name: getattr(transitions, name) for name in ("epsilon_index", "word", "output", "count")}
    )


def concat(parts: Iterable[Transitions]) -> Transitions:
    """Put together the transitions of different words."""
    table = pa.concat_tables(map(cells, parts := list(parts)))
    table = table.sort_by([(name, "ascending") for name in ("epsilon_index", "word", "output")])
    return Transitions(**{n: table[n].to_numpy() for n in table.column_names}, runs=parts[0].runs)


def dense(transitions: Transitions, size: int) -> np.ndarray:
    """Counts (epsilons, size, size) by input and output."""
    counts = np.zeros((transitions.epsilon_index.max() + 1, size, size))
    counts[transitions.epsilon_index, transitions.word, transitions.output] = transitions.count
    return counts


def output_statistics(transitions: Transitions) -> pa.Table:
    """How many different inputs gave each output, expected where counts are exact."""
    names = ["epsilon_index", "word", "k_w"]
    seen = pa.table([transitions.epsilon_index, transitions.output, transitions.seen], names=names)
    found = seen.group_by(names[:2]).aggregate([("k_w", "sum")]).rename_columns(names)
    return found.sort_by([(name, "ascending") for name in names[:2]])


def deniability(transitions: Transitions, gamma: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and 5% quantile over runs of how many of all words are as likely, (epsilons, words)."""
    means, lows = [], []
    for counts in dense(transitions, transitions.word.max() + 1):
        for row in counts:
            seen = np.flatnonzero(row)
            k = np.array([(counts[:, y] >= row[y] / gamma * (1 - 1e-12)).sum() for y in seen])
            means.append((k * row[seen]).sum() / row.sum())
            lows.append(np.quantile(k, 0.05, weights=row[seen], method="inverted_cdf"))
    shape = (transitions.epsilon_index.max() + 1, -1)
    return np.reshape(means, shape), np.reshape(lows, shape)


def bayes_risk(
    transitions: Transitions, prior: np.ndarray, held_out: Transitions | None = None
) -> np.ndarray:
    """How often the best guesser names the input, (epsilons,).

    Args:
        transitions: The runs that the guesser has seen, of all words that may be the input.
        prior: How frequent the vocabulary's words are, to any scale.
        held_out: Other runs of the same words, to judge the guesser by.
    """
    weights = np.where(np.isin(np.arange(len(prior)), transitions.word), prior, 0.0)[:, None]
    weights /= weights.sum()
    learned, judged = (
        weights * dense(t, len(prior)) / t.runs for t in (transitions, held_out or transitions)
    )
    # Of an output it has never seen, the guesser knows the prior alone.
    learned = np.where(learned.any(axis=1, keepdims=True), learned, weights)
    guess = learned.argmax(axis=1)[:, None]
    risk: np.ndarray = np.take_along_axis(judged, guess, axis=1).sum(axis=(1, 2))
    return risk


def summary(table: pa.Table) -> pa.Table:
    """The distribution of each statistic over the rows of an epsilon."""
    index, rows = table["epsilon_index"].to_numpy(), []
    for epsilon in np.unique(index).tolist():
        for name in table.column_names:
            if name not in ("epsilon_index", "word"):
                values = table[name].to_numpy()[index == epsilon]
                levels = np.quantile(values, list(LEVELS.values()), method="inverted_cdf").tolist()
                row = {"epsilon_index": epsilon, "statistic": name, "mean": values.mean(), "sd": values.std()}
                rows.append(row | dict(zip(LEVELS, levels, strict=True)))
    return pa.Table.from_pylist(rows)


def grid(words: int = 64, vocabulary: int | None = None, **changes: object) -> Grid:
    """A grid of one setting at epsilons 2 and 40."""
    values = {
        "settings": (("", tuple(Laplace(epsilon=e) for e in (2.0, 40.0))),),
        "estimator": "shared-ray",
        "block_words": 512,
        "search": among(vocabulary or words),
        "runs": 60,
        "seed": 0,
        "vocabulary": vocabulary or words,
        "words": words,
        "confidence": 0.95,
        "eta": 0.05,
    }
    return Grid(**values | changes)  # type: ignore[arg-type]
