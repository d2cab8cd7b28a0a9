"""Events of a ledger and what they add up to, against sets of contexts for each row."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Hashable, Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptext_spark.accounting.composition import joint_loss_beyond, loss_beyond
from dptext_spark.accounting.laws import LAWS, BoundedRange, LossLaw, SphericalLaplace
from dptext_spark.accounting.ledger import (
    _NOTHING_RAW,
    _RAW,
    Apart,
    Assessed,
    Committed,
    Cost,
    Event,
    Ledger,
    Reserved,
    RowCounts,
    SealedRows,
    Terms,
    Unit,
    Withdrawn,
    claimed_total,
    law_of,
    maximal,
    read_event,
    recorded,
)
from dptext_spark.errors import ConfigError
from dptext_spark.report.ledger_account import LedgerAccount
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection

UNITS = [
    Unit(metric="Euclidean distance", fingerprint="a" * 64),
    Unit(metric="another", fingerprint="a" * 64),
]
TIME = "2026-01-01T00:00:00+00:00"


def terms(**changes: Any) -> Terms:
    law = SphericalLaplace(dimension=50, epsilon=changes.get("epsilon", 10.0))
    return Terms(
        **{
            "version": "0.1.0",
            "label": "label",
            "key": "key",
            "naming": "id",
            "known_as": "id",
            "input": "in",
            "output": "file:/out",
            "columns": ("text",),
            "kept": (),
            "policy": {"oov": "mask", "protect": "all", "layout": "words", "tokenizer": "words"},
            "law": {"law": "elliptical-laplace", "epsilon": 10.0},
            "unit": UNITS[0],
            "epsilon": 10.0,
            "delta": 0.0,
            "loss": recorded(law),
            "apart": Apart(nearest=1.0, tenth=2.0, hundredth=3.0),
            **changes,
        }
    )


def name(number: int) -> str:
    return f"{number:032x}"


def reserved(number: int, *, time: str = TIME, **changes: Any) -> Reserved:
    rows = SealedRows(lines=3, checksum=-5)
    return Reserved(release=name(number), time=time, number=number, terms=terms(**changes), rows=rows)


def assessed(number: int, *histories: Iterable[int]) -> Assessed:
    """Histories are given by numbers of releases."""
    rows = RowCounts(new=1, equal=0, changed=0, free=0)
    sets = tuple(tuple(map(name, history)) for history in histories)
    return Assessed(release=name(number), time=TIME, rows=rows, histories=sets)


EVENTS: list[Event] = [
    reserved(1),
    assessed(1, [1]),
    Committed(release=name(1), time=TIME),
    Withdrawn(release=name(1), time=TIME),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event)
def test_an_event_is_what_was_written_or_damage(event: Event) -> None:
    """Every bit of the first entries, one bit of every byte, every length; rejects a reader of JSON alone."""
    assert read_event(event.name(), event.content()) == event
    content = event.content().encode("ascii")
    flipped = [
        content[:place] + bytes([byte ^ bit]) + content[place + 1 :]
        for place, byte in enumerate(content)
        for bit in ([1 << shift for shift in range(7)] if place < 60 else [1])
    ]
    for damaged in [*flipped, *(content[:length] for length in range(len(content)))]:
        with pytest.raises(ConfigError, match="The ledger is damaged") as caught:
            read_event(event.name(), damaged.decode("ascii"))
        assert event.name() in str(caught.value)
    with pytest.raises(ConfigError, match="The ledger is damaged"):
        read_event(event.name().replace("0", "1"), event.content())  # under the name of another release


def test_an_event_of_another_version_is_none_of_ours() -> None:
    """Rejects an older ledger that is read as one in which nothing was released."""
    for version in (1, 3):
        event = reserved(1).model_copy(update={"format_version": version})
        said = rf"another version\. Allowed: format_version 2\. Got: {version} in 0+1\.reserved"
        with pytest.raises(ConfigError, match=said):
            read_event(event.name(), event.content())


def test_a_release_has_one_beginning_and_one_end() -> None:
    """Rejects a release lost with its reservation, and a killed run taken for nothing.

    And an order by time: clocks of hosts differ, and are set back.
    """
    for events in ([EVENTS[2]], EVENTS):
        with pytest.raises(ConfigError, match="The ledger is damaged"):
            Ledger.of(events)
    for end, state in (([], "unfinished"), ([EVENTS[2]], "committed"), ([EVENTS[3]], "withdrawn")):
        ledger = Ledger.of([*EVENTS[:2], *end])
        assert ledger.releases[0].state == state
        assert ledger.total(ledger.worst(UNITS[0])) == (0 if state == "withdrawn" else 10)
    # Cut off before it was known which rows it has: it adds to all.
    cut = Ledger.of([*EVENTS[:2], reserved(2, epsilon=0.5)])
    assert cut.total(cut.worst(UNITS[0])) == Decimal("10.5")
    for clock in (1, -1):
        days = [reserved(n, time=f"2026-01-{10 + clock * n:02d}T00:00:00+00:00") for n in (1, 2, 3)]
        for several in itertools.permutations(days):
            assert [release.reserved.number for release in Ledger.of(several).releases] == [1, 2, 3]
        assert Ledger.of(days).next_number == 4


def cost_of(events: Iterable[Event], **changes: Any) -> Cost:
    values: dict[str, Any] = {"terms": terms(), "rows": None, "dearest": (), "histories": (), "budget": 1.0}
    return Cost(ledger=Ledger.of(events), **values | changes)


def test_sums_are_exact() -> None:
    """Rejects sums of floats: 0.1 + 0.2 is over a budget of 0.3. What adds nothing is never over it."""
    assert claimed_total([("a", 0.1), ("b", 0.2), ("a", 0.1)]) == Decimal("0.3")
    many = [(n, 1e-12 + n) for n in range(1000)]
    assert Fraction(claimed_total(many)) == sum(Fraction(repr(epsilon)) for _, epsilon in many)
    row: dict[str, Any] = {"dearest": (name(1),), "histories": ((name(1), name(2)),)}
    cost = cost_of([reserved(1, epsilon=0.1), assessed(1, [1])], terms=terms(epsilon=0.2), **row)
    replace(cost, budget=0.3).check("ledger")
    with pytest.raises(ConfigError, match=re.escape("spent 0.1 and has 0.19999 left")):
        replace(cost, budget=0.29999).check("ledger")
    free = cost_of(EVENTS[:2], dearest=None, histories=((name(1),),))
    free.check("ledger")
    assert free.requested == 0


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Releases of a few rows: what each row's noise depends on, and what became of the release."""
    release = st.fixed_dictionaries(
        {
            "family": st.sampled_from(["one key", "another"]),
            "unit": st.sampled_from(UNITS),
            "epsilon": st.sampled_from([0.1, 0.7, 10.0]),
            "contents": st.dictionaries(st.integers(0, 3), st.sampled_from("ab"), min_size=1),
            "end": st.sampled_from(["committed", "unfinished", "withdrawn"]),
        }
    )
    return draw(st.lists(release, max_size=6))


