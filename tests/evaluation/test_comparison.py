"""Settings compared on made rows, against ceilings, floors and each other; what is said of them."""

import math
import re
from dataclasses import replace
from itertools import product
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.evaluation.attackers import ATTACKERS, BY_PAIRS, STRONGER
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import MEASURES, Risk
from dptext_spark.evaluation.page import page
from dptext_spark.evaluation.target import Target
from dptext_spark.evaluation.text import said
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.options import EvaluateOptions
from dptext_spark.report.text import rendered
from tests.helpers.evaluations import MET, UNMET, facts, thirds
from tests.helpers.made_texts import sentences
from tests.helpers.tables import ROOT

ROWS = 150
OF_ROWS = ("singled_out(2)", "singled_out(6)", "linked")
SETTINGS = (
    Laplace(epsilon=5.0),
    Laplace(epsilon=8.0),
    Laplace(epsilon=1e6),
    Exponential(epsilon=3.0),
)
FEW = {"mechanisms": SETTINGS[:1], "candidates": 60, "channel_limit": 0.05}


@pytest.fixture(scope="module")
def compared(small):
    options = FEW | {"mechanisms": SETTINGS, "versions": 3}
    return evaluate(sentences(ROWS, 1), list(range(ROWS)), embedding=small, **options)


def risk(found, number, attacker, versions=1, guesses=1):
    """A row of the table of risks, of all words."""
    wanted = {"attacker": attacker, "versions": versions, "guesses": guesses, "words": "all"}
    wanted |= found.outcomes[number].key
    (row,) = (r for r in found.risk().to_pylist() if wanted.items() <= r.items())
    return row


def use(found, number):
    key = found.outcomes[number].key
    return {
        row["measure"]: row for row in found.utility().to_pylist() if key.items() <= row.items()
    }


def test_risks_and_uses_stand_in_order_between_floor_and_ceiling(compared):
    """More epsilon, context, versions and guesses give more away, and all of it more than no output does."""
    # Hardly any noise gives all away and keeps all; 60 candidates are all words of these texts.
    shares = [risk(compared, number, "in-context")["recovered"] for number in range(3)]
    assert shares[0] + 0.1 < shares[1] < shares[2]
    for number in (0, 1, 3):
        alone, inside = (risk(compared, number, name) for name in ("context-free", "in-context"))
        assert alone["recovered"] < inside["recovered"]
        for more in ({"versions": 3}, {"guesses": 5}):
            assert inside["recovered"] < risk(compared, number, "in-context", **more)["recovered"]
        for row in (alone, inside):
            assert row["floor"] < row["low"] < row["recovered"] < row["high"]
    for attacker in ATTACKERS:
        numbers = compared.numbers(compared.outcomes[0], Risk(versions=3, attacker=attacker), 0.95)
        assert (
            numbers["floor"] == risk(compared, 0, attacker, 3)["floor"]
        )  # of one version, as no output is seen
    for attacker in ATTACKERS:
        row = risk(compared, 2, attacker)
        assert (row["recovered"], row["considered"], row["high"]) == (1.0, 1.0, 1.0)
        assert 0.95 < row["low"] < 1.0
    low, high, bare = (use(compared, number) for number in range(3))
    for name in ("kept", "similarity", "word_overlap", "pair_overlap"):
        assert low[name]["floor"] < low[name]["value"] < high[name]["value"] < bare[name]["value"]
        assert bare[name]["value"] == pytest.approx(bare[name]["ceiling"])
        if name.endswith("overlap"):
            assert high[name]["low"] is high[name]["high"] is None
        else:
            assert high[name]["low"] < high[name]["value"] < high[name]["high"]
    assert high["kept"]["floor"] == pytest.approx(1 / 200, abs=0.01)  # 200 words may come out


def test_the_headline_is_the_strongest_attackers(compared):
    """Rejects one attacker for all settings, and the strongest by another number of guesses or versions."""
    for number, versions, guesses in product(range(4), (1, 3), (1, 5)):
        rows = {name: risk(compared, number, name, versions, guesses) for name in ATTACKERS}
        strongest = Risk(versions=versions, guesses=guesses)
        numbers = compared.numbers(compared.outcomes[number], strongest, 0.95)
        best = max(rows.values(), key=itemgetter("recovered"))
        assert numbers["value"] == best["recovered"]
        assert (
            rows[strongest.attacker_in(compared.outcomes[number].sums)]["recovered"]
            == best["recovered"]
        )
        # Nor is its floor another attacker's who guesses less without any output.
        floors = [rows[name]["floor"] for name in ATTACKERS]
        assert numbers["floor"] == max(floors)


def test_who_knows_more_has_no_lower_floor(compared):
    """Rejects the floor of one way to guess: others that the same knowledge allows get more here."""
    sums = compared.floor
    assert (
        Risk(attacker="in-context").value(sums, 0.95)[0] < sums[f"recovered/1/{BY_PAIRS}/1"].ratio
    )
    for guesses in (1, 5):
        risks = [Risk(attacker=name, guesses=guesses) for name in ATTACKERS]
        floors = [compared.floor_of(risk) for risk in risks]
        assert floors == sorted(floors)
        for risk, floor in zip(risks, floors, strict=True):
            assert compared.without_release(risk) <= floor


