"""The exponential mechanism: its exact guarantee, its lists, and that only the input reaches an output."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.geometry.metric import EuclideanMetric
from dptext_spark.mechanisms import Exponential
from dptext_spark.mechanisms.exponential import (
    CACHE_BYTES,
    EPSILONS,
    FIRST_ROUNDS,
    LISTED,
    ROUND_UNIFORMS,
    ExponentialChoice,
    Lists,
    NearByDifferences,
    NearByScreening,
)
from dptext_spark.noise import SEED_UNIFORMS
from tests.helpers.worlds import among

LEAST, MOST = 2.0**-53, 1 - 2.0**-53
UNIFORMS = FIRST_ROUNDS * ROUND_UNIFORMS + SEED_UNIFORMS
CORNERS = [(LEAST, MOST, MOST), (MOST, LEAST, MOST), (MOST, MOST, MOST), (MOST, MOST, LEAST)]
SHORT = 10.0  # a price of listed words at which lists are short even in small worlds


@pytest.fixture
def world(name, request):
    """The bundle of a parameter's name."""
    return request.getfixturevalue(name)


def distances_of(world):
    """All distances, by formulas of their own."""
    points = world.vectors[:].astype(np.float64)
    squares = np.square(points[:, None] - points[None]).sum(axis=2)
    if world.space.geometry == "euclidean":
        return np.sqrt(squares)
    rims = 1 - np.square(points).sum(axis=1)
    return np.arccosh(1 + 2 * squares / np.outer(rims, rims))


def bound(world, *, size=CACHE_BYTES, release=0, listed=LISTED, **given):
    """The mechanism on a world, with a cache of ``size`` bytes and a price of listed words."""
    release = release or world.releasable
    cache = Lists.cache(words=len(world.words), release_words=release, size=size)
    return replace(Exponential(**given).bind(world, among(release)), listed=listed, cache=cache)


def listed_probabilities(choice, words):
    """Output probabilities (k, release_words) by the shares and the acceptance of one round."""
    lists, released = choice.lists(words, choice.reach(words)[0]), choice.near.release_words
    result = np.empty((len(words), released))
    for place, (word, row, radius) in enumerate(zip(words, result, lists.radii, strict=True)):
        part = slice(lists.starts[place], lists.starts[place] + lists.lengths[place])
        left = 1.0 - lists.shares[part].max(initial=0.0)
        row[:] = left / max(released - lists.lengths[place], 1)
        if radius < choice.truncate:
            distances = choice.near.between(np.full(released, word), np.arange(released))
            excess = np.maximum(np.minimum(distances, choice.truncate) - radius, 0.0)
            row *= np.exp(-choice.epsilon / 2 * excess)
        row[np.arange(lists.lengths[place]) + lists.skips[part]] = np.diff(
            lists.shares[part], prepend=0.0
        )
        row /= row.sum()
    return result


def losses(probabilities):
    """Largest log-ratio of two words' output probabilities, over outputs."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(probabilities)
        gaps = np.abs(logs[:, None, :] - logs[None, :, :])
    return np.nan_to_num(gaps, nan=0.0, posinf=np.inf).max(axis=2)  # no one can tell 0 from 0


@pytest.mark.parametrize("truncate", [None, 1e-6, 0.6, 1e300])
@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 6.0, 1e300])
@pytest.mark.parametrize("name", ["plane", "ball"])
def test_no_output_tells_two_words_apart_by_more_than_promised(world, epsilon, truncate):
    """Rejects candidate lists, epsilon without its half, and shares of lists that are not the law's."""
    # And NaN, overflow, and a word outside the release vocabulary where uniforms are at their ends.
    everything = np.arange(len(world.words))
    guarantee = Exponential(epsilon=epsilon, truncate=truncate).guarantee(world)
    with np.errstate(over="ignore"):
        allowed = np.vectorize(guarantee.loss)(distances_of(world))
    corners = np.array([[*corner * FIRST_ROUNDS, *[0.5] * SEED_UNIFORMS] for corner in CORNERS])
    for release in (2, len(everything) // 2, len(everything)):
        for listed in (LISTED, SHORT):
            with np.errstate(all="raise"):
                choice = bound(
                    world, epsilon=epsilon, truncate=truncate, release=release, listed=listed
                )
                drawn = choice(
                    np.repeat(everything, len(corners)), np.tile(corners, (len(everything), 1))
                )
                probabilities = choice.probabilities(everything)
            assert drawn.min() >= 0 and drawn.max() < release
            # A probability below the least float is 0.
            assert epsilon > 6.0 or (losses(probabilities) <= allowed + 1e-12).all()
            found = listed_probabilities(choice, everything)
            np.testing.assert_allclose(found, probabilities, atol=1e-9 if epsilon > 6.0 else 1e-13)
            np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-14)
    if epsilon in (0.1, 6.0):
        # Where all words are released each weight is reached by half of the bound, and the sums are not in
        # vain.
        used = losses(probabilities)[allowed > 0] / allowed[allowed > 0]
        isolated = truncate is not None and truncate < distances_of(world)[allowed > 0].min()
        assert used.max() > (0.5 - 1e-9 if isolated else 0.51)