def family_of(release: dict[str, Any]) -> tuple[str, Unit]:
    return release["family"], release["unit"]


def context_of(release: dict[str, Any], row: int) -> tuple[Any, ...]:
    return (family_of(release), release["epsilon"], row, release["contents"][row])


@settings(deadline=None, max_examples=300)
@given(histories(), st.randoms())
def test_totals_against_sets_of_contexts(made: list[dict[str, Any]], random: Any) -> None:
    """The oracle: for each row the set of noise contexts that it was released under.

    Rejects a sum over releases or units, the largest of two families, and what was withdrawn or is left out.
    """
    events: list[Event] = []
    for number, release in enumerate(made, 1):
        before = [(n, o) for n, o in enumerate(made[: number - 1], 1) if o["end"] != "withdrawn"]
        alike = [(n, o) for n, o in [*before, (number, release)] if family_of(o) == family_of(release)]
        histories = set()
        for row in release["contents"]:
            first: dict[Hashable, int] = {}
            for n, other in alike:
                if row in other["contents"]:
                    first.setdefault(context_of(other, row), n)
            histories.add(frozenset(first.values()))
        changes = {"unit": release["unit"], "epsilon": release["epsilon"], "key": release["family"]}
        events += [reserved(number, **changes), assessed(number, *histories)]
        if release["end"] != "unfinished":
            kind = {"committed": Committed, "withdrawn": Withdrawn}[release["end"]]
            events.append(kind(release=name(number), time=TIME))
    random.shuffle(events)
    ledger = Ledger.of(events)
    counted = [release for release in made if release["end"] != "withdrawn"]
    for unit in UNITS:
        expected = Fraction(0)
        for key in ("one key", "another"):
            alike = [release for release in counted if family_of(release) == (key, unit)]
            contexts = [{context_of(r, row) for r in alike if row in r["contents"]} for row in range(4)]
            expected += max(sum(Fraction(repr(e)) for _, e, *_ in row) for row in contexts)
        assert Fraction(ledger.total(ledger.worst(unit))) == expected


