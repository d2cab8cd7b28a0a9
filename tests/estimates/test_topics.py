"""Soft topics: the best weights, what they count, and the files of lists."""

import re

import numpy as np
import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.estimates.topics import (
    LEAKS,
    SoftTopics,
    members_of,
    read_topics,
    ridge_weights,
)
from tests.helpers.made_releases import MadeRelease

MADE = MadeRelease()


class Computed:
    """A source whose matrix is computed."""

    def counted(self, matrix, weights, shares):
        return matrix.table.astype(np.float64) @ weights, np.zeros(weights.shape[1])


def loss(matrix, members, weights, ridge):
    """What weights of one list are chosen by."""
    counted = matrix.table @ weights
    scatter = ridge * (matrix.output_prior @ np.square(weights))
    return matrix.prior @ np.square(counted - members) + scatter


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_weights_are_the_best_ones(ridge):
    """Rejects a ridge that is not weighted with the outputs' prior, and unweighted words."""
    matrix, members = MADE.matrix, MADE.members[:, :3]
    weights = ridge_weights(matrix, members, ridge)
    rng = np.random.default_rng(0)
    for topic in range(3):
        best = loss(matrix, members[:, topic], weights[:, topic], ridge)
        for _ in range(20):
            step = 0.02 * rng.standard_normal(matrix.outputs)
            assert loss(matrix, members[:, topic], weights[:, topic] + step, ridge) > best - 1e-7


def test_a_topic_counts_its_words_as_one_and_is_sharper_for_large_tables():
    """Rejects weights that are not scaled, a ridge that does not fall with the size, wrong leaks."""
    members = MADE.members[:, :5]
    fits = [
        SoftTopics.fitted(
            Computed(), MADE.matrix, "abcde", members, words=words, shares=MADE.matrix.prior
        )
        for words in (1e2, 1e6)
    ]
    prior = MADE.matrix.prior
    for soft in fits:
        inside = prior @ (soft.counted * members)
        assert np.allclose(inside / (prior @ members), 1.0)
        assert np.allclose(soft.counted, MADE.matrix.table @ soft.weights, atol=1e-5)
        assert np.allclose(soft.sharpness, inside / (prior @ np.abs(soft.counted)))
    assert fits[0].ridge > fits[1].ridge
    assert fits[0].sharpness.mean() < fits[1].sharpness.mean()
    leaks = fits[0].leaks(2)
    sizes = np.abs(fits[0].counted[:, 2]) * prior * (members[:, 2] == 0)
    assert len(leaks) == LEAKS and np.array_equal(leaks, np.argsort(-sizes, kind="stable")[:LEAKS])


def test_the_mean_weight_is_what_a_topic_counts_whatever_the_frequencies_are():
    """Rejects an estimate that leans on the prior: private words have other frequencies."""
    matrix = MADE.matrix
    members = MADE.members[:, :1]
    soft = SoftTopics.fitted(Computed(), matrix, ["a"], members, words=1e4, shares=matrix.prior)
    rng = np.random.default_rng(1)
    private = rng.dirichlet(np.full(len(MADE.matrix.words), 0.1))
    expected = private @ MADE.matrix.table @ soft.weights
    assert expected[0] == pytest.approx((private @ soft.counted)[0], rel=1e-4)


def test_lists_are_found_in_the_vocabulary(demo_bundle):
    """Rejects words that are looked up as they are written alone, and a topic of nothing."""
    words = np.arange(500)
    members, absent = members_of({"a": ["The", "of", "zebra"], "b": ["in"]}, demo_bundle, words)
    names = demo_bundle.words.to_pylist()
    assert [names[place] for place in np.flatnonzero(members[:, 0])] == ["the", "of"]
    assert absent == {"a": ["zebra"], "b": []}
    with pytest.raises(ConfigError, match="Topic c has no word that the channel has"):
        members_of({"c": ["zebra"]}, demo_bundle, words)


def test_topics_are_read_from_lines_and_from_toml(tmp_path):
    """Rejects commas that stay at words, comments that are topics, and a file of neither."""
    lines = tmp_path / "topics.txt"
    lines.write_text("# mine\nfood: pizza, sushi\n\nnight out: bar  cinema\n", encoding="utf-8")
    toml = tmp_path / "topics.toml"
    toml.write_text('food = ["pizza", "sushi"]\n"night out" = ["bar", "cinema"]\n')
    assert read_topics(lines) == read_topics(toml)
    assert read_topics(lines) == {"food": ["pizza", "sushi"], "night out": ["bar", "cinema"]}
    faults = {
        "a.txt": ("food pizza\n", "Line 1 of the topics is wrong"),
        "b.txt": ("a: b\na: c\n", "Line 2 of the topics is wrong"),
        "c.txt": ("# none\n", "has no topic"),
        "d.toml": ("food = 5\n", "Topic 1 of the file is wrong"),
        "e.toml": ("food = [\n", "The file of topics is not TOML"),
    }
    for name, (content, message) in faults.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError, match=re.escape(message)):
            read_topics(tmp_path / name)
    with pytest.raises(ConfigError, match=r"cannot be read\. Got: FileNotFoundError"):
        read_topics(tmp_path / "absent.txt")
