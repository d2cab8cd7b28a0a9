"""Released rows linked to their originals: small worlds by hand, and made ones against plain loops."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation import linkage as module
from dptext_spark.evaluation.linkage import bucket_of, linkage, linked, rows_of_lengths
from dptext_spark.evaluation.rows import SimulatedRows
from tests.helpers.hidden_worlds import emitting, released

# P[output | word]: word 0 often becomes 1, word 1 rarely becomes 0, word 2 becomes any word.
LAW = np.array([[0.4, 0.6, 0.0], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
CHANNEL = emitting(LAW)


def test_rows_are_linked_by_the_likeliest_original():
    """Rejects a transposed channel, the most unchanged words, and an observer who knows rows' numbers.

    Of [0, 1] came 1 1: its own 0.6 * 0.8 beats 0.8 * 0.3 of [1, 2] and 0.3 * 0.6 of [2, 0]. Of [1, 2] came
    1 2, whose own 0.8 * 0.4 wins. Of [2, 0] came 0 1: its own 0.3 * 0.6 loses to 0.4 * 0.8 of [0, 1]. By the
    transposed law [1, 2] would be the likeliest original of 1 1.
    """
    rows = released([[0, 1], [1, 2], [2, 0]], np.array([[1, 1, 1, 2, 0, 1]]))
    assert linked(rows, CHANNEL).tolist() == [1.0, 1.0, 0.0]
    assert linked(rows, emitting(LAW.T)).tolist() != [1.0, 1.0, 0.0]


def test_equal_originals_share_a_row():
    """Rejects an observer who knows the row's own number, and one who takes the first of equal originals."""
    rows = released([[0, 1], [0, 1], [1, 0], [0, 1]], np.array([[0, 1, 0, 1, 1, 0, 1, 0]]))
    # 1 0 is likelier of [1, 0], by 0.8 * 0.4 against 0.6 * 0.1.
    assert linked(rows, CHANNEL) == pytest.approx([1 / 3, 1 / 3, 1.0, 0.0])


def test_rows_are_compared_with_originals_of_their_own_length():
    """Rejects originals of other lengths as candidates, and rows without words."""
    texts = [[0], [1, 1], [], [1], [2, 0, 1], []]
    rows = released(texts, np.array([[1, 0, 1, 1, 2, 0, 1]]))
    sums = linkage(rows, pa.array(range(6)), CHANNEL, rows_of_lengths(rows))
    # 1 is likelier of [1]. The lengths 2 and 3 are of one row each.
    assert (sums["linked"].sums[1, 0], sums["linked"].size[0]) == (3.0, 4.0)
    assert sums["linked/among"].ratio[0] == sums["linked/alike"].ratio[0] == (2 + 2 + 1 + 1) / 4
    alone = linkage(rows, pa.array(range(6)), Channel.uniform(3, 3), rows_of_lengths(rows))
    assert alone["linked"].ratio[0] == (0.5 + 0.5 + 1 + 1) / 4


def test_what_is_not_perturbed_is_seen():
    """Rejects likelihoods of words that are not perturbed, and originals that show another word there.

    Without any output the observer sees lengths alone.
    """
    rows = SimulatedRows(
        offsets=np.arange(5) * 2,
        inputs=np.array([0, 1, 0, 2, 0, -1, 0, -1]),
        outputs=np.array([[0, 0, 0, 0, 2, 0, 1, 0]]),
        perturbed=np.array([True, False] * 4),
    )
    # 2 never comes of word 0: the last two texts are equal all the same.
    assert linked(rows, CHANNEL).tolist() == [1.0, 1.0, 0.5, 0.5]
    assert linked(rows, Channel.uniform(3, 3)).tolist() == [0.25] * 4


def test_an_output_that_the_channel_does_not_know_rules_nobody_out():
    """Rejects a likelihood of 0: one such output would undo all others."""
    rows = released([[0, 1, 1], [1, 2, 2]], np.array([[2, 1, 1, 1, 2, 2]]))
    # 2 never comes of word 0, by this channel: 1e-12 * 0.64 against 0.1 * 0.09.
    assert linked(rows, CHANNEL).tolist() == [0.0, 1.0]
    never = np.array([[0.4, 0.6, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]])
    # Nobody's 2: the other words decide.
    assert linked(rows, emitting(never)).tolist() == [1.0, 1.0]