def test_a_budget_counts_what_cannot_be_compared() -> None:
    """Rejects a release under a fresh key that begins at nothing, and a total that adds two units."""
    events: list[Event] = [
        *(reserved(1), assessed(1, [1])),
        *(reserved(2, key="fresh", epsilon=3.0), assessed(2, [2])),
        *(reserved(3, key="third", epsilon=7.0, unit=UNITS[1]), assessed(3, [3])),
    ]
    cost = cost_of(events, terms=terms(key="new", epsilon=2.0), budget=14.0)
    assert (cost.spent, cost.requested, cost.total) == (13, 2, 15)
    with pytest.raises(ConfigError) as caught:
        cost.check("ledger")
    assert re.search(
        "has spent 13 and has 1 left, in nats per unit of Euclidean.* Got: 2 requested", str(caught.value)
    )
    assert "Not added, for distances differ: 7 spent in nats per unit of another" in cost.describe()
    assert cost.to_json()["not_added"] == [{**UNITS[1].model_dump(), "spent": 7.0}]


def test_laws_come_back_or_are_none() -> None:
    class Other(SphericalLaplace):
        pass

    for law in (SphericalLaplace(dimension=3, epsilon=2.0), BoundedRange(epsilon=1.0)):
        event = reserved(1, loss=recorded(law))
        again = read_event(event.name(), event.content())
        assert isinstance(again, Reserved) and law_of(again.terms) == law
    assert recorded(Other(dimension=3, epsilon=2.0)) is None and len(LAWS) == 4
    for kind in ("None", "BoundedRange"):  # the second has another parameter
        assert law_of(terms(loss={"law": kind, "epsilon": 1.0})) is None


def test_several_releases_of_a_word_together() -> None:
    """Equal laws as words of a row add up; two laws against samples. Rejects a sum of the two losses' t."""
    law, weak = SphericalLaplace(dimension=50, epsilon=1.0), SphericalLaplace(dimension=50, epsilon=0.3)
    assert joint_loss_beyond({law: 3}, 14.4, delta=1e-6) == pytest.approx(
        loss_beyond(law, 14.4, words=3, delta=1e-6), rel=1e-3
    )
    together = joint_loss_beyond({law: 1, weak: 2}, 14.4, delta=1e-3)
    assert together < loss_beyond(law, 14.4, delta=1e-3) + 2 * loss_beyond(weak, 14.4, delta=1e-3)
    losses = _losses(1.0, 14.4, 1) + _losses(0.3, 14.4, 2) + _losses(0.3, 14.4, 3)
    share = -_expm1_mean(together - losses)
    # Four standard deviations of 400,000 samples: a false alarm in 30,000 runs; the seed is fixed.
    assert share <= 1e-3 + 4 * math.sqrt(1e-3 / len(losses))
    assert -_expm1_mean(0.97 * together - losses) > 1e-3


