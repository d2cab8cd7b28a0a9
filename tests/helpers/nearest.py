"""Exact nearest words, in rational and decimal numbers, and words and points that are hard to tell apart."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptext_spark.geometry.ball import lorentz
from dptext_spark.search.codes import CodedWords
from dptext_spark.search.exact import EuclideanNearest, HyperbolicNearest
from dptext_spark.search.nearest import NearestWords

decimal.getcontext().prec = 60

Answers = Callable[[np.ndarray], np.ndarray]
"""Points to words, (t,) or (t, k), nearest first."""


def two(search: NearestWords) -> Answers:
    return lambda points: search.nearest_two(points)[0]


def passes_over_a_twin(vectors: np.ndarray, answer: np.ndarray) -> bool:
    """Say whether an equal vector of a lower row was left out, or came later, or a word came twice."""
    for place, row in enumerate(answer):
        twins = np.flatnonzero((vectors[:row] == vectors[row]).all(axis=1))
        if not set(twins.tolist()) <= set(answer[:place].tolist()):
            return True
    return len(set(answer.tolist())) < len(answer)


def one_after_another(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """float32 products summed in order: the worst that a BLAS may do."""
    products = queries[:, None, :] * vectors[None, :, :]
    return np.cumsum(products, axis=2, dtype=np.float32)[:, :, -1]


# Euclidean space


def half_norms(vectors: np.ndarray) -> np.ndarray:
    halves: np.ndarray = np.square(vectors.astype(np.float64)).sum(axis=1) / 2
    return halves.astype(np.float32)


def search_of(vectors: np.ndarray) -> EuclideanNearest:
    return EuclideanNearest(vectors=vectors, half_norms=half_norms(vectors))


def coarse_search(vectors: np.ndarray, bits: int = 8) -> EuclideanNearest:
    return replace(search_of(vectors), coarse=CodedWords.of(vectors, bits))


def differing(vectors: np.ndarray, points: np.ndarray, bits: int = 8) -> int:
    """Count the points of which the nearest or the two nearest words are not those without codes."""
    coded, uncoded = coarse_search(vectors, bits), search_of(vectors)
    wrong_first = coded(points) != uncoded(points)
    wrong_two = (two(coded)(points) != two(uncoded)(points)).any(axis=1)
    return int((wrong_first | wrong_two).sum())


def exact_multiplier(
    points: NDArray[np.int8], scores: NDArray[np.int32]
) -> Callable[[NDArray[np.uint8], int], None]:
    """Multiply like the kernel, in double precision: exact on any processor."""
    wide = points.astype(np.float64)

    def multiply(words: NDArray[np.uint8], count: int) -> None:
        scores[:count] = words.astype(np.float64) @ wide

    return multiply


def exact_score(point: np.ndarray, vector: np.ndarray) -> Fraction:
    """(|q|² - |q - y|²) / 2 in rational numbers."""
    pairs = zip(map(Fraction, point.tolist()), map(Fraction, vector.tolist()), strict=True)
    return sum(((q - y / 2) * y for q, y in pairs), Fraction(0))


def faults(search: Answers, vectors: np.ndarray, points: np.ndarray) -> int:
    """Count the points whose answers are not the nearest words, or not the first of equal vectors.

    Extended precision decides; only what double precision cannot tell apart, a billionth of the errors of
    single precision, may be mixed up.
    """
    wide = vectors.astype(np.longdouble)
    longest, count = float(np.sqrt(np.square(wide).sum(axis=1).max())), 0
    for point, answer in zip(points, search(points).reshape(len(points), -1), strict=True):
        rounding = (len(point) + 4) * 2.0**-53 * longest * (np.linalg.norm(point) + longest)
        scores = ((point.astype(np.longdouble) - wide / 2) * wide).sum(axis=1)
        wrong = np.sort(scores)[: -len(answer) - 1 : -1] - scores[answer] > 2 * rounding
        count += bool(wrong.any()) or passes_over_a_twin(vectors, answer)
    return count


def near_ties(count: int, n: int, *, seed: int = 0) -> np.ndarray:
    """Words in clusters: twins, words one float32 ulp apart in one coordinate, and strangers between."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, n)).astype(np.float32)
    quarter = count // 4
    vectors[quarter : 2 * quarter] = vectors[2 * quarter : 3 * quarter] = vectors[:quarter]
    rows, columns = np.arange(2 * quarter, 3 * quarter), rng.integers(0, n, quarter)
    vectors[rows, columns] = np.nextafter(vectors[rows, columns], np.float32(np.inf))
    return vectors[rng.permutation(count)]


