"""Estimators against the mechanism itself."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, estimators, rays, word_statistics
from dptext_spark.calibration.estimators import BATCHES, Grid
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace, mechanism
from dptext_spark.noise import to_uniform
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.calibration_oracle import cells
from tests.helpers.tables import ROOT
from tests.helpers.worlds import among
from tests.statistical.oracles import line_outputs

VICKREY = {"select": "vickrey", "t": 0.3}


def grid(name, epsilons, **parameters):
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


def make(world, mechanisms, runs, name="auto"):
    return estimator(mechanisms, world, search=ExactSearch.over(world), runs=runs, name=name)


@pytest.fixture(scope="module")
def clustered(tmp_path_factory):
    """2,500 words in 20 dimensions in tight clusters, some at the same place, 2,400 to release."""
    rng = np.random.default_rng(5)
    points = np.repeat(rng.standard_normal((250, 20)), 10, axis=0)
    points += 0.05 * rng.standard_normal(points.shape)
    points[100:110] = points[0]  # exact ties
    points[200:210] = points[190] + 1e-6 * rng.standard_normal((10, 20))  # ties of single precision
    return worlds.build(tmp_path_factory.mktemp("clustered"), points.astype(np.float32), release_words=2400)


EPSILONS = (1e9, 40.0, 15.0, 6.0, 1.0, 1e-6)
MAHALANOBIS, PROJECTION = {"lambda": 0.5}, {"dimension": 12}


@pytest.mark.parametrize(
    ("name", "parameters", "epsilons"),
    [
        *(("laplace", choice, EPSILONS) for choice in ({}, VICKREY)),
        *(("mahalanobis", MAHALANOBIS | choice, EPSILONS) for choice in ({}, VICKREY)),
        *(("projection", PROJECTION | choice, (60.0, 20.0, 5.0)) for choice in ({}, VICKREY)),
        *(("hyperbolic", choice, (9.0, 3.0, 1.5)) for choice in ({}, VICKREY)),
        ("hyperbolic-icdm", {}, (9.0, 3.0, 1.5)),
    ],
)
def test_shared_rays_find_what_the_mechanism_finds(clustered, ball, name, parameters, epsilons):
    """Equal to the last tie, by the mechanism itself on uniforms made here; of words not to release too."""
    # Rejects a cut of the search without its threshold, one epsilon's lengths for all, another's coin or the
    # radius for a coin, the nearest word always, a word that never stays, and rays that do not start at the
    # word's own centre.
    world, runs, step = (ball, 1100, 1) if name.startswith("hyperbolic") else (clustered, 120, 61)
    shared, words = make(world, grid(name, epsilons, **parameters), runs), np.arange(len(world.words))[::step]
    assert shared.name == "shared-ray"
    with np.errstate(all="raise"):
        outputs = shared.draws(words, block=2)
    column = shared.noise.column("calibration", purpose="shared-ray", uint64s_per_token=shared.width)
    drawn = np.empty((runs, shared.width), dtype=np.uint64)
    column.fill(drawn, column.row_key(b"2", ()), 0)
    for epsilon, perturb in enumerate(shared.bound):
        expected = perturb(np.repeat(words, runs), np.tile(to_uniform(drawn), (len(words), 1)))
        np.testing.assert_array_equal(outputs[epsilon].ravel(), expected)


@pytest.mark.parametrize("leaders", [(), (1,), (2, 3), (5, 40, 150)])
@pytest.mark.parametrize("choice", [{}, VICKREY])
def test_no_cut_of_the_work_changes_a_draw(clustered, leaders, choice, monkeypatch):
    words, mechanisms = np.arange(0, 2500, 100), grid("laplace", (30.0, 8.0, 1.0), **choice)
    expected = make(clustered, mechanisms, 70).draws(words, block=0)
    monkeypatch.setattr(rays, "LEADERS", leaders)
    monkeypatch.setattr(rays, "_CELLS", 7000)
    monkeypatch.setattr(estimators, "_CELLS", 33 * clustered.releasable)
    monkeypatch.setattr(estimators, "_WORD_CELLS", 3 * clustered.releasable)
    with threadpool_limits(2):
        np.testing.assert_array_equal(make(clustered, mechanisms, 70).draws(words, block=0), expected)


@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_draws_are_values(small, name):
    """The same for the same seed; other runs, blocks, seeds and (plain) words have noise of their own."""
    # Plain words at one place differ, by any cut of the work; epsilons that hardly differ do not.
    mechanisms, words = grid("laplace", (4.0, 2.0)), np.array([5, 250, 17])
    draws = make(small, mechanisms, 200, name)
    found = cells(draws(words, block=3))
    assert cells(make(small, mechanisms, 200, name)(words[::-1], block=3)) == found
    search = {"search": among(200), "name": name}
    others = [estimator(mechanisms, small, runs=200, seed=1, **search)(words, block=3)]
    others += [make(small, mechanisms[::-1], 200, name)(words, block=3)]
    others += [draws(words, block=4)] if name == "shared-ray" else []
    assert all(cells(other) != found for other in others)
    more = make(small, mechanisms, 1500, name)
    np.testing.assert_array_equal(more.draws(words, block=0)[:, :, :200], draws.draws(words, block=0))
    assert found["output"].to_numpy().max() < 200
    drawn = make(small, grid("laplace", (2.0, 2.0 + 1e-12)), 300, name).draws(np.array([5, 6]), block=0)
    assert name == "shared-ray" or (drawn[0, 0] != drawn[0, 1]).mean() > 0.5
    np.testing.assert_array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize("kind", ["plain", "shared-ray"])
@pytest.mark.parametrize(
    ("name", "parameters", "epsilons"),
    [
        ("laplace", {}, (1.0, 2.0, 4.0, 7.0)),
        ("mahalanobis", {"lambda": 0.5}, (1.0, 2.0, 4.0, 7.0)),
        ("projection", {"dimension": 6}, (1.0, 2.0, 4.0, 7.0)),
        ("hyperbolic", {}, (1.1, 1.5, 3.0, 9.0)),
        ("hyperbolic-icdm", {}, (0.5, 1.5, 3.0, 9.0)),
    ],
)
def test_a_word_that_stays_does_so_at_every_larger_epsilon(small, ball, name, parameters, epsilons, kind):
    """Run by run, in one grid or each epsilon in its own: rejects noise that is keyed by epsilon."""
    world = ball if name.startswith("hyperbolic") else small
    words = np.arange(0, len(world.words), 7)
    made = [make(world, grid(name, (epsilon,), **parameters), 300, kind) for epsilon in epsilons]
    assert all(one.monotone for one in made)
    stays = [one.draws(words, block=1)[0] == words[:, None] for one in made]
    for near, far in zip(stays[1:], stays[:-1], strict=True):
        assert (near >= far).all()
        assert near.sum() > far.sum()
    together = make(world, grid(name, epsilons, **parameters), 300, kind).draws(words, block=1)
    np.testing.assert_array_equal(together == words[:, None], stays)


def test_only_what_is_proven_to_be_monotone_says_so(small):
    """With Vickrey's choice a run that left its word may stay again: here are some."""
    assert not make(small, grid("exponential", (1.0,)), 1).monotone
    made = make(small, grid("laplace", tuple(np.geomspace(1.0, 40.0, 30)), select="vickrey", t=0.8), 200)
    stays = made.draws(np.arange(0, 200, 9), block=0) == np.arange(0, 200, 9)[:, None]
    assert not made.monotone and (stays[1:] < stays[:-1]).any()


