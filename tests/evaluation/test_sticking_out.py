"""What is said and chosen of rows that stick out: settings, targets, terminal, page."""

from dataclasses import replace

import pytest

from dptext_spark.evaluation.measures import MEASURES, SingledOut
from dptext_spark.evaluation.page import page
from dptext_spark.evaluation.target import Target
from dptext_spark.evaluation.text import said, sticking_out
from dptext_spark.report.text import rendered
from dptext_spark.word_reader import FEW
from tests.helpers.evaluations import facts, thirds


@pytest.fixture(scope="module")
def found(small):
    return thirds(small)


def test_settings_have_the_numbers_of_both_thirds(found):
    """Rejects one third in place of all attacked rows, and floors of words in place of rows."""
    data = facts(found, target=None)
    whole = found["first"] + found["second"]
    for number, row in enumerate(data["settings"]):
        sums = whole.outcomes[number].sums
        for key, measure in {
            "linked": MEASURES["linked"],
            "singled_out_2": SingledOut(few=2),
        }.items():
            value, low, high = measure.value(sums, 0.95)
            assert (row[key], row[f"{key}_low"], row[f"{key}_high"]) == (value, low, high)
            assert row[f"{key}_floor"] == measure.totals(whole.floor).ratio[0]
    noisy, bare = data["settings"]
    assert noisy["linked_floor"] < noisy["linked"] < bare["linked"] == 1.0
    for few in FEW:  # without noise all rare words stay
        name = f"singled_out_{few}"
        assert (
            0.0 < noisy[name] < bare[name] == bare[f"{name}_original"] == noisy[f"{name}_original"]
        )
    assert data["linkage"]["among"] == data["linkage"]["alike"] > 1.0
    assert {row["rows_with_word"] for row in data["rarity"]} <= {
        "1",
        "2-5",
        "6-20",
        "21-100",
        "101-",
    }
    words = [row["words"] for row in data["rarity"] if row["epsilon"] == 5.0]
    assert sum(words) == whole.outcomes[0].sums["kept"].size[0]
    assert [row["fewer_than"] for row in data["sightings"]] == [2, 6, 2, 6]
    assert all(row["right"] == 1.0 for row in data["sightings"] if row["epsilon"] == 1e6)


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
    assert "linked: not measured." in " ".join(page(data)["sticking_out"])


def without_links(sums):
    return {name: part for name, part in sums.items() if not name.startswith("linked")}
