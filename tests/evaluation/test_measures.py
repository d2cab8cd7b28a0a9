"""What is kept of texts and tables, on rows whose answers are known; and totals that add up."""

import math
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation import measures as module
from dptext_spark.evaluation.attackers import Knowledge, Known, TopicWeights
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import (
    ESTIMATED_WORDS,
    MEASURES,
    RANDOM_WORDS,
    added,
    from_table,
    measured,
    to_table,
    versions_of,
)
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import rows_with_words
from tests.helpers.hidden_worlds import known_of, released
from tests.helpers.made_texts import sentences

TEXTS = [*sentences(40, 1), "", "strange words alone"]


def kept(rows, embedding):
    """What is kept of texts."""
    names, words = ("kept", "similarity"), len(embedding.words)
    nothing = Knowledge.learn(known_of([[]], words), Channel.uniform(words, words))
    return {name: MEASURES[name].add(rows, embedding, nothing)[name] for name in names}


def overlaps(rows, embedding):
    """The mass in common of words and of pairs."""
    sums = MEASURES["pair_overlap"].add(rows, embedding, None)
    return [MEASURES[name].value(sums, 0.95)[0] for name in ("word_overlap", "pair_overlap")]


def test_measures_by_hand(plane, monkeypatch):
    """Of the first version; unprotected words count in the text's mean alone. Unchanged texts keep all."""
    monkeypatch.setattr(module, "_TOKENS", 3)
    rows = SimulatedRows(
        offsets=np.array([0, 3, 5, 6]),
        inputs=np.array([0, 1, 2, 3, -1, -1]),
        outputs=np.array([[0, 4, 5, 1, -1, -1], [5, 5, 5, 5, -1, -1]]),
        perturbed=np.array([True, True, False, True, False, False]),
    )
    points = plane.vectors.astype(float)
    texts = [(points[[0, 1, 2]].sum(axis=0), points[[0, 4, 2]].sum(axis=0)), (points[3], points[1])]
    cosines = [a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in texts]
    shares = {name: sums.ratio[0] for name, sums in kept(rows, plane).items()}
    assert shares == pytest.approx({"kept": 1 / 3, "similarity": np.mean(cosines)})
    same = kept(released([[0, 1], [2, -1, 3], []], np.array([[0, 1, 2, -1, 3]])), plane)
    assert {name: sums.ratio[0] for name, sums in same.items()} == pytest.approx(
        dict.fromkeys(same, 1.0)
    )
    assert (same["kept"].size[0], same["similarity"].rows[0]) == (4, 2)
    assert overlaps(rows, plane) == pytest.approx([5 / 6, 2 / 6])


@pytest.mark.parametrize(
    ("before", "after", "common"),
    [
        ([[0, 1, 2], [], [3, -1]], [0, 1, 2, 3, -1], [1.0, 1.0]),
        ([[0, 1]], [3, 4], [0.0, 0.0]),
        ([[0, 1, 2]], [2, 0, 1], [1.0, 1 / 3]),
        ([[0], [1]], [1, 0], [1.0, 1.0]),
        ([[0, 0, 0, 1]], [0, 0, 1, 1], [0.75, 0.75]),
        ([[]], [], [math.nan, math.nan]),
    ],
)
def test_frequencies_have_mass_in_common(plane, before, after, common):
    """Rejects pairs compared by their words, pairs over the borders of rows, and each frequency once."""
    rows = released(before, np.array([after], dtype=np.int64))
    assert overlaps(rows, plane) == pytest.approx(common, nan_ok=True)


@pytest.fixture(scope="module")
def simulation(small):
    return Simulation(bundle=small, policy=TextPolicy(), search=ExactSearch.over(small))


@pytest.fixture(scope="module")
def knowledge(simulation):
    """What attackers know of all texts, without a channel."""
    known = simulation.public.read(pa.array(TEXTS))
    language, without_shadow = known.languages(simulation.pairs(known), of_attacked=True)
    shadow = simulation.shadow(known, Laplace(epsilon=8.0), versions=2)
    learnt_from = Known(language=language, language_without_shadow=without_shadow, shadow=shadow)
    vocabulary = len(simulation.embedding.words)
    knowledge = Knowledge.learn(learnt_from, Channel.uniform(vocabulary, 200))
    row_counts = rows_with_words(known.inputs, known.rows, vocabulary=vocabulary)
    return replace(knowledge, row_counts=row_counts)


