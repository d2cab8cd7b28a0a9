"""Nearest words: exact against rational arithmetic, and the same however the work is cut."""

from __future__ import annotations

import dataclasses
import decimal
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark import search as search_module
from dptext_spark.embedding import Embedding
from dptext_spark.hyperbolic import lorentz
from dptext_spark.search import (
    POINT_BLOCK,
    WORD_BLOCK,
    EuclideanNearest,
    HyperbolicNearest,
    NearestWords,
    rims,
)

Search = Callable[[np.ndarray], np.ndarray]

decimal.getcontext().prec = 60


def half_norms(vectors: np.ndarray) -> np.ndarray:
    return (np.square(vectors.astype(np.float64)).sum(axis=1) / 2).astype(np.float32)


def search_of(vectors: np.ndarray, kind: type[EuclideanNearest] = EuclideanNearest) -> EuclideanNearest:
    return kind(vectors=vectors, half_norms=half_norms(vectors))


def exact_score(point: np.ndarray, vector: np.ndarray) -> Fraction:
    """(|q|² - |q - y|²) / 2 in rational numbers."""
    pairs = zip(map(Fraction, point.tolist()), map(Fraction, vector.tolist()), strict=True)
    return sum(((q - y / 2) * y for q, y in pairs), Fraction(0))


def faults(search: Search, vectors: np.ndarray, points: np.ndarray) -> int:
    """Count the points whose answers are not the nearest words, or not the first of equal vectors.

    Extended precision proposes the nearest words and rational numbers decide; only what double precision
    cannot tell apart, a billionth of the errors of single precision, may be mixed up.

    Args:
        search: Answers points with words, (t,) or (t, k), nearest first.
        vectors: The words.
        points: What to look for.
    """
    wide = vectors.astype(np.longdouble)
    longest = float(np.sqrt(np.square(wide).sum(axis=1).max()))
    count = 0
    for point, answer in zip(points, search(points).reshape(len(points), -1), strict=True):
        rounding = (len(point) + 4) * 2.0**-53 * longest * (np.linalg.norm(point) + longest)
        scores = ((point.astype(np.longdouble) - wide / 2) * wide).sum(axis=1)
        rows = np.flatnonzero(scores >= np.sort(scores)[-len(answer)] - rounding)
        best = sorted((exact_score(point, vectors[row]) for row in rows), reverse=True)[: len(answer)]
        found = [exact_score(point, vectors[row]) for row in answer]
        wrong = any(b - f > Fraction(2.0 * rounding) for b, f in zip(best, found, strict=True))
        count += wrong or passes_over_a_twin(vectors, answer)
    return count


def passes_over_a_twin(vectors: np.ndarray, answer: np.ndarray) -> bool:
    """Say whether an equal vector of a lower row was left out, or came later, or a word came twice."""
    for place, row in enumerate(answer):
        twins = np.flatnonzero((vectors[:row] == vectors[row]).all(axis=1))
        if not set(twins.tolist()) <= set(answer[:place].tolist()):
            return True
    return len(set(answer.tolist())) < len(answer)


def two(search: NearestWords) -> Search:
    return lambda points: search.nearest_two(points)[0]


