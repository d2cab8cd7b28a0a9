"""An evaluation in words, on the terminal and on the page."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dptext_spark.channel.channel import Channel
from dptext_spark.display import rendered
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.classes import ClassCounts
from dptext_spark.evaluation.measures import LABELS
from dptext_spark.evaluation.page import page
from dptext_spark.evaluation.text import NOT_COMPARABLE, channel, said, sticking_out
from dptext_spark.options import EvaluateOptions
from tests.helpers.evaluations import MET, SPAM, UNMET, facts, labels, stated
from tests.helpers.page import drawn
from tests.helpers.tables import ROOT


def words(found):
    return rendered(said(found))


def test_a_choice_that_keeps_nothing_says_so(found):
    """Rejects a recommendation of what keeps no more than random words, unsaid."""
    nothing = dict(found)
    for name in ("first", "second"):
        own = found[name].outcomes[0]
        random = replace(own, sums=own.sums | {"similarity": found[name].floor["similarity"]})
        nothing[name] = replace(found[name], outcomes=(random, found[name].outcomes[1]))
    assert "NO MORE SIMILAR THAN RANDOM WORDS" in words(facts(nothing, target=MET))


def test_a_number_without_an_interval_is_said_to_have_none(found):
    text = words(facts(found, "bare", "first", target="word_overlap >= 0.9"))
    assert "rows: 1 (no interval, of the choice among 2)" in text
    assert "(no interval); THE TARGET IS MISSED THERE" in text


def test_without_a_target_the_most_similar_of_those_that_keep_recovery_low_is_named(found):
    """Rejects what was recovered in place of its limit, and the safest one."""
    own = facts(found, target=None)
    first, rows = own["settings"][0], []
    for options, recovered, high, similarity in (
        ("wide", 0.1, 0.21, 0.9),
        ("good", 0.15, 0.2, 0.8),
        ("safe", 0.05, 0.1, 0.5),
    ):
        shown = {
            "options": options,
            "recovered": recovered,
            "recovered_high": high,
            "similarity": similarity,
        }
        rows.append(first | shown)
    limit = "20% of words with good (upper limit 0.2; similarity 0.8). Choose it by --target on other rows."
    assert words(own | {"settings": rows}).endswith(limit)
    none = "No setting here keeps recovery to 20%: the least is wide (upper limit 0.21)."
    settings = [rows[1] | {"recovered_high": 0.3}, rows[0]]
    assert none in words(own | {"settings": settings})
    (verdict,) = page(own | {"settings": settings})["verdict"]
    assert verdict == f"{none} Try a smaller epsilon: --target 'recovery(top1) <= 0.2' names one."


WIDE = re.compile(r"surely|for sure|worst|at most|best attacker|\bsafer?\b", re.IGNORECASE)
"""What would be said of all attackers, where some were tried."""


def test_success_is_said_of_these_attackers_alone(found):
    """Rejects an account of attackers, in words, JSON, page, help or guide, that speaks of all attackers."""
    several = [facts(found, target=target) for target in (None, MET, UNMET, "similarity >= 0.5")]
    several.append(facts(found, "first", "bare", target=MET))
    accounts = [text for own in several for text in (words(own), own["remark"], str(page(own)))]
    told = [field.description or "" for field in EvaluateOptions.model_fields.values()]
    told += Path(ROOT, "dptext_spark/report/evaluation.html").read_text().splitlines()
    guide = Path(ROOT, "docs/guide/measuring.md").read_text().split("\n## ")
    (section,) = (part for part in guide if part.startswith("What attackers get back"))
    told += section.splitlines()
    assert all(STRONGER in text for text in accounts)
    for text in (*accounts, *(line for line in told if "task" not in line)):
        assert not WIDE.search(text), text[:500]


def test_the_table_fits_a_terminal_and_says_what_it_counts(found):
    """Rejects more columns than fit, and a sample's rare words told as the table's."""
    data = facts(found, target=None)
    text = rendered(said(data))
    _, _, table = text.partition("Rows that stick out (better: lower)\n")
    block = table.partition("\n\n")[0].splitlines()
    assert block[0].split() == ["k=2", "k=6", "linked", "floor"]
    assert len(block) == 3 and max(map(len, block)) <= 80
    assert (
        "fewer than k of the 180 evaluated rows have. In the whole table more rows may have" in text
    )
    whole = data | {"sample": data["sample"] | {"of": 180}}
    assert "In the whole table" not in rendered(said(whole))
    assert "of equal length on average" in text and "fewer rows are linked" not in text
    cut = data | {"linkage": {"among": 900.0, "alike": 2500.0}}
    assert "that of 2,500 originals" in "\n".join(sticking_out(cut))


def test_what_was_not_linked_is_said_to_be_so(found):
    """Rejects a column of rows that were not linked, in words and on the page."""
    without = {
        name: replace(
            third,
            outcomes=tuple(
                replace(outcome, sums=without_links(outcome.sums)) for outcome in third.outcomes
            ),
            floor=without_links(third.floor),
        )
        for name, third in found.items()
    }
    data = facts(without, target=None)
    text = rendered(said(data))
    assert data["linkage"] is None and "linked: not measured." in text
    assert "k=6  linked" not in text
    assert NOT_COMPARABLE in text and page(data)["not_comparable"] == NOT_COMPARABLE
    assert "linked: not measured." in " ".join(page(data)["sticking_out"])


def without_links(sums):
    return {name: part for name, part in sums.items() if not name.startswith("linked")}


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


def test_attackers_are_listed(learnt, tmp_path):
    """Rejects a number without what the attackers know."""
    found = stated(learnt, None)
    text, drawing = rendered(said(found)), drawn(tmp_path / "out", page(found))
    for name in ("context-free", "in-context", "adaptive"):
        (knows,) = (row["knows"] for row in found["attackers"] if row["name"] == name)
        line = f"{name} knows {knows}."
        assert line in text and line in drawing.text


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ({"method": "computed"}, "computed"),
        (
            {"method": "posteriors", "size": 65_536, "difference": 0.0015},
            "65,536 simulated points; half of them recover 0.15% of words less",
        ),
        (
            {"method": "draws", "size": 1_000},
            "1,000 counted draws of each word: THE ATTACK IS WEAK",
        ),
    ],
)
def test_a_channel_is_described(learnt, tmp_path, way, words):
    """Rejects an attack through counted draws that does not say that it is weak."""
    shown = replace(Channel.uniform(3, 3), **way)
    outcomes = tuple(replace(outcome, channel=shown) for outcome in learnt.outcomes)
    found = stated(learnt, None, outcomes=outcomes)
    assert channel(found["settings"][0]) == words and words in rendered(said(found))
    line = f"How attackers know the mechanism: {words}."
    assert line in drawn(tmp_path / "out", page(found)).text