def share_by_loops(rows, channel, row, others):
    """How far a row is linked to its own original among others, by enumeration."""

    def likelihood(original):
        total = 0.0
        for place in range(rows.offsets[row + 1] - rows.offsets[row]):
            mine, its = rows.offsets[row] + place, rows.offsets[original] + place
            if rows.perturbed[mine] != rows.perturbed[its]:
                return -math.inf
            if not rows.perturbed[mine]:
                if rows.inputs[mine] != rows.inputs[its]:
                    return -math.inf
                continue
            probability = channel(rows.outputs[:1, mine], rows.inputs[its : its + 1])[0]
            total += math.log(max(probability, 1e-12))
        return total

    scores = {original: likelihood(original) for original in others}
    best = max(scores.values())
    likeliest = [
        original for original, score in scores.items() if math.isclose(score, best, abs_tol=1e-9)
    ]
    return (row in likeliest) / len(likeliest)


@pytest.mark.parametrize("cells", [1, 1 << 22])
def test_made_worlds_against_enumeration(monkeypatch, cells):
    """Rejects what differs from loops over pairs of rows, whatever is held at once."""
    monkeypatch.setattr(module, "_CELLS", cells)
    rng = np.random.default_rng(2)
    for _ in range(20):
        lengths = rng.integers(0, 6, 30)
        tokens = lengths.sum()
        inputs = rng.integers(-1, 5, tokens)
        rows = SimulatedRows(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            inputs=inputs,
            outputs=rng.integers(0, 4, (2, tokens)),
            perturbed=(inputs >= 0) & (rng.random(tokens) < 0.9),
        )
        keys = np.sort(rng.choice(4 * 5, 9, replace=False))
        channel = Channel(
            method="posteriors",
            keys=keys,
            probability=rng.random(9).astype(np.float32),
            of_word=rng.random(5),
            of_output=rng.random(4),
        )
        alike = rows_of_lengths(rows)
        assert alike == {n: (lengths == n).sum() for n in lengths if n}
        by_loops = [
            share_by_loops(rows, channel, row, np.flatnonzero(lengths == lengths[row]))
            for row in range(30)
            if lengths[row]
        ]
        sums = linkage(rows, pa.array(range(30)), channel, alike)["linked"]
        assert sums.ratio[0] == pytest.approx(np.mean(by_loops))
        short = [
            share
            for share, length in zip(by_loops, lengths[lengths > 0], strict=True)
            if length < 5
        ]
        assert sums.ratio[1] == pytest.approx(np.mean(short))


def test_the_table_of_a_channel_is_its_pairs():
    rng = np.random.default_rng(3)
    channel = Channel(
        method="draws",
        keys=np.sort(rng.choice(30, 12, replace=False)),
        probability=rng.random(12).astype(np.float32),
        of_word=rng.random(6),
        of_output=rng.random(5),
    )
    outputs, words = np.array([0, 3, 4]), np.array([1, 2, 5])
    by_pairs = channel(*np.broadcast_arrays(outputs[:, None], words))
    assert np.array_equal(channel.table(outputs, words), by_pairs)


def test_many_rows_of_a_length_are_compared_in_buckets_by_their_ids(monkeypatch):
    """Rejects buckets by a row's place, and numbers that depend on the order of rows."""
    monkeypatch.setattr(module, "MOST_ALIKE", 40)
    rng = np.random.default_rng(4)
    rows = released(rng.integers(0, 3, (100, 2)).tolist(), rng.integers(0, 3, (1, 200)))
    ids = pa.array([f"row {number}" for number in range(100)])
    alike = rows_of_lengths(rows)
    buckets = bucket_of(ids, np.full(100, 2), alike)
    counts = np.bincount(buckets)
    assert len(counts) == 3 and counts.min() > 20
    sums = linkage(rows, ids, CHANNEL, alike)
    assert sums["linked/among"].ratio[0] == pytest.approx((counts**2).sum() / 100)
    assert sums["linked/alike"].ratio[0] == 100
    shares = [
        share_by_loops(rows, CHANNEL, row, np.flatnonzero(buckets == buckets[row]))
        for row in range(100)
    ]
    assert sums["linked"].ratio[0] == pytest.approx(np.mean(shares))
    order = rng.permutation(100)
    mixed = linkage(rows.taken(order), ids.take(pa.array(order)), CHANNEL, alike)
    for name, own in sums.items():
        assert np.array_equal(own.parts, mixed[name].parts)
