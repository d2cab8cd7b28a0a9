"""The words that attackers take into account, against all words in order."""

import numpy as np
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation import candidates as module
from dptext_spark.evaluation.candidates import NO_WORD, Candidates
from tests.helpers.hidden_worlds import emitting, released

WORDS, OUTPUTS = 40, 30


def sparse(seed):
    """A channel in which most pairs of 40 words and 30 outputs have no cell of their own."""
    rng = np.random.default_rng(seed)
    return Channel(
        method="draws",
        keys=np.sort(rng.choice(WORDS * OUTPUTS, 200, replace=False)),
        probability=rng.uniform(0.01, 0.05, 200).astype(np.float32),
        of_word=rng.uniform(1e-4, 5e-3, WORDS),
        of_output=rng.uniform(0.2, 5.0, OUTPUTS),
    )


@pytest.mark.parametrize("versions", [1, 2, 5])
@pytest.mark.parametrize("most", [1, 5, 100])
def test_candidates_are_the_likeliest_words(versions, most, monkeypatch):
    """All of them, in order, by the product over versions; with one output, cut off or not."""
    # Rejects a list of the cells alone: a frequent word that never gave this output may still be the
    # likeliest; and shares of words alone. The blocks in which outputs are looked at change nothing.
    rng = np.random.default_rng(versions)
    channel, prior = sparse(versions), rng.dirichlet(np.full(WORDS, 0.3))
    outputs = rng.integers(0, OUTPUTS, (versions, 50))
    candidates = Candidates.of(released([[0] * 50], outputs), channel, prior, most=most)
    assert candidates.words.shape == (50, min(most, WORDS))
    with np.errstate(divide="ignore"):
        log_emission = np.log(channel(outputs[:, :, None], np.arange(WORDS))).sum(axis=0)
        order = np.argsort(-(np.log(prior) + log_emission), axis=1, kind="stable")
    if versions == 1 or most >= WORDS:
        np.testing.assert_array_equal(candidates.words, order[:, :most])
    emission = np.take_along_axis(log_emission, candidates.words, axis=1)
    np.testing.assert_allclose(candidates.log_emission, emission, rtol=1e-12)
    monkeypatch.setattr(module, "_CELLS", 50)
    parts = Candidates.of(released([[0] * 50], outputs), channel, prior, most=most)
    np.testing.assert_array_equal(parts.words, candidates.words)
    np.testing.assert_array_equal(parts.log_emission, candidates.log_emission)


def test_known_tokens_have_one_candidate_and_impossible_words_none():
    """A token outside the vocabulary is known to be so; a word that cannot give it is no candidate."""
    rows = released([[0, -1, 2]], np.array([[1, -1, 0]]))
    candidates = Candidates.of(
        rows, emitting(np.full((3, 3), 1 / 3)), np.array([0.2, 0.5, 0.3]), most=3
    )
    assert candidates.words.tolist() == [[1, 2, 0], [3, NO_WORD, NO_WORD], [1, 2, 0]]
    assert candidates.log_emission[1].tolist() == [0.0, -np.inf, -np.inf]
    rows = released([[0, 1]], np.array([[0, 1]]))
    candidates = Candidates.of(rows, emitting(np.eye(2)), np.ones(2), most=2)
    assert candidates.words.tolist() == [[0, NO_WORD], [1, NO_WORD]]
    assert candidates.log_emission.tolist() == [[0.0, -np.inf], [0.0, -np.inf]]


def test_a_word_without_a_prior_is_no_candidate():
    """Rejects a word that the corpus lacks in place of none, whatever the channel says of it."""
    rows = released([[0]], np.array([[0]]))
    candidates = Candidates.of(rows, emitting(np.eye(2)), np.array([0.0, 1.0]), most=2)
    assert candidates.words.tolist() == [[NO_WORD, NO_WORD]]
