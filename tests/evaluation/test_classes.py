"""Counts of labels: precision, recall, F1, balanced accuracy and AUC against oracles, and their intervals."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.classes import SCORES, ClassCounts, score_of

NAMES = ("ham", "spam", "news")


def counted(truth, probability, names=NAMES):
    """Counts of rows, given their classes and a probability of each class; -1 is a class that is unknown."""
    counts = ClassCounts.empty(names)
    truth, probability = np.asarray(truth), np.asarray(probability, dtype=float)
    np.add.at(counts.confusion, (truth, probability.argmax(axis=1)), 1)
    for number, scores in enumerate(score_of(probability).T):
        np.add.at(counts.scores[number], ((truth == number).astype(int), scores), 1)
    return counts


def confused(confusion, names=NAMES):
    counts = ClassCounts.empty(names)
    counts.confusion[: len(names), : len(names)] = confusion
    return counts


def test_numbers_by_hand():
    """Rejects recall and precision swapped, and a micro average, which is accuracy, for the mean recall."""
    counts = confused([[80, 5, 0], [9, 6, 0], [1, 1, 0]])
    counts.confusion[3, 1] = 2  # of a class that the model lacks: predicted, and wrong
    expected = {"ham": (80 / 90, 80 / 85), "spam": (6 / 14, 6 / 15), "news": (math.nan, 0.0)}
    for name, (precision, recall) in expected.items():
        assert counts.precision(name, 0.95)[0] == pytest.approx(precision, nan_ok=True)
        assert counts.recall(name, 0.95)[0] == pytest.approx(recall)
    assert counts.f1("spam", 0.95)[0] == pytest.approx(2 * (6 / 14) * (6 / 15) / (6 / 14 + 6 / 15))
    assert counts.f1("news", 0.95)[0] == 0.0
    assert counts.balanced_accuracy(0.95)[0] == pytest.approx((80 / 85 + 6 / 15 + 0.0) / 3)
    assert counts.rows_of("spam") == 15


def test_all_rows_of_one_class_are_no_good_model():
    """Rejects an interval without any width where every row of a class is right, or none is."""
    counts = confused([[870, 0], [130, 0]], ("ham", "spam"))
    value, low, high = counts.balanced_accuracy(0.95)
    assert low < value == 0.5 < high < 0.52
    assert counts.recall("spam", 0.95)[0] == counts.f1("spam", 0.95)[0] == 0.0
    assert 0.0 < counts.f1("spam", 0.95)[2] < 0.06
    absent = confused([[10, 0], [0, 0]], ("ham", "spam"))
    assert absent.balanced_accuracy(0.95)[0] == 1.0  # of the class that has rows
    nothing = ClassCounts.empty(NAMES)
    for interval in (
        nothing.balanced_accuracy(0.95),
        nothing.mean_auc(0.95),
        nothing.f1("ham", 0.95),
    ):
        np.testing.assert_equal(interval, (math.nan, 0.0, 1.0))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_areas_are_shares_of_ordered_pairs(data):
    """Rejects the area of the predicted class in place of its score, and ties that count in full or not."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    rows = data.draw(st.integers(1, 40))
    truth = rng.integers(-1, 3, rows)
    scores = rng.choice([0.1, 0.3, 1.0, 4.0], (rows, 3))
    probability = scores / scores.sum(axis=1, keepdims=True)
    counts = counted(truth, probability)
    areas = []
    for number, name in enumerate(NAMES):
        is_of_class = truth == number
        own = score_of(probability[is_of_class, number])[:, None]
        others = score_of(probability[~is_of_class, number])[None, :]
        pairs = (own > others) + 0.5 * (own == others)
        area, low, high = counts.auc(name, 0.95)
        if not pairs.size:
            assert math.isnan(area)
            continue
        areas.append((area, low, high))
        assert area == pytest.approx(pairs.mean())
        assert 0.0 <= low <= area <= high <= 1.0 and low < high
    if areas:
        assert counts.mean_auc(0.95) == pytest.approx(tuple(np.mean(areas, axis=0)))


def test_scores_keep_the_order_that_a_class_alone_loses():
    """Rejects an AUC of predicted labels: no row is predicted to be spam, and the scores know all of it."""
    truth = np.repeat([0, 1], [80, 20])
    spam = np.concatenate([np.linspace(0.01, 0.2, 80), np.linspace(0.21, 0.4, 20)])
    counts = counted(truth, np.stack([1 - spam, spam], axis=1), ("ham", "spam"))
    assert counts.recall("spam", 0.95)[0] == 0.0
    area, low, high = counts.auc("spam", 0.95)
    assert area == high == 1.0 and 0.8 < low < 1.0
    assert counts.auc("ham", 0.95)[0] == 1.0


def test_cells_of_scores_keep_their_order():
    """The ends are cells, too; probabilities near 0, as with many classes, are not all one."""
    probability = np.array([0.0, 1e-6, 1e-4, 1.1e-4, 0.02, 0.5, 0.99, 1.0])
    cells = score_of(probability)
    assert (np.diff(cells) > 0).all()
    assert cells[0] == 0 and cells[-1] == SCORES - 1


def test_parts_add_up_exactly():
    """Rejects means of parts."""
    rng = np.random.default_rng(1)
    truth = rng.integers(-1, 3, 300)
    probability = rng.dirichlet([1, 1, 1], 300)
    whole = counted(truth, probability)
    parts = [counted(truth[rows], probability[rows]) for rows in (slice(0, 7), slice(7, 300))]
    both = parts[0] + parts[1]
    np.testing.assert_array_equal(both.confusion, whole.confusion)
    np.testing.assert_array_equal(both.scores, whole.scores)
    assert both.mean_auc(0.9) == whole.mean_auc(0.9)


@pytest.mark.parametrize(
    ("rows", "others", "shift", "spread"), [(30, 200, 1.0, 1.0), (60, 400, 2.0, 2.5)]
)
def test_intervals_of_areas_cover_the_truth(rows, others, shift, spread):
    """Rejects standard errors that assume that scores of both classes spread alike: those cover 85 % here."""
    # Of 400 intervals at 95 % fewer than 366 cover the truth with a probability of 0.2 %.
    rng = np.random.default_rng(7)
    truth = 0.5 * (1.0 + math.erf(shift / math.sqrt(2.0 * (1.0 + spread**2))))
    covered = 0
    for _ in range(400):
        counts = ClassCounts.empty(["spam"])
        for kind, scores in enumerate((rng.normal(0, 1, others), rng.normal(shift, spread, rows))):
            cells = np.clip(np.floor(scores * 16) + SCORES // 2, 0, SCORES - 1).astype(int)
            np.add.at(counts.scores[0, kind], cells, 1)
        _, low, high = counts.auc("spam", 0.95)
        covered += low <= truth <= high
    assert covered >= 366


def test_an_unknown_class_is_refused_without_the_names_of_others():
    """Rejects a message that lists values of a private column."""
    with pytest.raises(ConfigError, match="one of the 3 classes") as caught:
        ClassCounts.empty(NAMES).recall("junk", 0.95)
    assert "junk" in str(caught.value)
    assert not any(name in str(caught.value) for name in NAMES)
