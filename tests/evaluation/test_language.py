"""Counts of pairs, and the language models of pairs and of triples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.evaluation.language import BigramModel
from tests.helpers.hidden_worlds import of_triples, pairs_of, triples_of

VOCABULARY = 6
UNKNOWN, START = VOCABULARY, VOCABULARY + 1

TEXTS = st.lists(st.lists(st.integers(-1, VOCABULARY - 1), max_size=8), max_size=8)


def counted(texts):
    return pairs_of(texts, VOCABULARY)


def test_pairs_do_not_cross_rows():
    """Rejects a pair made of one row's end and the next one's start, empty rows between them or not."""
    pairs = counted([[0, 1, 0], []]) + counted([[1, -1], [0, 1]])
    found = zip(pairs.first.tolist(), pairs.second.tolist(), pairs.count.tolist(), strict=True)
    assert [*found] == [(0, 1, 2), (1, 0, 1), (1, UNKNOWN, 1), (START, 0, 2), (START, 1, 1)]
    assert pairs.words.tolist() == [3, 3, 0, 0, 0, 0, 1]


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_the_model_is_a_law_and_finds_the_pairs_seen(texts, seed):
    """Rejects a discount that is taken and not given back, and words that can never come."""
    # Pairs seen are those of a look at every pair; places without a word never count.
    model = BigramModel.of(counted(texts))
    first, second = np.meshgrid(np.arange(VOCABULARY + 2), np.arange(VOCABULARY + 1), indexing="ij")
    probability = model.probability(first, second)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=1e-12)
    assert (probability > 0).all()
    rng = np.random.default_rng(seed)
    first = rng.integers(-1, VOCABULARY + 2, (4, 3))
    # Words of one place differ.
    second = rng.permuted(np.tile(np.arange(VOCABULARY + 1), (4, 1)), axis=1)[:, :5]
    second = np.where(rng.random(second.shape) < 0.2, -1, second)
    beyond = dict(zip(model.keys.tolist(), model.beyond.tolist(), strict=True))
    expected = np.zeros((4, 3, 5))
    for p, i, j in np.ndindex(expected.shape):
        if first[p, i] >= 0 and second[p, j] >= 0:
            expected[p, i, j] = beyond.get(
                int(first[p, i]) * (VOCABULARY + 2) + int(second[p, j]), 0.0
            )
    p, i, j, values = model.seen(first, second)
    found = np.zeros(expected.shape)
    np.add.at(found, (p, i, j), values)
    np.testing.assert_array_equal(found, expected)


def test_the_smoothed_law_is_that_of_kneser_and_ney():
    """By hand; rejects a lower law of how often a word comes: word 2 comes thrice, but after 1 alone."""
    model = BigramModel.of(counted([[0, 1, 2], [0, 1, 2], [3, 1, 2], [3, 0]]))
    counts = {(START, 0): 2, (START, 3): 2, (0, 1): 2, (1, 2): 3, (3, 0): 1, (3, 1): 1}
    d = (2 + 0.5) / (2 + 2 * 3 + 1)
    before = np.array([2, 2, 1, 1, 0, 0, 0])  # START and 3; 0 and 3; 1; START
    d1 = (2 + 0.5) / (2 + 2 * 2 + 1)
    lower = (np.maximum(before - d1, 0) + d1 * 4 / 7) / 6
    np.testing.assert_allclose(model.lower, lower, rtol=1e-12)
    for (a, b), count in counts.items():
        own = [c for (first, _), c in counts.items() if first == a]
        expected = (count - d) / sum(own) + d * len(own) / sum(own) * lower[b]
        assert model.probability(np.array(a), np.array(b)) == pytest.approx(expected, rel=1e-12)
    assert model.probability(np.array(2), np.array(0)) == pytest.approx(
        lower[0]
    )  # nothing follows 2


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_triples_are_a_law_and_those_seen_are_found(texts, seed):
    """Rejects a back-off of contexts that were not seen below 1, and places without a word that count."""
    model = triples_of(texts, VOCABULARY)
    follows = of_triples(model)
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, VOCABULARY + 2, (2, 5))
    third = np.arange(-1, VOCABULARY + 1)
    contexts, back_off = model.context(first, second)
    for a, b, context, share in zip(first, second, contexts, back_off, strict=True):
        law = [follows(int(a), int(b), word) for word in range(VOCABULARY + 1)]
        assert min(law) > 0.0 and sum(law) == pytest.approx(1.0, rel=1e-12)
        lower = model.pairs.probability(np.full(len(third), b), third)
        beyond = np.zeros(len(third))
        if context >= 0:
            _, places, values = model.seen(np.array([context]), third[None])
            beyond[places] = values
        assert beyond[0] == 0.0
        np.testing.assert_allclose((share * lower + beyond)[1:], law, rtol=1e-12)


def test_the_law_of_triples_by_hand():
    """Discounted counts of triples, the rest by pairs; rejects triples across rows, and one start."""
    texts = [[0, 1, 2], [0, 1, 2], [0, 1, 3], [1, 2], [], [-1, 0, 1]]
    model = triples_of(texts, VOCABULARY)
    follows = of_triples(model)
    counts = {
        (START, START, 0): 3,
        (START, START, 1): 1,
        (START, START, UNKNOWN): 1,
        (START, 0, 1): 3,
        (START, 1, 2): 1,
        (START, UNKNOWN, 0): 1,
        (0, 1, 2): 2,
        (0, 1, 3): 1,
        (UNKNOWN, 0, 1): 1,
    }
    assert len(model.keys) == len(counts)
    d = (6 + 0.5) / (6 + 2 * 1 + 1)
    for (a, b, c), count in counts.items():
        after = [
            number for (first, second, _), number in counts.items() if (first, second) == (a, b)
        ]
        lower = model.pairs.probability(np.array(b), np.array(c))
        expected = (count - d) / sum(after) + d * len(after) / sum(after) * lower
        assert follows(a, b, c) == pytest.approx(expected, rel=1e-12)
    # Never came, after a context that did and after one that did not: word 2 ends its rows.
    rest = d * 2 / 3 * model.pairs.probability(np.array(1), np.array(0))
    assert follows(0, 1, 0) == pytest.approx(rest, rel=1e-12)
    assert follows(1, 2, 0) == pytest.approx(
        model.pairs.probability(np.array(2), np.array(0)), rel=1e-12
    )
