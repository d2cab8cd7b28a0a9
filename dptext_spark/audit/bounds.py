"""What counts of outputs say about a privacy loss, with exact confidence."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.binomial import lower_limit, upper_limit

# A fixed level, so that the events do not depend on the number of pairs.
_CHOICE_LEVEL: Final = 1e-6


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


def sampled_losses(
    pairs: NDArray[np.int64],
    chosen: NDArray[np.int64],
    tested: NDArray[np.int64],
    runs: int,
    level: float,
    delta: float,
) -> tuple[NDArray[np.float64], list[NDArray[np.int64]], NDArray[np.int64]]:
    """Bound losses by two independent samples; see :func:`loss_bound`.

    Args:
        pairs: int64 (p, 2), rows of the counts.
        chosen: int64 (k, V), counts of ``runs`` outputs of each word, from which events are chosen.
        tested: int64 (k, V), those that bound the events' probabilities.

    Returns:
        Lower bounds of the losses, float64 (p,), in nats; the words of each pair's event, int64 (e,); and how
        many outputs of both words are in it, int64 (p, 2).
    """
    events = []
    for one, other in (chosen[pair] for pair in pairs):
        seen = np.flatnonzero(one)
        order = seen[np.argsort(-(one[seen] + 0.5) / (other[seen] + 0.5), kind="stable")]
        bounds = loss_bound(np.cumsum(one[order]), np.cumsum(other[order]), runs, _CHOICE_LEVEL, delta)
        events.append(np.sort(order[: int(bounds.argmax()) + 1] if len(order) else order))
    hits = np.array([tested[pair][:, event].sum(axis=1) for pair, event in zip(pairs, events, strict=True)])
    return loss_bound(hits[:, 0], hits[:, 1], runs, level, delta), events, hits
