"""Emissions against the mechanism's own probabilities, and what is made of counts."""

import math
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.calibration import estimator
from dptext_spark.evaluation import emissions as module
from dptext_spark.evaluation.emissions import NO_WORD, Candidates, Emissions
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers.hidden_worlds import emitting, released


def measured(world, configured, *, runs=200, **options):
    found = estimator([configured], world, search=ExactSearch.over(world), runs=runs)
    words = np.arange(len(world.words))
    return Emissions.measured(found, words, vocabulary=len(words), **options)


def table(emissions):
    """P[output | word], (words, outputs)."""
    words, outputs = np.arange(emissions.vocabulary), np.arange(emissions.outputs)
    return emissions(outputs[None, :], words[:, None])


def truth(world, configured):
    bound = configured.bind(world, ExactSearch.over(world))
    return np.asarray(bound.probabilities(np.arange(len(world.words))))


@pytest.mark.parametrize(
    ("epsilon", "most"), [(0.1, 300), (40.0, 300), (3.0, 300), (3.0, 1), (3.0, 7), (3.0, 150)]
)
def test_computed_emissions_are_the_mechanism(small, epsilon, most):
    """What is left out is shared: the likeliest outputs stay, all add up to one, and the error is enough."""
    exponential = mechanism("exponential", epsilon=epsilon)
    found, exact = measured(small, exponential, most=most), truth(small, exponential)
    np.testing.assert_allclose(table(found).sum(axis=1), 1.0, rtol=1e-9)
    best = np.argsort(-exact, axis=1, kind="stable")[:, :most]
    given = np.take_along_axis(table(found), best, axis=1)
    np.testing.assert_allclose(given, np.take_along_axis(exact, best, axis=1), rtol=1e-9, atol=1e-9)
    distance = np.abs(table(found) - exact).sum(axis=1) / 2
    assert (distance <= found.error + 1e-9).all()
    if most < 200:
        assert len(found.keys) == most * len(small.words)
    else:
        assert found.error.max() < 1e-9


@pytest.mark.parametrize("epsilon", [0.5, 1e9])
def test_drawn_emissions_are_laws_without_zeros(small, epsilon):
    """Rejects counts as they are: an output that did not come up in 50 runs is not impossible."""
    law = table(measured(small, mechanism("laplace", epsilon=epsilon), runs=50))
    np.testing.assert_allclose(law.sum(axis=1), 1.0, rtol=1e-9)
    assert (law > 0).all() and (table(Emissions.uniform(3, 5)) == 0.2).all()


def test_counts_by_hand():
    """Word 0 gave output 0 eight times, 1 and 2 once; word 1 gave all four outputs, so nothing is left."""
    # The error is of standard errors and of all that has no cell. Rejects the former alone.
    cells = {
        "word": [0, 0, 0, 1, 1, 1, 1],
        "output": [0, 1, 2, 0, 1, 2, 3],
        "count": [8.0, 1, 1, 4, 3, 2, 1],
    }
    made = SimpleNamespace(name="plain", runs=10, release_words=4)
    found = Emissions.of_cells(pa.table(cells), made, vocabulary=3)
    d = (3 + 0.5) / (3 + 2 * 1 + 1)
    first = [(8 - d) / 10, (1 - d) / 10, (1 - d) / 10, 3 * d / 10]
    np.testing.assert_allclose(table(found)[:2], [first, [0.4, 0.3, 0.2, 0.1]], rtol=1e-12)
    assert (table(found)[2] == 0).all()  # not measured
    spread = [
        sum(math.sqrt(p * (1 - p) / 10) for p in law) for law in (first[:3], [0.4, 0.3, 0.2, 0.1])
    ]
    np.testing.assert_allclose(found.error[:2], [spread[0] / 2 + first[3], spread[1] / 2])
    assert found.look_up(np.array([3, 3]), np.array([0, 1]))[0].tolist() == [False, True]
    places, words, probability = found.cells(np.array([3, 0]))
    assert (places.tolist(), words.tolist()) == ([0, 1, 1], [1, 0, 1])
    np.testing.assert_allclose(probability, [0.1, first[0], 0.4], rtol=1e-12)


WORDS = 40


def sparse(seed):
    """Emissions in which most pairs of 40 words and 30 outputs have no cell of their own."""
    rng = np.random.default_rng(seed)
    keys = np.sort(rng.choice(WORDS * 30, 200, replace=False))
    return Emissions(
        keys=keys,
        probability=rng.uniform(0.01, 0.05, 200),
        elsewhere=rng.uniform(1e-4, 5e-3, WORDS),
        error=np.zeros(WORDS),
        outputs=30,
    )


@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 5, 100])
def test_candidates_are_the_likeliest_words(versions, most, monkeypatch):
    """All of them, in order, by the product over versions; with one output, cut off or not."""
    # Rejects a list of the cells alone: a frequent word that never gave this output may still be the
    # likeliest. The blocks in which outputs are looked at change nothing.
    rng = np.random.default_rng(versions)
    emissions, prior = sparse(versions), rng.dirichlet(np.full(WORDS, 0.3))
    outputs = rng.integers(0, 30, (versions, 50))
    found = Candidates.of(released([[0] * 50], outputs), emissions, prior, most=most)
    assert found.words.shape == (50, min(most, WORDS))
    with np.errstate(divide="ignore"):
        log_emission = np.log(emissions(outputs[:, :, None], np.arange(WORDS))).sum(axis=0)
        order = np.argsort(-(np.log(prior) + log_emission), axis=1, kind="stable")
    if versions == 1 or most >= WORDS:
        np.testing.assert_array_equal(found.words, order[:, :most])
    given = np.take_along_axis(log_emission, found.words, axis=1)
    np.testing.assert_allclose(found.log_emission, given, rtol=1e-12)
    monkeypatch.setattr(module, "_CELLS", 50)
    parts = Candidates.of(released([[0] * 50], outputs), emissions, prior, most=most)
    np.testing.assert_array_equal(parts.words, found.words)
    np.testing.assert_array_equal(parts.log_emission, found.log_emission)


def test_known_tokens_have_one_candidate_and_impossible_words_none():
    rows = released([[0, -1, 2]], np.array([[1, -1, 0]]))
    found = Candidates.of(rows, emitting(np.full((3, 3), 1 / 3)), np.array([0.2, 0.5, 0.3]), most=3)
    assert found.words.tolist() == [[1, 2, 0], [3, NO_WORD, NO_WORD], [1, 2, 0]]
    assert found.log_emission[1].tolist() == [0.0, -np.inf, -np.inf]
    found = Candidates.of(
        released([[0, 1]], np.array([[0, 1]])), emitting(np.eye(2)), np.ones(2), most=2
    )
    assert found.words.tolist() == [[0, NO_WORD], [1, NO_WORD]]
    assert found.log_emission.tolist() == [[0.0, -np.inf], [0.0, -np.inf]]
