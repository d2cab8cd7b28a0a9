"""Rows as vectors and likely words, of each output by itself and of all outputs of a row."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.channel.matrix import UNKNOWN
from dptext_spark.estimates.features import LIKELIEST, OutputFeatures, RowPosterior
from tests.helpers.made_releases import OUTPUTS, WORDS, MadeRelease

MADE = MadeRelease()
MATRIX = MADE.matrix
VECTORS = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
NAMES = pa.array([f"w{number}" for number in range(60)])
FOLLOWS = np.random.default_rng(1).dirichlet(np.full(WORDS, 0.03), WORDS)
"""Of a made language: which word follows which."""


def sentences(follows, count, seed, length=8):
    """Rows of words that follow one another, and where each row starts."""
    rng = np.random.default_rng(seed)
    words = np.empty((count, length), dtype=np.int64)
    words[:, 0] = rng.integers(0, WORDS, count)
    for place in range(1, length):
        ends = np.cumsum(follows[words[:, place - 1]], axis=1)
        words[:, place] = (rng.random((count, 1)) > ends[:, :-1]).sum(axis=1)
    return words.ravel(), np.arange(0, count * length + 1, length)


def released(words, seed):
    return MADE.release(words[:, None], np.random.default_rng(seed)).ravel()


TEXT, STARTS = sentences(FOLLOWS, 400, 2)
SEEN = released(TEXT, 3)
SHARES = np.bincount(TEXT, minlength=WORDS) / len(TEXT)


def posterior_of(corpus):
    return RowPosterior.of(MATRIX, SHARES, VECTORS, corpus=corpus, released=(SEEN, STARTS))


def recovered(table):
    """The mean weight that rows give to the words that they had."""
    hits = []
    rows = zip(table["words"].to_pylist(), table["weights"].to_pylist(), strict=True)
    for row, (words, weights) in enumerate(rows):
        had = TEXT[STARTS[row] : STARTS[row + 1]].tolist()
        for word, weight in zip(words, weights, strict=True):
            hits.append(min(weight, had.count(int(word[1:]))))
    return sum(hits) / len(TEXT)


def test_features_are_posterior_means():
    """Rejects likelihoods without the shares, marks that count, and unknown words with a vector."""
    matrix = MATRIX.with_unknown(0.3)
    shares = np.random.default_rng(1).dirichlet(np.ones(61)).astype(np.float32)
    features = OutputFeatures.of(matrix, shares, VECTORS)
    outputs, offsets = np.array([5, -1, 9, 5, -1]), np.array([0, 3, 4, 5])
    table = features.rows(outputs, offsets, NAMES)
    joint = MATRIX.table[:, [5, 9]] * shares[:60, None]
    posterior = joint / joint.sum(axis=0)
    means = posterior.T @ VECTORS
    assert matrix.words[-1] == UNKNOWN
    vectors = table["vector"].to_pylist()
    assert vectors[0] == pytest.approx(means.mean(axis=0).tolist(), abs=1e-5)
    assert vectors[1] == pytest.approx(means[0].tolist(), abs=1e-5) and vectors[2] is None
    weights = posterior.sum(axis=1)
    likeliest = np.argsort(-weights)[:LIKELIEST]
    assert table["words"][0].as_py() == [f"w{place}" for place in likeliest]
    assert table["weights"][0].as_py() == pytest.approx(weights[likeliest].tolist(), abs=1e-5)
    assert table["words"][2].as_py() == []


def test_without_a_language_rows_in_context_are_rows_of_single_outputs():
    """Rejects a posterior without the prior of words, and marks that have a word."""
    nothing = np.zeros(0, dtype=np.int64)
    posterior = posterior_of((nothing, np.zeros(1, dtype=np.int64)))
    outputs = SEEN[:24].copy()
    outputs[[3, 8, 9, 10, 11, 12, 13, 14, 15]] = -1  # the second row has nothing
    single = OutputFeatures.of(MATRIX, SHARES.astype(np.float32), VECTORS)
    expected = single.rows(outputs, STARTS[:4], NAMES)["vector"].to_pylist()
    vectors = posterior.rows(outputs, STARTS[:4], NAMES)["vector"].to_pylist()
    assert vectors[1] is None and expected[1] is None
    for row in (0, 2):
        # Beyond the likeliest states of each word little is left.
        assert vectors[row] == pytest.approx(expected[row], abs=0.1)


def test_all_outputs_of_a_row_say_more_of_its_words():
    """Rejects outputs that are looked at one by one, words of the row before, a channel transposed."""
    single = OutputFeatures.of(MATRIX, SHARES.astype(np.float32), VECTORS)
    alone = recovered(single.rows(SEEN, STARTS, NAMES))
    posterior = posterior_of(sentences(FOLLOWS, 2000, 4))
    together = recovered(posterior.rows(SEEN, STARTS, NAMES))
    assert posterior.trust > 0.7 and together > 1.3 * alone


def test_a_corpus_that_is_not_like_the_table_is_not_believed():
    """Rejects pairs of any corpus at all: then rows say less than single outputs."""
    other = np.roll(FOLLOWS, 7, axis=1)
    posterior = posterior_of(sentences(other, 2000, 5))
    single = OutputFeatures.of(MATRIX, SHARES.astype(np.float32), VECTORS)
    alone = recovered(single.rows(SEEN, STARTS, NAMES))
    together = recovered(posterior.rows(SEEN, STARTS, NAMES))
    assert posterior.trust < 0.1 and together > 0.9 * alone


def test_a_channel_for_attackers_is_the_matrix_up_to_a_factor_of_each_output():
    """Rejects the channel transposed, and unknown words that take the place of others."""
    matrix = replace(MATRIX, words=np.arange(WORDS) + 5).with_unknown(0.2)
    channel, prior = matrix.channel(np.append(SHARES, 0.2), vocabulary=70)
    assert prior.sum() == pytest.approx(1.0) and not prior[:5].any() and prior[5] > 0.0
    words = np.arange(5, 5 + WORDS)
    table = channel.table(np.arange(OUTPUTS), words)
    ratio = table / MATRIX.table.T
    assert np.allclose(ratio, ratio[:, :1], rtol=1e-4)
