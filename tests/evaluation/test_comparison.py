"""Settings compared on made rows, against ceilings, floors and each other."""

from dataclasses import replace
from itertools import product
from operator import itemgetter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_spark.evaluation.attackers import ATTACKERS, BY_PAIRS
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.measures import Risk
from dptext_spark.mechanisms import Exponential
from tests.helpers.evaluations import CLASSES, SPAM

ROWS = 150
OF_ROWS = ("singled_out(2)", "singled_out(6)", "pieces(figures)", "pieces(codes)", "linked")


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


def test_more_gives_more_away(compared):
    """Epsilon, context, versions and guesses; and all of it gives more than no output does."""
    # 60 candidates are all words of these texts.
    shares = [risk(compared, number, "in-context")["recovered"] for number in range(3)]
    assert shares[0] + 0.1 < shares[1] < shares[2]
    for number in (0, 1, 3):
        alone, inside = (risk(compared, number, name) for name in ("context-free", "in-context"))
        assert alone["recovered"] < inside["recovered"]
        for more in ({"versions": 3}, {"guesses": 5}):
            assert inside["recovered"] < risk(compared, number, "in-context", **more)["recovered"]
        for row in (alone, inside):
            assert row["floor"] < row["low"] < row["recovered"] < row["high"]


def test_floors_are_of_one_version(compared):
    """Rejects floors by the number of versions: no output is seen."""
    for attacker in ATTACKERS:
        numbers = compared.numbers(compared.outcomes[0], Risk(versions=3, attacker=attacker), 0.95)
        assert numbers["floor"] == risk(compared, 0, attacker, 3)["floor"]


def test_hardly_any_noise_gives_all_away(compared):
    for attacker in ATTACKERS:
        row = risk(compared, 2, attacker)
        assert (row["recovered"], row["considered"], row["high"]) == (1.0, 1.0, 1.0)
        assert 0.95 < row["low"] < 1.0


def test_uses_stand_between_floor_and_ceiling(compared):
    """Rejects a floor of other words than may come out, and an interval of what has none."""
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
    in_context = compared.without_release(Risk(attacker="in-context"))
    assert in_context < compared.floor[f"recovered/1/{BY_PAIRS}/1"].ratio[0]
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
