"""What attackers recover: known answers, and attackers that must do worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from dptext_spark.calibration import estimator
from dptext_spark.demo import QUERIES
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation import attackers
from dptext_spark.evaluation.attackers import ContextFree, InContext, Knowledge, attack, bands
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.lookup import look_up
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.columns import Tokens
from tests.helpers.hidden_worlds import chain, emitting, enumerated, released, without_context, without_noise

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])
CHAIN = chain(START, FOLLOWS)


def share(found: dict[str, ClusterSums], name: str) -> float:
    return float(found[name].ratio[0])


def knowing(emissions: Emissions, words: np.ndarray, language: BigramModel) -> Knowledge:
    """Attackers who are given a language outright."""
    attackers = {"context-free": ContextFree(), "in-context": InContext(language=language)}
    return Knowledge(emissions=emissions, words=words, attackers=attackers)


def test_the_attacker_gets_what_the_posterior_promises() -> None:
    """In a two-word world whose chain is known: as many words right as the enumerated posterior says.

    600 rows of 8 words; the share's interval at confidence 1 - 1e-4. Rejects the attacker without context,
    whose share is below the interval's lower end, and one that looks at the first of five versions alone.
    """
    rng, words = np.random.default_rng(1), np.zeros((600, 8), dtype=np.int64)
    words[:, 0] = rng.random(600) > START[0]
    for place in range(1, 8):
        words[:, place] = rng.random(600) > FOLLOWS[words[:, place - 1], 0]
    outputs = (rng.random((5, 4800)) > NOISE[words.ravel(), 0]).astype(np.int64)
    prior = np.array([0.8, 0.2])  # the chain's stationary law
    knowledge = knowing(emitting(NOISE), prior, CHAIN)
    one, five = (attack(released(words.tolist(), outputs[:k]), knowledge) for k in (1, 5))
    seen = outputs[:1].reshape(1, 600, 8)
    best = [enumerated(CHAIN, NOISE, seen[:, r], np.full(8, -1)).max(axis=1) for r in range(100)]
    low, high = one["in-context/1"].share_interval(1 - 1e-4)
    assert low[0] < np.mean(best) < high[0]
    assert share(one, "context-free/1") < low[0]
    for name in ("context-free/1", "in-context/1"):
        assert share(five, name) > share(one, name) + 0.03


@pytest.fixture(scope="module")
def queries(demo_bundle: Embedding) -> SimulatedRows:
    """500 of the demo's queries, not yet released."""
    tokens = Tokens.of(pq.read_table(QUERIES)["text"].combine_chunks()[::4])
    words = look_up(tokens, demo_bundle)
    return SimulatedRows(offsets=tokens.offsets, inputs=words, outputs=words[None], perturbed=words >= 0)


@pytest.fixture(scope="module")
def corpus(demo_bundle: Embedding, queries: SimulatedRows) -> PairCounts:
    return PairCounts.of_rows(queries.inputs, queries.offsets, vocabulary=len(demo_bundle.words))


def test_without_noise_all_is_recovered(queries: SimulatedRows, corpus: PairCounts) -> None:
    """The ceiling."""
    words, nothing = corpus.vocabulary, np.zeros(corpus.vocabulary)
    identity = Emissions(
        keys=np.arange(words) * (words + 1),
        probability=np.ones(words),
        elsewhere=nothing,
        error=nothing,
        outputs=words,
    )
    found = attack(without_noise(queries), Knowledge.learn(corpus, identity))
    assert {share(found, name) for name in found} == {1.0}
    size = found["considered"].size
    assert size[0] == queries.perturbed.sum() == size[1:].sum()


def test_without_outputs_the_guess_is_the_prior(queries: SimulatedRows, corpus: PairCounts) -> None:
    """The floor: the most frequent words, five guesses at most, whatever came out."""
    words = corpus.vocabulary
    found = attack(queries, Knowledge.learn(corpus, Emissions.uniform(words, words)))
    counts = np.sort(np.bincount(queries.inputs[queries.perturbed]))[::-1]
    assert share(found, "context-free/1") == pytest.approx(counts[0] / counts.sum())
    assert share(found, "context-free/5") == pytest.approx(counts[:5].sum() / counts.sum())
    assert share(found, "in-context/5") > share(found, "context-free/5")  # it knows what begins a row


@pytest.fixture(scope="module")
def noisy(demo_bundle: Embedding, queries: SimulatedRows) -> tuple[SimulatedRows, Emissions]:
    """The queries at an epsilon that leaves something to guess, and emissions of the words in them."""
    exponential, search = mechanism("exponential", epsilon=4.0, truncate=6.0), ExactSearch.over(demo_bundle)
    hidden = queries.perturbed
    estimated = estimator([exponential], demo_bundle, search=search, runs=1)
    words = np.unique(queries.inputs[hidden])
    emissions = Emissions.measured(estimated, words, vocabulary=len(demo_bundle.words))
    outputs = np.full((1, len(hidden)), -1)
    width = exponential.uniforms_per_token(demo_bundle.dimension)
    uniforms = np.random.default_rng(5).random((hidden.sum(), width))
    outputs[0, hidden] = exponential.bind(demo_bundle, search)(queries.inputs[hidden], uniforms)
    return replace(queries, outputs=outputs), emissions


