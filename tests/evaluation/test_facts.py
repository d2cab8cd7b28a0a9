"""What evaluation.json says, chosen on one third and checked on another, and what a terminal shows of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import page, said
from dptext_spark.evaluation.measures import Risk
from dptext_spark.options import EvaluateOptions
from dptext_spark.report.text import rendered
from tests.helpers.evaluations import MET, UNMET, facts, thirds
from tests.helpers.tables import ROOT


@pytest.fixture(scope="module")
def found(small):
    return thirds(small)


def words(found):
    return rendered(said(found))


def test_the_choice_is_checked_on_rows_that_it_did_not_see(found):
    """Rejects a check on the rows of the choice."""
    own = facts(found, target=MET)
    target = own["target"]
    for third, of in (("chosen_on", "first"), ("checked_on", "second")):
        assert target[third]["measured"] == Risk().own(found[of].outcomes[0].sums).ratio[0]
        assert target[third]["rows"] == 60
    assert [row["recommended"] for row in own["settings"]] == [True, False]
    text = words(own)
    for line in (
        "Target recovery(top1, in-context, 1) <= 0.95: take --mechanism laplace --epsilon 5",
        "the target is met there, too",
    ):
        assert line in text
    assert text.endswith("\nThe release: dptext privatize --where '`id`' --epsilon 5")
    assert "NO MORE SIMILAR THAN RANDOM WORDS" not in text
    missed = facts(found, "first", "bare", target=MET)  # all is recovered on the other third
    assert not missed["target"]["checked_on"]["met"]
    assert "THE TARGET IS MISSED THERE" in words(missed)


def test_a_choice_that_keeps_nothing_says_so(found):
    """Rejects a recommendation of what keeps no more than random words, unsaid."""
    nothing = dict(found)
    for name in ("first", "second"):
        own = found[name].outcomes[0]
        random = replace(own, sums=own.sums | {"similarity": found[name].floor["similarity"]})
        nothing[name] = replace(found[name], outcomes=(random, found[name].outcomes[1]))
    assert "NO MORE SIMILAR THAN RANDOM WORDS" in words(facts(nothing, target=MET))


def test_without_a_safe_setting_or_a_third_nothing_is_chosen(found):
    own, alone = facts(found, target=UNMET), facts(found, "first", target=MET)
    for none in (own, alone):
        assert none["target"]["options"] is None
        assert "no setting here meets it with 95% confidence" in words(none)
    high = Risk().own(found["first"].outcomes[0].sums).share(1 - 0.05 / 2)[2]
    assert own["target"]["closest"]["bound"] == high and alone["target"]["closest"] is None
    closest = f"The closest is --mechanism laplace --epsilon 5: .*, upper limit {high:.3g} "
    assert re.search(closest, words(own))


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
        shown = {"options": options, "recovered": recovered, "recovered_high": high, "similarity": similarity}
        rows.append(first | shown)
    limit = "20% of words with good (upper limit 0.2; similarity 0.8). Choose it by --target on other rows."
    assert words(own | {"settings": rows}).endswith(limit)
    none = "No setting here keeps recovery to 20%: the least is wide (upper limit 0.21)."
    settings = [rows[1] | {"recovered_high": 0.3}, rows[0]]
    assert words(own | {"settings": settings}).endswith(none)
    assert page(own | {"settings": settings})["advice"] == [none]


WIDE = re.compile(r"surely|for sure|worst|at most|best attacker|\bsafer?\b", re.IGNORECASE)
"""What would be said of all attackers, where some were tried."""


def test_success_is_said_of_these_attackers_alone(found):
    """Rejects an account of attackers, in words, JSON, page, help or guide, that speaks of all attackers."""
    several = [facts(found, target=target) for target in (None, MET, UNMET, "similarity >= 0.5")]
    several.append(facts(found, "first", "bare", target=MET))
    accounts = [text for own in several for text in (words(own), own["remark"], str(page(own)))]
    described = (field.description or "" for field in EvaluateOptions.model_fields.values())
    told = [text for text in described if "task" not in text]
    guide = Path(ROOT, "docs/guide/measuring.md").read_text()
    (section,) = (part for part in guide.split("\n## ") if part.startswith("What attackers get back"))
    files = ("conf/evaluate.toml", "dptext_spark/report/evaluation.html")
    options = [Path(ROOT, name).read_text() for name in files]
    told += [line for text in (section, *options) for line in text.splitlines() if "task" not in line]
    assert all(STRONGER in text for text in accounts)
    for text in (*accounts, *told):
        assert not WIDE.search(text), text[:500]
