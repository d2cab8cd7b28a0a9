"""Targets of labels and targets that choose nothing, in facts, on the terminal and on the page."""

from dataclasses import replace

import numpy as np
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.classes import SCORES, ClassCounts
from dptext_spark.evaluation.comparison import Comparison
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import LABELS, MEASURES, measure_named
from dptext_spark.evaluation.page import page
from dptext_spark.evaluation.target import Target
from dptext_spark.evaluation.text import channel, said
from dptext_spark.mechanisms import Exponential, Mahalanobis
from dptext_spark.report.text import rendered
from tests.helpers.evaluations import facts
from tests.helpers.made_texts import sentences
from tests.helpers.page import drawn

CLASSES = ("ham", "spam, (paid)")
SPAM = CLASSES[1]


def labels(ham, spam, classes=CLASSES):
    """Sums of a model that gets so many of 870 and of 130 rows right."""
    counts = ClassCounts.empty(classes)
    counts.confusion[:2, :2] = [[ham, 870 - ham], [130 - spam, spam]]
    counts.scores[:, 0, SCORES // 4] = counts.scores[:, 1, SCORES // 2] = 10
    right = ClusterSums.of_rows(ham + spam, 1000)
    return {LABELS: counts, "accuracy": right, "accuracy_on_original": right}


@pytest.fixture(scope="module")
def attacked(small):
    """A comparison of rows whose channel is computed, which is fast."""
    settings = {"mechanisms": [Exponential(epsilon=3.0)], "candidates": 20}
    return evaluate(sentences(24, 1), list(range(24)), embedding=small, **settings)


@pytest.fixture(scope="module")
def learnt(attacked):
    """Two settings by their labels, of which the first one risks less; everything is ham to the floor."""
    (outcome,) = attacked.outcomes
    key = "recovered/1/adaptive/1"
    ratio = ClusterSums.of_rows(0, 100)
    recovered = {name: ratio for name in outcome.sums if name.startswith("recovered/1/")}
    safe = {**outcome.sums, **recovered, key: ClusterSums.of_rows(20, 100), **labels(866, 30)}
    useful = {**outcome.sums, **recovered, key: ClusterSums.of_rows(40, 100), **labels(860, 115)}
    lambdas = [Mahalanobis(epsilon=5.0, **{"lambda": weight}) for weight in (0.2, 0.8)]
    outcomes = [
        replace(outcome, mechanism=mechanism, sums=sums)
        for mechanism, sums in zip(lambdas, (safe, useful), strict=True)
    ]
    floor = {
        **attacked.floor,
        "recovered/1/adaptive/1": ClusterSums.of_rows(5, 100),
        **labels(870, 0),
    }
    return Comparison(outcomes=tuple(outcomes), floor=floor, ideal=labels(868, 120))


def stated(learnt, target, **changes):
    """Facts of an evaluation whose thirds are alike."""
    thirds = {"first": replace(learnt, **changes), "second": replace(learnt, **changes)}
    return facts(thirds, target=target)


@pytest.mark.parametrize(
    ("text", "measure"),
    [
        (f"recall({SPAM}) >= 0.7", f"recall({SPAM})"),
        ("precision( ham )>=.7", "precision(ham)"),
        ("f1(a) >= (b) >= 0.5", "f1(a) >= (b)"),
        ("auc(ham) >= 0.7", "auc(ham)"),
        ("auc >= 0.7", "auc"),
        ("balanced_accuracy >= 0.6", "balanced_accuracy"),
    ],
)
def test_targets_of_labels_are_read_and_written(text, measure):
    """Rejects class names that are cut at commas or parentheses."""
    target = Target.parse(text)
    assert str(target).rpartition(" >= ")[0] == measure
    assert Target.parse(str(target)) == target
    assert target.limited == measure_named(measure)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("recall >= 0.7", ""),
        ("balanced_accuracy(ham) >= 0.7", ""),
        ("accuracy(ham) >= 0.7", ""),
        ("recall(ham) <= 0.7", ""),
        ("recovery(top1) <= 1", "No setting can fail this target"),
        ("recall(ham) >= 0", "No setting can fail this target"),
        ("recovery(top1) <= 0", "No setting can meet this target"),
        ("recall(ham) >= 1.5", "No setting can meet this target"),
    ],
)
def test_what_is_no_target_of_labels_is_refused(text, advice):
    with pytest.raises(ConfigError, match=rf"recall\(CLASS\).*{advice}"):
        Target.parse(text)


