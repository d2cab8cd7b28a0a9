"""The coarse pass in 8 bits: the same words as without it, on hard vectors, by any kernel, or not at all."""

import dataclasses
import errno
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dptext_spark.embedding.bundle import PARTS, Embedding
from dptext_spark.geometry.ball import lorentz
from dptext_spark.search import coarse
from dptext_spark.search.coarse import CoarseWords, euclidean, products, trusted_bits, turned
from dptext_spark.search.exact import EuclideanNearest, ExactSearch
from tests.helpers import worlds
from tests.helpers.nearest import (
    CURVED,
    ball_words,
    faults,
    half_norms,
    hard_ball_points,
    hard_points,
    inside,
    near_ties,
    two,
)


def float_search(vectors, coarse=None):
    return EuclideanNearest(vectors=vectors, half_norms=half_norms(vectors), coarse=coarse)


def coarse_search(vectors, bits=8):
    return float_search(vectors, CoarseWords.of(vectors, bits))


def differing(vectors, points, bits=8):
    """Points of which the nearest or the two nearest words are not those without the coarse pass."""
    own, other = coarse_search(vectors, bits), float_search(vectors)
    wrong = (own(points) != other(points)) | (two(own)(points) != two(other)(points)).any(axis=1)
    return int(wrong.sum())


def lost(vectors, points):
    """Nearest, or two nearest words that are not among the candidates."""
    nearest, words = two(float_search(vectors))(points), coarse_search(vectors).coarse
    pairs = [
        set(zip(*map(np.ndarray.tolist, words.candidates(points, k)), strict=True)) for k in (1, 2)
    ]
    return sum((row, word) not in pairs[place] for (row, place), word in np.ndenumerate(nearest))


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
    points = points[np.abs(points).max(axis=1) <= float_search(vectors).reach]
    assert differing(vectors, points) == 0
    if n <= 50 and kind == "ties":
        assert faults(coarse_search(vectors), vectors, points) == 0


def around_the_origin(count, n):
    """Words of nearly one radius, as trained ones are, and a root."""
    rng = np.random.default_rng(n)
    words = inside(rng.standard_normal((count, n)), rng.uniform(0.3, 0.5, count))
    words[0] = 0.0
    return words


@pytest.mark.parametrize("n", [2, 16, 100])
@pytest.mark.parametrize("kind", [around_the_origin, ball_words], ids=lambda kind: kind.__name__)
def test_words_of_the_ball_have_their_own_form(kind, n):
    """Rejects scores of the Euclidean distance, and points whose w is not as long as q0 says."""
    words = kind(900, n)
    search, points = CURVED.search(words), hard_ball_points(words, 70)
    points = np.concatenate([points, points * np.append(1.0, np.full(n, 1 - 2.0**-31))])
    wrong = []
    for form in (lorentz, euclidean):
        coarse = CoarseWords.of(words, 8, form)
        own = dataclasses.replace(search, coarse=coarse)
        assert (
            kind is ball_words or coarse.candidates(search._located(points)[:, 1:], 2) is not None
        )
        same = (own(points) == search(points)) & (two(own)(points) == two(search)(points)).all(
            axis=1
        )
        wrong.append(int((~same).sum()))
    assert wrong[0] == 0 and (kind is ball_words or wrong[1] > 0)


