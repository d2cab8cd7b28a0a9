"""What evaluation.json says, chosen on one third and checked on another, and what a terminal shows of it."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.facts import page, said
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
    """Of these also is what comes with it. Rejects a check on the rows of the choice."""
    own = facts(found, target=MET)
    target, second = own["target"], found["second"]
    for third, of in (("chosen_on", "first"), ("checked_on", "second")):
        assert target[third]["measured"] == Risk().sums(found[of].outcomes[0].totals).ratio[0]
        assert target[third]["rows"] == 60
    assert [row["recommended"] for row in own["settings"]] == [True, False]
    value, low, high = second.outcomes[0].totals.measures(second.before, 0.95)["similarity"]
    floor = second.outcomes[0].floor.measures(second.before, 0.95)["similarity"][0]
    assert floor < low
    beside = {"measure": "similarity", "value": value, "low": low, "high": high, "floor": floor}
    assert target["beside"] == beside
    text = words(own)
    for line in (
        "Target recovery(top1, in-context, 1) <= 0.95: take --mechanism laplace --epsilon 5",
        "the target is met there, too",
        f"It keeps similarity {value:.3f} ({low:.3f} to {high:.3f}) there",
    ):
        assert line in text
    assert text.endswith("\nThe release: dptext privatize --where '`id`' --epsilon 5")
    assert "NO MORE THAN RANDOM WORDS" not in text
    missed = facts(found, "first", "bare", target=MET)  # all is recovered on the other third
    assert not missed["target"]["checked_on"]["met"]
    assert "THE TARGET IS MISSED THERE" in words(missed)


def test_a_choice_that_keeps_nothing_says_so(found):
    """Rejects a recommendation of what keeps no more than random words, unsaid."""
    first, second = found["first"].outcomes[0], found["second"]
    kept = {name: first.floor.sums[name] for name in ("kept", "distance", "similarity")}
    random = replace(first, totals=replace(first.totals, sums={**first.totals.sums, **kept}))
    nothing = found | {"nothing": replace(second, outcomes=(random, second.outcomes[1]))}
    assert "THAT IS NO MORE THAN RANDOM WORDS KEEP" in words(facts(nothing, "first", "nothing", target=MET))
    use = facts(found, target="similarity >= 0.5")
    assert use["target"]["beside"]["measure"] == "recovered"
    assert "Share of words recovered there: " in words(use)


def test_without_a_safe_setting_or_a_third_nothing_is_chosen(found):
    own = facts(found, target=UNMET)
    bound = Risk().sums(found["first"].outcomes[0].totals).share(1 - 0.05 / 2)[2]
    assert own["target"]["closest"] == {"options": "--mechanism laplace --epsilon 5", "bound": bound}
    assert f"The closest is --mechanism laplace --epsilon 5: upper limit {bound:.3g}." in words(own)
    for none in (own, facts(found, "first", target=UNMET)):
        assert none["target"]["options"] is None
        assert "no setting here meets it with 95% confidence" in words(none)


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
