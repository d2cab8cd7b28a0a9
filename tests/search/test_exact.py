"""Nearest words in both geometries against numbers of more digits, and the bounds that the scan stands on."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

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
        *((FLAT, kind, *shape) for kind in (random_words, near_ties) for shape in ((2, 1), (40, 300))),
        *((FLAT, near_ties, WORD_BLOCK + more, n) for more, n in ((-1, 2), (0, 50), (1, 3), (513, 2))),
        *((CURVED, kind, *shape) for kind in (random_ball, ball_words) for shape in ((2, 2), (20, 100))),
        (CURVED, ball_words, WORD_BLOCK + 1, 3),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_nearest_words_and_their_distances_are_exact(geometry, words_of, count, n):
    """Rejects scores in single precision, no slack, no widths, the last of equals, lost borders."""
    # In the ball also Euclidean distances, and Lorentz products, whose digits cancel near the edge.
    words = words_of(count, n)
    points, search = geometry.points(words, 70), geometry.search(words)
    assert geometry.faults(search, words, points) == geometry.faults(two(search), words, points) == 0
    nearest, distances = search.nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    expected = np.sort([geometry.distances(*pair) for pair in zip(points, words[nearest], strict=True)])
    np.testing.assert_allclose(distances, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("n", "scale"), [(1, 1e12), (300, 1e-6), (300, 1e12)])
def test_the_slack_bounds_the_error_of_single_precision(n, scale):
    """The largest error of a difference of two scores, in exact arithmetic, by BLAS and summed in order."""
    rng = np.random.default_rng(n)
    # Equal signs and digits make the rounding errors of a sum lean to one side.
    vectors = np.concatenate([rng.standard_normal((6, n)), np.full((2, n), 1.1), np.full((2, n), -0.7)])
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
    words = np.concatenate([inside(rng.standard_normal((6, n)), gaps), inside(np.ones((6, n)), gaps)])
    heads = np.concatenate([rng.standard_normal((3, n)), np.ones((2, n)), -np.ones((1, n)), words[:2]])
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
