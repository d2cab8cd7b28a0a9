"""Targets: what they may be, the setting that is chosen, and targets that choose nothing."""

import math
import re
from dataclasses import replace

import pytest

from dptext_spark.display import rendered
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import MEASURES, Risk, SingledOut, measure_named
from dptext_spark.evaluation.page import page
from dptext_spark.evaluation.target import Target
from dptext_spark.evaluation.text import said
from tests.helpers.evaluations import CLASSES, MET, SPAM, UNMET, facts, stated
from tests.helpers.page import drawn

FREE = Risk(attacker="context-free", versions=3, guesses=5)


@pytest.mark.parametrize(
    ("text", "risk", "written"),
    [
        ("recovery(top1) <= 0.2", Risk(), "recovery(top1, strongest, 1) <= 0.2"),
        (" recovery( top5 , context-free,3 )<=.5 ", FREE, "recovery(top5, context-free, 3) <= 0.5"),
        ("recovery(top1, 2) <= 0.2", Risk(versions=2), "recovery(top1, strongest, 2) <= 0.2"),
        *(
            (text, Risk(), text)
            for name, own in MEASURES.items()
            if name != "recovery"
            for form in own.forms
            for text in [f"{form} {'<=' if own.kind == 'risk' else '>='} 0.5"]
        ),
    ],
)
def test_targets_are_read_and_written(text, risk, written):
    """Of all that is registered, each measure with the sign that makes sense; the refusal names them."""
    target = Target.parse(text)
    assert (target.risk, str(target)) == (risk, written)
    assert Target.parse(written) == target and not target.met(math.nan)
    assert target.measure in Target.allowed


@pytest.mark.parametrize(
    "text",
    [
        *("", "recovery", "recovery <= 0.2", "recovery(top2) <= 0.2", "recovery(top1) >= 0.2"),
        *(
            "recovery(top1) <= 1",
            "recovery(top1) <= 0",
            "recovery(top1) <= nan",
            "recovery(top1, 0) <= 0.2",
        ),
        *("recovery(top1, 2, in-context) <= 0.2", "recovery(top1, in-context, in-context) <= 0.2"),
        *("similarity <= 0.9", "similarity(top1) >= 0.9", "similarity >= 1.5", "other >= 0.5"),
        *(
            "singled_out <= 0.5",
            "singled_out(3) <= 0.5",
            "singled_out(2) >= 0.5",
            "linked(2) <= 0.5",
        ),
        *("recovery(top1) <= 0.2 and similarity >= 0.9", "similarity >= many"),
    ],
)
def test_what_is_no_target_is_refused(text):
    with pytest.raises(ConfigError, match=r"--target has a wrong value.*recovery\(topK\)"):
        Target.parse(text)


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


def test_the_best_setting_within_the_limit_is_taken(three):
    """Of safe ones what keeps most, of useful ones what risks least: rejects the safest, the most useful."""
    # By limits of confidence that allow for the search: rejects what was measured, and one setting's interval
    # where three were looked at.
    sums = Risk().totals(three.outcomes[0].sums)
    shares = [Risk().totals(o.sums).ratio[0] for o in three.outcomes]
    assert shares[0] < shares[1] < shares[2] == 1.0
    similar, common = (
        [MEASURES[n].value(o.sums, 0.95)[0] for o in three.outcomes]
        for n in ("similarity", "word_overlap")
    )
    alone, among_three = (sums.share(c)[2] for c in (0.95, 1 - 0.05 / 3))
    assert shares[0] < alone < among_three
    for text, number in (
        (f"recovery(top1) <= {(shares[1] + 1.0) / 2}", 1),
        (f"recovery(top1, context-free) <= {(shares[1] + 1.0) / 2}", 1),
        (f"similarity >= {(similar[0] + 2 * similar[1]) / 3}", 1),
        ("similarity >= 0.999999", 2),
        (
            f"word_overlap >= {(common[0] + 2 * common[1]) / 3}",
            1,
        ),  # without an interval, as measured
        (f"recovery(top1) <= {shares[0]}", None),
        (f"recovery(top1) <= {(alone + among_three) / 2}", None),
        (f"recovery(top1) <= {among_three}", 0),
    ):
        wanted = None if number is None else three.outcomes[number]
        assert Target.parse(text).choose(three) is wanted, text


def test_of_safe_settings_the_use_that_is_asked_for_decides_by_its_lower_limit(three, monkeypatch):
    """Rejects what keeps most as measured, perhaps by luck, and similarity where another use is asked for."""
    first, second, _ = three.outcomes
    for name, values in {
        "kept": {id(first.sums): (0.5, 0.49, 0.51), id(second.sums): (0.55, 0.45, 0.65)},
        "similarity": {id(first.sums): (0.1, 0.1, 0.1), id(second.sums): (0.9, 0.9, 0.9)},
    }.items():
        own = type(MEASURES[name])
        monkeypatch.setattr(own, "value", lambda _, sums, confidence, of=values: of[id(sums)])
    two = replace(three, outcomes=(first, second))
    target = Target.parse("recovery(top1) <= 0.999")
    assert replace(target, keeping="kept").choose(two) is first
    assert target.choose(two) is second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recovery(top1, 7) <= 0.2", r"This risk was not measured.*Allowed: .*1 or 3 versions"),
        ("accuracy >= 0.2", "This use was not measured.*--label"),
    ],
)
def test_what_was_not_measured_is_refused(three, text, message):
    with pytest.raises(ConfigError, match=message):
        Target.parse(text).choose(three)


