"""Coarse scores: which words can be the nearest, by products of codes and a proven bound."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from dptext_spark.geometry import Floats, Ints
from dptext_spark.search import kernel
from dptext_spark.search.codes import RELATIVE_ERROR, TILE, CodedWords, coded_points
from dptext_spark.search.kernel import Integers

POINTS: Final = kernel.BLOCK
"""Points whose scores are held at once."""

MOST: Final = 200
"""Candidates of a point, on average: where there are more, single precision is as fast."""

_GROUP: Final = 32  # words of which only the best score is looked at first
_GROUPS: Final = TILE // _GROUP
_FAR: Final = 1e100  # sums of larger coordinates may overflow
_LEAST: Final = np.iinfo(np.int32).min


def coarse_candidates(words: CodedWords, points: Floats, k: int) -> tuple[Ints, Ints] | None:
    """Find all words that may be among the k nearest: rows of points and word ids, int64 (c,) each.

    None where there are too many of them, or points so far away that sums overflow.
    """
    if not np.abs(points).max(initial=0.0) < _FAR:  # also where one is NaN
        return None
    rows = []
    word_ids = []
    for start in range(0, len(points), POINTS):
        candidates = _candidates(words, points[start : start + POINTS], k)
        if candidates is None:
            return None
        rows.append(candidates[0] + start)
        word_ids.append(candidates[1])
    return np.concatenate(rows), np.concatenate(word_ids)


def _candidates(words: CodedWords, points: Floats, k: int) -> tuple[Ints, Ints] | None:
    """Find the candidates of one block of points; scores are over the points' scales."""
    coded = coded_points(points, words)
    errors = words.tile_errors @ coded.errors
    # To be added to products: the highest and the lowest scores that they stand for.
    upper_offsets = errors - coded.shifts
    lower_offsets = -errors - coded.shifts
    groups = _promising_groups(words, coded.codes, lower_offsets, upper_offsets, k)
    if groups is None:
        return None
    kth_best, group, point, products = groups
    tiles = group // _GROUPS
    scales = words.tiles[0, tiles]
    offsets = upper_offsets[tiles, point]
    limits = _limits(kth_best[point], scales, offsets)
    places = np.flatnonzero(products >= limits[:, None])
    if len(places) > MOST * len(points):
        return None
    pair, member = np.divmod(places, _GROUP)
    rows = point[pair]
    word_ids = words.words[_GROUP * group[pair] + member].astype(np.int64)
    upper = (products.ravel()[places] + offsets[pair]) * scales[pair]
    floors = _floors(words, points, rows, word_ids, upper, k, coded.scales)
    possible = upper >= floors[rows]
    return rows[possible], word_ids[possible]


def _promising_groups(
    words: CodedWords, codes: Any, lower_offsets: Floats, upper_offsets: Floats, k: int
) -> tuple[Floats, Ints, Ints, Integers] | None:
    """Find groups of words of which one may be among the k nearest of a point.

    Returns a lower bound of each point's k-th best score (t,), then pairs (g,) of groups and
    points, and the products of each pair's words (g, 32). None where there are too many pairs.
    """
    point_count = codes.shape[1]
    best = np.full((k, point_count), -np.inf)
    products = np.full((TILE, point_count), _LEAST, dtype=np.int32)
    multiply = kernel.multiplier(codes, products)
    pairs: list[tuple[Ints, Ints, Integers]] = []
    pair_count = 0
    for tile, scale in enumerate(words.tiles[0].tolist()):
        word_count = min(TILE, len(words.codes) - tile * TILE)
        multiply(words.prepared_tiles[tile], word_count)
        products[word_count:] = _LEAST
        if words.barred_lines:
            products[words.barred_lines[tile]] = _LEAST
        filled = -(-word_count // _GROUP) * _GROUP
        grouped = products[:filled].reshape(-1, _GROUP, point_count)
        peaks = grouped.max(axis=1)
        best = _raised(best, peaks, lower_offsets[tile], scale)
        limits = _limits(best[0], scale, upper_offsets[tile])
        group, point = np.divmod(np.flatnonzero(peaks >= limits), point_count)
        pairs.append((group + tile * _GROUPS, point, grouped[group, :, point]))
        pair_count += len(group)
        if pair_count > MOST * point_count:
            return None
    groups, points, pair_products = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    return best[0], groups, points, pair_products


def _raised(best: Floats, peaks: Integers, lower_offsets: Floats, scale: float) -> Floats:
    """Raise lower bounds (k, t), of the k best scores, ascending, by groups' products (g, t)."""
    k = len(best)
    if k == 1:
        scores = (peaks.max(axis=0) + lower_offsets) * scale
        raised: Floats = np.maximum(best, scores, out=best)
        return raised
    # The best words of groups are different words: they bound the k best from below.
    tops = peaks if len(peaks) <= k else np.partition(peaks, -k, axis=0)[-k:]
    return np.sort(np.concatenate([best, (tops + lower_offsets) * scale]), axis=0)[-k:]


def _limits(best: Floats, scales: Any, offsets: Floats) -> Integers:
    """Return the least integer product whose score may be among the best."""
    products = best / scales - offsets - 1.0
    limits: Floats = np.minimum(np.maximum(products, _LEAST + 1.0), -_LEAST - 1.0)
    return limits.astype(np.int32)


def _floors(
    words: CodedWords,
    points: Floats,
    rows: Ints,
    word_ids: Ints,
    upper: Floats,
    k: int,
    scales: Floats,
) -> Floats:
    """Bound each point's k-th best score from below, by the k words that may score most."""
    floors = np.full(len(points), np.inf)
    remaining = upper.copy()
    for _ in range(k):
        tops = np.full(len(points), -np.inf)
        np.maximum.at(tops, rows, remaining)
        leaders = np.flatnonzero(remaining == tops[rows])
        remaining[leaders] = -np.inf
        owners = rows[leaders]
        vectors, heights = words.score_terms(words.vectors[word_ids[leaders]])
        terms = points[owners] * vectors
        errors = RELATIVE_ERROR * (np.abs(terms).sum(axis=1) + heights)
        exact = terms.sum(axis=1) - heights - errors
        np.minimum.at(floors, owners, exact / scales[owners])
    return floors
