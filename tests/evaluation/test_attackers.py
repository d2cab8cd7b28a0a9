"""What attackers recover: known answers, attackers that must do worse, and what the mix learns from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark import demo
from dptext_spark.channel.channel import Channel
from dptext_spark.channel.local import channel_of
from dptext_spark.evaluation import attackers, local
from dptext_spark.evaluation.attackers import (
    ATTACKERS,
    BY_PAIRS,
    Adaptive,
    ContextFree,
    Evidence,
    InContext,
    Knowledge,
    attack,
)
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import Risk
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from tests.helpers.hidden_worlds import (
    emitting,
    enumerated,
    known_of,
    language_of,
    of_triples,
    released,
)
from tests.helpers.made_texts import sentences

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])


def share(sums, name):
    return float(sums[name].ratio[0])


def walks(count, size, seed):
    """Texts of a chain of two words."""
    rng = np.random.default_rng(seed)
    words = np.zeros((count, size), dtype=np.int64)
    words[:, 0] = rng.random(count) > START[0]
    for place in range(1, size):
        words[:, place] = rng.random(count) > FOLLOWS[words[:, place - 1], 0]
    return words


def test_attackers_guess_what_posteriors_say(monkeypatch):
    """Word by word, by enumeration; rejects one without context, and one of the first version alone."""
    # Batches change nothing.
    words = walks(60, 4, seed=1)
    outputs = (np.random.default_rng(2).random((3, 240)) > NOISE[words.ravel(), 0]).astype(np.int64)
    known = known_of(walks(200, 4, seed=3).tolist(), 2)
    tried = {"context-free": ContextFree, "in-context": InContext}
    knowledge = Knowledge.learn(known, emitting(NOISE), attackers=tried)
    follows = of_triples(known.language.triples)
    for versions, size in ((1, 100), (3, 1 << 13)):
        monkeypatch.setattr(attackers, "_TOKENS", size)
        seen = outputs[:versions]
        sums = attack(released(words.tolist(), seen), knowledge)
        alone = (known.language.words * NOISE.T[seen].prod(axis=0)).argmax(axis=1)
        rows = seen.reshape(versions, 60, 4)
        hidden = np.full(4, -1)
        inside = [
            enumerated(follows, NOISE, rows[:, row], hidden).argmax(axis=1) for row in range(60)
        ]
        for name, guess in (("context-free/1", alone), ("in-context/1", np.concatenate(inside))):
            assert share(sums, name) == pytest.approx((guess == words.ravel()).mean())
        assert share(sums, "in-context/1") > share(sums, "context-free/1")


def test_candidates_beyond_the_states_keep_their_order(monkeypatch):
    """Rejects guesses that end with the states of the trigram model, and an order that it did not have."""
    monkeypatch.setattr(attackers, "STATES", 3)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 8, 12).tolist() for _ in range(30)]
    law = rng.dirichlet(np.full(8, 0.7), size=8)
    rows = released(texts[:5], rng.integers(0, 8, (1, 60)))
    evidence = Evidence.of(rows, emitting(law), language_of(texts, 8), most=8)
    order = np.argsort(-evidence.by_pairs, axis=1, kind="stable")
    guesses = InContext().guess(evidence)
    in_order = np.take_along_axis(evidence.candidates.words, order, axis=1)
    beyond = []
    for guess, states in zip(guesses, in_order[:, :3], strict=True):
        beyond.append([word for word in guess if word not in states])
    np.testing.assert_array_equal(beyond, in_order[:, 3:])
    assert (np.sort(guesses, axis=1) == np.arange(8)).all()


def test_an_attacker_more_is_tried(monkeypatch):
    """Rejects an attack that names its attackers itself: a subclass is all that a new one takes."""
    # And nothing to attack is no error.
    monkeypatch.setattr(attackers, "ATTACKERS", dict(ATTACKERS))

    class Output(ContextFree):
        name = "output"

        def guess(self, evidence):
            return evidence.rows.outputs[:1].T

    rows = released([[0, 1], [1]], np.array([[0, 0, 1]]))
    known = known_of([[0, 1], [1]], 3)
    knowledge = Knowledge.learn(known, Channel.uniform(3, 3), attackers=attackers.ATTACKERS)
    sums = attack(rows, knowledge)
    names = [f"{name}/{top}" for name in (*ATTACKERS, "output", BY_PAIRS) for top in (1, 5)]
    assert sorted(sums) == sorted([*names, "considered"])
    assert share(sums, "output/1") == pytest.approx(2 / 3)
    sums = attack(released([[-1], []], np.array([[0]])), knowledge)
    assert sums["considered"].size.sum() == 0 and np.isnan(share(sums, "in-context/1"))


def test_a_floor_is_the_best_that_the_language_gives():
    """Rejects a chain of few states: 24 of 40 first words lead to one word, and its 16 lead elsewhere."""
    texts = [[first, 40 + max(0, 16 - first)] for first in range(40)]
    knowledge = Knowledge.learn(known_of(20 * texts, 57), Channel.uniform(57, 57))
    rows = released(texts, np.zeros((1, 80), dtype=np.int64))
    sums = {f"recovered/1/{name}": part for name, part in attack(rows, knowledge).items()}
    risk = Risk(attacker="in-context")
    # One first word in 40, and the second word of 24 texts in 40.
    assert risk.at_floor(sums).totals(sums).ratio[0] == (1 + 24) / 80
    assert risk.totals(sums).ratio[0] < 24 / 80
    assert Risk(attacker="context-free").at_floor(sums).totals(sums).ratio[0] == 24 / 80


def test_bands_are_ranks():
    """Of frequency: rejects ranks by the words' numbers; all that an exact law gives is recovered."""
    count = np.random.default_rng(1).permutation(np.arange(1, 201))
    language = replace(language_of([[0]], 200), words=count / count.sum())
    tried = {"context-free": ContextFree()}
    knowledge = Knowledge(channel=emitting(np.eye(200)), language=language, attackers=tried)
    for words, expected in (
        (np.arange(200), [200, 100, 100]),
        (np.flatnonzero(count > 100), [100, 100, 0]),
    ):
        sums = attack(released([words.tolist()], words[None]), knowledge)
        assert sums["context-free/1"].sums[1].tolist() == [*expected, 0, 0]


