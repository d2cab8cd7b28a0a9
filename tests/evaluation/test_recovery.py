"""What attackers get back: known answers, and attackers that must do worse."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from dptext_spark.calibration import estimator
from dptext_spark.demo import QUERIES
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation import recovery
from dptext_spark.evaluation.bigrams import BigramModel, PairCounts, smoothed
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.recovery import Attacker, Successes, attack, bands
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.lookup import look_up
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.token_columns import Tokens
from tests.helpers.hidden_worlds import chain, emitting, enumerated, released, without_context

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])


def share(successes: Successes, name: str, top: int) -> float:
    return float(successes.recovered[name, top].ratio[0])  # type: ignore[index]


def texts(rows: int, length: int, seed: int, model: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Words (rows, length) of a Markov chain."""
    rng, (start, follows) = np.random.default_rng(seed), model
    words = np.empty((rows, length), dtype=np.int64)
    words[:, 0] = (rng.random(rows)[:, None] > start.cumsum()[:-1]).sum(axis=1)
    for place in range(1, length):
        law = follows[words[:, place - 1]].cumsum(axis=1)[:, :-1]
        words[:, place] = (rng.random(rows)[:, None] > law).sum(axis=1)
    return words


def through(words: np.ndarray, law: np.ndarray, seed: int, versions: int = 1) -> np.ndarray:
    """Outputs (versions, t) of words (t,)."""
    uniforms = np.random.default_rng(seed).random((versions, len(words), 1))
    found: np.ndarray = (uniforms > law.cumsum(axis=1)[words][:, :-1]).sum(axis=2)
    return found


def test_the_attacker_gets_what_the_posterior_promises() -> None:
    """In a two-word world whose chain is known: as many words right as the enumerated posterior says.

    600 rows of 8 words; the share's interval at confidence 1 - 1e-4. Rejects the attacker without context,
    whose share is below the interval's lower end.
    """
    words = texts(600, 8, 1, (START, FOLLOWS))
    rows = released(words.tolist(), through(words.ravel(), NOISE, 2))
    prior = np.array([0.8, 0.2])  # the chain's stationary law
    language = chain(START, FOLLOWS)
    found = attack(rows, Attacker(emissions=emitting(NOISE), words=prior, language=language))
    outputs = rows.outputs.reshape(1, 600, 8)
    best = [enumerated(language, NOISE, outputs[:, r], np.full(8, -1)).max(axis=1) for r in range(100)]
    sums = found.recovered["in-context", 1]
    low, high = sums.share_interval(1 - 1e-4)
    assert low[0] < np.mean(best) < high[0]
    assert share(found, "context-free", 1) < low[0]


def test_k_versions_give_more(plane: Embedding) -> None:
    """Rejects an attacker that looks at the first version alone."""
    words = texts(400, 6, 3, (START, FOLLOWS))
    outputs = through(words.ravel(), NOISE, 4, versions=5)
    attacker = Attacker(emissions=emitting(NOISE), words=np.array([0.8, 0.2]), language=chain(START, FOLLOWS))
    one, five = (attack(released(words.tolist(), outputs[:k]), attacker) for k in (1, 5))
    for name in ("context-free", "in-context"):
        assert share(five, name, 1) > share(one, name, 1) + 0.03


@pytest.fixture(scope="module")
def queries(demo_bundle: Embedding) -> ReleasedRows:
    """500 of the demo's queries, not yet released."""
    values = pq.read_table(QUERIES)["text"].combine_chunks()[::4]
    tokens = Tokens.of(values)
    words = look_up(tokens, demo_bundle)
    return ReleasedRows(offsets=tokens.offsets, inputs=words, outputs=words[None], perturbed=words >= 0)


def corpus(rows: ReleasedRows, vocabulary: int) -> PairCounts:
    return PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=vocabulary)