def words(found):
    return rendered(said(found))


def test_the_choice_is_checked_on_rows_that_it_did_not_see(found):
    """Rejects a check on the rows of the choice."""
    own = facts(found, target=MET)
    target = own["target"]
    for third, of in (("chosen_on", "first"), ("checked_on", "second")):
        assert target[third]["measured"] == Risk().totals(found[of].outcomes[0].sums).ratio[0]
        assert target[third]["rows"] == 60
    assert [row["recommended"] for row in own["settings"]] == [True, False]
    text = words(own)
    for line in (
        "Target recovery(top1, strongest, 1) <= 0.95: take --mechanism laplace --epsilon 5",
        "the target is met there, too",
    ):
        assert line in text
    assert text.endswith("not evaluated, leave --epsilon-from-private-rows out.")
    own["options"] = {**own["options"], "where": None}
    text = words(own)
    assert text.endswith("\nThe release: dptext privatize --where '`id`' --epsilon 5")
    assert "NO MORE SIMILAR THAN RANDOM WORDS" not in text


def test_a_choice_that_does_not_hold_is_said_to_miss(found):
    """Rejects the verdict of the rows of the choice."""
    missed = facts(found, "first", "bare", target=MET)  # all is recovered on the other third
    assert not missed["target"]["checked_on"]["met"]
    assert "THE TARGET IS MISSED THERE" in words(missed)


def test_without_a_safe_setting_or_a_third_nothing_is_chosen(found):
    own, alone = facts(found, target=UNMET), facts(found, "first", target=MET)
    for none in (own, alone):
        assert none["target"]["options"] is None
        assert "no setting here meets it with 95% confidence" in words(none)
    high = Risk().totals(found["first"].outcomes[0].sums).share(1 - 0.05 / 2)[2]
    assert own["target"]["closest"]["bound"] == high and alone["target"]["closest"] is None
    closest = f"The closest is --mechanism laplace --epsilon 5: .*, upper limit {high:.3g} "
    assert re.search(closest, words(own))


def test_what_to_try_follows_from_the_measured_rows(found):
    """Rejects a larger epsilon for a smaller risk, one that is far away, and more rows that help nobody."""
    first = found["first"].outcomes[0]
    value, _, high = Risk().value(first.sums, 1 - 0.05 / 2)
    missed = facts(found, target=f"recovery(top1) <= {value - 0.05:.4f}")
    step = missed["target"]["try"]
    assert 5.0 / 4.0 <= step["epsilon"] <= 4.5 and not step["rows"]
    assert f"Try a smaller epsilon, such as {step['epsilon']:g}." in words(missed)
    nearly = facts(found, target=f"recovery(top1) <= {(value + high) / 2:.4f}")
    assert nearly["target"]["try"]["rows"] and "or more rows (--sample)" in words(nearly)
    assert nearly["target"]["try"]["epsilon"] >= step["epsilon"]
    only = {name: replace(third, outcomes=third.outcomes[:1]) for name, third in found.items()}
    similarity, _, _ = MEASURES["similarity"].value(first.sums, 0.95)
    useless = facts(only, target=f"similarity >= {(similarity + 1.0) / 2:.4f}")
    assert 5.5 <= useless["target"]["try"]["epsilon"] <= 20.0
    assert "Try a larger epsilon, such as " in words(useless)
    # No setting can meet it.
    assert facts(found, target=UNMET)["target"]["try"] is None


def test_targets_of_rows_choose(found):
    """Rejects a limit that is held against shares of words, and one that no setting can fail."""
    linked = found["first"].outcomes[0].sums["linked"]
    high = linked.share(1 - 0.05 / 2)[2]
    assert facts(found, target=f"linked <= {min(high + 0.001, 0.9999)}")["target"]["number"] == 0
    assert facts(found, target=f"linked <= {linked.ratio[0]}")["target"]["number"] is None
    assert facts(found, target="singled_out(6) <= 0.0001")["target"]["number"] is None
    rare = SingledOut().without_noise(found["first"].outcomes[0].sums)
    idle = facts(found, target=f"singled_out(2) <= {max(rare, 0.5) + 0.2}")["target"]
    assert idle["idle"] and "no setting can fail it" in idle["remark"]
    assert Target.parse("singled_out(2) <= 0.05").limited == SingledOut(few=2)
    assert str(Target.parse("singled_out( 6 )<=.05")) == "singled_out(6) <= 0.05"


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