# Words 0 to 3 are of one topic, 4 to 7 of another, 8 to 11 of both. Outputs leave the place of a word in its
# topic, and say little of which topic: attackers of the first channel below know that, those of the second
# believe outputs too much.
WORDS, ROWS = 12, 150
TRUE = np.eye(WORDS)
TRUE[:8, :8] = 0.65 * np.eye(8) + 0.35 * np.roll(np.eye(8), 4, axis=0)
TRUE = 0.97 * TRUE + 0.03 / WORDS
BELIEVED = TRUE**3 / (TRUE**3).sum(axis=1, keepdims=True)


def noisy(rng, texts, versions=1):
    """Rows released by ``TRUE``."""
    ends = np.cumsum(TRUE, axis=1)[np.array(texts).ravel()]
    draws = rng.random((versions, len(ends), 1))
    return released(texts, np.minimum((draws > ends).sum(axis=2), WORDS - 1))


@pytest.fixture(scope="module")
def topical():
    """Texts of one topic each, shadow rows and rows to attack, in two versions."""
    rng = np.random.default_rng(1)
    words = rng.integers(8, 12, (4 * ROWS, 12))
    words[:, ::3] = rng.integers(0, 4, (4 * ROWS, 4)) + 4 * rng.integers(0, 2, (4 * ROWS, 1))
    texts = words.tolist()
    shadow, rows = (noisy(rng, texts[start : start + ROWS], 2) for start in (2 * ROWS, 3 * ROWS))
    return texts[: 2 * ROWS], shadow, rows


def learned(texts, shadow, channel):
    known = known_of(texts, WORDS, shadow)
    return known, Adaptive.learn(known, channel, candidates=WORDS)


def test_the_mix_learns_how_far_to_trust_what_it_knows(topical):
    """Of topics too, and of a channel that is believed too much; rejects weights not learned."""
    texts, shadow, rows = topical
    for law in (TRUE, BELIEVED):
        known, adaptive = learned(texts, shadow, emitting(law))
        knowledge = Knowledge.learn(known, emitting(law), candidates=WORDS)
        for versions in (1, 2):
            sums = attack(replace(rows, outputs=rows.outputs[:versions]), knowledge)
            assert share(sums, "in-context/1") + 0.01 < share(sums, "adaptive/1")
            weights = knowledge.attackers["adaptive"].weights[versions]
            assert weights[4] > 0.1  # of topics
            np.testing.assert_array_equal(weights, adaptive.weights[versions])


