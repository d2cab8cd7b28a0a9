"""Nearest words: exact against rational arithmetic, and the same however the work is cut."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.search import POINT_BLOCK, WORD_BLOCK, EuclideanNearest

Search = Callable[[np.ndarray], np.ndarray]


def half_norms(vectors: np.ndarray) -> np.ndarray:
    return (np.square(vectors.astype(np.float64)).sum(axis=1) / 2).astype(np.float32)


def search_of(vectors: np.ndarray, kind: type[EuclideanNearest] = EuclideanNearest) -> EuclideanNearest:
    return kind(vectors=vectors, half_norms=half_norms(vectors))


def exact_score(point: np.ndarray, vector: np.ndarray) -> Fraction:
    """(|q|² - |q - y|²) / 2 in rational numbers."""
    pairs = zip(map(Fraction, point.tolist()), map(Fraction, vector.tolist()), strict=True)
    return sum(((q - y / 2) * y for q, y in pairs), Fraction(0))


def faults(search: Search, vectors: np.ndarray, points: np.ndarray) -> int:
    """Count the points whose answer is not the nearest word, or not the first of equal vectors.

    Extended precision proposes the nearest words and rational numbers decide; only what double precision
    cannot tell apart, a billionth of the errors of single precision, may be mixed up.
    """
    wide = vectors.astype(np.longdouble)
    longest = float(np.sqrt(np.square(wide).sum(axis=1).max()))
    first_of = {row.tobytes(): number for number, row in reversed(list(enumerate(vectors)))}
    count = 0
    for point, answer in zip(points, search(points).tolist(), strict=True):
        rounding = (len(point) + 4) * 2.0**-53 * longest * (np.linalg.norm(point) + longest)
        scores = ((point.astype(np.longdouble) - wide / 2) * wide).sum(axis=1)
        rows = np.flatnonzero(scores >= scores.max() - rounding)
        best = max(exact_score(point, vectors[row]) for row in rows)
        wrong = best - exact_score(point, vectors[answer]) > Fraction(2.0 * rounding)
        count += wrong or first_of[vectors[answer].tobytes()] != answer
    return count


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
    assert faults(search_of(vectors), vectors, points) == 0


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


@pytest.mark.parametrize(
    "shortcut", [plain_argmax, last_of_equals, lambda vectors: search_of(vectors, NoSlack)]
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
