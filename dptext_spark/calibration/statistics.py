"""Privacy statistics of words and outputs: functions of :class:`Transitions` alone.

All are estimates from as many runs as there were, or exact where the counts are expected numbers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit, upper_limit
from dptext_spark.calibration.transitions import Transitions
from dptext_spark.errors import ConfigError

CONFIDENCE: Final = 0.95
ETA: Final = 0.05
GAMMA: Final = 2.0

_KEYS: Final = ("epsilon_index", "word", "output", "count")
_QUANTILES: Final = {"min": 0.0, "p5": 0.05, "p50": 0.5, "p95": 0.95, "max": 1.0}


def word_statistics(
    transitions: Transitions, *, confidence: float = CONFIDENCE, eta: float = ETA
) -> pa.Table:
    """Say of each word how often it stays, and how many words it may become.

    Args:
        transitions: Of any words.
        confidence: Of the interval of n_w, for each word by itself; not for all words at once.
        eta: Mass that s_eta may leave out.

    Returns:
        One row for each epsilon_index (int16) and word (int32), in that order, and float64 columns: n_w =
        P[M(w) = w] with its Clopper-Pearson interval n_w_low, n_w_high (no wider than n_w itself where
        counts are exact); s_w, the number of distinct outputs in these runs; s_eta, the size of the
        smallest set of outputs that holds 1 - eta of the mass; in bits entropy (Shannon), h_0 = log2 s_w,
        h_inf = -log2 of the largest probability. From counts, s_w, s_eta and the entropies of a word that
        has more outputs than runs are too low.

    Raises:
        ConfigError: The confidence or eta is not between 0 and 1.

    Source: Feyisetan et al. 2020, section 3, for N_w and S_w.
    """
    _check_share("confidence", confidence)
    _check_share("eta", eta)
    starts = _starts(transitions.epsilon_index, transitions.word)
    probability = transitions.probability
    stays = np.where(transitions.output == transitions.word, transitions.count, 0)
    n_w = np.add.reduceat(stays, starts) / transitions.runs
    low, high = (n_w, n_w) if transitions.exact else _interval(n_w, transitions.runs, confidence)
    s_w = np.add.reduceat(transitions.seen, starts)
    return pa.table(
        {
            "epsilon_index": transitions.epsilon_index[starts],
            "word": transitions.word[starts],
            "n_w": n_w,
            "n_w_low": low,
            "n_w_high": high,
            "s_w": s_w,
            "s_eta": _smallest_sets(transitions, starts, eta),
            "entropy": np.add.reduceat(-probability * np.log2(probability), starts) + 0.0,
            "h_0": np.log2(s_w),
            "h_inf": -np.log2(np.minimum(np.maximum.reduceat(probability, starts), 1.0)) + 0.0,
        }
    )


def output_statistics(transitions: Transitions) -> pa.Table:
    """Say of each output how many different inputs gave it.

    Returns:
        One row for each epsilon_index and word, an output that came up, in that order, and k_w (float64):
        how many words became it in these runs; the expected number where counts are exact. Parts of one
        vocabulary add up.
    """
    order = np.lexsort((transitions.output, transitions.epsilon_index))
    epsilon, output = transitions.epsilon_index[order], transitions.output[order]
    starts = _starts(epsilon, output)
    return pa.table(
        {
            "epsilon_index": epsilon[starts],
            "word": output[starts],
            "k_w": np.add.reduceat(transitions.seen[order], starts),
        }
    )


def deniability(transitions: Transitions, *, gamma: float = GAMMA) -> pa.Table:
    """Count, for each word and output, the inputs that would have given that output about as likely.

    Args:
        transitions: Of all words that an attacker thinks possible; of a part, k is that part's.
        gamma: The factor, 1 or more, within which a probability counts as about as likely.

    Returns:
        One row for each cell, with its epsilon_index, word, output and count, and k (int64): the number of
        words w', this one included, with p(output | w') >= p(output | word) / gamma. Weighted by count,
        k's distribution is that over runs.

    Raises:
        ConfigError: gamma is below 1.

    Source: Bindschaedler et al. 2017, "Plausible Deniability for Privacy-Preserving Data Synthesis",
        definition 1, with one side of its ratio.
    """
    if not gamma >= 1.0:
        raise ConfigError("The factor gamma is impossible", allowed="1 or more", got=f"{gamma!r}")
    cells = len(transitions.count)
    # A hair lower, so that rounding of the quotient does not exclude what is as likely as that.
    wanted = transitions.count / gamma * (1.0 - 2.0**-40)
    outputs = np.tile(transitions.output, 2)
    epsilons = np.tile(transitions.epsilon_index, 2)
    order = np.lexsort((np.concatenate([transitions.count, wanted]), outputs, epsilons))
    starts = _starts(epsilons[order], outputs[order])
    is_cell = order < cells
    # Sorted together, a threshold's k is the number of cells after it in its group.
    below = np.cumsum(is_cell)
    ends = np.append(starts[1:], len(order))
    after = np.repeat(below[ends - 1], ends - starts) - below
    k = np.empty(cells, dtype=np.int64)
    k[order[~is_cell] - cells] = after[~is_cell]
    return transitions.to_table().append_column("k", pa.array(k))


def bayes_risk(
    transitions: Transitions, prior: NDArray[np.float64], *, held_out: Transitions | None = None
) -> pa.Table:
    """Measure how often the best guesser, given the prior and an output, names the input.

    The guesser names the word w of largest prior(w) p(output | w), p as in ``transitions``. Judged by the
    same runs it does better than by others, and the true risk is, in expectation, between what it reaches
    on its own runs and what it reaches on held-out ones; where counts are exact, it is the true risk.

    Args:
        transitions: Of all words that may be the input.
        prior: float64 (V,), how frequent the embedding's words are, to any scale; only the words of
            ``transitions`` count.
        held_out: Runs of the same words that the guesser has not seen, to judge it by.

    Returns:
        One row for each epsilon_index, and risk (float64) = the sum over outputs of max_w prior(w)
        p(output | w).

    Raises:
        ConfigError: The prior is negative or gives no weight to these words.

    Source: Chatzikokolakis, Palamidessi and Panangaden 2008, "On the Bayes risk in information-hiding
        protocols", section 3 (its complement).
    """
    weights = _weights(transitions, prior)
    judged = transitions if held_out is None else held_out
    joint = weights[transitions.word] * transitions.probability
    order = np.lexsort((transitions.word, -joint, transitions.output, transitions.epsilon_index))
    keys = _keys(transitions)[order]
    first = order[_starts(keys)]
    place = np.minimum(np.searchsorted(keys[_starts(keys)], _keys(judged)), len(first) - 1)
    known = _keys(transitions)[first[place]] == _keys(judged)
    # Of an output it has never seen, the guesser knows the prior alone.
    guess = np.where(known, transitions.word[first[place]], weights.argmax())
    hits = np.where(guess == judged.word, weights[judged.word] * judged.probability, 0.0)
    epsilons = np.unique(judged.epsilon_index)
    risk = np.bincount(judged.epsilon_index, weights=hits)[epsilons]
    return pa.table({"epsilon_index": epsilons, "risk": risk})


def summary(table: pa.Table, *, weight: str | None = None) -> pa.Table:
    """Describe the distribution of each statistic of a table over its rows, for each epsilon.

    Args:
        table: With epsilon_index, any of the keys word, output and count, and columns of statistics.
        weight: A column that says how often a row counts; None counts each once.

    Returns:
        One row for each epsilon_index and statistic (string), and float64 columns mean, sd (of the
        rows themselves: over n), min, p5, p50, p95 and max. Quantiles are values that occur.
    """
    names = [name for name in table.column_names if name not in (*_KEYS, weight)]
    index = table["epsilon_index"].to_numpy()
    weights = np.ones(len(table)) if weight is None else table[weight].to_numpy().astype(np.float64)
    rows = [
        {"epsilon_index": epsilon, "statistic": name}
        | _described(table[name].to_numpy()[index == epsilon], weights[index == epsilon])
        for epsilon in np.unique(index).tolist()
        for name in names
    ]
    numbers = [(name, pa.float64()) for name in ("mean", "sd", *_QUANTILES)]
    schema = pa.schema([("epsilon_index", pa.int16()), ("statistic", pa.string()), *numbers])
    return pa.Table.from_pylist(rows, schema=schema)


def _described(values: NDArray[Any], weights: NDArray[np.float64]) -> dict[str, float]:
    mean = float(np.average(values, weights=weights))
    variance = float(np.average(np.square(values - mean), weights=weights))
    levels = np.array(list(_QUANTILES.values()))
    found = np.quantile(values, levels, weights=weights, method="inverted_cdf")
    return {"mean": mean, "sd": variance**0.5} | dict(zip(_QUANTILES, found.tolist(), strict=True))


def _check_share(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ConfigError(f"The value of {name} is impossible", allowed="between 0 and 1", got=f"{value!r}")


def _starts(*keys: NDArray[Any]) -> NDArray[np.int64]:
    """Where the groups of equal keys begin."""
    borders = np.zeros(len(keys[0]), dtype=np.bool_)
    borders[:1] = True
    for key in keys:
        borders[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(borders)


def _interval(
    share: NDArray[np.float64], runs: int, confidence: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    hits, tail = np.rint(share * runs), (1.0 - confidence) / 2.0
    return lower_limit(hits, runs, tail), upper_limit(hits, runs, tail)


def _smallest_sets(transitions: Transitions, starts: NDArray[np.int64], eta: float) -> NDArray[np.float64]:
    """Size of the smallest set of outputs that holds 1 - eta of each group's mass."""
    count = transitions.count.astype(np.float64)
    order = np.lexsort((-count, transitions.word, transitions.epsilon_index))
    count = count[order]  # groups stay where they are
    before = np.cumsum(count) - count
    before -= np.repeat(before[starts], np.diff(starts, append=len(count)))
    needed = before < (1.0 - eta) * transitions.runs * (1.0 - 1e-9)
    return np.add.reduceat(needed.astype(np.float64), starts)


def _weights(transitions: Transitions, prior: NDArray[np.float64]) -> NDArray[np.float64]:
    """The prior over the words of transitions alone, float64 (V,)."""
    words = np.unique(transitions.word)
    weights = np.zeros(len(prior))
    weights[words] = prior[words]
    if not (weights >= 0.0).all() or not 0.0 < weights.sum() < np.inf:
        raise ConfigError(
            "The prior over words is impossible",
            allowed="frequencies of 0 or more, not all 0 for the measured words",
            got=f"least {weights.min():g}, sum {weights.sum():g}",
        )
    weights /= weights.sum()
    return weights


def _keys(transitions: Transitions) -> NDArray[np.int64]:
    """One number for each pair of epsilon and output, in the same order."""
    return (transitions.epsilon_index.astype(np.int64) << 32) + transitions.output
