"""Vectors attacked and measured: against answers that are known, and against floors."""

import numpy as np
import pytest

from dptext_spark.evaluation.measures import LABELS, MEASURES
from dptext_spark.evaluation.vector_attackers import (
    VECTOR_ATTACKERS,
    VectorKnowledge,
    VectorRows,
)
from dptext_spark.evaluation.vectors import (
    Classes,
    ClassModel,
    linked,
    measured_vectors,
    without_vectors,
)
from tests.helpers.made_vectors import IMAGES, rows_of


def knowledge_of(known_rows, scale):
    return VectorKnowledge(matrix=np.eye(12), scale=scale, images=IMAGES, known_rows=known_rows)


@pytest.mark.parametrize("by_word", [False, True])
def test_with_hardly_any_noise_attackers_get_all_and_without_vectors_the_floor(by_word):
    """Rejects a floor that is missing, or above what attackers get; guesses that skip words."""
    rows = rows_of(150, 1e-6, seed=2, by_word=by_word)
    knowledge = knowledge_of(rows_of(300, 1e-6, seed=3, by_word=by_word), 1e-6)
    classes = Classes("topic", "topic")
    sums = measured_vectors(rows, knowledge, classes)
    floors = without_vectors(rows, knowledge, classes)
    assert sums.keys() == floors.keys()
    values = {name: measure_of(name, sums) for name in ("distances", "products", "accuracy")}
    assert values == pytest.approx(dict.fromkeys(values, 1.0), abs=0.05)
    recovered = MEASURES["recovered_words"]
    best, low, _ = recovered.value(sums, 0.95)
    floor, _, _ = recovered.at_floor(floors).value(floors, 0.95)
    assert low > floor > 0.0
    assert best == max(sums[f"recovered_words/{name}"].ratio[0] for name in VECTOR_ATTACKERS)
    assert measure_of("distances", floors) == measure_of("products", floors) == 0.0
    assert measure_of("accuracy", floors) < 0.7 and floors[LABELS].auc("a", 0.95)[0] == 0.5
    if by_word:
        assert best == pytest.approx(1.0) and "linked" not in sums
        return
    assert measure_of("linked", sums) == pytest.approx(1.0, abs=0.03)
    assert measure_of("linked", floors) == pytest.approx(1 / 150)
    assert measure_of("membership", sums) > 0.95
    assert measure_of("membership", floors) == 0.5


def measure_of(name, sums):
    value, _, _ = MEASURES[name].value(sums, 0.95)
    return value


def test_much_noise_leaves_attackers_the_floor():
    """Rejects a membership that its own known rows fool, and links by place: the rows are in one order."""
    rows = rows_of(400, 1e3, seed=4)
    knowledge = knowledge_of(rows_of(400, 1e3, seed=5), 1e3)
    sums = measured_vectors(rows, knowledge, Classes(None, None))
    for name, floor in (("membership", 0.5), ("linked", 1 / 400), ("distances", 0.0)):
        _, low, high = MEASURES[name].value(sums, 0.999)  # the false-alarm rate is 3 in 1,000
        assert low <= floor <= high, name


def test_equal_originals_share_a_link():
    """Rejects a tie that counts as a link: of four equal rows each is linked with chance 1 / 4."""
    rows = rows_of(8, 0.0, seed=7)
    same = VectorRows(**{**vars(rows), "originals": np.repeat(rows.originals[:2], 4, axis=0)})
    same = VectorRows(**{**vars(same), "released": same.originals})
    recovered, by_chance = linked(same, knowledge_of(same, 1.0))
    assert (recovered.ratio[0], by_chance.ratio[0]) == pytest.approx((0.25, 0.125))


def test_a_class_model_learns_what_can_be_learnt():
    """Rejects scores of the wrong class, a class that only the tested rows have, and unscaled numbers."""
    rng = np.random.default_rng(11)
    names = np.array(["x", "y", "y", "z"] * 50)
    centres = {"x": 0.0, "y": 3.0, "z": 6.0}
    values = np.array([centres[name] for name in names]) + 0.3 * rng.standard_normal(200)
    vectors = np.column_stack([values * 1e-6, rng.standard_normal(200) * 1e6])
    model = ClassModel.learn(vectors, names)
    assert model.classes[0] == "y"
    tested = names.copy()
    tested[0] = "unseen"
    counts = model.counts(vectors, tested)
    assert counts.recall("x", 0.95)[0] > 0.95 and counts.auc("z", 0.95)[0] > 0.99
    assert counts.confusion[-1].sum() == 1 and counts.confusion.sum() == 200
