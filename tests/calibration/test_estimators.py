"""Estimators against the mechanism itself, and the words that a grid deals out to them."""

from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, estimators, rays
from dptext_spark.calibration.estimators import BATCHES, Grid
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace, mechanism
from dptext_spark.noise import to_uniform
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds
from tests.helpers.calibration_oracle import cells
from tests.helpers.worlds import among

VICKREY, MAHALANOBIS, PROJECTION = (
    {"select": "vickrey", "t": 0.3},
    {"lambda": 0.5},
    {"dimension": 12},
)


def grid(name, epsilons, **parameters):
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


def make(world, mechanisms, runs, name=None):
    made = estimator(mechanisms, world, search=ExactSearch.over(world), runs=runs)
    return replace(made, name=name or made.name)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """2,500 words in 20 dimensions in tight clusters, some at the same place, 2,400 to release."""
    rng = np.random.default_rng(5)
    points = np.repeat(rng.standard_normal((250, 20)), 10, axis=0)
    points += 0.05 * rng.standard_normal(points.shape)
    points[100:110] = points[0]  # exact ties
    points[200:210] = points[190] + 1e-6 * rng.standard_normal((10, 20))  # ties of single precision
    return worlds.build(
        tmp_path_factory.mktemp("clustered"), points.astype(np.float32), release_words=2400
    )


EPSILONS = (1e9, 40.0, 15.0, 6.0, 1.0, 1e-6)


@pytest.mark.parametrize(
    ("name", "parameters", "epsilons"),
    [
        *(("laplace", choice, EPSILONS) for choice in ({}, VICKREY)),
        ("mahalanobis", MAHALANOBIS, EPSILONS),
        ("projection", PROJECTION | VICKREY, (60.0, 20.0, 5.0)),
        ("hyperbolic", {}, (9.0, 3.0, 1.5)),
    ],
)
def test_estimators_find_what_the_mechanism_finds(clustered, ball, name, parameters, epsilons):
    """Equal to the last tie, by the mechanism itself on uniforms made here; of words not to release too."""
    # Rejects a cut of the search without its threshold, one epsilon's lengths for all, another's coin or the
    # radius for a coin, the nearest word always, a word that never stays, rays that do not start at the
    # word's own centre, and plain words that share noise or use up the uniforms of the next epsilon.
    world, best, step = (
        (ball, "plain", 1) if name == "hyperbolic" else (clustered, "shared-ray", 61)
    )
    words, runs = np.arange(len(world.words))[::step], 120
    for kind, chosen in ((best, words), ("plain", words[-3:])):
        made = make(world, grid(name, epsilons, **parameters), runs, None if kind == best else kind)
        assert made.name == kind
        with np.errstate(all="raise"):
            outputs = made.draws(chosen, block=2)
        column = made.noise.column("calibration", purpose=made.name, uint64s_per_token=made.width)
        drawn = np.empty((len(chosen), runs, made.width), dtype=np.uint64)
        for row, word in enumerate(chosen):
            column.fill(
                drawn[row],
                column.row_key(b"2" if kind == "shared-ray" else str(word).encode(), ()),
                0,
            )
        for epsilon, perturb in enumerate(made.bound):
            expected = perturb(np.repeat(chosen, runs), to_uniform(drawn.reshape(-1, made.width)))
            np.testing.assert_array_equal(outputs[epsilon].ravel(), expected)


@pytest.mark.parametrize(("leaders", "choice"), [((), {}), ((2, 3), VICKREY), ((5, 40, 150), {})])
def test_no_cut_of_the_work_changes_a_draw(clustered, leaders, choice, monkeypatch):
    words, mechanisms = np.arange(0, 2500, 100), grid("laplace", (30.0, 8.0, 1.0), **choice)
    expected = make(clustered, mechanisms, 70).draws(words, block=0)
    monkeypatch.setattr(rays, "LEADERS", leaders)
    monkeypatch.setattr(rays, "_CELLS", 7000)
    monkeypatch.setattr(estimators, "_CELLS", 33 * clustered.releasable)
    monkeypatch.setattr(estimators, "_WORD_CELLS", 3 * clustered.releasable)
    with threadpool_limits(2):
        np.testing.assert_array_equal(
            make(clustered, mechanisms, 70).draws(words, block=0), expected
        )


@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_draws_are_values(small, name):
    """The same for the same seed, by any cut of the work; other blocks, seeds and orders differ."""
    mechanisms, words, search = grid("laplace", (4.0, 2.0)), np.array([5, 250, 17]), among(200)
    draws = make(small, mechanisms, 200, name)
    found = cells(draws(words, block=3))
    assert cells(make(small, mechanisms, 200, name)(words[::-1], block=3)) == found
    other = estimator(mechanisms, small, search=search, runs=200, seed=1)
    assert cells(replace(other, name=name)(words, block=3)) != found
    assert (cells(draws(words, block=4)) == found) == (name == "plain")
    more = make(small, mechanisms, 1500, name)
    np.testing.assert_array_equal(
        more.draws(words, block=0)[:, :, :200], draws.draws(words, block=0)
    )


