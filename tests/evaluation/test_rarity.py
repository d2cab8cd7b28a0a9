"""Rows that show a rare word, and how often an observer of rare words is right, on worlds by hand."""

import numpy as np
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import Knowledge
from dptext_spark.evaluation.measures import MEASURES, sighted
from dptext_spark.evaluation.rarity import RARITY_BANDS, rarity_band, sightings, singled_out
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.word_reader import FEW, rows_with_words

# Six rows of words 0 to 5; the first four are attacked. -1 is outside the vocabulary.
TEXTS = [[0, 0, 1], [1, 2, 3], [2, -1], [], [4, 1], [3]]
ROW_COUNTS = [1, 3, 2, 2, 1, 0]
ATTACKED = SimulatedRows(
    offsets=np.array([0, 3, 6, 8, 8]),
    inputs=np.array([0, 0, 1, 1, 2, 3, 2, -1]),
    # 0 stays once, 3 and a 2 stay; a 0 becomes 4, which another row has, and a 1 becomes 5, which none has.
    outputs=np.array([[0, 4, 5, 4, 2, 3, 1, -1]]),
    perturbed=np.array([True, True, True, True, False, True, True, False]),
)


def counted():
    words = np.array([word for text in TEXTS for word in text])
    rows = np.repeat(np.arange(len(TEXTS)), [len(text) for text in TEXTS])
    return rows_with_words(words, rows, vocabulary=6)


def shown(sums):
    """How many count, and of how many."""
    return sums.sums[1, 0], sums.size[0]


def test_rows_with_a_word_are_counted_not_its_tokens():
    """Rejects a count of tokens: word 0 stands twice in one row."""
    assert counted().tolist() == ROW_COUNTS
    assert rows_with_words(np.zeros(0, np.int64), np.zeros(0, np.int64), vocabulary=2).tolist() == [
        0,
        0,
    ]


def test_rows_are_singled_out_by_what_stays():
    """Rejects four wrong counts of rarity.

    By tokens, word 0 would be in two rows, and no row singled out. By outputs, and by the attacked rows
    alone, word 3 would be in one row, and the second row singled out, too. A word that is not perturbed
    stands there whatever the noise does: the second row's 2.
    """
    counts = counted()
    assert shown(singled_out(ATTACKED, counts, 2)) == (1, 3)  # the empty row has no words
    assert shown(singled_out(ATTACKED, counts, 6)) == (2, 3)
    by_tokens = np.bincount([word for text in TEXTS for word in text if word >= 0], minlength=6)
    by_outputs = rows_with_words(ATTACKED.outputs[0], ATTACKED.rows, vocabulary=6)
    of_attacked = rows_with_words(ATTACKED.inputs, ATTACKED.rows, vocabulary=6)
    wrong = [
        shown(singled_out(ATTACKED, mutant, 2)) for mutant in (by_tokens, by_outputs, of_attacked)
    ]
    assert wrong == [(0, 3), (2, 3), (2, 3)]


def test_an_observer_takes_a_row_that_shows_a_rare_word_for_one_that_has_it():
    """Rejects words that no row has, words that are not perturbed, and tokens in place of rows and words.

    Seen are 0 and 4 in the first row, 4 in the second; with up to five rows also 3 in the second and 1 in
    the third. The first row has 0, the second 3.
    """
    counts = counted()
    assert shown(sightings(ATTACKED, counts, 2)) == (1, 3)
    assert shown(sightings(ATTACKED, counts, 6)) == (2, 5)


def test_an_observer_is_right_about_a_word_that_moved_within_its_row():
    """Rejects places: whose row it is counts, not where the word stood."""
    rows = SimulatedRows(
        offsets=np.array([0, 2]),
        inputs=np.array([0, 1]),
        outputs=np.array([[1, 1]]),
        perturbed=np.array([True, True]),
    )
    assert shown(sightings(rows, np.array([1, 1]), 2)) == (1, 1)


def test_made_worlds_against_plain_loops():
    """Rejects what differs from loops over rows and sets, of words that come without a word, too."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        lengths = rng.integers(0, 5, 8)
        tokens = lengths.sum()
        rows = SimulatedRows(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            inputs=rng.integers(0, 9, tokens),
            outputs=rng.integers(-1, 9, (1, tokens)),
            perturbed=rng.random(tokens) < 0.8,
        )
        counts = rng.integers(1, 9, 9)
        for few in FEW:
            singled, seen, right = 0, 0, 0
            for start, stop in zip(rows.offsets, rows.offsets[1:], strict=False):
                triples = [*zip(rows.inputs, rows.outputs[0], rows.perturbed, strict=True)][
                    start:stop
                ]
                singled += any(p and w == y and counts[w] < few for w, y, p in triples)
                sighted_words = {y for _, y, p in triples if p and y >= 0 and counts[y] < few}
                seen += len(sighted_words)
                right += len(sighted_words & {w for w, _, _ in triples})
            assert shown(singled_out(rows, counts, few)) == (singled, (lengths > 0).sum())
            assert shown(sightings(rows, counts, few)) == (right, seen)


def test_words_that_stay_are_counted_by_how_many_rows_have_them():
    """Rejects bands by tokens or with their ends in the next band; without counts there are none."""
    ends = [1, 2, 5, 6, 20, 21, 100, 101]
    assert [RARITY_BANDS[band] for band in rarity_band(np.array(ends))] == [
        *("1", "2-5", "2-5", "6-20", "6-20", "21-100", "21-100", "101-"),
    ]
    nothing = Channel.uniform(6, 6)
    knowledge = Knowledge(channel=nothing, language=None, attackers={}, row_counts=counted())
    kept = MEASURES["kept"].add(ATTACKED, None, knowledge)["kept"]
    assert kept.size.tolist() == [6, 2, 4, 0, 0, 0]
    assert kept.sums[1].tolist() == [2, 1, 1, 0, 0, 0]
    measure = MEASURES["singled_out"]
    sums = measure.add(ATTACKED, None, knowledge)
    for variant, share, original in zip(
        measure.all_in(sums), (1 / 3, 2 / 3), (1 / 3, 1.0), strict=True
    ):
        assert variant.totals(sums).ratio[0] == pytest.approx(share)
        assert variant.without_noise(sums) == pytest.approx(original)
    assert {sighted(few) for few in FEW} <= sums.keys()
    unknown = Knowledge(channel=nothing, language=None, attackers={})
    assert MEASURES["kept"].add(ATTACKED, None, unknown)["kept"].size.tolist() == [6]
    assert MEASURES["singled_out"].add(ATTACKED, None, unknown) == {}


@pytest.mark.parametrize("few", FEW)
def test_parts_of_a_table_add_up(few):
    """Rejects shares of shares."""
    counts = counted()
    parts = [ATTACKED.taken(np.array(rows)) for rows in ([0, 3], [1], [2])]
    for function in (singled_out, sightings):
        first, *others = (function(part, counts, few) for part in parts)
        total = sum(others, first)
        assert np.array_equal(total.parts, function(ATTACKED, counts, few).parts)
