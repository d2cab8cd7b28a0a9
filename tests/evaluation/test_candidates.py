"""Candidates against Bayes' rule over all words."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.evaluation import candidates
from dptext_spark.evaluation.candidates import NO_WORD, Candidates
from dptext_spark.evaluation.emissions import Emissions
from tests.helpers.hidden_worlds import emitting, released

WORDS = 40


def sparse(seed: int) -> Emissions:
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
@pytest.mark.parametrize("most", [1, 5, WORDS, 100])
def test_candidates_are_the_likeliest_words(versions: int, most: int) -> None:
    """All of them, in order, by the product over versions; with one output, cut off or not.

    Rejects a list of the cells alone: a frequent word that never gave this output may still be the likeliest.
    """
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


def test_known_tokens_have_one_candidate() -> None:
    rows = released([[0, -1, 2]], np.array([[1, -1, 0]]))
    found = Candidates.of(rows, emitting(np.full((3, 3), 1 / 3)), np.array([0.2, 0.5, 0.3]), most=3)
    assert found.words.tolist() == [[1, 2, 0], [3, NO_WORD, NO_WORD], [1, 2, 0]]
    assert found.log_emission[1].tolist() == [0.0, -np.inf, -np.inf]


def test_impossible_words_are_none() -> None:
    found = Candidates.of(released([[0, 1]], np.array([[0, 1]])), emitting(np.eye(2)), np.ones(2), most=2)
    assert found.words.tolist() == [[0, NO_WORD], [1, NO_WORD]]
    assert found.log_emission.tolist() == [[0.0, -np.inf], [0.0, -np.inf]]


def test_the_blocks_in_which_outputs_are_looked_at_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    rows, prior = released([[0] * 60], rng.integers(0, 30, (2, 60))), rng.dirichlet(np.ones(WORDS))
    whole = Candidates.of(rows, sparse(3), prior, most=8)
    monkeypatch.setattr(candidates, "_CELLS", 50)
    parts = Candidates.of(rows, sparse(3), prior, most=8)
    np.testing.assert_array_equal(parts.words, whole.words)
    np.testing.assert_array_equal(parts.log_emission, whole.log_emission)