def test_weights_are_those_that_make_shadow_words_likeliest(topical):
    """Rejects a gradient that is wrong, weights of other versions, and candidates that are not there."""
    texts, shadow, rows = topical
    known, adaptive = learned(texts, shadow, emitting(TRUE))
    assert sorted(adaptive.weights) == [1, 2]

    def seen(rows):
        evidence = Evidence.of(rows, emitting(TRUE), known.language, most=WORDS)
        return attackers._features(evidence), evidence.candidates.words

    def loss(weights, features, right):
        scores = features @ weights
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        penalty = weights - np.array([0.0, 0.0, 0.0, 1.0, 0.0])
        return -scores[right].mean() + 1e-3 * penalty @ penalty

    for versions, weights in adaptive.weights.items():
        features, words = seen(replace(shadow, outputs=shadow.outputs[:versions]))
        right = words == shadow.inputs[:, None]
        least = loss(weights, features, right)
        for place in range(5):
            for step in (-0.03, 0.03):
                other = weights.copy()
                other[place] += step
                assert loss(other, features, right) > least
        assert loss(adaptive.weights[3 - versions], features, right) > least
    features, words = seen(rows)
    best = (features @ adaptive.weights[2]).argmax(axis=1)
    evidence = Evidence.of(rows, emitting(TRUE), known.language, most=WORDS)
    np.testing.assert_array_equal(
        adaptive.guess(evidence)[:, 0], words[np.arange(len(words)), best]
    )


def test_weights_of_the_attacked_rows_are_others(topical):
    """Rejects a mix that learns on what it attacks: its weights differ."""
    # Without rows to learn from, the mix goes by the triples alone.
    texts, shadow, rows = topical
    _, adaptive = learned(texts, shadow, emitting(BELIEVED))
    _, cheating = learned(texts, rows, emitting(BELIEVED))
    _, without = learned(texts, shadow.taken(np.arange(1)), emitting(BELIEVED))
    for versions in (1, 2):
        assert np.abs(adaptive.weights[versions] - cheating.weights[versions]).max() > 0.01
        assert without.weights[versions].tolist() == [0.0, 0.0, 0.0, 1.0, 0.0]


def test_a_token_without_candidates_leaves_the_guesses_of_its_row(topical):
    """Rejects attackers who guess nothing in a row with an output that no word of their corpus gives."""
    law = np.eye(3)[[0, 1, 2]] * 0.9 + np.array([[0.0, 0.1, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.1]])
    rows = released([[0, 2, 1, 0, 1]], np.array([[0, 2, 1, 0, 1]]))
    knowledge = Knowledge.learn(known_of([[0, 1, 0, 1], [1, 0, 1]], 3), emitting(law))
    sums = attack(rows, knowledge)
    for name in ATTACKERS:
        assert share(sums, f"{name}/1") == pytest.approx(4 / 5)


@pytest.fixture
def traced(monkeypatch):
    """The rows that attackers know, release themselves and attack, in that order."""
    learnt, shadows, attacked = [], [], []
    shadow, measured, learn = Simulation.shadow, local.measured, Knowledge.learn

    def tracing_shadow(self, rows, mechanism, **options):
        shadows.append((rows, shadow(self, rows, mechanism, **options)))
        return shadows[-1][1]

    def tracing_measured(rows, *others):
        attacked.append(rows)
        return measured(rows, *others)

    def tracing_learn(known, *others, **options):
        learnt.append(known)
        return learn(known, *others, **options)

    monkeypatch.setattr(Simulation, "shadow", tracing_shadow)
    monkeypatch.setattr(local, "measured", tracing_measured)
    monkeypatch.setattr(Knowledge, "learn", tracing_learn)
    return learnt, shadows, attacked


def texts_in(rows):
    """The words of each row."""
    return [tuple(rows.inputs[start:stop].tolist()) for start, stop in pairwise(rows.offsets)]


@pytest.mark.parametrize("corpus", [None, sentences(30, 7)])
def test_shadow_rows_are_known_rows_that_are_not_attacked(small, traced, corpus):
    """Rejects shadow rows of the attacked half, or that the language of the weights has read."""
    # Each row has a word of its own, so that no two are alike.
    texts = [f"w{100 + row} w{row} w{row + 1} w{row % 7}" for row in range(40)]
    options = {"mechanisms": [Laplace(epsilon=8.0)], "candidates": 20, "channel_limit": 0.05}
    local.evaluate(texts, list(range(40)), embedding=small, corpus=corpus, versions=2, **options)
    learnt, shadows, attacked = traced
    # Of the floor and of one setting; without a corpus each half of the rows is attacked by the other.
    assert len(learnt) == len(shadows) == len(attacked) == (2 if corpus else 4)
    if corpus is None:
        halves = [set(texts_in(rows)) for rows in attacked[:2]]
        assert halves == [set(texts_in(read)) for read, _ in shadows[1::-1]]
        assert len(halves[0] | halves[1]) == 40 and not halves[0] & halves[1]
    for known, (read, shadow), rows in zip(learnt, shadows, attacked, strict=True):
        assert known.shadow is shadow and len(shadow.outputs) == 2
        half = set(texts_in(shadow))
        assert half <= set(texts_in(read)) and not half & set(texts_in(rows))
        assert len(half) == len(set(texts_in(read))) // 2
        # Triples of shadow rows are in the language of guesses, and not in that of the weights. Pairs are
        # there only if those of the attacked rows are known, too.
        of_shadow = PairCounts.of_rows(shadow.inputs, shadow.offsets, vocabulary=300)
        of_shadow = of_shadow.first * 302 + of_shadow.second
        whole, without = known.language, known.language_without_shadow
        assert (
            np.isin(of_shadow, whole.triples.contexts).sum()
            > np.isin(of_shadow, without.triples.contexts).sum()
        )
        assert np.isin(of_shadow, whole.pairs.keys).all()
        assert np.isin(of_shadow, without.pairs.keys).all() == (corpus is None)