def test_context_helps_on_texts_and_not_on_shuffled_words(
    noisy: tuple[SimulatedRows, Emissions], corpus: PairCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant is an attacker whose language has no context.

    It must recover less of texts by more than the intervals' widths. On words that are shuffled over all
    rows, under a language learnt from other shuffled words, context is worth nothing: the difference is
    within two points of a share of which 1.5 points are the interval. Batches change nothing.
    """
    rows, emissions = noisy
    knowledge = Knowledge.learn(corpus, emissions)
    found = attack(rows, knowledge)
    high = found["context-free/1"].share_interval(0.999)[1][0]
    low = found["in-context/1"].share_interval(0.999)[0][0]
    print(f"texts: up to {high:.3f} without context, {low:.3f} or more with it")
    assert high < low
    order, other = (np.random.default_rng(seed).permutation(len(rows.inputs)) for seed in (6, 7))
    shuffled = replace(
        rows,
        inputs=rows.inputs[order],
        outputs=rows.outputs[:, order],
        perturbed=rows.perturbed[order],
    )
    pairs = PairCounts.of_rows(rows.inputs[other], rows.offsets, vocabulary=corpus.vocabulary)
    same = attack(shuffled, knowing(emissions, knowledge.words, BigramModel.of(pairs)))
    gain = share(same, "in-context/1") - share(same, "context-free/1")
    print(f"shuffled: a gain of {gain:.4f}")
    assert abs(gain) < 0.02
    monkeypatch.setattr(attackers, "_TOKENS", 100)
    for name, sums in attack(rows, knowledge).items():
        np.testing.assert_array_equal(sums.parts, found[name].parts)


def test_a_language_without_context_is_the_context_free_attacker(
    noisy: tuple[SimulatedRows, Emissions], corpus: PairCounts
) -> None:
    """To the last guess: one is computed by recursion, the other read off the candidates."""
    rows, emissions = noisy
    words = smoothed(corpus.words)
    blind = knowing(emissions, words[:-1], without_context(words))
    candidates = Candidates.of(rows, emissions, words[:-1], most=64)
    first = {
        name: attacker.guess(rows, candidates)[rows.perturbed, :1]
        for name, attacker in blind.attackers.items()
    }
    np.testing.assert_array_equal(first["in-context"], first["context-free"])


def test_all_candidates_are_as_good_as_enough(
    noisy: tuple[SimulatedRows, Emissions], corpus: PairCounts
) -> None:
    """64 candidates against every word that there is: they lose 3 points at most; 5 lose right words."""
    rows, emissions = noisy
    _, some = next(rows.batches(200))
    everything = int((emissions.elsewhere > 0).sum())
    found = {k: attack(some, Knowledge.learn(corpus, emissions, candidates=k)) for k in (5, 64, everything)}
    assert share(found[everything], "considered") == 1.0
    best, cut = (share(found[k], "in-context/1") for k in (everything, 64))
    print(f"of all candidates {best:.3f}, of 64 {cut:.3f}")
    assert best - 0.03 <= cut <= best + 0.03
    assert share(found[5], "considered") < share(found[64], "considered")


def test_an_attacker_more_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an attack that names its attackers itself: a subclass is all that a new one takes."""
    monkeypatch.setattr(attackers, "ATTACKERS", dict(attackers.ATTACKERS))

    class Output(ContextFree):
        name = "output"

        def guess(self, rows: SimulatedRows, candidates: Candidates) -> np.ndarray:
            return rows.outputs[:1].T

    rows = released([[0, 1], [1]], np.array([[0, 0, 1]]))
    pairs = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=3)
    found = attack(rows, Knowledge.learn(pairs, Emissions.uniform(3, 3)))
    names = [f"{name}/{top}" for name in ("context-free", "in-context", "output") for top in (1, 5)]
    assert sorted(found) == sorted([*names, "considered"])
    assert share(found, "output/1") == pytest.approx(2 / 3)


def test_nothing_to_attack_is_no_error() -> None:
    rows = released([[-1], []], np.array([[0]]))
    pairs = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=3)
    found = attack(rows, Knowledge.learn(pairs, Emissions.uniform(3, 3)))
    assert found["considered"].size.sum() == 0
    assert np.isnan(share(found, "in-context/1"))


def test_bands_are_ranks() -> None:
    found = bands(np.arange(20_000, 0, -1).astype(float))
    assert np.bincount(found).tolist() == [100, 900, 9_000, 10_000]
    assert (np.diff(found) >= 0).all()