def hard_points(vectors: np.ndarray, count: int, *, seed: int = 0) -> np.ndarray:
    """Words themselves, exact midpoints of two words, and points of many scales around them."""
    rng = np.random.default_rng(seed)
    wide = vectors.astype(np.float64)
    first, second = wide[rng.integers(0, len(wide), (2, count))]
    scales = (1e-6, 0.1, 1.0, 1e6, 1e30)
    kinds = [
        first,
        (first + second) / 2,
        *(first + s * rng.standard_normal(first.shape) for s in scales),
    ]
    return np.stack(kinds)[np.arange(count) % len(kinds), np.arange(count)]


# The ball


def ball_search(points: np.ndarray) -> HyperbolicNearest:
    space, time = lorentz(points)
    return HyperbolicNearest(
        vectors=points, space=space.astype(np.float32), time=time.astype(np.float32)
    )


def inside(directions: np.ndarray, gaps: np.ndarray) -> np.ndarray:
    """Points at a distance ``gaps`` from the edge."""
    lengths: np.ndarray = np.sqrt(np.square(directions).sum(axis=1))
    return directions / lengths[:, None] * (1.0 - gaps)[:, None]


def ball_words(count: int, n: int, *, seed: int = 0) -> np.ndarray:
    """Words from the origin to the edge; then twins, and words one float64 ulp or a millionth beside them."""
    rng = np.random.default_rng(seed)
    gaps = np.array([1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1.0])
    words = inside(rng.standard_normal((count, n)), gaps[np.arange(count) % len(gaps)])
    first = words[: count // 5]
    beside = np.concatenate([first, np.nextafter(first, 0.0), first * (1 - 1e-6)])
    words[len(first) : 4 * len(first)] = beside
    return words[rng.permutation(count)]


def around_the_origin(count: int, n: int) -> np.ndarray:
    """Words of nearly one radius, as trained ones are, and a root."""
    rng = np.random.default_rng(n)
    words = inside(rng.standard_normal((count, n)), rng.uniform(0.3, 0.5, count))
    words[0] = 0.0
    return words


def at(directions: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Points (t, n + 1) as the search wants them, at hyperbolic radii, which may be small or large."""
    directions = np.where((directions == 0).all(axis=1)[:, None], 1.0, directions)
    lengths = np.sqrt(np.square(directions).sum(axis=1))
    heights = np.where(
        radii < 1, np.log1p(2 * np.sinh(np.minimum(radii, 1) / 2) ** 2), radii - np.log(2)
    )
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
    ways = [noise, *(words[first] + scale * noise for scale in (0.0, 1e-9, 1e-5, 1e-2))]
    kinds = [own[first], middle, *(at(way, radii) for way in ways)]
    return np.stack(kinds)[np.arange(count) % len(kinds), np.arange(count)]


@cache
def exact_rim(word: tuple[float, ...]) -> Fraction:
    return 1 - sum((Fraction(x) ** 2 for x in word), Fraction())


def exact_distance(point: np.ndarray, word: np.ndarray) -> Decimal:
    """2 arcsinh(|p - b| / sqrt((1 - |p|²)(1 - |b|²))), b = w q0 / (1 + q0), to some 40 digits."""
    height = Decimal(point[0].item()).exp()
    inward = Fraction(1 / (1 + height))
    pairs = zip(word.tolist(), point[1:].tolist(), strict=True)
    gap = sum((Fraction(p) - Fraction(w) * (1 - inward)) ** 2 for p, w in pairs)
    ratio = gap / exact_rim(tuple(word.tolist()))
    root = (Decimal(ratio.numerator) / Decimal(ratio.denominator) * (1 + height) / 2).sqrt()
    return 2 * (root + (root * root + 1).sqrt()).ln()


def ball_faults(search: Answers, words: np.ndarray, points: np.ndarray) -> int:
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
        wrong = any(
            f - b > Decimal("1e-14") * max(Decimal(1), b) for b, f in zip(best, found, strict=True)
        )
        count += wrong or passes_over_a_twin(words, answer)
    return count


class Geometry(NamedTuple):
    """Its search, hard points of some words, and what counts wrong answers and gives exact distances."""

    search: Callable[..., Any]
    points: Callable[[np.ndarray, int], np.ndarray]
    faults: Callable[[Answers, np.ndarray, np.ndarray], int]
    distances: Callable[[np.ndarray, np.ndarray], np.ndarray]  # of a point to words (k, n)


FLAT = Geometry(
    search_of,
    hard_points,
    faults,
    lambda point, words: np.sqrt(np.square(point.astype(np.longdouble) - words).sum(axis=1)),
)
CURVED = Geometry(
    ball_search,
    hard_ball_points,
    ball_faults,
    lambda point, words: np.array([float(exact_distance(point, word)) for word in words]),
)
