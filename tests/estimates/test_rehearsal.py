"""What an analyst would estimate of a simulated release, and without any."""

import numpy as np
import pytest

from dptext_spark.estimates.frames import rank_prior
from dptext_spark.estimates.rehearsal import Rehearsal
from dptext_spark.mechanisms import Exponential
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.withheld import NONE

LISTS = {"low": [f"w{i}" for i in range(8)], "one": ["w30"]}
MECHANISM = Exponential(epsilon=3.0)
TOKENS = 40_000


def rehearsed(small, mechanism):
    search = ExactSearch.over(small, 200)
    return Rehearsal.of(mechanism, small, search, LISTS, words=TOKENS, seed=0)


@pytest.fixture(scope="module")
def private(small):
    """Shares of words that are not those of the prior, and what comes of such words."""
    rng = np.random.default_rng(1)
    shares = rank_prior(small, NONE) * rng.exponential(1.0, len(small.words))
    shares /= shares.sum()
    words = rng.choice(len(shares), TOKENS, p=shares)
    bound = MECHANISM.bind(small, ExactSearch.over(small, 200))
    width = MECHANISM.uniforms_per_token(small.dimension)
    return shares, bound(words, rng.random((TOKENS, width)))


def test_topics_and_frequencies_are_nearer_to_the_truth_than_outputs(small, private):
    """Rejects a channel of another setting, weights of other lists, and counts without a channel."""
    shares, outputs = private
    rehearsal = rehearsed(small, MECHANISM)
    truth = shares @ rehearsal.topics.members
    estimated = rehearsal.topics.weights[outputs].mean(axis=0)
    counted = rehearsal.topics.members[outputs].mean(axis=0)
    assert np.abs(estimated - truth).sum() < 0.5 * np.abs(counted - truth).sum()
    counts = np.bincount(outputs, minlength=len(shares))
    words = rehearsal.words(counts)
    assert words.sum() == pytest.approx(TOKENS)
    overlap = np.minimum(words / TOKENS, shares).sum()
    assert overlap > np.minimum(counts / TOKENS, shares).sum() + 0.05


def test_without_a_release_there_is_the_public_prior(small, private):
    """Rejects a floor that looks at outputs."""
    _, outputs = private
    rehearsal = rehearsed(small, None)
    expected = rank_prior(small, NONE) @ rehearsal.topics.members
    assert np.allclose(rehearsal.topics.weights[outputs[:50]], expected)
    counts = np.bincount(outputs, minlength=len(small.words))
    assert np.allclose(rehearsal.words(counts), TOKENS * rank_prior(small, NONE))
