"""Nearest words in both geometries against rational and decimal numbers, and shortcuts that are wrong."""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_spark.geometry.ball import lorentz
from dptext_spark.search import exact as search_module
from dptext_spark.search.exact import POINT_BLOCK, WORD_BLOCK, EuclideanNearest, HyperbolicNearest, rims
from tests.helpers.nearest import (
    RADII,
    Search,
    at,
    ball_faults,
    ball_search,
    ball_words,
    exact_distance,
    exact_rim,
    exact_score,
    faults,
    half_norms,
    hard_ball_points,
    hard_points,
    inside,
    near_ties,
    one_after_another,
    search_of,
    two,
)


def random_words(count: int, n: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal((count, n)).astype(np.float32)


def random_ball(count: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    return inside(rng.standard_normal((count, n)), rng.random(count))


SHAPES = [(2, 1), (40, 300), *((WORD_BLOCK + more, n) for more, n in ((-1, 2), (0, 50), (1, 3), (513, 2)))]


@pytest.mark.parametrize(("count", "n"), SHAPES)
@pytest.mark.parametrize("words_of", [random_words, near_ties])
def test_the_nearest_word_is_exact(count: int, n: int, words_of: Callable[[int, int], np.ndarray]) -> None:
    """Rejects every shortcut of the last test, and lost block borders."""
    vectors = words_of(count, n)
    points, search = hard_points(vectors, 70), search_of(vectors)
    assert faults(search, vectors, points) == faults(two(search), vectors, points) == 0


@pytest.mark.parametrize(("count", "n"), [(2, 2), (20, 100), (WORD_BLOCK + 1, 3)])
@pytest.mark.parametrize("words_of", [random_ball, ball_words])
def test_the_nearest_word_in_the_ball_is_exact(
    count: int, n: int, words_of: Callable[[int, int], np.ndarray]
) -> None:
    words = words_of(count, n)
    points, search = hard_ball_points(words, 70), ball_search(words)
    assert ball_faults(search, words, points) == ball_faults(two(search), words, points) == 0


# Shortcuts


class NoSlack(EuclideanNearest):
    """Trusts the float32 scores: only exact float32 ties are looked at again."""

    def slack(self, queries: np.ndarray) -> np.ndarray:
        return np.zeros(len(queries), dtype=np.float32)


class NoWidths(HyperbolicNearest):
    """Does the same in the ball."""

    def scan(self, points: np.ndarray) -> Any:
        return dataclasses.replace(super().scan(points), widths=None)


FLAT: dict[str, Callable[[np.ndarray], Search]] = {
    "scores in single precision": lambda v: (
        lambda p: (p.astype(np.float32) @ v.T - half_norms(v)).argmax(axis=1)
    ),
    "two of them": lambda v: (
        lambda p: np.argsort(half_norms(v) - p.astype(np.float32) @ v.T, kind="stable")[:, :2]
    ),
    "the last of equals": lambda v: lambda p: len(v) - 1 - search_of(v[::-1].copy())(p),
    "no slack": lambda v: search_of(v, NoSlack),
    "no slack, two": lambda v: two(search_of(v, NoSlack)),
}


def lorentz_product(words: np.ndarray, kind: type) -> Search:
    """Near the edge its digits cancel, in double precision too."""
    space, time = (part.astype(kind) for part in lorentz(words))
    return lambda points: (points[:, 1:].astype(kind) @ space.T - time).argmax(axis=1)


CURVED: dict[str, Callable[[np.ndarray], Search]] = {
    "product in single precision": lambda words: lorentz_product(words, np.float32),
    "product in double precision": lambda words: lorentz_product(words, np.float64),
    "Euclidean": lambda words: (
        lambda p: np.square((p[:, 1:] / (1 + np.exp(-p[:, :1])))[:, None] - words).sum(axis=2).argmin(axis=1)
    ),
    "no widths": lambda words: ball_search(words, NoWidths),
    "no widths, two": lambda words: two(ball_search(words, NoWidths)),
}


def floor_of_the_best(best: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Wrong: both places hold the best score, so that the second nearest is held to it."""
    return np.repeat(np.maximum(best.max(axis=1), scores.max(axis=1))[:, None], best.shape[1], axis=1)


def test_shortcuts_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The power of the adversarial sets: what naive code would do is wrong on them."""
    vectors, words = near_ties(600, 50), ball_words(600, 5)
    points, curved = hard_points(vectors, 140), hard_ball_points(words, 140)
    assert min(faults(shortcut(vectors), vectors, points) for shortcut in FLAT.values()) >= 5
    assert min(ball_faults(shortcut(words), words, curved) for shortcut in CURVED.values()) >= 5
    points, search = np.concatenate([points, np.zeros((1, 50))]), search_of(vectors)
    assert len(search.candidates(points, 2)[0]) >= 2 * len(points)
    monkeypatch.setattr(search_module, "largest", floor_of_the_best)
    rows = search.candidates(points, 2)[0]
    assert (np.bincount(rows, minlength=len(points)) < 2).sum() >= 5


def test_among_equally_near_words_the_lowest_row_wins() -> None:
    grid = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 0], [3, 0]], dtype=np.float32)
    far = np.tile(np.float32([[9, 9]]), (WORD_BLOCK, 1))
    vectors = np.concatenate([far, grid, grid])  # equals in one block and across a border of blocks
    points = np.array([[0, 0], [0, 0.5], [-0.5, -0.5], [2, 0], [2.5, 0], [-7, 0], [9, 9]], dtype=np.float64)
    assert (search_of(vectors)(points) - WORD_BLOCK).tolist() == [0, 2, 1, 0, 5, 1, -WORD_BLOCK]
    words = np.array([[0.9, 0.9 / 4], [0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5], [0.5, 0], [0, 0.5]])
    points = at(np.array([[1.0, 1], [-1, -1], [0, 1], [1, 0]]), np.array([0.0, 0.2, 3.0, 0.3]))
    nearest, distances = ball_search(words).nearest_two(points)
    assert nearest.tolist() == [[1, 2], [2, 4], [3, 6], [1, 5]]
    assert ball_search(words)(points).tolist() == [1, 2, 3, 1]
    assert (distances[:, 0] == distances[:, 1]).all()


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