def test_a_class_that_no_known_row_has_is_refused():
    target = Target.parse("recall(junk) >= 0.5")
    with pytest.raises(ConfigError, match="one of the 2 classes"):
        target.check_class(CLASSES)
    Target.parse(f"recall({SPAM}) >= 0.5").check_class(CLASSES)
    Target.parse("auc >= 0.5").check_class(CLASSES)


def test_a_class_chooses_the_setting_that_keeps_it(learnt):
    """Rejects accuracy in place of recall: by accuracy both meet it, and the one that risks less is taken."""
    # Several settings of mahalanobis are one grid: each has its line, and its place on the front.
    found = stated(learnt, f"recall({SPAM}) >= 0.7")
    assert found["target"]["options"] == "--mechanism mahalanobis:lambda=0.8 --epsilon 5"
    assert found["target"]["checked_on"]["met"] and found["target"]["remark"] is None
    low = learnt.floor | {"accuracy": ClusterSums.of_rows(1, 9)}
    by_accuracy = stated(learnt, "accuracy >= 0.872", floor=low)
    assert by_accuracy["target"]["options"] == "--mechanism mahalanobis:lambda=0.2 --epsilon 5"
    assert [row["on_front"] for row in found["settings"]] == [True, True]
    drawing = page(found)["plots"]
    assert [plot["name"] for plot in drawing] == ["similarity", "balanced_accuracy"]
    assert [*drawing[-1]["lines"]] == ["mahalanobis lambda=0.2", "mahalanobis lambda=0.8"]


def test_numbers_of_classes_have_floor_ceiling_and_interval(learnt):
    """Rejects a floor that learnt from the originals, and a ceiling that did not."""
    rows = [row for row in learnt.utility().to_pylist() if row["setting"] == "lambda=0.8"]
    named = {row["measure"]: row for row in rows}
    recall = named[f"recall({SPAM})"]
    assert [recall[name] for name in ("floor", "value", "ceiling")] == [0.0, 115 / 130, 120 / 130]
    assert recall["low"] < recall["value"] < recall["high"]
    balanced = named["balanced_accuracy"]
    assert balanced["floor"] == 0.5 < balanced["low"] < balanced["value"] < balanced["ceiling"]
    names = {
        f"{name}({label})" for name in ("precision", "recall", "f1", "auc") for label in CLASSES
    }
    assert names | {"auc", "balanced_accuracy"} <= named.keys()


@pytest.mark.parametrize(
    ("target", "remark", "is_idle"),
    [
        ("accuracy >= 0.8", "random words meet this target, too (0.87)", True),
        ("recall(ham) >= 0.9", "random words meet this target, too (1)", True),
        (
            "balanced_accuracy >= 0.98",
            "models that learn from the originals miss this target, too (0.96)",
            False,
        ),
        (
            "recovery(top1, adaptive) <= 0.04",
            "the floor, without a release or of random words, misses",
            False,
        ),
        (
            "attribution <= 0.5",
            "the originals meet this target, too: no setting can fail it (0.3)",
            True,
        ),
        ("balanced_accuracy >= 0.6", None, False),
        ("recovery(top1, adaptive) <= 0.7", None, False),
    ],
)
def test_a_target_that_chooses_nothing_is_named(learnt, target, remark, is_idle, tmp_path):
    """Rejects `met there, too` of a limit that random words meet, or the originals, or no setting."""
    authors = {"attribution": ClusterSums.of_rows(30, 100)}
    outcomes = tuple(replace(own, sums=own.sums | authors) for own in learnt.outcomes)
    changes = {
        "outcomes": outcomes,
        "floor": learnt.floor | authors,
        "ideal": learnt.ideal | authors,
    }
    found = stated(learnt, target, **changes)
    text = rendered(said(found))
    if remark is None:
        assert found["target"]["remark"] is None and "take --mechanism" in text
        return
    assert found["target"]["remark"].startswith(remark) and found["target"]["idle"] is is_idle
    assert found["target"]["options"] is None and not any(
        row["recommended"] for row in found["settings"]
    )
    line = f"{found['target']['target']}: {found['target']['remark']}."
    assert line in text and line in page(found)["verdict"][0]
    assert ("so none is chosen" in text) is is_idle
    assert found["target"]["remark"] in drawn(tmp_path / "out", page(found)).text


