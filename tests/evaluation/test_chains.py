"""Posteriors of hidden chains against enumeration of all texts: words that follow one word, or two."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.evaluation import chains
from dptext_spark.evaluation.candidates import NO_WORD, Candidates
from dptext_spark.evaluation.chains import forward_backward, forward_backward_in_pairs
from dptext_spark.evaluation.language import BigramModel
from tests.helpers.hidden_worlds import (
    chain,
    emitting,
    enumerated,
    of_pairs,
    of_triples,
    pairs_of,
    released,
    triples_of,
)

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])
PAIRS = chain(START, FOLLOWS)
# Word 0 twice, then 1, over and over: the word before says little, the two before nearly all.
TRIPLES = triples_of([[0, 0, 1] * 6] * 30, 2)
LOOSE = triples_of([np.random.default_rng(2).integers(0, 2, 300).tolist()], 2)


def by_word(rows, model, channel):
    """Posterior (t, v + 1) of each word, by pairs or triples; a flat prior only orders the candidates."""
    words = channel.vocabulary
    candidates = Candidates.of(rows, channel, np.full(words, 1.0), most=words)
    chain_of = forward_backward if isinstance(model, BigramModel) else forward_backward_in_pairs
    values = chain_of(candidates, model, rows.offsets)
    result = np.zeros((len(values), words + 2))  # NO_WORD picks the last column
    np.put_along_axis(result, candidates.words, values, axis=1)
    return result[:, :-1]


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_posteriors_are_those_of_enumeration(data, in_pairs):
    """Rows of several lengths, in one version or more; rejects chains that run across rows."""
    # Also a bigram in place of a trigram, and back-offs of unseen pairs that are not 1. Tokens outside the
    # vocabulary and unprotected words are known, whatever "outputs" say, and their neighbours know them.
    words = data.draw(st.integers(2, 4))
    versions = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    texts = [rng.integers(-1, words, size).tolist() for size in (4, 0, 15, 11)]
    law = rng.dirichlet(np.full(words, 0.5), size=words) + 1e-6
    law /= law.sum(axis=1, keepdims=True)
    inputs = [rng.integers(-1, words, size).tolist() for size in lengths]
    rows = released(inputs, rng.integers(0, words, (versions, sum(lengths))))
    if data.draw(st.booleans()):
        rows = replace(rows, perturbed=rows.perturbed & (np.arange(len(rows.inputs)) % 2 == 0))
    if in_pairs:
        model = triples_of(texts, words)
        follows = of_triples(model)
    else:
        model = BigramModel.of(pairs_of(texts, words))
        follows = of_pairs(model)
    known = np.where(rows.perturbed, -1, np.where(rows.inputs < 0, words, rows.inputs))
    posterior = by_word(rows, model, emitting(law))
    for start, stop in pairwise(rows.offsets.tolist()):
        if start < stop:
            expected = enumerated(follows, law, rows.outputs[:, start:stop], known[start:stop])
            np.testing.assert_allclose(posterior[start:stop], expected, atol=1e-10)


def test_two_words_before_tell_more_than_one():
    """Rejects a bigram in place of a trigram: outputs without sense leave 0 0 1 0 0 1, by triples."""
    rows = released([[0, 0, 1, 0, 0, 1]], np.zeros((1, 6), dtype=np.int64))
    silent = emitting(np.full((2, 2), 0.5))
    by_triples = by_word(rows, TRIPLES, silent)
    by_pairs = by_word(rows, TRIPLES.pairs, silent)
    assert by_triples.argmax(axis=1).tolist() == [0, 0, 1, 0, 0, 1]
    assert by_triples.max(axis=1).min() > 0.9 > 0.75 > by_pairs[2].max()


def test_rows_begin_anew():
    """Rejects triples across rows: the second row's first word is as if it stood alone."""
    outputs = np.array([[0, 0, 1, 0, 1, 1]])
    together = by_word(released([[0, 0, 1], [0, 1, 1]], outputs), TRIPLES, emitting(NOISE))
    for part in (slice(0, 3), slice(3, 6)):
        alone = by_word(released([[0, 0, 0]], outputs[:, part]), TRIPLES, emitting(NOISE))
        np.testing.assert_allclose(together[part], alone, rtol=1e-12)


@pytest.mark.parametrize("model", [PAIRS, LOOSE], ids=["pairs", "triples"])
def test_long_rows_do_not_underflow_and_no_cut_changes_anything(model, monkeypatch):
    """5,000 words: the probability of the row as a whole is far below the least number there is."""
    outputs = np.random.default_rng(1).integers(0, 2, (2, 5_000))
    posterior = by_word(released([[0] * 5_000], outputs), model, emitting(NOISE))
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, rtol=1e-12)
    monkeypatch.setattr(chains, "_LOOKED_UP", 8)
    rows = released([[0] * 200] * 5, np.tile(outputs[:, 2_400:2_600], 5))
    part = by_word(rows, model, emitting(NOISE))
    # What is far off hardly matters.
    np.testing.assert_allclose(posterior[2_500], part[900], atol=1e-10)
    np.testing.assert_array_equal(part[900], part[100])


@pytest.mark.parametrize("in_pairs", [False, True])
def test_an_impossible_row_is_no_end(in_pairs):
    """Outputs that no chain of candidates can give: the chain starts anew and every sum is one."""
    model = chain(np.array([1.0, 0.0]), np.eye(2))
    if in_pairs:
        without = np.zeros(0, dtype=np.int64)
        model = replace(triples_of([[]], 2), pairs=model, contexts=without, back_off=np.zeros(0))
    posterior = by_word(released([[0] * 3], np.array([[0, 1, 0]])), model, emitting(np.eye(2)))
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    assert (posterior.argmax(axis=1) == [0, 1, 0]).all()


@pytest.mark.parametrize("chain_of", [forward_backward, forward_backward_in_pairs])
def test_a_token_without_candidates_is_no_end(chain_of):
    """Rejects a division of nothing by nothing, which takes the guesses of the whole row with it."""
    # Such is an output that no word of the attackers' corpus gives.
    rows = released([[0, 0, 1, 0], [1, 0]], np.array([[0, 0, 2, 0, 1, 0]]))
    law = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    candidates = Candidates.of(rows, emitting(law), np.array([0.6, 0.4, 0.0]), most=2)
    assert candidates.words[2].tolist() == [NO_WORD, NO_WORD]
    texts = [[0, 0, 1, 0], [1, 0, 0]]
    model = BigramModel.of(pairs_of(texts, 3))
    if chain_of is forward_backward_in_pairs:
        model = triples_of(texts, 3)
    posterior = chain_of(candidates, model, rows.offsets)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    others = partial(np.delete, obj=2, axis=0)
    assert (others(posterior)[others(candidates.words) == 0] > 0.1).all()
    alone = rows.taken(np.array([1]))
    without = Candidates(words=candidates.words[4:], log_emission=candidates.log_emission[4:])
    np.testing.assert_allclose(posterior[4:], chain_of(without, model, alone.offsets), rtol=1e-12)
