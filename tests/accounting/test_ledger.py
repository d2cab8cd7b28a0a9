"""Events of a ledger and what they add up to, against totals that are counted row by row."""

import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest

from dptext_spark.accounting.laws import (
    BoundedRange,
    SphericalLaplace,
    joint_loss_beyond,
    loss_beyond,
)
from dptext_spark.accounting.ledger import (
    Ledger,
    cost_of,
    decimal_text,
    exact_sum,
    law_of,
    read_event,
    recorded,
    write_event,
)
from dptext_spark.errors import ConfigError
from dptext_spark.sealing import sealed
from tests.helpers.ledgers import SAFE, UNITS, entry, terms


def files_of(whole):
    """The files of a release, names and contents."""
    facts = whole.model_dump(mode="json")
    events = [("reserved", "number time terms fingerprints"), ("assessed", "rows total counts")]
    events += [] if whole.state == "unfinished" else [("ended", "state")]
    return [
        write_event(whole.release, e, {name: facts[name] for name in n.split()}) for e, n in events
    ]


def events_of(whole):
    return [read_event(*file) for file in files_of(whole)]


WHOLE = entry(1, total=10)


@pytest.mark.parametrize("file", files_of(WHOLE), ids=lambda file: file[0][33:])
def test_an_event_is_what_was_written_or_damage(file):
    """One bit of every byte, every length; rejects a reader of JSON alone."""
    # And another release's name, an older ledger read as one without releases, and facts of another event.
    name, content = file[0], file[1].encode("ascii")
    event, kind = read_event(*file), name.split(".")[1]
    flipped = (
        content[:at] + bytes([byte ^ 1]) + content[at + 1 :] for at, byte in enumerate(content)
    )
    wrong = [
        *((name, damaged.decode("ascii")) for damaged in flipped),
        *((name, file[1][:length]) for length in range(len(content))),
        (name.replace("0", "1"), file[1]),
        (name, write_event(event["release"], kind, {"more": 1})[1]),
    ]
    for place, text in wrong:
        with pytest.raises(ConfigError, match=f"The ledger is damaged.* Got: {place}"):
            read_event(place, text)
    for version in (4, 6):
        other = sealed({"format_version": version, "event": kind, **event}).decode()
        with pytest.raises(
            ConfigError, match=rf"another version.* format_version 5\. Got: {version}"
        ):
            read_event(name, other)


def test_a_release_has_one_beginning():
    """Rejects a release lost with its reservation, and an order by time: clocks are set back."""
    days = [entry(n, total=n).model_copy(update={"time": f"2026-01-{19 - n}"}) for n in (1, 2)]
    events = [event for day in days for event in events_of(day)]
    for several in permutations(events):
        assert Ledger.from_events(several).entries == tuple(days)
    first, *rest = events
    for found in (rest, [{**first, "number": 0}]):
        with pytest.raises(ConfigError, match=r"The ledger is damaged.* Got: 0+1\.reserved"):
            Ledger.from_events(found)


CUT_OFF = {"epsilon": 2.0, "state": "unfinished"}
TOTALS = [
    ([], 0),
    ([entry(1, total=20), entry(2, total=10)], 20),
    ([entry(1, total=10), entry(2, total=20), entry(3, total=7, key="fresh")], 27),
    ([entry(1, total=7, naming="other"), entry(2, total=20)], 27),
    ([entry(1, total=10), entry(2, total=20, state="withdrawn")], 10),
    ([entry(1, total=10), entry(2, total=20, state="unfinished")], 20),
    # What was cut off before it was assessed adds to each row, but for those that have it.
    ([entry(1, **CUT_OFF)], 2),
    ([entry(1, **CUT_OFF), entry(2, **CUT_OFF), entry(3, total=10)], 14),
    ([entry(1, **CUT_OFF), entry(2, total=10, counts=[1])], 10),
    (
        [
            entry(1, **CUT_OFF),
            entry(2, **CUT_OFF),
            entry(3, total=10, counts=[2]),
            entry(4, total=9),
        ],
        13,
    ),
    ([entry(1, **CUT_OFF, key="fresh"), entry(2, total=10)], 12),
    ([entry(1, epsilon=2.0, state="withdrawn"), entry(2, total=10)], 10),
]