def test_without_noise_all_is_recovered(demo_bundle: Embedding, queries: ReleasedRows) -> None:
    """The ceiling."""
    words = len(demo_bundle.words)
    identity = Emissions(
        keys=np.arange(words) * (words + 1),
        probability=np.ones(words),
        elsewhere=np.zeros(words),
        error=np.zeros(words),
        outputs=words,
    )
    found = attack(queries.without_noise(), Attacker.of(identity, corpus(queries, words)))
    assert {share(found, name, top) for name, top in found.recovered} == {1.0}
    assert found.considered.ratio[0] == 1.0
    assert found.considered.size[0] == queries.perturbed.sum() == found.considered.size[1:].sum()


def test_without_outputs_the_guess_is_the_prior(demo_bundle: Embedding, queries: ReleasedRows) -> None:
    """The floor: the most frequent words, five guesses at most, whatever came out."""
    words = len(demo_bundle.words)
    attacker = Attacker.of(Emissions.uniform(words, words), corpus(queries, words))
    found = attack(queries, attacker)
    counts = np.sort(np.bincount(queries.inputs[queries.perturbed]))[::-1]
    assert share(found, "context-free", 1) == pytest.approx(counts[0] / counts.sum())
    assert share(found, "context-free", 5) == pytest.approx(counts[:5].sum() / counts.sum())
    assert share(found, "in-context", 5) > share(found, "context-free", 5)  # it knows what begins a row


def attacked(
    rows: ReleasedRows, world: Embedding, emissions: Emissions, *, language: BigramModel | None = None
) -> Successes:
    pairs = corpus(rows, len(world.words))
    attacker = Attacker.of(emissions, pairs)
    return attack(
        rows, Attacker(emissions=emissions, words=attacker.words, language=language or attacker.language)
    )


@pytest.fixture(scope="module")
def noisy(demo_bundle: Embedding, queries: ReleasedRows) -> tuple[ReleasedRows, Emissions]:
    """The queries at an epsilon that leaves something to guess, and emissions of the words in them."""
    exponential = mechanism("exponential", epsilon=4.0, truncate=6.0)
    search = ExactSearch.over(demo_bundle)
    inputs = np.unique(queries.inputs[queries.perturbed])
    emissions = Emissions.measured(
        estimator([exponential], demo_bundle, search=search, runs=1),
        inputs,
        vocabulary=len(demo_bundle.words),
    )
    hidden = queries.perturbed
    outputs = np.full((1, len(hidden)), -1)
    width = exponential.uniforms_per_token(demo_bundle.dimension)
    uniforms = np.random.default_rng(5).random((hidden.sum(), width))
    outputs[0, hidden] = exponential.bind(demo_bundle, search)(queries.inputs[hidden], uniforms)
    return queries.with_outputs(outputs), emissions


def test_context_helps_on_texts_and_not_on_shuffled_words(
    demo_bundle: Embedding, noisy: tuple[ReleasedRows, Emissions]
) -> None:
    """The mutant is an attacker whose language has no context.

    It must recover less of texts by more than the intervals' widths. On words that are shuffled over all
    rows, under a language learnt from other shuffled words, context is worth nothing: the difference is
    within two points of a share of which 1.5 points are the interval.
    """
    rows, emissions = noisy
    found = attacked(rows, demo_bundle, emissions)
    high = found.recovered["context-free", 1].share_interval(0.999)[1][0]
    low = found.recovered["in-context", 1].share_interval(0.999)[0][0]
    print(f"texts: up to {high:.3f} without context, {low:.3f} or more with it")
    assert high < low
    order = np.random.default_rng(6).permutation(len(rows.inputs))
    shuffled = ReleasedRows(
        offsets=rows.offsets,
        inputs=rows.inputs[order],
        outputs=rows.outputs[:, order],
        perturbed=rows.perturbed[order],
    )
    other = rows.inputs[np.random.default_rng(7).permutation(len(rows.inputs))]
    language = BigramModel.of(PairCounts.of_rows(other, rows.offsets, vocabulary=len(demo_bundle.words)))
    same = attacked(shuffled, demo_bundle, emissions, language=language)
    gain = share(same, "in-context", 1) - share(same, "context-free", 1)
    print(f"shuffled: a gain of {gain:.4f}")
    assert abs(gain) < 0.02