def test_distances_are_those_of_the_two_words() -> None:
    vectors = near_ties(700, 20)
    points = hard_points(vectors, 210)
    nearest, distances = search_of(vectors).nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    gaps = points[:, None, :].astype(np.longdouble) - vectors[nearest]
    expected = np.sort(np.sqrt(np.square(gaps).sum(axis=2)), axis=1)
    np.testing.assert_allclose(distances, expected.astype(np.float64), rtol=1e-14)


# The ball


def test_distances_in_the_ball_are_exact() -> None:
    """To 10^-14, or as much of the distance where it is above 1; also at radius 10^-9 and 700."""
    words = ball_words(200, 4)
    points = hard_ball_points(words, 210)
    nearest, distances = ball_search(words).nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    for point, pair, found in zip(points, nearest, distances, strict=True):
        exact = np.array([float(exact_distance(point, words[row])) for row in pair])
        np.testing.assert_allclose(found, exact, rtol=1e-14, atol=1e-14)
    origin = ball_search(np.array([[0.0, 0.0], [0.6, 0.0]]))
    near = origin.nearest_two(at(np.array([[0.0, 1.0]] * 3), np.array([1e-9, 1e-4, 700.0])))[1][:, 0]
    np.testing.assert_allclose(near, [1e-9, 1e-4, 700.0], rtol=1e-14)


def test_q0_corrects_a_w_of_the_wrong_length() -> None:
    words = ball_words(600, 3)
    points = hard_ball_points(words, 140)
    stretched = points * np.where(np.arange(140) % 2, 1.0, 0.7)[:, None] ** [0, 1, 1, 1]
    found, expected = (ball_search(words).nearest_two(some)[1] for some in (stretched, points))
    # At 10^-12 from the edge a rounding of w is worth a ten thousandth.
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("n", [2, 300])
def test_the_widths_bound_the_error_of_single_precision(n: int) -> None:
    rng = np.random.default_rng(n)
    gaps = np.array([1e-12, 1e-6, 1e-3, 0.3, 0.9, 1.0])
    words = np.concatenate([inside(rng.standard_normal((6, n)), gaps), inside(np.ones((6, n)), gaps)])
    heads = np.concatenate([rng.standard_normal((3, n)), np.ones((2, n)), -np.ones((1, n)), words[:2]])
    points = at(heads, RADII[[0, 2, 3, 6, 7, 4, 4, 5]])
    scan = ball_search(words).scan(points)
    errors = []
    for products in (scan.queries @ scan.matrix.T, one_after_another(scan.queries, scan.matrix)):
        for point, row in zip(points, products - scan.offsets, strict=True):
            for word, score, width in zip(words, row, scan.widths, strict=True):
                rim = exact_rim(tuple(word.tolist()))
                pairs = zip(point[1:].tolist(), word.tolist(), strict=True)
                exact = (2 * sum(Fraction(w) * Fraction(p) for w, p in pairs) - (2 - rim)) / rim
                errors.append(float((Fraction(float(score)) - exact) / Fraction(float(width))))
    assert (np.min(errors) >= 0, np.max(errors) <= 1) == (True, True)
    # A bound that forgets the length of the sums would be broken, so these samples can tell.
    if n == 300:
        assert np.ptp(errors) > 10 / (n + 10)


def test_rims_keep_their_digits_at_the_edge() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 50, 300):
        points = inside(rng.standard_normal((60, n)), np.geomspace(1e-15, 1, 60))
        exact = [exact_rim(tuple(point)) for point in points.tolist()]
        expected = np.array([float(max(rim, Fraction(1, 2**53))) for rim in exact])
        np.testing.assert_allclose(rims(points), expected, rtol=1e-15 * n, atol=1e-21)


def test_points_that_are_inside_by_rounding_alone_have_coordinates() -> None:
    rng = np.random.default_rng(1)
    points = rng.standard_normal((1000, 50))
    points /= np.sqrt(np.square(points).sum(axis=1))[:, None]
    points = points[np.einsum("ij,ij->i", points, points) < 1]
    outside = [exact_rim(tuple(point)) <= 0 for point in points.tolist()]
    assert sum(outside) > 5
    space, time = (part.astype(np.float32) for part in lorentz(points))
    assert np.isfinite(space).all() and (time >= 1e14).all() and (time <= 2.0**54).all()


def test_points_beyond_every_float_still_have_nearest_words() -> None:
    words = ball_words(600, 3)
    search = ball_search(words)
    points = at(np.random.default_rng(0).standard_normal((50, 3)), np.full(50, 700.0))
    farther = points + np.array([1e5, 0, 0, 0])
    with np.errstate(all="raise"):
        nearest, distances = search.nearest_two(farther)
    np.testing.assert_array_equal(nearest, search.nearest_two(points)[0])
    np.testing.assert_allclose(distances, search.nearest_two(points)[1] + 1e5, rtol=1e-14)
