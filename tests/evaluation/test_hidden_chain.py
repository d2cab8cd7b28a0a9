"""Posteriors of hidden chains against enumeration of all texts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.evaluation import hidden_chain
from dptext_spark.evaluation.bigrams import BigramModel, PairCounts
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.hidden_chain import posteriors
from dptext_spark.evaluation.released_rows import ReleasedRows
from tests.helpers.hidden_worlds import chain, emitting, enumerated, released, without_context

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])


def by_word(rows: ReleasedRows, model: BigramModel, emissions: Emissions, most: int) -> np.ndarray:
    """Posterior (t, v + 1) of each word; priors are flat, for they only order the candidates."""
    prior = np.full(emissions.vocabulary, 1.0)
    found = Candidates.of(rows, emissions, prior, most=most)
    values = posteriors(found, model, rows.offsets)
    result = np.zeros((len(values), emissions.vocabulary + 2))  # NO_WORD picks the last column
    np.put_along_axis(result, found.words, values, axis=1)
    return result[:, :-1]


@pytest.mark.parametrize(
    "outputs", [[[0]], [[1, 0]], [[1, 1, 0, 1, 1, 0]], [[1, 0, 1], [1, 1, 0], [0, 0, 1]]]
)
def test_a_known_chain_of_two_words(outputs: list[list[int]]) -> None:
    """Also k versions of a row, whose noise is independent."""
    seen = np.array(outputs)
    length = seen.shape[1]
    rows = released([[0] * length], seen)
    found = by_word(rows, chain(START, FOLLOWS), emitting(NOISE), 2)
    expected = enumerated(chain(START, FOLLOWS), NOISE, seen, np.full(length, -1))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_context_decides() -> None:
    """Output 1 alone speaks for word 1; between zeros it does not. Rejects an attacker without context."""
    found = by_word(released([[0, 0, 0]], np.array([[0, 1, 0]])), chain(START, FOLLOWS), emitting(NOISE), 2)
    alone = without_context(np.array([0.5, 0.5, 0.0]))
    mutant = by_word(released([[0, 0, 0]], np.array([[0, 1, 0]])), alone, emitting(NOISE), 2)
    assert found[1, 0] > 0.5 > mutant[1, 0]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[BigramModel, np.ndarray, list[list[int]], np.ndarray]:
    """A smoothed language, a law of outputs, rows of several lengths, and outputs in one version or more."""
    words, versions = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    texts = rng.integers(0, words, 30)
    pairs = PairCounts.of_rows(texts, np.array([0, 4, 4, 19, 30]), vocabulary=words)
    law = rng.dirichlet(np.full(words, 0.5), size=words) + 1e-6
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    rows = [rng.integers(-1, words, n).tolist() for n in lengths]
    outputs = rng.integers(0, words, (versions, sum(lengths)))
    return BigramModel.of(pairs), law / law.sum(axis=1, keepdims=True), rows, outputs


@settings(deadline=None, max_examples=50)
@given(worlds())
def test_posteriors_are_those_of_enumeration(
    world: tuple[BigramModel, np.ndarray, list[list[int]], np.ndarray],
) -> None:
    """With tokens outside the vocabulary, which are known; rejects chains that run across rows."""
    model, law, inputs, outputs = world
    rows = released(inputs, outputs)
    known = np.where(rows.perturbed, -1, len(law))
    check_rows(rows, model, law, known)


@settings(deadline=None, max_examples=50)
@given(worlds())
def test_words_that_pass_are_known(
    world: tuple[BigramModel, np.ndarray, list[list[int]], np.ndarray],
) -> None:
    """Unprotected words are what they are, whatever "outputs" say, and their neighbours know them."""
    model, law, inputs, outputs = world
    rows = released(inputs, outputs)
    hidden = rows.perturbed & (np.arange(len(rows.inputs)) % 2 == 0)
    partly = ReleasedRows(offsets=rows.offsets, inputs=rows.inputs, outputs=outputs, perturbed=hidden)
    known = np.where(hidden, -1, np.where(rows.inputs < 0, len(law), rows.inputs))
    check_rows(partly, model, law, known)


def check_rows(rows: ReleasedRows, model: BigramModel, law: np.ndarray, known: np.ndarray) -> None:
    found = by_word(rows, model, emitting(law), len(law))
    for start, stop in pairwise(rows.offsets.tolist()):
        if start < stop:
            expected = enumerated(model, law, rows.outputs[:, start:stop], known[start:stop])
            np.testing.assert_allclose(found[start:stop], expected, atol=1e-10)


def test_long_rows_do_not_underflow() -> None:
    """5,000 words: the probability of the row as a whole is far below the least number there is."""
    rng = np.random.default_rng(1)
    outputs = rng.integers(0, 2, (2, 5_000))
    found = by_word(released([[0] * 5_000], outputs), chain(START, FOLLOWS), emitting(NOISE), 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    part = by_word(released([[0] * 100], outputs[:, 2_450:2_550]), chain(START, FOLLOWS), emitting(NOISE), 2)
    np.testing.assert_allclose(found[2_500], part[50], atol=1e-10)  # what is far off hardly matters


def test_an_impossible_row_is_no_end() -> None:
    """Outputs that no chain of candidates can give: the chain starts anew and every sum is one."""
    model = chain(np.array([1.0, 0.0]), np.eye(2))
    found = by_word(released([[0] * 3], np.array([[0, 1, 0]])), model, emitting(np.eye(2)), 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.argmax(axis=1) == [0, 1, 0]).all()


def test_the_blocks_in_which_pairs_are_looked_up_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    rows = released(rng.integers(0, 2, (5, 7)).tolist(), rng.integers(0, 2, (1, 35)))
    whole = by_word(rows, chain(START, FOLLOWS), emitting(NOISE), 2)
    monkeypatch.setattr(hidden_chain, "_PAIRS", 8)
    np.testing.assert_array_equal(by_word(rows, chain(START, FOLLOWS), emitting(NOISE), 2), whole)