def near_ties(count: int, n: int, *, seed: int = 0) -> np.ndarray:
    """Words in clusters: twins, words one float32 ulp apart in one coordinate, and strangers between."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, n)).astype(np.float32)
    quarter = count // 4
    vectors[quarter : 2 * quarter] = vectors[:quarter]
    close = slice(2 * quarter, 3 * quarter)
    vectors[close] = vectors[:quarter]
    rows, columns = np.arange(2 * quarter, 3 * quarter), rng.integers(0, n, quarter)
    vectors[rows, columns] = np.nextafter(vectors[rows, columns], np.float32(np.inf))
    return vectors[rng.permutation(count)]


def hard_points(vectors: np.ndarray, count: int, *, seed: int = 0) -> np.ndarray:
    """Words themselves, exact midpoints of two words, and points of many scales around them."""
    rng = np.random.default_rng(seed)
    wide = vectors.astype(np.float64)
    first, second = rng.integers(0, len(wide), (2, count))
    kinds = [wide[first], (wide[first] + wide[second]) / 2]
    kinds += [
        wide[first] + scale * rng.standard_normal((count, wide.shape[1]))
        for scale in (1e-6, 0.1, 1.0, 1e6, 1e30)
    ]
    return np.stack(kinds)[np.arange(count) % len(kinds), np.arange(count)]


SHAPES = [
    (2, 1),
    (3, 2),
    (40, 300),
    (WORD_BLOCK - 1, 2),
    (WORD_BLOCK, 50),
    (WORD_BLOCK + 1, 3),
    (2 * WORD_BLOCK, 1),
    (2 * WORD_BLOCK + 1, 100),
    (3000, 2),
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

    def _slack(self, queries: np.ndarray) -> np.ndarray:
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


@pytest.mark.parametrize("n", [2, 300])
def test_the_batch_and_the_threads_do_not_change_the_answer(n: int) -> None:
    """Rejects answers that hang on how BLAS cut the product; see the same for the naive argmax below."""
    vectors = near_ties(2 * WORD_BLOCK + 1, n)
    points = hard_points(vectors, POINT_BLOCK + 200)
    search = search_of(vectors)
    whole = search(points)
    for size in (1, 3, POINT_BLOCK - 1, POINT_BLOCK, POINT_BLOCK + 1):
        parts = [search(points[i : i + size]) for i in range(0, len(points), size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    shuffled = np.random.default_rng(2).permutation(len(points))
    assert search(points[shuffled]).tobytes() == whole[shuffled].tobytes()
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            assert search(points).tobytes() == whole.tobytes()


def test_the_naive_argmax_depends_on_the_batch() -> None:
    """The power of the test above."""
    vectors = near_ties(2 * WORD_BLOCK + 1, 300)
    points = hard_points(vectors, POINT_BLOCK + 200)
    naive = plain_argmax(vectors)
    single = np.concatenate([naive(points[i : i + 1]) for i in range(len(points))])
    assert (single != naive(points)).any()


def test_no_points_give_no_words() -> None:
    assert search_of(near_ties(9, 3))(np.zeros((0, 3))).shape == (0,)


def one_after_another(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """float32 products summed in order: the worst that a BLAS may do."""
    products = queries[:, None, :] * vectors[None, :, :]
    return np.cumsum(products, axis=2, dtype=np.float32)[:, :, -1]


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


@pytest.mark.parametrize("n", [1, 2, 50, 300])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e12])
def test_the_slack_bounds_the_error_of_single_precision(n: int, scale: float) -> None:
    rng = np.random.default_rng(n)
    # Equal signs and digits make the rounding errors of a sum lean to one side.
    vectors = np.concatenate([rng.standard_normal((6, n)), np.full((2, n), 1.1), np.full((2, n), -0.7)])
    vectors = vectors.astype(np.float32)
    points = scale * np.concatenate([rng.standard_normal((4, n)), np.full((2, n), 1.3)])
    slack = search_of(vectors)._slack(points.astype(np.float32))
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
    assert len(search._scan(points).candidates(2)[0]) >= 2 * len(points)
    monkeypatch.setattr(search_module, "_largest", floor_of_the_best)
    rows = search._scan(points).candidates(2)[0]
    assert (np.bincount(rows, minlength=len(points)) < 2).sum() >= 5


def test_distances_are_those_of_the_two_words() -> None:
    vectors = near_ties(700, 20)
    points = hard_points(vectors, 210)
    nearest, distances = search_of(vectors).nearest_two(points)
    assert (distances[:, 0] <= distances[:, 1]).all()
    gaps = points[:, None, :].astype(np.longdouble) - vectors[nearest]
    expected = np.sort(np.sqrt(np.square(gaps).sum(axis=2)), axis=1)
    np.testing.assert_allclose(distances, expected.astype(np.float64), rtol=1e-14)


def test_twins_are_the_two_nearest_words() -> None:
    vectors = np.float32([[5, 5], [1, 0], [0, 2], [1, 0], [1, 0]])
    nearest, distances = search_of(vectors).nearest_two(np.array([[1.0, 0.0], [2.0, 0.0]]))
    assert nearest.tolist() == [[1, 3], [1, 3]]
    assert distances.tolist() == [[0, 0], [1, 1]]


# The Poincaré ball


def ball_search(points: np.ndarray, kind: type[HyperbolicNearest] = HyperbolicNearest) -> HyperbolicNearest:
    space, time = lorentz(points)
    return kind(vectors=points, space=space.astype(np.float32), time=time.astype(np.float32))


def inside(directions: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Points at a distance ``gaps`` from the edge."""
    lengths = np.sqrt(np.square(directions).sum(axis=1))
    return directions / lengths[:, None] * (1.0 - gaps)[:, None]