def test_bands_make_up_all_words(compared):
    """And what is shown of it has no words, as a dataclass's own repr would."""
    table = compared.risk().to_pandas()
    table = table[~table["attacker"].isin(OF_ROWS)]
    assert set(table["words"]) == {"all", "1-100"}  # the texts have 60 words
    assert (table["rows"] == ROWS).all() and table["tokens"].nunique() == 1
    channels = dict(zip(table["mechanism"], table["channel"], strict=True))
    assert channels == {"laplace": "posteriors", "exponential": "computed"}
    outcome = replace(compared.outcomes[0], mechanism=Exponential(epsilon=3.0, truncate=5.0))
    assert outcome.key == {"mechanism": "exponential", "setting": "truncate=5", "epsilon": 3.0}
    assert not any("array" in repr(value) for value in (compared, outcome))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(
        st.tuples(*[st.sampled_from([0.1, 0.2, 0.3, 0.4])] * 2), min_size=1, max_size=12
    )
)
def test_the_front_is_what_nothing_beats(compared, values):
    """Equal settings stay together, the least risk first."""
    first, outcomes = compared.outcomes[0], []
    for number, pair in enumerate(values):
        names = [*(f"recovered/1/{name}/1" for name in ATTACKERS), "kept"]
        risked, use = (ClusterSums.of_rows(round(10 * share), 10) for share in pair)
        shares = dict.fromkeys(names[:-1], risked) | {"kept": use}
        channel = replace(first.channel, size=number)
        outcomes.append(replace(first, sums=first.sums | shares, channel=channel))
    found = replace(compared, outcomes=tuple(outcomes))
    front = [outcome.channel.size for outcome in found.front(keeping="kept")]
    assert [values[i][0] for i in front] == sorted(values[i][0] for i in front)
    for number, (lost, kept) in enumerate(values):
        beaten = any(a <= lost and b >= kept and (a, b) != (lost, kept) for a, b in values)
        assert (number in front) != beaten


def test_a_word_that_the_corpus_lacks_is_never_guessed(small):
    found = evaluate(
        sentences(20, 1), list(range(20)), corpus=["w150 w151 w152"], embedding=small, **FEW
    )
    assert risk(found, 0, "in-context")["recovered"] == 0.0


def test_the_same_seed_gives_the_same_numbers(small):
    """Of token lists too, where tokens that are no words of the bundle are not counted."""
    lists = pa.array(
        [["w1", "the", "w2"], ["w3", None], *(text.split() for text in sentences(10, 3))]
    )
    found = [
        evaluate(lists, list(range(12)), embedding=small, seed=seed, **FEW) for seed in (1, 1, 2)
    ]
    assert found[0].risk() == found[1].risk() != found[2].risk()
    assert found[0].utility() == found[1].utility() != found[2].utility()
    words = small.words.to_pylist()
    count = sum(token in words for tokens in lists.to_pylist() for token in tokens)
    of_words = [row for row in found[0].risk().to_pylist() if row["attacker"] not in OF_ROWS]
    assert {row["tokens"] for row in of_words} == {count}


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["w1"], {"mechanisms": []}, "no setting"),
        (["w1"], {"versions": 0}, "versions must be at least 1. Got: 0"),
        (["w1"], {"candidates": 4}, "candidates must be at least 5. Got: 4"),
        (["w1"], {"channel_limit": 1.0}, "channel_limit must be above 0 and below 1. Got: 1.0"),
        (["w1"], {"seed": -1}, "seed must be from 0 to .*. Got: -1"),
        (["strange"], {}, "no word of these rows is perturbed"),
        (
            ["w1"],
            {"corpus": ["strange", ""]},
            "The corpus has no word of the embedding. Got: 2 texts",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(small, values, options, message):
    with pytest.raises(DptextError, match=message):
        evaluate(values, [1], **{"embedding": small, "mechanisms": SETTINGS[:1]} | options)


FREE = Risk(attacker="context-free", versions=3, guesses=5)


@pytest.fixture(scope="module")
def three(compared):
    return replace(compared, outcomes=compared.outcomes[:3])


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
        assert target[third]["measured"] == Risk().totals(found[of].outcomes[0].sums).ratio[0]
        assert target[third]["rows"] == 60
    assert [row["recommended"] for row in own["settings"]] == [True, False]
    text = words(own)
    for line in (
        "Target recovery(top1, strongest, 1) <= 0.95: take --mechanism laplace --epsilon 5",
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
    high = Risk().totals(found["first"].outcomes[0].sums).share(1 - 0.05 / 2)[2]
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
    assert words(own | {"settings": settings}).endswith(none)
    assert page(own | {"settings": settings})["verdict"] == [none]


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