@pytest.mark.parametrize(
    ("name", "parameters", "epsilons", "kind"),
    [
        *(
            ("mahalanobis", MAHALANOBIS, (1.0, 2.0, 4.0, 7.0), kind)
            for kind in ("plain", "shared-ray")
        ),
        ("projection", {"dimension": 6}, (1.0, 2.0, 4.0, 7.0), "shared-ray"),
        ("hyperbolic-icdm", {}, (0.5, 1.5, 3.0, 9.0), "plain"),
    ],
)
def test_a_word_that_stays_does_so_at_every_larger_epsilon(
    small, ball, name, parameters, epsilons, kind
):
    """Run by run, in one grid or each epsilon in its own: rejects noise that is keyed by epsilon."""
    world = ball if name.startswith("hyperbolic") else small
    words = np.arange(0, len(world.words), 7)
    made = [make(world, grid(name, (epsilon,), **parameters), 300, kind) for epsilon in epsilons]
    stays = [one.draws(words, block=1)[0] == words[:, None] for one in made]
    for near, far in zip(stays[1:], stays[:-1], strict=True):
        assert (near >= far).all()
        assert near.sum() > far.sum()
    together = make(world, grid(name, epsilons, **parameters), 300, kind).draws(words, block=1)
    np.testing.assert_array_equal(together == words[:, None], stays)


def over(embedding, *mechanisms, words="all", search=None):
    given = {"runs": 10, "seed": 0, "confidence": 0.95, "eta": 0.05, "words": words}
    return Grid.over(embedding, search or ExactSearch.over(embedding), mechanisms, **given)


def test_only_what_is_proven_to_be_monotone_says_so(indexed, ball):
    """With Vickrey's choice a run that left its word may stay again: here are some."""
    laplace, lists = Laplace(epsilon=1.0), IvfSearch.over(indexed, lists=8, probes=3)
    vickrey = grid("laplace", tuple(np.geomspace(1.0, 40.0, 30)), select="vickrey", t=0.8)
    stays = (
        make(indexed, vickrey, 200).draws(np.arange(0, 200, 9), block=0)
        == np.arange(0, 200, 9)[:, None]
    )
    assert (stays[1:] < stays[:-1]).any()
    for found, expected in (
        (over(indexed, laplace), True),
        (over(ball, *grid("hyperbolic", (3.0,))), True),
        (over(ball, *grid("hyperbolic-lebesgue", (3.0,))), False),
        (over(indexed, *vickrey), False),
        (over(indexed, laplace, search=lists), False),
        (over(indexed, Exponential(epsilon=1.0)), False),
    ):
        assert found.monotone == expected


def test_the_estimator_fits_the_mechanism(small):
    """An approximate search is measured as it is. What is impossible is refused."""
    assert make(small, grid("exponential", (1.0,)), 1).name == "exact"
    with pytest.raises(ConfigError, match="differ in more than epsilon"):
        make(small, [Laplace(epsilon=1.0), *grid("laplace", (2.0,), **VICKREY)], 1)


@pytest.mark.parametrize(
    ("mechanism", "words", "blocks"),
    [
        (Laplace(epsilon=2.0), 7, 7),
        (Laplace(epsilon=2.0), 100, BATCHES),
        (Exponential(epsilon=2.0), "all", 2 * BATCHES),
    ],
)
def test_words_are_dealt_out_evenly(small, mechanism, words, blocks):
    """To whole batches over blocks, none larger than its estimator takes; rejects ranks in the vocabulary."""
    found = over(small, mechanism, words=words)
    assert (found.words, found.blocks) == (300 if words == "all" else words, blocks)
    dealt = [found.block(number) for number in range(found.blocks)]
    np.testing.assert_array_equal(
        np.sort(np.concatenate(dealt)), np.arange(found.words) * 300 // found.words
    )
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    zipf = 1.0 / np.arange(1, found.words + 1)
    np.testing.assert_allclose(found.weights("zipf"), zipf / zipf.sum())
    ranks = [found.ranks_of(number) for number in range(found.blocks)]
    shared = [found.weights("zipf")[own - 1].sum() for own in ranks]
    np.testing.assert_allclose(
        found.units("zipf"), shared if found.monotone else found.weights("zipf")
    )
    np.testing.assert_allclose(
        replace(found, estimator="plain").units("uniform"), 1.0 / found.words
    )
    whole = over(
        small, mechanism.at(4.0), mechanism, words=words
    )  # in whatever order epsilons are given
    assert whole.at(2.0) == found and found.at(4.0, 2.0) == whole and whole.epsilons == [2.0, 4.0]
