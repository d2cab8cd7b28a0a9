"""What attackers recover: known answers, and attackers that must do worse."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.evaluation import attackers
from dptext_spark.evaluation.attackers import (
    ContextFree,
    InContext,
    Knowledge,
    attack,
    forward_backward,
)
from dptext_spark.evaluation.emissions import Candidates, Emissions
from dptext_spark.evaluation.language import BigramModel, PairCounts
from tests.helpers.hidden_worlds import chain, emitting, enumerated, pairs_of, released

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])
CHAIN = chain(START, FOLLOWS)


def share(found, name):
    return float(found[name].ratio[0])


def test_the_attacker_guesses_what_the_posterior_says(monkeypatch):
    """Word by word, by enumeration; rejects one without context, and one of the first version alone."""
    # Batches change nothing.
    rng, words = np.random.default_rng(1), np.zeros((60, 4), dtype=np.int64)
    words[:, 0] = rng.random(60) > START[0]
    for place in range(1, 4):
        words[:, place] = rng.random(60) > FOLLOWS[words[:, place - 1], 0]
    outputs = (rng.random((3, 240)) > NOISE[words.ravel(), 0]).astype(np.int64)
    own = {"context-free": ContextFree(), "in-context": InContext(language=CHAIN)}
    knowledge = Knowledge(emissions=emitting(NOISE), words=np.array([0.8, 0.2]), attackers=own)
    for versions, size in ((1, 100), (3, 1 << 13)):
        monkeypatch.setattr(attackers, "_TOKENS", size)
        found, seen = (
            attack(released(words.tolist(), outputs[:versions]), knowledge),
            outputs[:versions],
        )
        alone = (knowledge.words * NOISE.T[seen].prod(axis=0)).argmax(axis=1)
        rows = seen.reshape(versions, 60, 4)
        inside = [
            enumerated(CHAIN, NOISE, rows[:, r], np.full(4, -1)).argmax(axis=1) for r in range(60)
        ]
        for name, guess in (("context-free/1", alone), ("in-context/1", np.concatenate(inside))):
            assert share(found, name) == pytest.approx((guess == words.ravel()).mean())


def test_an_attacker_more_is_tried(monkeypatch):
    """Rejects an attack that names its attackers itself: a subclass is all that a new one takes."""
    # And nothing to attack is no error.
    monkeypatch.setattr(attackers, "ATTACKERS", dict(attackers.ATTACKERS))

    class Output(ContextFree):
        name = "output"

        def guess(self, rows, candidates):
            return rows.outputs[:1].T

    rows = released([[0, 1], [1]], np.array([[0, 0, 1]]))
    pairs = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=3)
    found = attack(rows, Knowledge.learn(pairs, Emissions.uniform(3, 3)))
    names = [f"{name}/{top}" for name in ("context-free", "in-context", "output") for top in (1, 5)]
    assert sorted(found) == sorted([*names, "considered"])
    assert share(found, "output/1") == pytest.approx(2 / 3)
    found = attack(
        released([[-1], []], np.array([[0]])), Knowledge.learn(pairs, Emissions.uniform(3, 3))
    )
    assert found["considered"].size.sum() == 0 and np.isnan(share(found, "in-context/1"))


def test_bands_are_ranks():
    """Of frequency: rejects ranks by the words' numbers; all that an exact law gives is recovered."""
    count = np.random.default_rng(1).permutation(np.arange(1, 201))
    own = {"context-free": ContextFree()}
    knowledge = Knowledge(emissions=emitting(np.eye(200)), words=count / count.sum(), attackers=own)
    for words, expected in (
        (np.arange(200), [200, 100, 100]),
        (np.flatnonzero(count > 100), [100, 100, 0]),
    ):
        found = attack(released([words.tolist()], words[None]), knowledge)
        assert found["context-free/1"].sums[1].tolist() == [*expected, 0, 0]


def by_word(rows, model, emissions):
    """Posterior (t, v + 1) of each word; priors are flat, for they only order the candidates."""
    words = emissions.vocabulary
    candidates = Candidates.of(rows, emissions, np.full(words, 1.0), most=words)
    values = forward_backward(candidates, model, rows.offsets)
    result = np.zeros((len(values), words + 2))  # NO_WORD picks the last column
    np.put_along_axis(result, candidates.words, values, axis=1)
    return result[:, :-1]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_posteriors_are_those_of_enumeration(data):
    """Rows of several lengths, in one version or more; rejects chains that run across rows."""
    # Tokens outside the vocabulary and unprotected words are known, whatever "outputs" say, and their
    # neighbours know them.
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


def test_long_rows_do_not_underflow_and_no_cut_changes_anything(monkeypatch):
    """5,000 words: the probability of the row as a whole is far below the least number there is."""
    outputs = np.random.default_rng(1).integers(0, 2, (2, 5_000))
    found = by_word(released([[0] * 5_000], outputs), CHAIN, emitting(NOISE))
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    monkeypatch.setattr(attackers, "_PAIRS", 8)
    rows = released([[0] * 100] * 5, np.tile(outputs[:, 2_450:2_550], 5))
    part = by_word(rows, CHAIN, emitting(NOISE))
    np.testing.assert_allclose(
        found[2_500], part[450], atol=1e-10
    )  # what is far off hardly matters


def test_an_impossible_row_is_no_end():
    """Outputs that no chain of candidates can give: the chain starts anew and every sum is one."""
    model = chain(np.array([1.0, 0.0]), np.eye(2))
    found = by_word(released([[0] * 3], np.array([[0, 1, 0]])), model, emitting(np.eye(2)))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found.argmax(axis=1) == [0, 1, 0]).all()