def _losses(epsilon: float, distance: float, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    n, size, s = 50, 400_000, epsilon * distance
    g, c = rng.gamma(n, size=size), 2 * rng.beta((n - 1) / 2, (n - 1) / 2, size=size) - 1
    return np.sqrt(g * g + s * s - 2 * g * s * c) - g


def _expm1_mean(exponents: Any) -> float:
    return float(np.expm1(np.minimum(exponents, 0.0)).mean())


def test_what_is_shown() -> None:
    both = Ledger.of([*EVENTS[:2], reserved(2), assessed(2, [1, 2])])
    account = LedgerAccount(path="ledger", ledger=both)
    said = account.describe()
    assert "Largest sum of epsilon of a row: 20, in 2 releases (1, 2)" in said
    assert "unfinished: was killed, or is at work; it counts as spent." in said
    (near, *_) = account.losses(UNITS[0])
    assert near["pure"] == 20.0 and near["1e-06"] < near["1e-09"] < 20.0
    unknown = LedgerAccount(path="ledger", ledger=Ledger.of([reserved(1, loss=None), assessed(1, [1])]))
    assert not [*unknown.losses(UNITS[0])] and "of a row: 10" in unknown.describe()


def law_changes(law: LossLaw, epsilon: float) -> dict[str, Any]:
    apart = Apart(nearest=2.914, tenth=3.0, hundredth=4.0)
    return {"epsilon": epsilon, "loss": recorded(law), "apart": apart}


def test_losses_are_of_the_row_that_loses_the_most_by_loss() -> None:
    """Twice laplace 5 is the largest sum, and loses 15.75; once exponential 9.9 loses 28.85.

    Rejects losses of the row with the largest sum of epsilon. What cannot be compared adds up.
    """
    laplace = law_changes(SphericalLaplace(dimension=50, epsilon=5.0), 5.0)
    exponential = law_changes(BoundedRange(epsilon=9.9), 9.9)
    pairs = [(laplace, [1]), (laplace, [1, 2]), (exponential, [3]), ({**laplace, "key": "fresh"}, [4])]
    events = [
        event
        for n, (law, history) in enumerate(pairs, 1)
        for event in (reserved(n, **law), assessed(n, history))
    ]
    account = LedgerAccount(path="ledger", ledger=Ledger.of(events[:6]))
    (nearest, *_) = account.losses(UNITS[0])
    assert nearest["1e-06"] == pytest.approx(28.85, abs=0.005)
    assert nearest["pure"] == pytest.approx(10.0 * 2.914)
    assert account.ledger.total(account.ledger.worst(UNITS[0])) == 10
    assert json.loads(account.to_json())["units"][0]["losses"][0] == nearest
    first = LedgerAccount(path="ledger", ledger=Ledger.of(events[:4]))
    assert next(first.losses(UNITS[0]))["1e-06"] == pytest.approx(15.75, abs=0.005)
    (added, *_) = LedgerAccount(path="ledger", ledger=Ledger.of(events)).losses(UNITS[0])
    assert added["pure"] == pytest.approx(15.0 * 2.914) and added["1e-06"] > nearest["1e-06"]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.frozensets(st.integers(0, 11)), max_size=40))
def test_maximal_histories_bound_all(sets: list[frozenset[int]]) -> None:
    """Rejects a list that is cut off: 12 of 6 releases that the first 256 lack would be forgotten."""
    histories = [frozenset(map(str, each)) for each in sets]
    chosen = maximal(histories)
    assert all(any(each <= larger for larger in chosen) for each in histories if each)
    assert all(not one < other for one, other in itertools.product(chosen, repeat=2))
    assert {*chosen} <= {*histories}
    many = [frozenset(map(str, each)) for each in itertools.combinations(range(12), 6)]
    assert maximal(many[:256]) == tuple(sorted(many[:256], key=sorted))
    assert maximal(many) == (frozenset(map(str, range(12))),)