def ball_words(count: int, n: int, *, seed: int = 0) -> np.ndarray:
    """Words from the origin to the edge; then twins, and words one float64 ulp or a millionth beside them."""
    rng = np.random.default_rng(seed)
    gaps = np.array([1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1.0])
    words = inside(rng.standard_normal((count, n)), gaps[np.arange(count) % len(gaps)])
    fifth = count // 5
    words[fifth : 2 * fifth] = words[:fifth]
    words[2 * fifth : 3 * fifth] = np.nextafter(words[:fifth], 0.0)
    words[3 * fifth : 4 * fifth] = words[:fifth] * (1 - 1e-6)
    return words[rng.permutation(count)]


def at(directions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Points (t, n + 1) as the search wants them, at hyperbolic radii, which may be small or large."""
    directions = np.where((directions == 0).all(axis=1)[:, None], 1.0, directions)
    lengths = np.sqrt(np.square(directions).sum(axis=1))
    heights = np.where(radii < 1, np.log1p(2 * np.sinh(np.minimum(radii, 1) / 2) ** 2), radii - np.log(2))
    heights += np.where(radii < 1, 0.0, np.log1p(np.exp(-2 * np.maximum(radii, 1))))
    return np.column_stack([heights, directions / lengths[:, None] * np.tanh(radii)[:, None]])


RADII = np.array([1e-9, 1e-4, 0.3, 2.0, 14.5, 28.3, 40.0, 700.0])


def hard_ball_points(words: np.ndarray, count: int, *, seed: int = 0) -> np.ndarray:
    """Words themselves, midpoints of two, and points of all radii in the words' directions and others."""
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, len(words), (2, count))
    space, time = lorentz(words)
    own = np.column_stack([np.log(time), space / time[:, None]])
    middle = np.column_stack([time, space])[first] + np.column_stack([time, space])[second]
    product = time[first] * time[second] - (space[first] * space[second]).sum(axis=1)
    middle /= np.sqrt(2 + 2 * np.maximum(product, 1))[:, None]
    middle = np.column_stack([np.log(np.maximum(middle[:, 0], 1)), middle[:, 1:] / middle[:, :1]])
    radii = RADII[rng.integers(0, len(RADII), count)]
    noise = rng.standard_normal(words[first].shape)
    kinds = [own[first], middle, at(noise, radii), at(words[first], radii)]
    kinds += [at(words[first] + scale * noise, radii) for scale in (1e-9, 1e-5, 1e-2)]
    return np.stack(kinds)[np.arange(count) % len(kinds), np.arange(count)]


@cache
def exact_rim(word: tuple[float, ...]) -> Fraction:
    return 1 - sum(Fraction(x) ** 2 for x in word)


def exact_distance(point: np.ndarray, word: np.ndarray) -> Decimal:
    """2 arcsinh(|p - b| / sqrt((1 - |p|²)(1 - |b|²))), b = w q0 / (1 + q0), to some 40 digits."""
    height = Decimal(point[0].item()).exp()
    inward = Fraction(1 / (1 + height))
    gap = sum(
        (Fraction(p) - Fraction(w) * (1 - inward)) ** 2
        for p, w in zip(word.tolist(), point[1:].tolist(), strict=True)
    )
    ratio = gap / exact_rim(tuple(word.tolist()))
    root = (Decimal(ratio.numerator) / Decimal(ratio.denominator) * (1 + height) / 2).sqrt()
    return 2 * (root + (root * root + 1).sqrt()).ln()