def totals(simulation, knowledge, chosen, mechanism):
    rows, ids = simulation.read(pa.array(TEXTS[chosen])), pa.array(range(len(TEXTS)))[chosen]
    versions = 1 if mechanism is None else 2
    after = simulation.release(rows, ids, mechanism or RANDOM_WORDS, versions=versions)
    return measured(after, simulation.embedding, knowledge)


def cells(found):
    rows = to_table(found).to_pylist()
    return {(row["kind"], row["a"], row["b"]): row["total"] for row in rows if row["total"]}


def test_parts_add_up_to_the_whole_to_the_last_bit_and_are_read_again(simulation, knowledge):
    """Rejects means of means, and sums that hang on their order."""
    found = totals(simulation, knowledge, slice(None), Laplace(epsilon=8.0))
    for cuts in ((0, 1, 20, 42), (0, 13, 14, 41, 42)):
        *parts, last = (
            totals(simulation, knowledge, slice(a, b), Laplace(epsilon=8.0))
            for a, b in pairwise(cuts)
        )
        assert cells(reduce(added, parts, last)) == cells(found)
    table = to_table(found)
    mixed = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    again = from_table(mixed, vocabulary=len(simulation.embedding.words))
    assert cells(again) == cells(found) and versions_of(again) == [1, 2]
    for use in (own for own in MEASURES.values() if own.is_in(found)):
        np.testing.assert_equal(use.value(again, 0.95), use.value(found, 0.95))


def test_the_floor_needs_no_release(simulation, knowledge):
    """In one version: the same words are guessed for all; random words keep next to nothing."""
    floor = totals(simulation, knowledge, slice(None), None)
    assert versions_of(floor) == [1] and floor["kept"].ratio[0] < 0.05
    pairs, words = (
        MEASURES[name].value(floor, 0.95)[0] for name in ("pair_overlap", "word_overlap")
    )
    assert pairs < words < 0.5
    assert 0.0 < floor["recovered/1/context-free/1"].ratio[0] < 0.2


def test_all_measures_of_labels_need_a_label():
    needing = [name for name, own in MEASURES.items() if own.needs == "label"]
    assert {"accuracy", "balanced_accuracy", "auc", "precision", "recall", "f1"} <= {*needing}


def test_topic_shares_by_hand():
    """Rejects words in the place of outputs, a mean error of topics that nothing weighs, and marks."""
    members = np.array([[1, 0], [0, 1], [0, 0]])
    weights = np.array([[1.5, 0.0], [0.0, 1.0], [-0.5, 0.25]])
    rows = SimulatedRows(
        offsets=np.array([0, 3, 5]),
        inputs=np.array([0, 0, 1, 2, -1]),
        outputs=np.array([[0, 2, 2, 1, -1]]),
        perturbed=np.array([True, True, True, True, False]),
    )
    knowledge = Knowledge(
        channel=None,
        language=None,
        attackers={},
        topics=TopicWeights(members=members, weights=weights),
    )
    values = {}
    for name in ("topic_shares", "topic_shares_estimated"):
        measure = MEASURES[name]
        sums = measure.add(rows, None, knowledge)
        values[name] = measure.value(added(sums, sums), 0.95)[0]
    # Of four words two are of the first topic and one of the second: 3/4 in all.
    assert values["topic_shares"] == pytest.approx(1.0 - (1 / 4) / (3 / 4))
    estimated = abs(0.5 / 4 - 2 / 4) + abs(1.5 / 4 - 1 / 4)
    assert values["topic_shares_estimated"] == pytest.approx(1.0 - estimated / (3 / 4))
    assert measure.add(rows, None, replace(knowledge, topics=None)) == {}
    with pytest.raises(ConfigError, match=r"was not measured.*Give --topics"):
        measure.value({}, 0.95)


def test_estimated_frequencies_are_compared_with_those_before():
    """Rejects the outputs' frequencies, and unknown words among those in common."""
    rows = np.array([0, 0, 1, -1, -1])
    pairs = PairCounts.of_rows(rows, np.array([0, 5]), vocabulary=3)
    sums = {"pairs/before": pairs, ESTIMATED_WORDS: np.array([1.0, 1.0, 2.0])}
    measure = MEASURES["word_overlap_estimated"]
    assert measure.value(sums, 0.95)[0] == pytest.approx(0.25 + 0.25)
    with pytest.raises(ConfigError, match=r"was not measured.*Give --topics"):
        measure.value({}, 0.95)