@pytest.mark.parametrize(("entries", "total"), TOTALS)
def test_totals(entries, total):
    """Rejects a sum over releases, the largest of two families, what was withdrawn or left out."""
    assert Ledger(tuple(entries)).total() == total


def cost(*entries, terms=WHOLE.terms, **changes):
    values = {
        "place": "ledger",
        "rows": None,
        "costliest": Decimal(0),
        "budget": 15.0,
        "exposed": [],
    }
    return cost_of(Ledger(entries), terms, **values | changes)


def test_sums_are_exact():
    """Rejects sums of floats: 0.1 + 0.2 is over a budget of 0.3. What adds nothing is never over it."""
    many = [1e-12 + n for n in range(1000)]
    assert Fraction(exact_sum(many)) == sum(Fraction(repr(number)) for number in many)
    assert (
        decimal_text(exact_sum([5e-324, 1e9])).startswith("1000000000.000")
        and decimal_text(10.0) == "10"
    )
    small = terms(epsilon=0.2)
    assert cost(terms=small, costliest=Decimal("0.1"), budget=0.3)["requested"] == 0.2
    for before, budget, left in (
        ("0.1", 0.29999, "0.19999"),
        (f"0.1{'0' * 38}1", 0.3, f"0.1{'9' * 39}"),
        ("7", 0.3, "0"),
    ):
        with pytest.raises(ConfigError, match=re.escape(f"spent {before} and has {left} left")):
            cost(terms=small, costliest=Decimal(before), budget=budget)
    free = cost(entry(1, total=10), entry(2, total=7, key="fresh"), costliest=None, budget=1.0)
    assert free["requested"] == 0 and "No row gets new noise: nothing is spent." in free["said"]


def test_a_budget_counts_what_cannot_be_compared():
    """Rejects a release under a fresh key that begins at nothing, and units that are added."""
    others = [entry(1, total=10), entry(2, total=3, key="fresh", epsilon=3.0)]
    fresh = terms(key="new", epsilon=2.0)
    said = r"has spent 13 and has 1 left, in nats per unit of Euclidean.* Got: 2 requested"
    with pytest.raises(ConfigError, match=said):
        cost(*others, terms=fresh, budget=14.0)
    found = cost(*others, terms=fresh)
    assert (found["spent"], found["requested"], found["total"]) == (13, 2, 15)
    assert (
        cost(*others, costliest=Decimal(10), budget=None)["spent"] == 13
    )  # its own family's, once
    assert "Budget: 15, 0 remain." in found["said"]
    Ledger((entry(1, total=3, state="withdrawn", unit=UNITS[1]), *others)).check_unit(
        "here", UNITS[0]
    )
    for entries, mine in ((others, UNITS[1:]), ([*others, entry(3, total=7, unit=UNITS[1])], [])):
        with pytest.raises(
            ConfigError, match=r"here counts in another unit.*Got: nats per unit of another"
        ):
            Ledger(tuple(entries)).check_unit("here", *mine)


def test_laws_come_back_or_are_none():
    for law in (
        SphericalLaplace(dimension=3, epsilon=2.0),
        BoundedRange(epsilon=1.0, truncation=2.0),
    ):
        assert law_of(terms(loss=recorded(law))) == law
    # Without its truncation, too, which has a default.
    for name in ("Other", "SphericalLaplace", "BoundedRange"):
        assert law_of(terms(loss={"law": name, "epsilon": 1.0})) is None
    foreign = SimpleNamespace(epsilon=1.0, table=np.ones(3))
    assert law_of(terms(loss=recorded(foreign))) is None


