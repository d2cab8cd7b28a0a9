"""Coarse scores: the same words as without codes, on hard vectors; test_codes.py has the bound."""

import numpy as np
import pytest

from dptext_spark.search.coarse import coarse_candidates
from tests.helpers.nearest import (
    coarse_search,
    differing,
    faults,
    hard_points,
    near_ties,
    search_of,
)

KINDS = {
    "plain": lambda n, rng: rng.standard_normal((1100, n)),
    # Lengths from the least to the greatest that a bundle may have.
    "spread": lambda n, rng: (
        rng.standard_normal((600, n))
        * np.geomspace(1e-9, 1e12, 600)[rng.permutation(600), None]
        / np.sqrt(n)
    ),
    "dominated": lambda n, rng: rng.standard_normal((600, n)) + 1e4 * np.eye(n)[0],
    "equal": lambda n, rng: np.repeat(rng.standard_normal((3, n)), 200, axis=0),
    # Denormal coordinates, and zeros.
    "tiny": lambda n, rng: (
        rng.standard_normal((600, n)) * 1e-41 * (np.arange(600) % 7 > 0)[:, None]
    ),
    "few": lambda n, rng: rng.integers(-3, 4, (9, n)) * 10.0 ** rng.integers(-6, 7, (9, 1)),
    "ties": lambda n, _: near_ties(600, n),
}


@pytest.mark.parametrize("n", [1, 2, 3, 7, 50, 300, 1024])
@pytest.mark.parametrize("kind", KINDS)
def test_hard_vectors_have_the_words_that_they_have_without(kind, n):
    """Rejects mutants of the bound, lost remainders of tiles and groups, and ties that the last word wins."""
    rng = np.random.default_rng(n)
    vectors = KINDS[kind](n, rng).astype(np.float32)[:: 1 + 2 * (n > 50)]
    hard, others = (
        hard_points(vectors, 56 if n <= 50 else 14),
        rng.standard_normal((40 if n <= 50 else 4, n)),
    )
    points = np.concatenate([hard, np.zeros((1, n)), 9 * others])
    points = points[np.abs(points).max(axis=1) <= search_of(vectors).reach]
    assert differing(vectors, points) == 0
    if n <= 50 and kind == "ties":
        assert faults(coarse_search(vectors), vectors, points) == 0


def test_points_too_far_and_words_too_many_go_to_single_precision():
    """Rejects sums that overflow, and memory without a bound."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1100, 30)).astype(np.float32)
    words = coarse_search(vectors).coarse
    assert coarse_candidates(words, rng.standard_normal((600, 30)), 1) is not None
    for far in (1e101, np.inf, np.nan):
        assert coarse_candidates(words, np.full((2, 30), far), 1) is None
    alike = (1e3 + 1e-3 * rng.standard_normal((5000, 30))).astype(np.float32)
    coded = coarse_search(alike).coarse
    assert coarse_candidates(coded, alike[:8].astype(np.float64), 1) is None
    assert differing(alike, alike[:8].astype(np.float64)) == 0
