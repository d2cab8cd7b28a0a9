"""What counts of outputs say about a loss, with exact confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit, upper_limit

# A fixed level, so that the events do not depend on how many pairs are looked at.
_CHOICE_LEVEL: Final = 1e-6
_LEAST_PROBABILITY: Final = 1e-300


def loss_bound(
    hits: NDArray[np.int64], others: NDArray[np.int64], runs: int, level: float, delta: float = 0.0
) -> NDArray[np.float64]:
    """Bound ln((p - delta) / q) from below, in nats; 0 where no more is known.

    Args:
        hits: int64 (p,), how many of ``runs`` outputs of the one word lie in an event of probability p.
        others: int64 (p,), how many of the other word's do, probability q.
        runs: Outputs of each word.
        level: Probability with which each of the two bounds may fail.
        delta: The claim's.
    """
    gained = np.maximum(lower_limit(hits, runs, level) - delta, 0.0)
    return np.log(np.maximum(gained / upper_limit(others, runs, level), 1.0))


@dataclass(frozen=True, kw_only=True)
class Losses:
    """What the pairs of a world are shown to lose.

    Attributes:
        nats: float64 (p,), lower bounds of the losses.
        events: The words of each pair's event, int64 (e,).
        evidence: float64 (p, 2), outputs in the event, of both words; or its exact probabilities.
    """

    nats: NDArray[np.float64]
    events: tuple[NDArray[np.int64], ...]
    evidence: NDArray[np.float64]


def sampled_losses(
    pairs: NDArray[np.int64],
    chosen: NDArray[np.int64],
    tested: NDArray[np.int64],
    runs: int,
    level: float,
    delta: float,
) -> Losses:
    """Bound losses by two independent samples; see :func:`loss_bound`.

    Args:
        pairs: int64 (p, 2), rows of the counts.
        chosen: int64 (k, V), counts of ``runs`` outputs of each word, from which events are chosen.
        tested: int64 (k, V), those that bound the events' probabilities.
    """
    events = tuple(_event(chosen[one], chosen[other], runs, delta) for one, other in pairs)
    hits = np.array([tested[pair][:, event].sum(axis=1) for pair, event in zip(pairs, events, strict=True)])
    return Losses(
        nats=loss_bound(hits[:, 0], hits[:, 1], runs, level, delta),
        events=events,
        evidence=hits.astype(float),
    )


def code_losses(
    chosen: Sequence[NDArray[np.int64]],
    tested: Sequence[NDArray[np.int64]],
    level: float,
    delta: float = 0.0,
) -> Losses:
    """Bound how well the laws of two kinds of outcomes are told apart, both ways; alike, they lose nothing.

    Of each kind there are codes of outcomes (m,) for both samples of :func:`sampled_losses`. Events are
    places among the codes seen, in ascending order.
    """
    runs = min(map(len, [*chosen, *tested]))
    outcomes = np.stack([codes[:runs] for codes in [*chosen, *tested]])
    distinct, places = np.unique(outcomes.ravel(), return_inverse=True)
    counts = np.stack([np.bincount(p, minlength=len(distinct)) for p in places.reshape(outcomes.shape)])
    ways = np.array([[0, 1], [1, 0]])
    return sampled_losses(ways, counts[:2], counts[2:], runs, level, delta)


def _event(one: NDArray[np.int64], other: NDArray[np.int64], runs: int, delta: float) -> NDArray[np.int64]:
    """Choose the outputs whose share is larger by so much that the bound comes out best."""
    seen = np.flatnonzero(one)
    order = seen[np.argsort(-(one[seen] + 0.5) / (other[seen] + 0.5), kind="stable")]
    bounds = loss_bound(np.cumsum(one[order]), np.cumsum(other[order]), runs, _CHOICE_LEVEL, delta)
    return np.sort(order[: int(bounds.argmax()) + 1] if len(order) else order)


def exact_losses(pairs: NDArray[np.int64], probabilities: NDArray[np.float64], delta: float) -> Losses:
    """Give the largest log-ratios of output probabilities (k, V)."""
    evidence, events = np.empty(pairs.shape), []
    for pair, (one, other) in enumerate(probabilities[places] for places in pairs):
        # Below that, a probability may have lost digits, or all of itself: it counts as no smaller.
        word = int(np.argmax(np.maximum(one - delta, 0.0) / np.maximum(other, _LEAST_PROBABILITY)))
        evidence[pair] = one[word], other[word]
        events.append(np.array([word]))
    ratios = np.maximum(evidence[:, 0] - delta, 0.0) / np.maximum(evidence[:, 1], _LEAST_PROBABILITY)
    return Losses(nats=np.log(np.maximum(ratios, 1.0)), events=tuple(events), evidence=evidence)