def test_several_releases_of_a_word_together():
    """Two laws against samples. Rejects a sum of the two losses' t."""
    law, weak = (SphericalLaplace(dimension=50, epsilon=e) for e in (1.0, 0.3))
    together = joint_loss_beyond({law: 1, weak: 2}, 14.4, delta=1e-3)
    assert together < loss_beyond(law, 14.4, delta=1e-3) + 2 * loss_beyond(weak, 14.4, delta=1e-3)
    rng, found = np.random.default_rng(1), np.zeros(400_000)
    for s in np.array([1.0, 0.3, 0.3]) * 14.4:
        g, c = rng.gamma(50, size=len(found)), 2 * rng.beta(24.5, 24.5, size=len(found)) - 1
        found += np.sqrt(g * g + s * s - 2 * g * s * c) - g
    # Four standard deviations of 400,000 samples: a false alarm in 30,000 runs; the seed is fixed.
    right, wrong = (
        -np.expm1(np.minimum(t - found, 0.0)).mean() for t in (together, 0.97 * together)
    )
    assert right <= 1e-3 + 4 * math.sqrt(1e-3 / len(found)) and wrong > 1e-3


RELEASED = {"columns": ("text", "more.text"), "kept": ("intent",)}
PASSES = {
    ("protect", "content"): "stop words",
    ("protect", "slots:s"): "words outside the slots",
    ("protect", "class new.New: new"): "what passes",
    ("oov", "keep-unprotected"): "words outside the vocabulary",
    ("layout", "keep"): "punctuation, spacing and capitals",
}
WEAKER = [
    ({}, []),
    ({"policy": {**SAFE, "oov": "drop"}}, []),
    *(  # also under another spelling of the column's name
        ({"policy": {**SAFE, option: policy}, "columns": ("Text",)}, [f"{passes} of column Text"])
        for (option, policy), passes in PASSES.items()
    ),
    # A column that may be an earlier one under another name, unless it is named as new.
    ({"columns": ("new",), "policy": {**SAFE, "protect": "content"}}, ["stop words of column new"]),
    ({"columns": ("new",), "policy": {**SAFE, "protect": "content"}, "new_texts": ("New",)}, []),
    ({"columns": ("new",), "kept": ("TEXT",)}, ["column TEXT"]),
    ({"columns": ("new",), "kept": ("more",)}, ["column more"]),
    ({"kept": ("intent", "id")}, ["column id"]),
    ({"kept": ()}, []),
]


@pytest.mark.parametrize(("changes", "found"), WEAKER, ids=lambda value: str(value)[:60])
def test_what_a_weaker_release_lets_out_where_no_row_can_be_compared(changes, found):
    """Rejects a comparison by policies alone, by exact names of columns, and with what is withdrawn."""

    def exposed(*entries, **more):
        return Ledger(entries).exposed(terms(**{**RELEASED, **changes, **more}))

    first, second = entry(1, **RELEASED), entry(2, **{**RELEASED, **changes})
    said = [f"{what} (protected in release 1)" for what in found]
    assert exposed(first) == said
    assert not exposed(entry(1, state="withdrawn", **RELEASED))
    # What another release let out may have been of another row.
    assert exposed(first, second) == said
    assert exposed(first, second, key="other", naming="other") == said


def test_units_and_slots_of_rows_that_cannot_be_compared():
    """Rejects other units for texts and token lists, and slots that are never the same."""
    passing = {"policy": {**SAFE, "oov": "keep-unprotected"}}
    ledger = Ledger((entry(1, **passing),))
    assert not ledger.exposed(terms(**passing))
    assert ledger.exposed(terms(**passing, tokens=("text",)))
    assert not Ledger((entry(1, columns=(), kept=("text",)),)).exposed(
        terms(**passing)
    )  # all of it is out
    slots = [{"policy": {**SAFE, "protect": f"slots:{name}", "slots": name}} for name in "ab"]
    fresh = Ledger((entry(1, **slots[0], key="fresh"),))
    assert not fresh.exposed(terms(**slots[0])) and fresh.exposed(terms(**slots[1]))