def test_points_too_far_and_words_too_many_go_to_single_precision():
    """Rejects sums that overflow, and memory without a bound."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1100, 30)).astype(np.float32)
    words = coarse_search(vectors).coarse
    assert words.candidates(rng.standard_normal((600, 30)), 1) is not None
    for far in (1e101, np.inf, np.nan):
        assert words.candidates(np.full((2, 30), far), 1) is None
    alike = (1e3 + 1e-3 * rng.standard_normal((5000, 30))).astype(np.float32)
    assert coarse_search(alike).coarse.candidates(alike[:8].astype(np.float64), 1) is None
    assert differing(alike, alike[:8].astype(np.float64)) == 0


def opposed(n=200):
    """A point whose codes are exact, and words whose rests are as long as they can be and along it."""
    # The first word is the nearest by a hair; by its codes the second one leads it by nearly the whole bound.
    rng = np.random.default_rng(1)
    signs = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    codes = rng.integers(-50, 50, n).astype(np.float64)
    more = np.where(np.arange(n) < 0.96 * n, signs, 0.0)
    words = np.stack([codes + 0.49 * signs, codes + more - 0.49 * signs, np.zeros(n), np.zeros(n)])
    words[2:, :3] = -127.0 * signs[:3]  # the scale is 1
    return turned(words).astype(np.float32), turned(1e5 * signs[None, :])


def opposed_points(n=200):
    """Likewise words whose codes are exact, and a point whose rest is along them."""
    signs = np.where(np.arange(n) % 2, 1.0, -1.0)
    codes = np.where(np.arange(n) < 0.48 * n, -signs, 0.0)
    codes[-2:] = 127.0
    signs[-2:] = 0.0
    words = np.stack([127 * signs, -127 * signs])
    return turned(words).astype(np.float32), turned(1e5 * (codes + 0.49 * signs)[None, :])


def integers(n=3):
    """Words and points with exact codes: what strays are half the squared lengths alone."""
    rng = np.random.default_rng(2)
    words, points = (
        rng.integers(-127, 128, (count, n)).astype(np.float32) for count in (3000, 500)
    )
    words[::50, 0] = points[:, 0] = 127.0
    return turned(words).astype(np.float32), turned(points)


def strays(*factors):
    whole = CoarseWords.bounds.func
    return CoarseWords, "bounds", property(lambda own: whole(own) * factors)


def scaled(factor, whole=CoarseWords.of):
    """Scales of every second tile that are not those of its codes."""

    def of(vectors, bits):
        coded = whole(vectors, bits)
        coded.tiles[0, 1::2] *= factor
        return coded

    return CoarseWords, "of", of


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


def saturating(bits):
    """Sums pairs in so many bits, as processors without 8-bit dot products do in 16."""

    def multiplied(points, scores):
        wide = points.astype(np.int64)
        top = 1 << (bits - 1)

        def product(words, count):
            pairs = (
                (words[:, :, None] * wide[None])
                .reshape(len(words), -1, 2, wide.shape[1])
                .sum(axis=2)
            )
            scores[:count] = np.clip(pairs, -top, top - 1).sum(axis=1)

        return product

    return multiplied


def careless(words, points):
    """Is one off where it has so many words, or points."""

    def multiplied(given, scores):
        exact = products(given, scores)

        def product(prepared, count):
            exact(prepared, count)
            scores[0, 0] += count == words or scores.shape[1] == points

        return product

    return multiplied


@pytest.fixture
def fresh(monkeypatch):
    """Kernels are tried anew, and few words have codes, too."""
    monkeypatch.setattr(coarse, "_pays", lambda words, dimension: True)
    trusted_bits.cache_clear()
    yield monkeypatch
    trusted_bits.cache_clear()


KERNELS = {
    "exact": (8, products),
    "in 16 bits": (7, saturating(16)),
    "in 15 bits": (0, saturating(15)),
    "one word at a time": (0, careless(1, None)),
    "a remainder of points": (0, careless(None, 17)),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_saturates_has_fewer_bits_or_is_not_used(kernel, fresh):
    """Rejects trust in a processor, and a trial of one shape only."""
    bits, multiplied = KERNELS[kernel]
    fresh.setattr(coarse, "_SIZES", (1, 2, 3, 8, 17, 33))  # the fake ones are slow
    fresh.setattr(coarse, "products", multiplied)
    if "bits" in kernel:
        fresh.setattr(coarse, "prepared", lambda words: words.astype(np.int64))
    vectors = np.random.default_rng(3).standard_normal((70, 12)).astype(np.float32)
    points = hard_points(vectors, 40)
    assert trusted_bits(16) == bits
    if bits:
        assert differing(vectors, points, bits) == 0
    search = ExactSearch(release_words=70).of_images(vectors, half_norms(vectors))
    assert (search.coarse is not None) == (bits > 0)
    np.testing.assert_array_equal(search(points), float_search(vectors)(points))


def test_without_the_library_all_is_as_before(fresh, tmp_path):
    fresh.setattr(coarse, "find_spec", lambda name: None)
    bundle = worlds.build(tmp_path, near_ties(300, 8))
    search = ExactSearch.over(bundle).of_words(bundle)
    assert search.coarse is None and not (bundle.path / PARTS).exists()
    assert faults(search, bundle.vectors, hard_points(bundle.vectors, 40)) == 0


def test_codes_are_made_once_and_lie_with_the_bundle(fresh, tmp_path):
    """Rejects two processes that replace each other's files, damaged codes, and those of other words."""
    bundle, of, made = worlds.build(tmp_path, near_ties(900, 6)), CoarseWords.of, []

    def counted(*given, **more):
        made.append(given)
        return of(*given, **more)

    def codes(own):
        return np.array(
            ExactSearch.over(own).of_words(own).coarse.codes
        )  # no map of what is damaged

    fresh.setattr(CoarseWords, "of", counted)
    others = [Embedding.open(bundle.path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(codes, others))
    assert len(made) == 1 and all(np.array_equal(each, found[0]) for each in found)
    for own in others:
        own.check_unchanged()
    (file,) = (bundle.path / PARTS).glob("codes-*.codes.npy")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    assert (
        np.array_equal(codes(Embedding.open(bundle.path)), found[0]) and file.read_bytes() == whole
    )
    assert len(ExactSearch.over(bundle, 300).of_words(bundle).coarse.words) == 300


def test_a_bundle_that_cannot_be_written_to_has_codes_in_memory(fresh, tmp_path):
    """Rejects a map of a file on a full disk, whose writer ends by a signal, and large codes by process."""
    vectors = near_ties(900, 6)
    bundle = worlds.build(tmp_path, vectors)

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with fresh.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        assert ExactSearch.over(bundle).of_words(bundle).coarse is not None
    assert [path.name for path in (bundle.path / PARTS).iterdir()] == ["codes.lock"]
    shutil.rmtree(bundle.path / PARTS)
    (bundle.path / PARTS).write_text(
        "a file where the folder would be"
    )  # also root cannot write there
    own = ExactSearch.over(bundle).of_words(bundle).coarse
    assert np.array_equal(own.codes, CoarseWords.of(vectors, 8).codes)
    fresh.setattr(coarse, "_PRIVATE", 100)
    images = ExactSearch(release_words=900).of_images(vectors, half_norms(vectors))
    for search in (ExactSearch.over(bundle).of_words(bundle), images):
        assert search.coarse is None


def test_a_bundle_of_the_ball_has_codes_of_its_form(fresh, tmp_path):
    """In the bundle and in memory; rejects the Euclidean form, whose bound does not hold for its words."""
    bundle = worlds.build(tmp_path, around_the_origin(300, 4), geometry="poincare")
    for folder in (True, False):
        own = ExactSearch.over(bundle).of_words(bundle).coarse
        assert own.form is lorentz and (bundle.path / PARTS).is_dir() == folder
        assert np.array_equal(own.codes, CoarseWords.of(bundle.vectors[:], 8, lorentz).codes)
        shutil.rmtree(bundle.path / PARTS, ignore_errors=True)
        (bundle.path / PARTS).write_text("a file where the folder would be")
        bundle = Embedding.open(bundle.path)