def test_a_language_without_context_is_the_context_free_attacker(
    demo_bundle: Embedding, noisy: tuple[ReleasedRows, Emissions]
) -> None:
    """To the last guess: one is computed by recursion, the other read off the candidates."""
    rows, emissions = noisy
    pairs = corpus(rows, len(demo_bundle.words))
    words = smoothed(pairs.words)
    blind = Attacker(emissions=emissions, words=words[:-1], language=without_context(words))
    guesses = blind.guesses(rows)
    hidden = rows.perturbed
    first = {name: found[hidden, :1] for name, found in guesses.items()}
    np.testing.assert_array_equal(first["in-context"], first["context-free"])


def test_all_candidates_are_as_good_as_enough(
    demo_bundle: Embedding, noisy: tuple[ReleasedRows, Emissions]
) -> None:
    """64 candidates against every word that there is: they lose 3 points at most; 5 lose right words."""
    rows, emissions = noisy
    _, some = next(rows.batches(200))
    pairs = corpus(rows, len(demo_bundle.words))
    everything = int((emissions.elsewhere > 0).sum())
    found = {k: attack(some, Attacker.of(emissions, pairs, candidates=k)) for k in (5, 64, everything)}
    assert found[everything].considered.ratio[0] == 1.0
    best, cut = (share(found[k], "in-context", 1) for k in (everything, 64))
    print(f"of all candidates {best:.3f}, of 64 {cut:.3f}")
    assert best - 0.03 <= cut <= best + 0.03
    assert found[5].considered.ratio[0] < found[64].considered.ratio[0]


def test_rows_in_other_batches_give_the_same(
    demo_bundle: Embedding, noisy: tuple[ReleasedRows, Emissions], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, emissions = noisy
    whole = attacked(rows, demo_bundle, emissions)
    monkeypatch.setattr(recovery, "_TOKENS", 100)
    parts = attacked(rows, demo_bundle, emissions)
    for key, sums in whole.recovered.items():
        np.testing.assert_array_equal(parts.recovered[key].value, sums.value)
        np.testing.assert_array_equal(parts.recovered[key].value_value, sums.value_value)


def test_parts_of_a_table_add_up(demo_bundle: Embedding, noisy: tuple[ReleasedRows, Emissions]) -> None:
    rows, emissions = noisy
    attacker = Attacker.of(emissions, corpus(rows, len(demo_bundle.words)))
    middle = len(rows.offsets) // 2
    cut = int(rows.offsets[middle])
    halves = [
        ReleasedRows(
            offsets=rows.offsets[part] - start,
            inputs=rows.inputs[start:stop],
            outputs=rows.outputs[:, start:stop],
            perturbed=rows.perturbed[start:stop],
        )
        for part, start, stop in (
            (slice(0, middle + 1), 0, cut),
            (slice(middle, None), cut, len(rows.inputs)),
        )
    ]
    added, whole = attack(halves[0], attacker) + attack(halves[1], attacker), attack(rows, attacker)
    for key, sums in whole.recovered.items():
        np.testing.assert_array_equal(added.recovered[key].value, sums.value)
    np.testing.assert_array_equal(added.considered.size, whole.considered.size)


def test_nothing_to_attack_is_no_error() -> None:
    rows = released([[-1], []], np.array([[0]]))
    found = attack(rows, Attacker.of(Emissions.uniform(3, 3), corpus(rows, 3)))
    assert found.considered.size.sum() == 0
    assert np.isnan(share(found, "in-context", 1))


def test_bands_are_ranks() -> None:
    frequencies = np.arange(20_000, 0, -1).astype(float)
    found = bands(frequencies)
    assert np.bincount(found).tolist() == [100, 900, 9_000, 10_000]
    assert (np.diff(found) >= 0).all()
    assert found[-1] == 3