TEXTS = [
    ([], {"a": set()}, []),
    # Columns of the first release are different texts; a later one may be any of them.
    ([("a", "b")], {"a": {"c"}, "b": {"c"}, "c": {"a", "b"}}, ["c"]),
    ([("a", "b")], {"A": set(), "B": set()}, []),
    ([("a",), ("b", "c")], {"b": {"a"}, "c": {"a"}, "a": {"b", "c"}}, ["b", "c"]),
    ([("a",), ("b",)], {"c": {"a", "b"}}, ["b", "c"]),
]


@pytest.mark.parametrize(
    ("releases", "others", "renamed"), TEXTS, ids=["none", "two", "capitals", "a, b and c", "a, b"]
)
def test_columns_that_may_hold_one_text(releases, others, renamed):
    """Rejects columns that begin at nothing under another name, and those of one release as one text."""
    ledger = Ledger(tuple(entry(n, columns=columns) for n, columns in enumerate(releases, 1)))
    mine = terms(columns=tuple(others))
    texts = ledger.texts(mine)
    assert {name: texts.others(mine.name(name)) for name in others} == others
    assert texts.renamed(map(mine.name, others)) == renamed


def test_a_column_that_is_named_as_new_is_another_text():
    """Rejects a name that counts for the column's first release alone, and one that frees another column."""
    entries = [
        entry(1, columns=("a",)),
        entry(2, columns=("b",)),
        entry(3, columns=("c",), new_texts=("C",)),
    ]
    texts = Ledger(tuple(entries)).texts(terms(columns=("d",)))
    assert texts.others("c") == {"d"} and texts.others("d") == {"a", "b", "c"}
    # Of the texts a and c one at most is d; b may be the same as a.
    assert texts.groups("d") == [["a", "c"], ["b"]]
    later = Ledger(tuple(entries)).texts(terms(columns=("d",), new_texts=("b",)))
    assert later.others("a") == {"d"} and later.groups("d") == [["a", "b", "c"]]
    exact = Ledger(tuple(entries)).texts(terms(columns=("A",), exact_names=True))
    assert exact.others("A") == {"a", "b", "c"}


def test_the_remedy_for_a_column_that_counts_as_renamed_is_said():
    """Rejects a refusal that does not say how a new text is named, and advice where there is none."""
    with pytest.raises(ConfigError, match=r"under another name: Body\. If .* --new-text"):
        cost(WHOLE, terms=terms(columns=("Body",)), costliest=Decimal(10))
    with pytest.raises(ConfigError, match=r"or lower --epsilon\.$"):
        cost(WHOLE, costliest=Decimal(10))


LIES = [
    ("rows", {"new": 3}),
    ("rows", {"new": 3, "equal": 0, "changed": 0, "free": 0, "more": 1}),
    ("rows", {"new": -3, "equal": 0, "changed": 0, "free": 0}),
    ("total", "1E+999999"),
    ("total", "1E-999999"),
    ("total", "NaN"),
    ("number", 2**63),
    ("fingerprints", {"zebulon": 3}),
    ("distances", {"nearest": -1.0}),
]


@pytest.mark.parametrize(("name", "value"), LIES, ids=str)
def test_events_that_lie_are_damage(name, value):
    """Rejects a seal that anybody can compute: sums that overflow, counts that are missing."""
    facts = WHOLE.model_dump(mode="json")
    if name == "distances":
        facts["terms"][name] = value
    else:
        facts[name] = value
    with pytest.raises(ConfigError, match="The ledger is damaged") as caught:
        Ledger.from_events([facts])
    assert "zebulon" not in str(caught.value)


@pytest.mark.parametrize(
    "change", [{"dimension": "x"}, {"dimension": 0}, {"dimension": 2.5}, {"epsilon": -1.0}], ids=str
)
def test_a_law_that_lies_is_none(change):
    """Rejects a bound that is computed from anything."""
    loss = recorded(SphericalLaplace(dimension=50, epsilon=10.0)) | change
    assert law_of(terms(loss=loss)) is None
