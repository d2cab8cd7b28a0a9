"""How far two counts of the same kind of thing, of words or of pairs of words, are from each other."""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dptext_spark.evaluation.bigrams import PairCounts

LEADERS: Final = 100
"""Leading words or pairs, of which it is said how many lead in the other counts as well."""


def of_words(before: PairCounts, after: PairCounts) -> dict[str, float]:
    """Compare how often words came in two tables over one vocabulary; see :func:`_compared`."""
    return _compared(before.words, after.words)


def of_pairs(before: PairCounts, after: PairCounts) -> dict[str, float]:
    """Compare how often words followed each other, or began a row; see :func:`_compared`."""
    states = before.vocabulary + 2
    keys, places = np.unique(
        np.concatenate([p.first * states + p.second for p in (before, after)]), return_inverse=True
    )
    own = places[: len(before.count)], places[len(before.count) :]
    counts = np.zeros((2, len(keys)), dtype=np.int64)
    counts[0, own[0]], counts[1, own[1]] = before.count, after.count
    return _compared(counts[0], counts[1])


def _compared(before: NDArray[np.int64], after: NDArray[np.int64]) -> dict[str, float]:
    """Compare two counts (c,), neither of them empty.

    Returns:
        ``overlap``, the mass that both laws have in common (1 less the total variation); ``agreement``, 1
        less the Jensen-Shannon divergence in bits (Lin 1991); ``leaders``, the share of the ``LEADERS`` of
        one, the first of equal counts, that lead in the other too. All are 1 for equal laws, and 0 for laws
        that have nothing in common. NaN where there is nothing to compare.
    """
    if not before.any() or not after.any():
        return dict.fromkeys(("overlap", "agreement", "leaders"), float("nan"))
    p, q = before / before.sum(), after / after.sum()
    first, second = (
        np.argsort(-c, kind="stable")[: min(LEADERS, np.count_nonzero(c))] for c in (before, after)
    )
    return {
        "overlap": float(np.minimum(p, q).sum()),
        "agreement": 1.0 - float(scipy.spatial.distance.jensenshannon(p, q, base=2)) ** 2,
        "leaders": len(np.intersect1d(first, second)) / max(len(first), len(second)),
    }
