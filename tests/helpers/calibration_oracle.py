"""What Spark works out in SQL of a calibration, once more by brute force; and transitions made by hand."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from dptext_spark.calibration import Transitions
from dptext_spark.calibration.estimators import Grid, Prior
from dptext_spark.calibration.statistics import LEVELS
from dptext_spark.mechanisms import Laplace
from tests.helpers.worlds import among

# Word 1 becomes 1 six times and 2 four times of ten, word 2 becomes 2 always, word 7 many others.
DRAWS = np.array(
    [[[1, 2, 1, 2, 1, 1, 2, 1, 1, 2], [2] * 10, [0, 1, 2, 3, 4, 5, 6, 8, 9, 9]]], np.int32
)
WORDS = np.array([1, 2, 7])


def counted(
    draws: np.ndarray = DRAWS, words: np.ndarray = WORDS, release_words: int = 10
) -> Transitions:
    return Transitions.of_draws(words, draws.copy(), release_words=release_words)


def cells(transitions: Transitions) -> pa.Table:
    names = ("epsilon_index", "word", "output", "count", "judged")
    return pa.table({name: getattr(transitions, name) for name in names})


def concat(parts: Iterable[Transitions]) -> Transitions:
    """Put together the transitions of different words."""
    table = pa.concat_tables(map(cells, parts := list(parts)))
    table = table.sort_by([(name, "ascending") for name in ("epsilon_index", "word", "output")])
    columns = {n: table[n].to_numpy() for n in table.column_names}
    return Transitions(**columns, runs=parts[0].runs, release_words=parts[0].release_words)


def dense(transitions: Transitions, outputs: int, column: str = "count") -> np.ndarray:
    """Counts (epsilons, inputs, outputs)."""
    counts = np.zeros((transitions.epsilon_index.max() + 1, transitions.word.max() + 1, outputs))
    counts[transitions.epsilon_index, transitions.word, transitions.output] = getattr(
        transitions, column
    )
    return counts


def output_statistics(transitions: Transitions) -> pa.Table:
    """How many different inputs gave each output, given that any did, on average where counts are exact."""
    rows = []
    presences = dense(transitions, int(transitions.output.max()) + 1, "presence")
    for index, presence in enumerate(presences):
        any_ = -np.expm1(np.log1p(-np.minimum(presence, 1.0 - 2.0**-53)).sum(axis=0))
        k_w = (presence.sum(axis=0) / np.where(any_ > 0.0, any_, 1.0)).tolist()
        words = np.flatnonzero(presence.any(axis=0)).tolist()
        rows += [{"epsilon_index": index, "word": word, "k_w": k_w[word]} for word in words]
    return pa.Table.from_pylist(rows)


def posterior(transitions: Transitions) -> np.ndarray:
    """What others' runs, and a word's own others, say of it at its outputs, run by run, (epsilons, words)."""
    own = 0 if transitions.exact else 1
    found = []
    for counts in dense(transitions, int(transitions.output.max()) + 1):
        counts = counts[np.unique(transitions.word)]
        shares = counts / transitions.runs
        for row, others in zip(counts, shares.sum(axis=0) - shares, strict=True):
            mine = np.maximum(row - own, 0.0) / max(transitions.runs - own, 1)
            known = mine + others > 0
            given = np.where(known, mine / np.where(known, mine + others, 1.0), 1.0 / len(counts))
            found.append((row * given).sum() / transitions.runs)
    return np.reshape(found, (transitions.epsilon_index.max() + 1, -1))


def k_gamma(transitions: Transitions, gamma: float = 2.0) -> np.ndarray:
    """How many words give a word's output as often as it does, to a factor, run by run, (epsilons, words)."""
    found = []
    for counts in dense(transitions, int(transitions.output.max()) + 1):
        counts = counts[np.unique(transitions.word)]
        for row in counts:
            near = (counts >= row / gamma * (1 - 1e-6)) & (counts <= row * gamma * (1 + 1e-6))
            found.append((row * (near & (counts > 0)).sum(axis=0)).sum() / transitions.runs)
    return np.reshape(found, (transitions.epsilon_index.max() + 1, -1))


def risk(law: np.ndarray, prior: np.ndarray) -> float:
    """How often the best guesser names the input, by the law (inputs, outputs)."""
    return float((prior[:, None] / prior.sum() * law).max(axis=0).sum())


def guessed(transitions: Transitions, grid: Grid, prior: Prior) -> tuple[np.ndarray, np.ndarray]:
    """What guessers win by brute force, (epsilons,) each, as sums in which the first word has weight 1.

    Of the guesser who is judged by all runs, which it knows, and of one who learns from the first half of the
    runs and is judged by the second. The words are 0, 1, ...
    """
    weights, size = grid.weights(prior)[:, None], int(transitions.output.max()) + 1
    weights = weights / weights[0]
    count, judged = (dense(transitions, size, column) for column in ("count", "judged"))
    learned = weights * (count - judged)
    guess = np.where(learned.any(axis=1), learned.argmax(axis=1), 0)[:, None]
    won = np.take_along_axis(weights * judged, guess, axis=1).sum(axis=(1, 2))
    return (weights * count).max(axis=1).sum(axis=1), won


def summary(table: pa.Table) -> pa.Table:
    """The distribution of each statistic over the rows of an epsilon."""
    index, rows = table["epsilon_index"].to_numpy(), []
    for epsilon in np.unique(index).tolist():
        for name in table.column_names:
            if name not in ("epsilon_index", "word"):
                values = table[name].to_numpy()[index == epsilon]
                levels = np.quantile(values, list(LEVELS.values()), method="inverted_cdf").tolist()
                row = {
                    "epsilon_index": epsilon,
                    "statistic": name,
                    "mean": values.mean(),
                    "sd": values.std(),
                }
                rows.append(row | dict(zip(LEVELS, levels, strict=True)))
    return pa.Table.from_pylist(rows)


def grid(words: int = 64, vocabulary: int | None = None, **changes: object) -> Grid:
    """A grid of ``laplace`` at epsilons 2 and 40."""
    values = {
        "mechanisms": tuple(Laplace(epsilon=e) for e in (2.0, 40.0)),
        "estimator": "shared-ray",
        "search": among(vocabulary or words),
        "runs": 60,
        "seed": 0,
        "vocabulary": vocabulary or words,
        "first": vocabulary or words,
        "words": words,
        "confidence": 0.95,
        "eta": 0.05,
    }
    return Grid(**values | changes)  # type: ignore[arg-type]
