"""Channels worked out in this process: as good as the best there is, and by counts without a density."""

from functools import partial

import numpy as np
import pytest
from scipy import stats

from dptext_spark.channel.local import channel_of
from dptext_spark.mechanisms import Laplace
from dptext_spark.mechanisms.noisy import AdditiveNoise
from dptext_spark.search.exact import ExactSearch
from tests.helpers.hidden_worlds import law_of, normalised


def exact_law(embedding, epsilon):
    """P[output | word] of Laplace noise (words, outputs): by tails on a line, by quadrature on a plane."""
    vectors = np.asarray(embedding.vectors, dtype=np.float64)
    size, dimension = vectors.shape
    law = np.zeros((size, size))
    if dimension == 1:
        order = np.argsort(vectors[:, 0])
        places = vectors[order, 0]
        borders = np.concatenate([[-np.inf], (places[1:] + places[:-1]) / 2, [np.inf]])
        below = stats.laplace.cdf(borders, vectors, 1.0 / epsilon)
        law[:, order] = np.diff(below, axis=1)
        return law
    radii = stats.gamma.ppf((np.arange(400) + 0.5) / 400, 2, scale=1.0 / epsilon)
    angles = 2 * np.pi * (np.arange(360) + 0.5) / 360
    around = np.stack([np.outer(radii, np.cos(angles)), np.outer(radii, np.sin(angles))], axis=-1)
    for word, vector in enumerate(vectors):
        points = around.reshape(-1, 2) + vector
        distances = np.square(points[:, None] - vectors).sum(axis=2)
        law[word] = np.bincount(distances.argmin(axis=1), minlength=size) / len(points)
    return law


@pytest.mark.parametrize(
    ("world", "epsilon"), [("line", 1.5), ("line", 6.0), ("plane", 1.0), ("plane", 2.0)]
)
def test_a_guesser_with_the_channel_is_as_good_as_the_best_there_is(built, plane, world, epsilon):
    """Within 0.01 of the exact Bayes success, which quadrature gives; rejects one without the prior."""
    embedding = plane if world == "plane" else built[world]
    law = exact_law(embedding, epsilon)
    prior = np.random.default_rng(1).permutation(1.0 / np.arange(1, len(law) + 1))
    prior /= prior.sum()
    joint = prior[:, None] * law
    best = joint.max(axis=0).sum()
    channel = channel_of(Laplace(epsilon=epsilon), embedding, ExactSearch.over(embedding), prior)
    assert channel.method == "posteriors"

    def success(weights):
        return joint[weights.argmax(axis=0), np.arange(len(law))].sum()

    assert best - 0.01 <= success(prior[:, None] * law_of(channel)) <= best + 1e-12
    assert success(law_of(channel)) < best - 0.01


def test_without_a_density_draws_are_counted_and_said_to_be_weak(built, monkeypatch):
    """Rejects a mechanism that somebody adds and that no channel is for, and a weak attack that is unsaid."""
    embedding = built["space"]
    prior = np.full(10, 0.1)
    work_out = partial(
        channel_of, embedding=embedding, search=ExactSearch.over(embedding), prior=prior
    )
    known = work_out(Laplace(epsilon=3.0))
    monkeypatch.setattr(AdditiveNoise, "density", lambda self, words: None)
    counted = work_out(Laplace(epsilon=3.0))
    assert (counted.method, counted.difference) == ("draws", None)
    assert known.method == "posteriors"
    assert np.abs(normalised(law_of(counted)) - normalised(law_of(known))).max() < 0.1
    assert work_out(None).method == "none"