RELEASED: dict[str, Any] = {"columns": ("text", "more.text"), "kept": ("intent",)}
SAME: dict[str, Any] = {"tokenizer": "words", "oov": "mask", "protect": "all", "layout": "words"}
PASSES = {
    "content": "stop words",
    "slots:s": "words outside the slots",
    "new": "what passes",
    "keep-unprotected": "words outside the vocabulary",
    "keep": "punctuation, spacing and capitals",
}


def weaker(option: str, policy: str) -> tuple[dict[str, Any], list[str]]:
    """Also under another spelling of the column's name."""
    changes = {"policy": {**SAME, option: policy}, "columns": ("Text",)}
    return changes, [f"{PASSES[policy]} of column Text"]


WEAKER: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"policy": {**SAME, "oov": "drop"}}, []),
    *(weaker("protect", policy) for policy in ("content", "slots:s", "new")),
    weaker("oov", "keep-unprotected"),
    weaker("layout", "keep"),
    ({"columns": ("new",), "policy": {**SAME, "protect": "content"}}, []),
    ({"columns": ("new",), "kept": ("TEXT",)}, ["column TEXT"]),
    ({"columns": ("new",), "kept": ("more",)}, ["column more"]),
    ({"kept": ("intent", "id")}, ["column id"]),
    ({"kept": ()}, []),
]


@pytest.mark.parametrize(("changes", "found"), WEAKER, ids=lambda value: str(value)[:60])
def test_what_a_weaker_release_lets_out(changes: dict[str, Any], found: list[str]) -> None:
    """Rejects a comparison by policies alone, by exact names of columns, and with what is withdrawn."""
    events = [reserved(1, **RELEASED), Committed(release=name(1), time=TIME)]
    weaker = terms(**{**RELEASED, **changes})
    said = [f"{what} (protected in release 1)" for what in found]
    assert Ledger.of(events).exposed(weaker) == said
    withdrawn = [events[0], Withdrawn(release=name(1), time=TIME)]
    assert not Ledger.of(withdrawn).exposed(weaker)
    # Once it is out, it is out: but not for rows that were protected since, or lie elsewhere.
    second = [*events, reserved(2, **{**RELEASED, **changes}), Committed(release=name(2), time=TIME)]
    assert not Ledger.of(second).exposed(weaker)
    assert Ledger.of(second[:-1]).exposed(weaker) == said
    assert Ledger.of(second).exposed(terms(**{**RELEASED, **changes, "input": "other"})) == said
    third = [*second, reserved(3, **RELEASED), Committed(release=name(3), time=TIME)]
    assert len(Ledger.of(third).exposed(weaker)) == len(found)


def test_each_policy_is_known_to_let_pass_nothing_or_something() -> None:
    """A policy that is added must be judged here: what lets words pass has its words in ``_RAW``.

    Words that another bundle or tokenizer lacks are others.
    """
    passing = {"policy": {**SAME, "oov": "keep-unprotected"}}
    ledger = Ledger.of([reserved(1, **passing)])
    assert not ledger.exposed(terms(**passing))
    assert ledger.exposed(terms(**passing, unit=Unit(metric="any", fingerprint="b" * 64)))
    assert ledger.exposed(terms(policy={**passing["policy"], "tokenizer": "icu"}))
    for option, kind in (("oov", OovPolicy), ("protect", Protection), ("layout", Layout)):
        assert {*kind.policies} - _NOTHING_RAW[option] <= {*_RAW}
        assert _NOTHING_RAW[option] <= {*kind.policies} and not _NOTHING_RAW[option] & {*_RAW}
