"""Codes of words and the bound on their scores: none smaller would do, and the ball has its own form."""

import dataclasses

import numpy as np
import pytest

from dptext_spark.geometry.ball import lorentz
from dptext_spark.search.coarse import coarse_candidates
from dptext_spark.search.codes import CodedWords, euclidean, rotated
from tests.helpers.nearest import (
    CURVED,
    around_the_origin,
    ball_words,
    coarse_search,
    hard_ball_points,
    search_of,
    two,
)


def lost(vectors, points):
    """Nearest, or two nearest words that are not among the candidates."""
    nearest, words = two(search_of(vectors))(points), coarse_search(vectors).coarse
    pairs = [
        set(zip(*map(np.ndarray.tolist, coarse_candidates(words, points, k)), strict=True))
        for k in (1, 2)
    ]
    return sum((row, word) not in pairs[place] for (row, place), word in np.ndenumerate(nearest))


@pytest.mark.parametrize("n", [2, 16, 100])
@pytest.mark.parametrize("kind", [around_the_origin, ball_words], ids=lambda kind: kind.__name__)
def test_words_of_the_ball_have_their_own_form(kind, n):
    """Rejects scores of the Euclidean distance, and points whose w is not as long as q0 says."""
    words = kind(900, n)
    search, points = CURVED.search(words), hard_ball_points(words, 70)
    points = np.concatenate([points, points * np.append(1.0, np.full(n, 1 - 2.0**-31))])
    wrong = []
    for form in (lorentz, euclidean):
        coarse = CodedWords.of(words, 8, form)
        own = dataclasses.replace(search, coarse=coarse)
        assert (
            kind is ball_words
            or coarse_candidates(coarse, search._located(points)[:, 1:], 2) is not None
        )
        same = (own(points) == search(points)) & (two(own)(points) == two(search)(points)).all(
            axis=1
        )
        wrong.append(int((~same).sum()))
    assert wrong[0] == 0 and (kind is ball_words or wrong[1] > 0)


def opposed(n=200):
    """A point whose codes are exact, and words whose rests are as long as they can be and along it."""
    # The first word is the nearest by a hair; by its codes the second one leads it by nearly the whole bound.
    rng = np.random.default_rng(1)
    signs = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    codes = rng.integers(-50, 50, n).astype(np.float64)
    more = np.where(np.arange(n) < 0.96 * n, signs, 0.0)
    words = np.stack([codes + 0.49 * signs, codes + more - 0.49 * signs, np.zeros(n), np.zeros(n)])
    words[2:, :3] = -127.0 * signs[:3]  # the scale is 1
    return rotated(words).astype(np.float32), rotated(1e5 * signs[None, :])


def opposed_points(n=200):
    """Likewise words whose codes are exact, and a point whose rest is along them."""
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    codes = np.where(np.arange(n) < 0.48 * n, -signs, 0.0)
    codes[-2:] = 127.0
    signs[-2:] = 0.0
    words = np.stack([127 * signs, -127 * signs])
    return rotated(words).astype(np.float32), rotated(1e5 * (codes + 0.49 * signs)[None, :])


def integers(n=3):
    """Words and points with exact codes: what strays are half the squared lengths alone."""
    rng = np.random.default_rng(2)
    words, points = (
        rng.integers(-127, 128, (count, n)).astype(np.float32) for count in (3000, 500)
    )
    words[::50, 0] = points[:, 0] = 127.0
    return rotated(words).astype(np.float32), rotated(points)


def strays(*factors):
    errors = CodedWords.tile_errors.func
    return CodedWords, "tile_errors", property(lambda words: errors(words) * factors)


def scaled(factor, whole=CodedWords.of):
    """Scales of every second tile that are not those of its codes."""

    def of(vectors, bits):
        coded = whole(vectors, bits)
        coded.tiles[0, 1::2] *= factor
        return coded

    return CodedWords, "of", of


MUTANTS = {
    "without the rests of words": strays(0, 1, 1, 1, 1),
    "without the rests of points": strays(1, 0, 1, 1, 1),
    "without the digits": strays(1, 1, 1, 0, 0),
    "half of it": strays(0.5, 0.5, 1, 0.5, 0.5),
    "scales rounded down": scaled(1 - 2.0**-4),
    "scales rounded up": scaled(1 + 2.0**-4),
}


@pytest.mark.parametrize("mutant", [None, *MUTANTS])
def test_a_smaller_bound_gives_wrong_words(mutant, monkeypatch):
    """The power of these vectors: each part of the bound is needed, and all of it."""
    if mutant:
        monkeypatch.setattr(*MUTANTS[mutant])
    wrong = [lost(*world()) for world in (opposed, opposed_points, integers)]
    assert (sum(wrong) > 0) == (mutant is not None), wrong