def test_a_floor_of_either_third_counts(learnt):
    """Rejects a judgement by the rows of the choice alone, which then holds on the others `too`."""
    low = learnt.floor | {"accuracy": ClusterSums.of_rows(60, 100)}
    found = facts(
        {"first": replace(learnt, floor=low), "second": learnt}, target="accuracy >= 0.85"
    )
    assert found["target"]["idle"] and found["target"]["number"] is None


def test_a_choice_by_risk_says_where_labels_are_lost(learnt):
    """Rejects a recommendation under which models learn no more than from random words, unsaid."""
    lost = tuple(replace(own, sums=own.sums | labels(869, 1)) for own in learnt.outcomes)
    target = "recovery(top1, adaptive) <= 0.7"
    assert "LABELS ARE LEARNT NO BETTER" in rendered(said(stated(learnt, target, outcomes=lost)))
    assert "LABELS ARE LEARNT NO BETTER" not in rendered(said(stated(learnt, target)))


def test_ten_of_many_classes_are_shown(learnt, tmp_path):
    """Rejects a terminal or a page with every class; JSON has all, and control signs are written out."""
    names = tuple(f"class\x1b{number:02}" for number in range(50))
    many = {LABELS: ClassCounts.empty(names)}
    many[LABELS].confusion[:50, :50] = np.diag(np.arange(60, 10, -1))
    outcomes = tuple(replace(own, sums=own.sums | many) for own in learnt.outcomes)
    changes = {"outcomes": outcomes, "floor": learnt.floor | many, "ideal": learnt.ideal | many}
    found = stated(learnt, "auc >= 0.5", **changes)
    assert len(found["labels"]) == 50 and found["labels"][0]["rows"] == 60 * 2
    assert {f"f1({name})" for name in names} <= {row["measure"] for row in found["utility"]}
    text, drawing = rendered(said(found)), drawn(tmp_path / "out", page(found))
    for shown in (text, drawing.text):
        assert "The 10 most frequent of 50 classes are shown; evaluation.json has all." in shown
        assert "09)" in shown and "10)" not in shown and "\x1b" not in shown


def test_a_precision_that_nothing_was_predicted_for_is_no_number(learnt):
    """Rejects a crash where the closest setting has no value."""
    never = tuple(replace(own, sums=own.sums | labels(870, 0)) for own in learnt.outcomes)
    found = stated(learnt, f"precision({SPAM}) >= 0.7", outcomes=never)
    assert found["target"]["closest"]["measured"] is None
    assert "nothing to measure it on" in rendered(said(found))


def test_attackers_and_channels_are_listed(learnt, tmp_path):
    """Rejects an attack through counted draws that does not say that it is weak."""
    found = stated(learnt, None)
    text, drawing = rendered(said(found)), drawn(tmp_path / "out", page(found))
    for name in ("context-free", "in-context", "adaptive"):
        (line,) = [
            f"{name} knows {own['knows']}." for own in found["attackers"] if own["name"] == name
        ]
        assert line in text and line in drawing.text
    assert "How attackers know the mechanism: computed." in drawing.text
    uniform = Channel.uniform(3, 3)
    for way, words in (
        ({"method": "computed"}, "computed"),
        (
            {"method": "posteriors", "size": 65_536, "difference": 0.0015},
            "65,536 simulated points; half of them would lose 0.15% of words",
        ),
        (
            {"method": "draws", "size": 1_000},
            "1,000 counted draws of each word: THE ATTACK IS WEAK",
        ),
    ):
        outcomes = tuple(replace(own, channel=replace(uniform, **way)) for own in learnt.outcomes)
        other = stated(learnt, None, outcomes=outcomes)
        assert channel(other["settings"][0]) == words and words in rendered(said(other))
        assert (
            f"How attackers know the mechanism: {words}."
            in drawn(tmp_path / words[:4], page(other)).text
        )


def test_all_measures_of_labels_need_a_label():
    needing = [name for name, own in MEASURES.items() if own.needs == "label"]
    assert {"accuracy", "balanced_accuracy", "auc", "precision", "recall", "f1"} <= {*needing}
