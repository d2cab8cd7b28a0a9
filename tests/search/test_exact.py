"""Nearest words: exact against rational arithmetic, and the same however the work is cut."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dptext_spark.search import exact as search_module
from dptext_spark.search.exact import POINT_BLOCK, WORD_BLOCK, EuclideanNearest
from tests.helpers.nearest import (
    Search,
    exact_score,
    faults,
    half_norms,
    hard_points,
    near_ties,
    one_after_another,
    search_of,
    two,
)

SHAPES = [
    (2, 1),
    (40, 300),
    (WORD_BLOCK - 1, 2),
    (WORD_BLOCK, 50),
    (WORD_BLOCK + 1, 3),
    (2 * WORD_BLOCK + 1, 2),
]


@pytest.mark.parametrize(("count", "n"), SHAPES)
@pytest.mark.parametrize("kind", ["random", "near ties"])
def test_the_nearest_word_is_exact(count: int, n: int, kind: str) -> None:
    """Rejects every shortcut of test_shortcuts_are_told_from_the_exact_search, and lost block borders."""
    vectors = (
        near_ties(count, n)
        if kind == "near ties"
        else np.random.default_rng(5).standard_normal((count, n)).astype(np.float32)
    )
    points = hard_points(vectors, 70)
    search = search_of(vectors)
    assert faults(search, vectors, points) == 0
    assert faults(two(search), vectors, points) == 0


class NoSlack(EuclideanNearest):
    """Trusts the float32 scores: only exact float32 ties are looked at again."""

    def slack(self, queries: np.ndarray) -> np.ndarray:
        return np.zeros(len(queries), dtype=np.float32)


def plain_argmax(vectors: np.ndarray) -> Search:
    halves = half_norms(vectors)
    return lambda points: (points.astype(np.float32) @ vectors.T - halves).argmax(axis=1)


def last_of_equals(vectors: np.ndarray) -> Search:
    search = search_of(vectors[::-1].copy())
    return lambda points: len(vectors) - 1 - search(points)


def plain_two(vectors: np.ndarray) -> Search:
    halves = half_norms(vectors)
    return lambda points: np.argsort(halves - points.astype(np.float32) @ vectors.T, kind="stable")[:, :2]


@pytest.mark.parametrize(
    "shortcut",
    [
        plain_argmax,
        plain_two,
        last_of_equals,
        lambda vectors: search_of(vectors, NoSlack),
        lambda vectors: two(search_of(vectors, NoSlack)),
    ],
)
def test_shortcuts_are_told_from_the_exact_search(shortcut: Callable[[np.ndarray], Search]) -> None:
    """The power of the adversarial set: what naive code would do is wrong on it."""
    vectors = near_ties(600, 50)
    points = hard_points(vectors, 140)
    assert faults(shortcut(vectors), vectors, points) >= 5


def test_among_equally_near_words_the_lowest_row_wins() -> None:
    grid = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 0], [3, 0]], dtype=np.float32)
    far = np.tile(np.float32([[9, 9]]), (WORD_BLOCK, 1))
    vectors = np.concatenate([far, grid, grid])  # equals in one block and across a border of blocks
    points = np.array([[0, 0], [0, 0.5], [-0.5, -0.5], [2, 0], [2.5, 0], [-7, 0], [9, 9]], dtype=np.float64)
    assert (search_of(vectors)(points) - WORD_BLOCK).tolist() == [0, 2, 1, 0, 5, 1, -WORD_BLOCK]


def float32_errors(vectors: np.ndarray, points: np.ndarray) -> np.ndarray:
    """For each point the largest error of a difference of two float32 scores, in exact arithmetic."""
    queries, halves = points.astype(np.float32), half_norms(vectors)
    errors = []
    for product in (np.matmul(queries, vectors.T), one_after_another(queries, vectors)):
        scores = product - halves
        for point, row in zip(points, scores, strict=True):
            stray = [Fraction(float(s)) - exact_score(point, y) for s, y in zip(row, vectors, strict=True)]
            errors.append(float(max(stray) - min(stray)))
    return np.reshape(errors, (2, len(points))).max(axis=0)


@pytest.mark.parametrize("n", [1, 300])
@pytest.mark.parametrize("scale", [1e-6, 1e12])
def test_the_slack_bounds_the_error_of_single_precision(n: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    # Equal signs and digits make the rounding errors of a sum lean to one side.
    vectors = np.concatenate([rng.standard_normal((6, n)), np.full((2, n), 1.1), np.full((2, n), -0.7)])
    vectors = vectors.astype(np.float32)
    points = scale * np.concatenate([rng.standard_normal((4, n)), np.full((2, n), 1.3)])
    slack = search_of(vectors).slack(points.astype(np.float32))
    errors = float32_errors(vectors, points)
    assert (errors <= slack).all()
    # A bound that forgets the length of the sums would be broken, so these samples can tell.
    if n == 300 and scale >= 1.0:
        assert (errors > slack * 4 / (n + 4)).any()


@pytest.mark.parametrize("mapped", [False, True])
def test_the_matrix_is_not_copied(tmp_path: Path, mapped: bool) -> None:
    """Rejects a private copy of the matrix, in float64 or in another order."""
    matrix = np.random.default_rng(0).standard_normal((60_000, 100)).astype(np.float32)
    if mapped:
        np.save(tmp_path / "vectors.npy", matrix)
        matrix = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    search = search_of(matrix)
    points = np.random.default_rng(1).standard_normal((POINT_BLOCK + 88, 100))
    tracemalloc.start()
    try:
        search(points)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < matrix.nbytes / 2


# The second nearest


def floor_of_the_best(best: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Wrong: both places hold the best score, so that the second nearest is held to it."""
    return np.repeat(np.maximum(best.max(axis=1), scores.max(axis=1))[:, None], best.shape[1], axis=1)


def test_a_floor_of_the_best_score_would_lose_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = near_ties(600, 50)
    points = np.concatenate([hard_points(vectors, 140), np.zeros((1, 50))])
    search = search_of(vectors)
    assert len(search.candidates(points, 2)[0]) >= 2 * len(points)
    monkeypatch.setattr(search_module, "largest", floor_of_the_best)
    rows = search.candidates(points, 2)[0]
    assert (np.bincount(rows, minlength=len(points)) < 2).sum() >= 5


def test_distances_are_those_of_the_two_words() -> None:
    vectors = near_ties(700, 20)
    points = hard_points(vectors, 210)
    nearest, distances = search_of(vectors).nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    gaps = points[:, None, :].astype(np.longdouble) - vectors[nearest]
    expected = np.sort(np.sqrt(np.square(gaps).sum(axis=2)), axis=1)
    np.testing.assert_allclose(distances, expected.astype(np.float64), rtol=1e-14)
