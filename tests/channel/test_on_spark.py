"""Channels worked out by tasks, against those of one process: the same to the last bit."""

import numpy as np
import pytest

from dptext_spark.channel import local, on_spark
from dptext_spark.channel.posteriors import BLOCK_POINTS, Guesser, LocalRounds
from dptext_spark.mechanisms import Exponential, HyperbolicIcdm, Laplace
from dptext_spark.mechanisms.noisy import AdditiveNoise
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from tests.helpers import worlds

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """More words than an output has cells, in three dimensions."""
    vectors = np.random.default_rng(2).standard_normal((500, 3))
    return worlds.build(tmp_path_factory.mktemp("many"), vectors, release_words=400)


def prior_of(embedding, words):
    """Frequent words and rare ones, and others that the corpus lacks."""
    prior = np.zeros(len(embedding.words))
    prior[:words] = 1.0 / np.arange(1, words + 1)
    return prior / prior.sum()


def assert_equal(one, other):
    assert (one.method, one.size, one.difference) == (other.method, other.size, other.difference)
    for field in ("keys", "probability", "of_word", "of_output"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field), field)


def test_tasks_work_out_the_channel_of_one_process(spark, many, ball):
    """Rejects points that hang on their task, and sums that hang on which points came first."""
    # With cells that are cut off, in several rounds; in the ball, where points have double precision; by
    # the choice between two words; where the law is computed.
    cases = [
        (many, 450, Laplace(epsilon=4.0), 0.05),
        (ball, 15, HyperbolicIcdm(epsilon=3.0, select="vickrey", t=0.3), 0.05),
        (ball, 15, Exponential(epsilon=3.0), 0.05),
    ]
    for embedding, words, mechanism, limit in cases:
        prior = prior_of(embedding, words)
        search = ExactSearch.over(embedding)
        bundle = BundleFiles.send(spark, embedding)
        options = {"seed": 5, "limit": limit}
        here = local.channel_of(mechanism, embedding, search, prior, **options)
        assert_equal(on_spark.channel_of(spark, bundle, search, mechanism, prior, **options), here)
        if embedding is many:
            assert here.size >= 2 * BLOCK_POINTS and here.difference <= limit
            assert np.bincount(here.keys // 500).max() == 256
    floor = on_spark.channel_of(spark, bundle, search, None, prior)
    assert_equal(floor, local.channel_of(None, embedding, search, prior))


def test_counts_of_tasks_are_those_of_one_process(spark, many, monkeypatch):
    """Where nobody wrote a density down; rejects words that are left out, and noise that hangs on tasks."""
    monkeypatch.setattr(AdditiveNoise, "density", lambda self, words: None)
    prior = prior_of(many, 300)
    search = ExactSearch.over(many)
    here = local.channel_of(Laplace(epsilon=4.0), many, search, prior)
    bundle = BundleFiles.send(spark, many)
    assert here.method == "draws"
    assert_equal(on_spark.channel_of(spark, bundle, search, Laplace(epsilon=4.0), prior), here)


def test_however_points_are_dealt_out_the_sums_are_the_same(spark, many):
    """Rejects blocks that are summed by tasks of their own: their posteriors add up in another order."""
    prior = prior_of(many, 450)
    search = ExactSearch.over(many)
    source = on_spark.PointSource(
        bundle=BundleFiles.send(spark, many),
        mechanism=Laplace(epsilon=4.0),
        search=search,
        prior=prior,
        seed=5,
    )
    guesser = Guesser.of(source.mechanism, many, search, prior, seed=5)
    here = LocalRounds(guesser=guesser).drawn(range(3, 7))
    for tasks in (1, 5):

        class Dealt(on_spark.SparkRounds):
            _tasks = tasks

        there = Dealt(spark=spark, source=source).drawn(range(3, 7))
        for field in ("outputs", "weight", "keys", "total"):
            np.testing.assert_array_equal(getattr(there, field), getattr(here, field), field)