def offset_metric(count=400):
    """Words close together and far from the origin, every other one twice: single precision sees nothing."""
    rows = np.random.default_rng(5).standard_normal((count // 2, 30)) * 0.05 + 100.0
    return EuclideanMetric(vectors=np.repeat(rows.astype(np.float32), 2, axis=0))


def screening(metric, release_words):
    with np.errstate(over="ignore"):
        half_norms = (np.square(metric.vectors, dtype=np.float64).sum(axis=1) / 2).astype(
            np.float32
        )
    return NearByScreening(
        metric=metric, release_words=release_words, half_norms=half_norms[:release_words]
    )


def bits(lists):
    return [values.tobytes() for near in lists for values in near]


@pytest.fixture(
    params=[("demo", 1.0), ("crowded", 1.0), ("crowded", 1e-22), ("demo", 1e-30), ("demo", 1e25)]
)
def metric(request, demo_bundle):
    """With squares that are ordinary, underflow and overflow in single precision."""
    name, scale = request.param
    vectors = offset_metric().vectors if name == "crowded" else demo_bundle.vectors
    return EuclideanMetric(vectors=vectors * np.float32(scale))


@np.errstate(all="ignore")
def test_screening_loses_no_near_word(metric):
    """Radii that are distances to the last bit: a word at the radius is far, one below is near."""
    # Rejects lists that change places where some hold all words, BLAS sums that follow the batch, a bound
    # that forgets underflow, and scores that become NaN.
    release = metric.words * 3 // 4
    rows, words = (
        np.arange(release),
        np.arange(5, metric.words, metric.words // 20),
    )  # released and others
    near, truth = (
        screening(metric, release),
        NearByDifferences(metric=metric, release_words=release),
    )
    ranked = np.sort(truth.to_rows(words[7:8], rows)[0])
    radii = np.array(
        [ranked[2], np.nextafter(ranked[2], np.inf), ranked[30], ranked[200], 1e-99, 1e200]
    )
    for shift in range(len(radii)):
        own = radii[(np.arange(len(words)) + shift) % len(radii)]
        assert bits(near(words, own)) == bits(truth(words, own))
    mixed, some = np.array([3.0, np.inf, 4.0, 0.0, np.inf, 5.0]), words[:6]
    lists = near(some, mixed)
    assert [len(lists[i][0]) for i in (1, 3, 4)] == [release, 0, release]
    assert bits(lists) == bits([near(some[i : i + 1], mixed[i : i + 1])[0] for i in range(6)])
    whole = near.to_rows(words, rows)
    exact = np.stack([near.between(np.full(release, word), rows) for word in words])
    np.testing.assert_allclose(whole, exact, rtol=1e-9)
    np.testing.assert_array_equal(whole == 0.0, exact == 0.0)  # itself and its twins
    alone = [near.to_rows(words[i : i + 1], rows).tobytes() for i in range(len(words))]
    assert b"".join(alone) == whole.tobytes()
    nothing = EuclideanMetric(vectors=np.zeros((3, 2), dtype=np.float32))
    assert not screening(nothing, 2).to_rows(np.arange(3), np.arange(2)).any()


def test_bounds_of_distances_accept_what_distances_accept(metric):
    """Uniforms next to the weights of pairs are judged right, by exact distances."""
    near = screening(metric, metric.words)
    pairs = np.random.default_rng(8).integers(0, metric.words, (2000, 2))
    words, rows = pairs[pairs[:, 0] != pairs[:, 1]].T
    with np.errstate(all="ignore"):
        distances = near.between(words, rows)
    scale, count = np.median(distances), len(words)
    radii = distances - scale * np.random.default_rng(9).random(count)
    cache = Lists.cache(words=count, release_words=1, size=0)
    empty = replace(cache, starts=np.zeros(count, dtype=np.int64), radii=radii)
    choice = ExponentialChoice(
        near=near, epsilon=3.0 / scale, truncate=1.5 * scale, cache=cache, outputs=1
    )
    weights = np.exp((np.minimum(distances, choice.truncate) - radii) * (-choice.epsilon / 2.0))
    uniforms = np.full((count, 3), MOST)
    uniforms[:, 1] = (rows + 0.5) / metric.words
    drawn = []
    for uniforms[:, 2] in (weights, np.nextafter(weights, 0.0)):
        drawn.append(choice.round(empty, np.arange(count), words, uniforms))
    rejected = np.where(radii < choice.truncate, -1, rows)  # what is all alike is accepted
    assert (drawn[0] == rejected).all() and (drawn[1] == rows).all()


def test_lists_reach_as_far_as_it_pays(demo_bundle, plane):
    """Counted by all distances: rejects radii that forget how many words there are, or the truncation."""
    # Where nothing else pays all words are listed; without a listed word nothing bounds rejections.
    words, released = np.arange(0, len(demo_bundle.words), 97), demo_bundle.releasable
    for epsilon, least, most in ((4.0, 50, 0.2 * released), (30.0, 1, 50)):
        choice = bound(demo_bundle, epsilon=epsilon)
        radii, sizes = choice.reach(words)
        lists, chances = choice.lists(words, radii), choice.probabilities(words)
        nearest = choice.near.to_rows(words, np.arange(released)).min(axis=1)
        farther = chances.max(axis=1) * np.exp(-epsilon / 2 * (radii - nearest))
        assert ((released - lists.lengths) * farther).mean() < 20.0
        assert (
            0.3 < lists.lengths.mean() / sizes.mean() < 3.0 and least < lists.lengths.mean() < most
        )
        short = bound(demo_bundle, epsilon=epsilon, truncate=radii.min() / 2)
        assert (short.reach(words)[0] <= short.truncate).all()
    assert (bound(plane, epsilon=1.0).reach(np.arange(6))[0] == np.inf).all()
    lists = bound(plane, epsilon=2.0, release=3).lists(np.array([5, 0]), np.array([1e-9, 1e-9]))
    assert lists.lengths.tolist() == [3, 1] and lists.radii.tolist() == [np.inf, 1e-9]


def test_caches_keep_their_bound_and_what_came_first(small):
    """Rejects lists of every epsilon that any row ever had, and lists that are made again for each batch."""
    choice, uniforms = (
        bound(small, epsilon=3.0, listed=0.0, size=12 * 200 * 10),
        np.full((1, UNIFORMS), 0.5),
    )
    for word in range(5, 30):
        choice(np.array([word]), uniforms)
        assert np.flatnonzero(choice.cache.starts >= 0).tolist() == [*range(5, min(word + 1, 15))]
    assert choice.cache.end == 200 * 10 == len(choice.cache.shares)
    first = choice.at(2.0)
    assert choice.at(2.0) is first and len(first.cache.shares) <= CACHE_BYTES // EPSILONS // 12
    for step in range(EPSILONS):
        choice.at(3.0 + step)
    assert choice.at(2.0) is not first


@pytest.mark.parametrize(
    "parameters", [{"truncate": 1.2}, {"listed": 0.0}, {"listed": SHORT}], ids=str
)
@pytest.mark.parametrize("name", ["small", "ball"])
def test_only_the_input_reaches_an_output(world, parameters, monkeypatch):
    """Rejects a cache, a batch, a thread count or a group of bounded memory that changes a result."""
    # Every fifth token is served by later rounds alone: rejects further uniforms of the batch.
    rng, given, entry = (
        np.random.default_rng(7),
        {"epsilon": 3.0, **parameters},
        12 * world.releasable,
    )
    words, uniforms = rng.integers(len(world.words), size=200), rng.random((200, UNIFORMS))
    uniforms[::5, :-SEED_UNIFORMS] = MOST  # far words, none of them accepted
    expected = bound(world, **given)(words, uniforms.copy())
    assert len(np.unique(expected)) > 10
    # Nothing fits; one list or nine; everything fits, cold and then warm.
    ways = ((0, 7, 1), (entry, 1, 2), (9 * entry, 7, 1), (1 << 20, 1, 1), (1 << 20, 200, 2))
    for size, batch, threads in ways:
        choice = bound(world, size=size, **given)
        with threadpool_limits(limits=threads, user_api="blas"):
            for _cold_then_warm in range(2):
                cuts = [slice(i, i + batch) for i in range(0, 200, batch)]
                drawn = [choice(words[cut], uniforms[cut].copy()) for cut in cuts]
                np.testing.assert_array_equal(np.concatenate(drawn), expected)
    blocks = {
        "_CELLS": 3 * world.releasable,
        "_PAIRS": 11,
        "WORD_BLOCK": 13,
        "_WORDS": 17,
        "_ROWS": 19,
    }
    for block, value in blocks.items():
        monkeypatch.setattr(f"dptext_spark.mechanisms.exponential.{block}", value)
    np.testing.assert_array_equal(bound(world, **given)(words, uniforms.copy()), expected)
    # Some tokens are served by a list of all words in the end.
    monkeypatch.setattr("dptext_spark.mechanisms.exponential._MORE", 0)
    choice, single = bound(world, **given), [slice(i, i + 1) for i in range(200)]
    alone = [choice(words[one], uniforms[one].copy()) for one in single]
    np.testing.assert_array_equal(choice(words, uniforms.copy()), np.concatenate(alone))


def test_large_vocabularies_take_bounded_memory():
    """Rejects (distinct x V) arrays: of 60 words x 200,000 each would take 92 MiB."""
    vectors = np.random.default_rng(9).standard_normal((200_000, 6)).astype(np.float32)
    near = screening(EuclideanMetric(vectors=vectors), 200_000)
    cache = Lists.cache(words=200_000, release_words=200_000, size=1 << 10)
    # At no price all words are listed.
    choice = ExponentialChoice(
        near=near, epsilon=4.0, truncate=1e9, cache=cache, listed=0.0, outputs=200_000
    )
    tracemalloc.start()
    choice(np.arange(60), np.full((60, UNIFORMS), 0.4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70 << 20, f"{peak / 2**20:.0f} MiB"