def test_the_estimator_fits_the_mechanism(small, ball):
    """And what is impossible is refused."""
    one, hyperbolic = grid("laplace", (1.0,)), grid("hyperbolic", (3.0,))
    for world, mechanisms, asked, name in (
        (small, one, "auto", "shared-ray"),
        (small, one, "plain", "plain"),
        (ball, hyperbolic, "auto", "shared-ray"),
        (small, grid("exponential", (1.0,)), "auto", "exact"),
    ):
        assert make(world, mechanisms, 1, asked).name == name
    mixed = [*one, *grid("mahalanobis", (2.0,), **MAHALANOBIS)]
    turned = [*one, *grid("laplace", (2.0,), **VICKREY)]
    cases = [
        (small, one, {"name": "exact"}, r"does not serve mechanism laplace.*Got: exact"),
        (ball, hyperbolic, {"name": "exact"}, r"does not serve mechanism hyperbolic.*Got: exact"),
        *((small, mechanisms, {}, "differ in epsilon alone") for mechanisms in ([], mixed, turned)),
        *((small, one, own, "runs or the seed") for own in ({"runs": 0}, {"seed": -1}, {"seed": 2**63})),
    ]
    for world, mechanisms, given, message in cases:
        with pytest.raises(ConfigError, match=message):
            estimator(mechanisms, world, search=ExactSearch.over(world), **{"runs": 1} | given)


