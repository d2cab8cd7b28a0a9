"""Nearest words in both geometries against numbers of more digits, and the bounds that the scan stands on."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from dptext_spark.geometry.ball import lorentz, rims
from dptext_spark.search.exact import POINT_BLOCK, WORD_BLOCK
from tests.helpers.nearest import (
    CURVED,
    FLAT,
    RADII,
    at,
    ball_words,
    exact_rim,
    exact_score,
    half_norms,
    hard_ball_points,
    inside,
    near_ties,
    one_after_another,
    two,
)


def random_words(count, n):
    return np.random.default_rng(5).standard_normal((count, n)).astype(np.float32)


def random_ball(count, n):
    rng = np.random.default_rng(5)
    return inside(rng.standard_normal((count, n)), rng.random(count))


@pytest.mark.parametrize(
    ("geometry", "words_of", "count", "n"),
    [
        *(
            (FLAT, kind, *shape)
            for kind in (random_words, near_ties)
            for shape in ((2, 1), (40, 300))
        ),
        *(
            (FLAT, near_ties, WORD_BLOCK + more, n)
            for more, n in ((-1, 2), (0, 50), (1, 3), (513, 2))
        ),
        *(
            (CURVED, kind, *shape)
            for kind in (random_ball, ball_words)
            for shape in ((2, 2), (20, 100))
        ),
        (CURVED, ball_words, WORD_BLOCK + 1, 3),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_nearest_words_and_their_distances_are_exact(geometry, words_of, count, n):
    """Rejects scores in single precision, no slack, no widths, the last of equals, lost borders."""
    # In the ball also Euclidean distances, and Lorentz products, whose digits cancel near the edge.
    words = words_of(count, n)
    points, search = geometry.points(words, 70), geometry.search(words)
    assert (
        geometry.faults(search, words, points) == geometry.faults(two(search), words, points) == 0
    )
    nearest, distances = search.nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    expected = np.sort(
        [geometry.distances(*pair) for pair in zip(points, words[nearest], strict=True)]
    )
    np.testing.assert_allclose(distances, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("n", "scale"), [(1, 1e12), (300, 1e-6), (300, 1e12)])
def test_the_slack_bounds_the_error_of_single_precision(n, scale):
    """The largest error of a difference of two scores, in exact arithmetic, by BLAS and summed in order."""
    rng = np.random.default_rng(n)
    # Equal signs and digits make the rounding errors of a sum lean to one side.
    vectors = np.concatenate(
        [rng.standard_normal((6, n)), np.full((2, n), 1.1), np.full((2, n), -0.7)]
    )
    vectors = vectors.astype(np.float32)
    points = scale * np.concatenate([rng.standard_normal((4, n)), np.full((2, n), 1.3)])
    queries = points.astype(np.float32)
    exact = np.array([[exact_score(point, vector) for vector in vectors] for point in points])
    errors = np.zeros(len(points))
    for products in (queries @ vectors.T, one_after_another(queries, vectors)):
        strays = np.vectorize(Fraction)((products - half_norms(vectors)).astype(np.float64)) - exact
        errors = np.maximum(errors, np.ptp(strays, axis=1).astype(np.float64))
    slack = FLAT.search(vectors).slack(queries)
    assert (errors <= slack).all()
    # A bound that forgets the length of the sums would be broken, so these samples can tell.
    assert n == 1 or scale < 1.0 or (errors > slack * 4 / (n + 4)).any()


@pytest.mark.parametrize("n", [2, 300])
def test_the_widths_bound_the_error_of_single_precision(n):
    """In the ball, likewise."""
    rng, gaps = np.random.default_rng(n), np.array([1e-12, 1e-6, 1e-3, 0.3, 0.9, 1.0])
    words = np.concatenate(
        [inside(rng.standard_normal((6, n)), gaps), inside(np.ones((6, n)), gaps)]
    )
    heads = np.concatenate(
        [rng.standard_normal((3, n)), np.ones((2, n)), -np.ones((1, n)), words[:2]]
    )
    points = at(heads, RADII[[0, 2, 3, 6, 7, 4, 4, 5]])
    scan, errors = CURVED.search(words).scan(points), []
    rim = [exact_rim(tuple(word)) for word in words.tolist()]
    for products in (scan.queries @ scan.matrix.T, one_after_another(scan.queries, scan.matrix)):
        for (p, w), score in np.ndenumerate(products - scan.offsets):
            pairs = zip(points[p, 1:].tolist(), words[w].tolist(), strict=True)
            exact = (2 * sum(Fraction(a) * Fraction(b) for a, b in pairs) - (2 - rim[w])) / rim[w]
            errors.append(float((Fraction(float(score)) - exact) / Fraction(float(scan.widths[w]))))
    assert np.min(errors) >= 0 and np.max(errors) <= 1
    # A bound that forgets the length of the sums would be broken, so these samples can tell.
    assert n == 2 or np.ptp(errors) > 10 / (n + 10)


def test_the_matrix_is_not_copied(tmp_path):
    """Rejects a private copy of the matrix, in float64 or in another order."""
    np.save(tmp_path / "vectors.npy", random_words(60_000, 100))
    matrix = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    search, points = FLAT.search(matrix), random_words(POINT_BLOCK + 88, 100).astype(np.float64)
    tracemalloc.start()
    search(points)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < matrix.nbytes / 2


def test_q0_corrects_a_w_of_the_wrong_length_and_no_radius_overflows():
    words, rng = ball_words(600, 3), np.random.default_rng(0)
    points, search = hard_ball_points(words, 140), CURVED.search(words)
    stretched = points * np.where(np.arange(140) % 2, 1.0, 0.7)[:, None] ** [0, 1, 1, 1]
    # At 10^-12 from the edge a rounding of w is worth a ten thousandth.
    found, expected = (search.nearest_two(some)[1] for some in (stretched, points))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    far = at(rng.standard_normal((50, 3)), np.full(50, 700.0))
    nearest, distances = search.nearest_two(far)
    for farther in (1e5, 1e17):
        with np.errstate(all="raise"):
            again, beyond = search.nearest_two(far + np.array([farther, 0, 0, 0]))
        np.testing.assert_array_equal(again, nearest)
        np.testing.assert_allclose(beyond, distances + farther, rtol=1e-14)


def test_among_equally_near_words_the_lowest_row_wins():
    grid = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 0], [3, 0]], dtype=np.float32)
    far = np.tile(np.float32([[9, 9]]), (WORD_BLOCK, 1))
    vectors = np.concatenate([far, grid, grid])  # equals in one block and across a border of blocks
    points = np.array(
        [[0, 0], [0, 0.5], [-0.5, -0.5], [2, 0], [2.5, 0], [-7, 0], [9, 9]], dtype=np.float64
    )
    assert (FLAT.search(vectors)(points) - WORD_BLOCK).tolist() == [0, 2, 1, 0, 5, 1, -WORD_BLOCK]
    words = np.array([[0.9, 0.9 / 4], [0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5], [0.5, 0], [0, 0.5]])
    points = at(np.array([[1.0, 1], [-1, -1], [0, 1], [1, 0]]), np.array([0.0, 0.2, 3.0, 0.3]))
    nearest, distances = CURVED.search(words).nearest_two(points)
    assert nearest.tolist() == [[1, 2], [2, 4], [3, 6], [1, 5]]
    assert CURVED.search(words)(points).tolist() == [1, 2, 3, 1]
    assert (distances[:, 0] == distances[:, 1]).all()


def test_rims_keep_their_digits_at_the_edge():
    """Also of points that are inside by rounding alone."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 50, 300):
        points = inside(rng.standard_normal((60, n)), np.geomspace(1e-15, 1, 60))
        exact = [exact_rim(tuple(point)) for point in points.tolist()]
        expected = np.array([float(max(rim, Fraction(1, 2**53))) for rim in exact])
        np.testing.assert_allclose(rims(points), expected, rtol=1e-15 * n, atol=1e-21)
    points = inside(rng.standard_normal((1000, 50)), np.zeros(1))
    points = points[np.einsum("ij,ij->i", points, points) < 1]
    assert sum(exact_rim(tuple(point)) <= 0 for point in points.tolist()) > 5
    space, time = (part.astype(np.float32) for part in lorentz(points))
    assert np.isfinite(space).all() and (time >= 1e14).all() and (time <= 2.0**54).all()
