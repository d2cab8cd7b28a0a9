"""Posteriors of hidden chains against enumeration of all texts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.evaluation import chain as module
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.chain import forward_backward
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.language import BigramModel
from dptext_spark.evaluation.rows import SimulatedRows
from tests.helpers.hidden_worlds import chain, emitting, enumerated, pairs_of, released

CHAIN = chain(np.array([0.7, 0.3]), np.array([[0.9, 0.1], [0.4, 0.6]]))
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])


def by_word(rows: SimulatedRows, model: BigramModel, emissions: Emissions) -> np.ndarray:
    """Posterior (t, v + 1) of each word; priors are flat, for they only order the candidates."""
    words = emissions.vocabulary
    candidates = Candidates.of(rows, emissions, np.full(words, 1.0), most=words)
    values = forward_backward(candidates, model, rows.offsets)
    result = np.zeros((len(values), words + 2))  # NO_WORD picks the last column
    np.put_along_axis(result, candidates.words, values, axis=1)
    return result[:, :-1]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_posteriors_are_those_of_enumeration(data: st.DataObject) -> None:
    """Rows of several lengths, in one version or more; rejects chains that run across rows.

    Tokens outside the vocabulary and unprotected words are known, whatever "outputs" say, and their
    neighbours know them.
    """
    words, versions = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    texts = np.split(rng.integers(0, words, 30), [4, 4, 19])
    model = BigramModel.of(pairs_of([text.tolist() for text in texts], words))
    law = rng.dirichlet(np.full(words, 0.5), size=words) + 1e-6
    law /= law.sum(axis=1, keepdims=True)
    lengths = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    inputs = [rng.integers(-1, words, n).tolist() for n in lengths]
    rows = released(inputs, rng.integers(0, words, (versions, sum(lengths))))
    if data.draw(st.booleans()):
        rows = replace(rows, perturbed=rows.perturbed & (np.arange(len(rows.inputs)) % 2 == 0))
    known = np.where(rows.perturbed, -1, np.where(rows.inputs < 0, words, rows.inputs))
    found = by_word(rows, model, emitting(law))
    for start, stop in pairwise(rows.offsets.tolist()):
        if start < stop:
            expected = enumerated(model, law, rows.outputs[:, start:stop], known[start:stop])
            np.testing.assert_allclose(found[start:stop], expected, atol=1e-10)


def test_long_rows_do_not_underflow() -> None:
    """5,000 words: the probability of the row as a whole is far below the least number there is."""
    outputs = np.random.default_rng(1).integers(0, 2, (2, 5_000))
    found = by_word(released([[0] * 5_000], outputs), CHAIN, emitting(NOISE))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    part = by_word(released([[0] * 100], outputs[:, 2_450:2_550]), CHAIN, emitting(NOISE))
    np.testing.assert_allclose(found[2_500], part[50], atol=1e-10)  # what is far off hardly matters


def test_an_impossible_row_is_no_end() -> None:
    """Outputs that no chain of candidates can give: the chain starts anew and every sum is one."""
    model = chain(np.array([1.0, 0.0]), np.eye(2))
    found = by_word(released([[0] * 3], np.array([[0, 1, 0]])), model, emitting(np.eye(2)))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.argmax(axis=1) == [0, 1, 0]).all()


def test_the_blocks_in_which_pairs_are_looked_up_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    rows = released(rng.integers(0, 2, (5, 7)).tolist(), rng.integers(0, 2, (1, 35)))
    whole = by_word(rows, CHAIN, emitting(NOISE))
    monkeypatch.setattr(module, "_PAIRS", 8)
    np.testing.assert_array_equal(by_word(rows, CHAIN, emitting(NOISE)), whole)