@pytest.mark.parametrize("parameters", [{}, {"truncate": 0.5}])
def test_exact_counts_are_the_law(small, parameters):
    mechanisms = grid("exponential", (20.0, 2.0), **parameters)
    words = np.array([250, 3, 90])
    with np.errstate(all="raise"):
        transitions = make(small, mechanisms, 1000)(words, block=0)
        table = word_statistics(transitions)
    assert transitions.exact
    assert table["word"].to_pylist() == [3, 90, 250] * 2
    for epsilon, configured in enumerate(mechanisms):
        law = configured.bind(small, among(200)).probabilities(np.sort(words))
        part = slice(3 * epsilon, 3 * epsilon + 3)
        assert table["n_w"].to_pylist()[part] == pytest.approx([law[0, 3], law[1, 90], 0.0])
        assert table["s_w"].to_pylist()[part] == pytest.approx((1 - (1 - law) ** 1000).sum(axis=1).tolist())
        entropy = -(law * np.log2(np.maximum(law, 1e-300))).sum(axis=1)
        np.testing.assert_allclose(table["entropy"].to_numpy()[part], entropy, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("choice", [{}, VICKREY])
def test_two_words_and_extreme_noise(tmp_path, choice):
    world = worlds.build(tmp_path, [[1.0, 0.0], [1.0, 0.0], [0.0, 1e-3]])
    with np.errstate(all="raise"):
        made = estimator(grid("laplace", (1e15, 1.0, 1e-12), **choice), world, search=among(2), runs=50)
        table = cells(made(np.array([0, 2]), block=0))
    assert {*table["output"].to_pylist()} <= {0, 1}


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_words_stay_as_often_as_the_closed_form_says(line, name):
    """N_w on a line: exact binomial tests, Bonferroni over 15; rejects epsilon off by 5 %."""
    # The key is fixed; over seeds the real estimator would fail once in 10,000.
    epsilons, runs = (0.5, 1.0, 4.0), 40_000
    found = word_statistics(make(line, grid("laplace", epsilons), runs, name)(np.arange(5), block=0))
    hits = np.rint(found["n_w"].to_numpy() * runs)
    positions = line.vectors[:, 0].astype(np.float64)

    def p_value(factor):
        laws = np.ravel([np.diag(line_outputs(positions, 1 / (factor * epsilon))) for epsilon in epsilons])
        pairs = zip(hits, laws, strict=True)
        return 15 * min(float(stats.binomtest(int(hit), runs, law).pvalue) for hit, law in pairs)

    assert p_value(1.0) > 1e-4
    assert max(p_value(1.05), p_value(0.95), p_value(2.0)) < 1e-6


def over(embedding, *mechanisms, words="all"):
    given = {"runs": 10, "seed": 0, "confidence": 0.95, "eta": 0.05, "words": words}
    return Grid.over(embedding, ExactSearch.over(embedding), mechanisms, estimator_name="auto", **given)


@pytest.mark.parametrize(
    ("mechanism", "words", "blocks"),
    [
        (Laplace(epsilon=2.0), 1, 1),
        (Laplace(epsilon=2.0), 7, 7),
        (Laplace(epsilon=2.0), 100, BATCHES),
        (Laplace(epsilon=2.0), "all", BATCHES),
        (Exponential(epsilon=2.0), "all", 2 * BATCHES),
    ],
)
def test_words_are_dealt_out_evenly(small, mechanism, words, blocks):
    """To whole batches over blocks, none larger than its estimator takes; rejects ranks in the vocabulary."""
    found = over(small, mechanism, words=words)
    assert (found.words, found.blocks) == (300 if words == "all" else words, blocks)
    assert found.certain == (isinstance(mechanism, Exponential) and words == "all")
    dealt = [found.block(number) for number in range(found.blocks)]
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(found.words) * 300 // found.words)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    zipf = 1.0 / np.arange(1, found.words + 1)
    np.testing.assert_allclose(found.weights("zipf"), zipf / zipf.sum())
    ranks = [found.ranks_of(number) for number in range(found.blocks)]
    shared = [found.weights("zipf")[own - 1].sum() for own in ranks]
    np.testing.assert_allclose(found.units("zipf"), shared if found.monotone else found.weights("zipf"))
    np.testing.assert_allclose(replace(found, estimator="plain").units("uniform"), 1.0 / found.words)


def test_other_epsilons_leave_all_else(small):
    """In whatever order epsilons are given; one that comes again counts once."""
    whole = over(small, Laplace(epsilon=4.0), Laplace(epsilon=2.0))
    assert whole.at(3.0) == replace(whole, mechanisms=(Laplace(epsilon=3.0),))
    assert whole.at(4.0, 2.0, 4.0) == whole and whole.epsilons == [2.0, 4.0]


@pytest.mark.parametrize("module", ["dptext_spark.calibration", "dptext_spark.calibration.measure"])
def test_who_only_measures_loads_nothing_that_draws(module):
    """Workers import these at every start."""
    code = f"import sys, {module}; print({{'matplotlib', 'jinja2', 'scipy.stats'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