def test_the_noise_of_shadow_rows_is_no_other_releases(small):
    """Rejects a shadow release with the noise of the attacked one: equal rows would come out alike."""
    simulation = Simulation(bundle=small, policy=TextPolicy(), search=ExactSearch.over(small))
    rows = simulation.read(pa.array(["w1 w2 w3 w4 w5 w6"] * 60))
    shadow = simulation.shadow(rows, Laplace(epsilon=5.0), versions=2)
    half = rows.taken(np.arange(30))
    attacked = simulation.release(half, pa.array(range(30)), Laplace(epsilon=5.0), versions=2)
    assert shadow.outputs.shape == attacked.outputs.shape == (2, 180)
    assert (shadow.outputs != attacked.outputs).mean() > 0.2
    assert (shadow.outputs[0] != shadow.outputs[1]).mean() > 0.2


def held_back(vectors, prior, epsilon, points):
    """The likeliest word of each output by whole posteriors, written without the package: int64 (V,)."""
    rng = np.random.default_rng(7)
    words = np.flatnonzero(prior)
    likely = prior[words] / prior[words].sum()
    centres = vectors[words]
    sums = np.zeros((len(vectors), len(words)), dtype=np.float32)
    half = np.square(vectors).sum(axis=1) / 2

    def posterior(noisy):
        squares = np.square(noisy).sum(axis=1)[:, None] - 2 * (noisy @ centres.T - half[words])
        scores = np.log(likely) - epsilon * np.sqrt(np.maximum(squares, 0.0))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    for _ in range(points // 4000):
        directions = rng.standard_normal((4000, vectors.shape[1]))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        lengths = rng.gamma(vectors.shape[1], 1.0 / epsilon, (4000, 1))
        noisy = centres[rng.choice(len(words), 4000, p=likely)] + lengths * directions
        noisy = noisy.astype(np.float32)
        np.add.at(
            sums, (noisy @ vectors.T - half).argmax(axis=1), posterior(noisy).astype(np.float32)
        )
    missing = np.flatnonzero(sums.sum(axis=1) == 0.0)
    for part in np.array_split(missing, 20):
        sums[part] = posterior(vectors[part])
    return words[sums.argmax(axis=1)]


@pytest.mark.long
def test_no_attacker_held_back_gets_much_more(demo_bundle):
    """8,000 words: one who simulates 400,000 points with code of its own is at most 0.01 better."""
    # Rejects a channel of counts, which recovers 0.025 less than this attacker.
    epsilon = 5.0
    texts = pq.read_table(demo.QUERIES)["text"].combine_chunks()
    search = ExactSearch.over(demo_bundle)
    simulation = Simulation(bundle=demo_bundle, policy=TextPolicy(), search=search)
    rows = simulation.read(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    known, attacked = (rows.taken(order[part]) for part in (slice(1000), slice(1000, None)))
    language, _ = known.languages(simulation.pairs(known), of_attacked=False)
    ids = pa.array(range(len(texts) - 1000))
    attacked = simulation.release(attacked, ids, Laplace(epsilon=epsilon))
    channel = channel_of(Laplace(epsilon=epsilon), demo_bundle, search, language.words)
    knowledge = Knowledge(
        channel=channel, language=language, attackers={"context-free": ContextFree()}
    )
    product = share(attack(attacked, knowledge), "context-free/1")
    vectors = np.asarray(demo_bundle.vectors, dtype=np.float32)
    guesses = held_back(vectors, language.words, epsilon, 400_000)
    hidden = attacked.perturbed
    other = (guesses[attacked.outputs[0, hidden]] == attacked.inputs[hidden]).mean()
    assert other > 0.15
    assert product > other - 0.01