def ball_faults(search: Search, words: np.ndarray, points: np.ndarray) -> int:
    """Count the points whose answers are not the nearest words in hyperbolic distance; see ``faults``.

    Distances may be mixed up that differ by less than float64 resolves, 10^-14 of the larger of 1 and d.
    """
    rim = np.array([float(exact_rim(tuple(word))) for word in words.tolist()])
    count = 0
    with np.errstate(all="raise"):
        answers = search(points).reshape(len(points), -1)
    for point, answer in zip(points, answers, strict=True):
        inward = np.exp(-np.logaddexp(0.0, point[0]))
        rough = np.square(words - point[1:] + inward * point[1:]).sum(axis=1) / rim
        rows = np.flatnonzero(rough <= np.sort(rough)[len(answer) - 1] * (1 + 1e-7) + 1e-300)
        best = sorted(exact_distance(point, words[row]) for row in rows)[: len(answer)]
        found = [exact_distance(point, words[row]) for row in answer]
        wrong = any(f - b > Decimal("1e-14") * max(1, b) for b, f in zip(best, found, strict=True))
        count += wrong or passes_over_a_twin(words, answer)
    return count


@pytest.mark.parametrize(
    ("count", "n"), [(2, 2), (40, 2), (20, 300), (WORD_BLOCK + 1, 3), (1100, 20), (3000, 2)]
)
@pytest.mark.parametrize("kind", ["random", "hard"])
def test_the_nearest_word_in_the_ball_is_exact(count: int, n: int, kind: str) -> None:
    """Rejects every shortcut of the next test."""
    rng = np.random.default_rng(5)
    random = inside(rng.standard_normal((count, n)), rng.random(count))
    words = ball_words(count, n) if kind == "hard" else random
    points, search = hard_ball_points(words, 70), ball_search(words)
    assert ball_faults(search, words, points) == 0
    assert ball_faults(two(search), words, points) == 0


class NoWidths(HyperbolicNearest):
    """Trusts the float32 scores: only exact float32 ties are looked at again."""

    def _scan(self, points: np.ndarray) -> Any:
        return dataclasses.replace(super()._scan(points), widths=None)


def float32_product(words: np.ndarray) -> Search:
    search = ball_search(words)
    return lambda points: (points[:, 1:].astype(np.float32) @ search.space.T - search.time).argmax(axis=1)


def float64_product(words: np.ndarray) -> Search:
    """The Lorentz product in double precision: near the edge its digits cancel."""
    space, time = lorentz(words)
    return lambda points: (points[:, 1:] @ space.T - time).argmax(axis=1)


def euclidean_in_the_ball(words: np.ndarray) -> Search:
    def nearest(points: np.ndarray) -> np.ndarray:
        inner = points[:, 1:] / (1 + np.exp(-points[:, :1]))
        return np.square(inner[:, None, :] - words).sum(axis=2).argmin(axis=1)

    return nearest


@pytest.mark.parametrize(
    "shortcut",
    [
        float32_product,
        float64_product,
        euclidean_in_the_ball,
        lambda words: ball_search(words, NoWidths),
        lambda words: two(ball_search(words, NoWidths)),
    ],
)
def test_shortcuts_in_the_ball_are_told_from_the_exact_search(
    shortcut: Callable[[np.ndarray], Search],
) -> None:
    words = ball_words(600, 5)
    points = hard_ball_points(words, 140)
    assert ball_faults(shortcut(words), words, points) >= 5


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


def test_points_beyond_every_float_still_have_nearest_words() -> None:
    words = ball_words(600, 3)
    search = ball_search(words)
    points = at(np.random.default_rng(0).standard_normal((50, 3)), np.full(50, 700.0))
    farther = points + np.array([1e5, 0, 0, 0])
    with np.errstate(all="raise"):
        nearest, distances = search.nearest_two(farther)
    np.testing.assert_array_equal(nearest, search.nearest_two(points)[0])
    np.testing.assert_allclose(distances, search.nearest_two(points)[1] + 1e5, rtol=1e-14)


def test_among_equally_near_words_of_the_ball_the_lowest_row_wins() -> None:
    words = np.array([[0.9, 0.9 / 4], [0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5], [0.5, 0], [0, 0.5]])
    points = at(np.array([[1.0, 1], [-1, -1], [0, 1], [1, 0]]), np.array([0.0, 0.2, 3.0, 0.3]))
    search = ball_search(words)
    nearest, distances = search.nearest_two(points)
    assert nearest.tolist() == [[1, 2], [2, 4], [3, 6], [1, 5]]
    assert search(points).tolist() == [1, 2, 3, 1]
    assert (distances[:, 0] == distances[:, 1]).all()


