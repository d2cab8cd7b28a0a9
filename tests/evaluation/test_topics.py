"""What a row is about: evidence by hand, topics that are there, and corpora that have none."""

import math

import numpy as np
import pytest

from dptext_spark.evaluation.topics import Topics

WEIGHT = 0.7  # of each word of a row


def learned(rows, vocabulary, **options):
    """Topics of rows of words."""
    words = np.array([word for row in rows for word in row], dtype=np.int64)
    offsets = np.cumsum([0, *map(len, rows)])
    return Topics.learn(words, offsets, vocabulary=vocabulary, **options)


def test_evidence_by_hand():
    """Two topics and three words; rejects evidence that has the token itself, or another row's tokens."""
    # Candidates that are no words, and what no candidate has, say nothing of the topic.
    topics = Topics(
        shares=np.array([0.25, 0.75]), ratios=np.array([[2.0, 0.5, 1.0], [0.4, 1.5, 1.2]])
    )
    words = np.array([[0, 1], [1, -1], [3, -1], [2, 0], [0, 2]])
    probability = np.array([[0.6, 0.3], [1.0, 0.0], [1.0, 0.0], [0.5, 0.2], [0.9, 0.1]])
    evidence = topics.evidence(words, probability, np.array([0, 3, 3, 5]))

    def of_token(topic, token):
        known = [
            (w, p) for w, p in zip(words[token], probability[token], strict=True) if 0 <= w < 3
        ]
        share = sum(p * topics.ratios[topic, w] for w, p in known)
        return WEIGHT * math.log(share + 1.0 - sum(p for _, p in known))

    for token, others in enumerate([[1, 2], [0, 2], [0, 1], [4], [3]]):
        scores = [math.exp(sum(of_token(topic, other) for other in others)) for topic in range(2)]
        belief = topics.shares * scores
        belief /= belief.sum()
        for place, word in enumerate(words[token]):
            expected = math.log(belief @ topics.ratios[:, word]) if 0 <= word < 3 else 0.0
            assert evidence[token, place] == pytest.approx(expected, rel=1e-12), (token, place)


@pytest.fixture(scope="module")
def clear():
    """200 rows of words 0 to 19 or of 20 to 39; words 40 to 49 are in all."""
    rng = np.random.default_rng(1)
    starts = rng.integers(0, 2, 200) * 20
    rows = [[*(start + rng.integers(0, 20, 6)), *rng.integers(40, 50, 3)] for start in starts]
    return starts, [rng.permutation(row).tolist() for row in rows]


@pytest.mark.parametrize("count", [2, 24])
def test_clear_topics_are_there(clear, count):
    """Of a row's other words: rejects topics that all rows share, and words of all topics as evidence."""
    _, rows = clear
    topics = learned(rows, 50, count=count)
    assert topics.shares.sum() == pytest.approx(1.0)
    # A token that is surely word 0, and one that may be of either topic, or of both.
    words = np.array([[0, -1, -1], [1, 21, 41]])
    evidence = topics.evidence(
        words, np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), np.array([0, 2])
    )
    own, other, common = evidence[1]
    assert own > 0.3 > common > -0.3 > -0.8 > other
    # Several sure words of a topic leave none of the other.
    several = np.array([[20, -1], [25, -1], [30, -1], [1, 21]])
    evidence = topics.evidence(several, np.array([[1.0, 0.0]] * 3 + [[0.0, 0.0]]), np.array([0, 4]))
    assert evidence[3, 1] > 0.5 and evidence[3, 0] < -1.5


def test_topics_are_the_same_every_time(clear):
    """Rejects main axes by a solver that draws at random where rows have fewer axes than it looks for."""
    alike = [[1, 2]] * 5 + [[]] * 5 + [[-1]] * 3
    for rows in (clear[1], alike, [[word] for word in range(40)]):
        first = learned(rows, 50)
        for _ in range(3):
            again = learned(rows, 50)
            np.testing.assert_array_equal(again.ratios, first.ratios)
            np.testing.assert_array_equal(again.shares, first.shares)


@pytest.mark.parametrize("rows", [[], [[], []], [[-1], [-1, -1]], [[3]]])
def test_of_next_to_nothing_there_is_no_evidence(rows):
    """Rejects a division by no row, and main axes of rows without a word."""
    topics = learned(rows, 5)
    words = np.array([[0, 1], [4, 2]])
    evidence = topics.evidence(words, np.array([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 2]))
    assert topics.shares.sum() == pytest.approx(1.0)
    assert np.isfinite(evidence).all() and (topics.ratios > 0.0).all()
    if [3] not in rows:
        np.testing.assert_array_equal(evidence, 0.0)
