"""An evaluation's facts: the numbers of each setting."""

from dptext_spark.evaluation.measures import MEASURES, SingledOut
from dptext_spark.word_reader import FEW
from tests.helpers.evaluations import facts


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
