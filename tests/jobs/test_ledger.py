"""dptext ledger: what is shown of the releases of a ledger, and what they reveal together."""

import re

import pytest

from dptext_spark.accounting.laws import BoundedRange, SphericalLaplace, joint_loss_beyond
from dptext_spark.accounting.ledger import Ledger, recorded
from dptext_spark.jobs.ledger import losses, report
from tests.helpers.ledgers import entry

LAPLACE = SphericalLaplace(dimension=50, epsilon=10.0)
SHORT, LONG = (BoundedRange(epsilon=10.0, truncation=most) for most in (0.4, 0.5))


@pytest.mark.parametrize(
    ("laws", "total", "counted"),
    [
        ([LAPLACE, LAPLACE], 10, 10.0),  # of disjoint rows
        ([LAPLACE, LAPLACE], 20, 20.0),
        ([SHORT, LONG], 20, 10.0),  # the smaller truncation bounds one of them alone
        ([SHORT, LAPLACE], 20, 20.0),
        ([SHORT, None], 20, 20.0),
    ],
    ids=str,
)
def test_losses_of_all_releases_together(laws, total, counted):
    """Rejects the least truncation, that of some releases, and bounds of the known laws alone."""
    loss = [{"law": "Other"} if law is None else recorded(law) for law in laws]
    entries = [entry(n, total=min(total, 10 * n), loss=each) for n, each in enumerate(loss, 1)]
    entries.append(entry(9, total=50, state="withdrawn"))
    (near, *others) = losses(Ledger(tuple(entries)))
    assert len(others) == 2 and near["distance"] == 1.0
    assert near["pure"] == pytest.approx(counted)
    if None in laws:
        assert near.keys() == {"from", "distance", "pure"}
        return
    joint = joint_loss_beyond({law: laws.count(law) for law in laws if law}, 1.0, delta=1e-6)
    assert near["1e-06"] == pytest.approx(min(joint, counted))
    assert near["1e-06"] <= near["1e-09"] <= near["pure"]


def test_what_is_shown():
    """And a total that is not that of the releases which were withdrawn."""
    two = [entry(1, total=10, delta=1e-3), entry(2, total=20, state="unfinished", delta=1e-3)]
    found = report("ledger", Ledger((*two, entry(3, total=30, state="withdrawn"))))
    assert re.search(
        "Largest sum of epsilon of one column in one row: 20\n.*\n  except with probability 0.002\n",
        found.text,
    )
    assert "unfinished: was killed, or is at work; it counts as spent." in found.text
    assert (
        "(except with probability 1e-06 or 1e-09, for a row that was in every release)"
        in found.text
    )
    assert found.facts["total"] == 20.0
    states = [each["state"] for each in found.facts["releases"]]
    assert states == ["committed", "unfinished", "withdrawn"]
    unknown = report("ledger", Ledger((entry(1, total=10, loss={"law": "Other"}),)))
    assert "1 away: worst case" in unknown.text and "every release" not in unknown.text
    assert report("ledger", Ledger()).text == "Ledger ledger: no releases"


def test_the_sum_says_what_it_is_of():
    """Rejects a sum of several keys or of renamed columns that reads as one row's."""
    entries = [
        entry(1, total=10),
        entry(2, total=20, columns=("body",)),
        entry(3, total=7, key="other"),
    ]
    shown = report("ledger", Ledger(tuple(entries))).text
    assert "Largest sum of epsilon of one column in one row: 27\n" in shown
    assert (
        "rows under 2 keys, inputs or id columns cannot be compared: the largest sum of each"
        in shown
    )
    assert "counted as earlier columns under another name: body\n" in shown