def test_q0_corrects_a_w_of_the_wrong_length() -> None:
    words = ball_words(600, 3)
    points = hard_ball_points(words, 140)
    stretched = points * np.where(np.arange(140) % 2, 1.0, 0.7)[:, None] ** [0, 1, 1, 1]
    found, expected = (ball_search(words).nearest_two(some)[1] for some in (stretched, points))
    # At 10^-12 from the edge a rounding of w is worth a ten thousandth.
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("n", [2, 50, 300])
def test_the_widths_bound_the_error_of_single_precision(n: int) -> None:
    rng = np.random.default_rng(n)
    gaps = np.array([1e-12, 1e-6, 1e-3, 0.3, 0.9, 1.0])
    words = np.concatenate([inside(rng.standard_normal((6, n)), gaps), inside(np.ones((6, n)), gaps)])
    heads = np.concatenate([rng.standard_normal((3, n)), np.ones((2, n)), -np.ones((1, n)), words[:2]])
    points = at(heads, RADII[[0, 2, 3, 6, 7, 4, 4, 5]])
    scan = ball_search(words)._scan(points)
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
    assert np.isfinite(space).all()
    assert (time >= 1e14).all()
    assert (time <= 2.0**54).all()


def test_an_edge_full_of_words_is_scanned_with_few_candidates() -> None:
    """The widths of words at the edge must not make candidates of the others."""
    words = inside(np.random.default_rng(0).standard_normal((3000, 5)), np.geomspace(1e-5, 0.5, 3000))
    points = hard_ball_points(words, 700)
    search = ball_search(words)
    rows, _ = search._scan(points).candidates(2)
    assert len(rows) < 20 * len(points)


# Both geometries


def euclidean_case() -> tuple[NearestWords, np.ndarray]:
    vectors = near_ties(2 * WORD_BLOCK + 1, 300)
    return search_of(vectors), hard_points(vectors, POINT_BLOCK + 200)


def ball_case() -> tuple[NearestWords, np.ndarray]:
    words = ball_words(2 * WORD_BLOCK + 1, 30)
    points = hard_ball_points(words, POINT_BLOCK + 200)
    points[::7, 1:] *= 1 - 1e-3  # w that belies q0 by more than the bound of the scan allows
    return ball_search(words), points


@pytest.mark.parametrize("case", [euclidean_case, ball_case])
def test_neither_words_nor_distances_depend_on_the_batch_or_the_threads(
    case: Callable[[], tuple[NearestWords, np.ndarray]],
) -> None:
    search, points = case()

    def answers(points: np.ndarray) -> list[np.ndarray]:
        return [search(points), *search.nearest_two(points)]

    whole = answers(points)
    np.testing.assert_array_equal(whole[0], whole[1][:, 0])
    for size in (1, 5, POINT_BLOCK - 1, POINT_BLOCK + 1):
        cut = [answers(points[i : i + size]) for i in range(0, len(points), size)]
        for parts, expected in zip(zip(*cut, strict=True), whole, strict=True):
            assert np.concatenate(parts).tobytes() == expected.tobytes()
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            assert [part.tobytes() for part in answers(points)] == [part.tobytes() for part in whole]


def test_no_points_have_no_two_words() -> None:
    nearest, distances = search_of(near_ties(9, 3)).nearest_two(np.zeros((0, 3)))
    assert (nearest.shape, distances.shape) == ((0, 2), (0, 2))


def test_a_bundle_of_the_ball_is_searched_in_place(ball: Embedding) -> None:
    search = HyperbolicNearest(
        vectors=ball.vectors[:15], space=ball.lorentz_space[:15], time=ball.lorentz_time[:15]
    )
    points = hard_ball_points(np.asarray(ball.vectors), 70)
    assert np.shares_memory(search._scan(points).matrix, ball.lorentz_space)
    assert ball_faults(two(search), np.asarray(ball.vectors[:15]), points) == 0
