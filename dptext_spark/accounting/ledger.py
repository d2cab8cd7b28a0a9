"""What was released before, and what it adds up to.

A release leaves events in a ledger, which never change. It is *reserved* before anything of it is
perturbed, *assessed* when it is known which of its rows were released before, and *ended*:
committed when its output has its name, or withdrawn when there is none. What has no end was killed,
or is at work: it counts.

Row and column together name a place whose words are released. Its total is the sum of epsilon over
the distinct noise contexts that it was released under: a context that comes again gives the same
noise, which reveals nothing new. Columns that may hold one text under two names count as one:
:class:`Texts`. With words w and w' there, all its outputs lose its total times d(w, w') at most
(basic composition of metric privacy). The places of other rows and columns are other words: the
distance of two tables is the sum over words that differ, so that the largest total bounds the loss
of all.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from itertools import starmap
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dptext_spark.accounting.exposure import COVERS, WHOLE, Cover, Raw, raw_of, widest
from dptext_spark.accounting.laws import LAWS, LossLaw
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.sealing import sealed, unsealed

FORMAT_VERSION: Final = 5

LARGEST_EPSILON: Final = 1e9
"""What a ledger adds up: beyond it nothing is hidden anyway."""

LARGEST_TOTAL: Final = 10**18
"""A total with more is no sum of a ledger's epsilons."""

_LARGEST_DIMENSION: Final = 1 << 16
_MOST_DIGITS: Final = 380
_MOST_PLACES: Final = 350

Naming: TypeAlias = Literal["id", "position", "file"]
"""What names rows.

Under an ``id`` a row comes again wherever it lies. A ``position`` in a file may hold another row
next time, which then may be any. A ``file`` of a growing table comes once: its rows are new.
"""

# More digits than the sum of all epsilons of a ledger can have: nothing is rounded.
_EXACT: Final = Context(prec=400)

RowCounts: TypeAlias = dict[str, int]
"""How many rows of a release are ``new``, ``equal``, ``changed`` and ``free``.

New rows have an id, or a column, that was not released before. All columns of equal rows are as
they were in some earlier release. Free rows are under no new noise.
"""

NEIGHBOURS: Final = {
    "nearest": "its nearest word",
    "tenth": "its 10th nearest word",
    "hundredth": "its 100th nearest word",
}
"""What a ledger has of distances between words, medians; see ``guarantee.TypicalDistances``."""

Family: TypeAlias = tuple[str, str]

_Kind: TypeAlias = Literal["new", "equal", "changed", "free"]
_Distance: TypeAlias = Annotated[float, Field(ge=0.0, le=1e12)]
_Count: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
_Total: TypeAlias = Annotated[
    Decimal, Field(ge=0, le=LARGEST_TOTAL, max_digits=_MOST_DIGITS, decimal_places=_MOST_PLACES)
]


def exact_sum(numbers: Iterable[Decimal | float]) -> Decimal:
    """Return the sum without rounding; a float counts as the decimal that it is written as."""
    total = Decimal(0)
    for number in numbers:
        total = _EXACT.add(total, Decimal(str(number)))
    return total


def decimal_text(total: Decimal | float) -> str:
    """Write a number with all its digits."""
    return f"{Decimal(str(total)).normalize(_EXACT):f}"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Unit(_Record):
    """In what an epsilon counts: the distance, in words, and the bundle. A ledger has one unit."""

    metric: str
    fingerprint: str

    def __str__(self) -> str:
        return f"nats per unit of {self.metric}, bundle {self.fingerprint[:16]}"


class Terms(_Record):
    """What is released, and under which noise; no text, token, id, condition or key."""

    version: str
    label: str
    key: str  # keyed hashes: of the key,
    naming: str  # of what names the rows,
    known_as: Naming
    input: str  # and of where they come from
    output: str
    columns: tuple[str, ...]
    tokens: tuple[str, ...]  # those of them that hold token lists
    new_texts: tuple[str, ...]  # those of them whose text no release had before under another name
    exact_names: bool  # whether names of columns may differ in capitals only
    kept: tuple[str, ...]  # columns that go out raw
    policy: dict[str, str]  # what becomes of words besides the noise; see ``recorded_policy``
    law: dict[str, str | int | float]
    unit: Unit
    # Proven nats per unit, at each word: per unit of Euclidean distance where that is proven.
    epsilon: float = Field(gt=0.0, le=LARGEST_EPSILON)
    delta: float = Field(ge=0.0, le=1.0)
    loss: dict[str, str | int | float | None]  # the law of a word's loss
    distances: dict[str, _Distance] | None  # of words and their ``NEIGHBOURS``, in the unit

    @property
    def family(self) -> Family:
        """Releases of one family know each other's rows."""
        return self.key, self.naming

    @property
    def spans_column(self) -> str:
        """The column of slots or masked spans, empty where there is none."""
        return self.policy["slots"] or self.policy["mask-spans"]

    def name(self, column: str) -> str:
        """Return the name under which a column is compared, as Spark compares names."""
        if self.exact_names:
            return column
        return column.lower()

    def raw(self, column: str, like: Terms | None = None) -> list[Raw] | None:
        """Return what of a column is released raw; None where the release leaves the column out.

        Names are compared as in the release ``like``, by default this one.
        """
        name_of = (like or self).name
        name = name_of(column)
        for raw_name in map(name_of, self.kept):
            if name == raw_name or name.startswith((f"{raw_name}.", f"{raw_name}[")):
                return [WHOLE]
        if name not in map(name_of, self.columns):
            return None
        in_elements = name in map(name_of, self.tokens)
        return [*raw_of(self.policy, key=self.key, in_elements=in_elements)]


def recorded(law: LossLaw) -> dict[str, str | int | float | None]:
    """Return a law of losses for the ledger; a law from elsewhere may lose some of its values."""
    parameters = {
        name: value
        for name, value in vars(law).items()
        if isinstance(value, str | int | float | None)
    }
    return {"law": type(law).__name__, **parameters}


def law_of(terms: Terms) -> LossLaw | None:
    """Return the recorded law of a word's loss; None where this version does not have it."""
    parameters: dict[str, Any] = dict(terms.loss)
    kind = LAWS.get(str(parameters.pop("law", "")))
    if kind is None or not all(starmap(_is_parameter, parameters.items())):
        return None
    try:
        law = kind(**parameters)
    except (TypeError, ValueError, DptextError):  # of another version, with other parameters
        return None
    return law if recorded(law) == terms.loss else None


def _is_parameter(name: str, value: object) -> bool:
    """Return whether a law of losses can have a parameter of this value."""
    if name == "dimension":
        return type(value) is int and 1 <= value <= _LARGEST_DIMENSION
    if isinstance(value, int | float) and not isinstance(value, bool):
        return 0.0 < value <= LARGEST_EPSILON
    return value is None


class Entry(_Record):
    """A release, and what became of it."""

    release: str = Field(pattern="^[0-9a-f]{32}$")
    # One more than the ledger's largest: it orders releases, whatever clocks say.
    number: int = Field(ge=1, lt=2**63)
    time: str
    terms: Terms
    # How many ``lines`` their files must hold, one for each row and column, and the ``checksum``,
    # XOR over hashes of them; None under a key that no other run has.
    fingerprints: dict[Literal["lines", "checksum"], int] | None
    # None before it is assessed, and where its rows cannot be compared.
    rows: Annotated[dict[_Kind, _Count], Field(min_length=4)] | None = None
    # The largest total of its rows with it, within its family and unit; None before it is assessed.
    total: _Total | None = None
    # Releases in this total that were not assessed either at that time.
    counts: tuple[str, ...] = ()
    # Unfinished where it was killed, or is at work.
    state: Literal["unfinished", "committed", "withdrawn"] = "unfinished"


_EVENTS: Final[Mapping[object, set[str]]] = {
    "reserved": {"number", "time", "terms", "fingerprints"},
    "assessed": {"rows", "total", "counts"},
    "ended": {"state"},
}
"""What each event has of its release."""


def write_event(release: str, event: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name and the content of an event's file: JSON with a hash over its entries."""
    content = {"format_version": FORMAT_VERSION, "release": release, "event": event, **facts}
    return f"{release}.{event}.json", sealed(content).decode("ascii")


def read_event(name: str, content: str) -> dict[str, Any]:
    """Read the file of an event: its release, and the facts of an :class:`Entry` that it adds."""
    event = unsealed(content.encode())
    if event is None:
        raise damaged(name)
    version = event.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise ConfigError(
            "The ledger has an event of another version",
            allowed=f"format_version {FORMAT_VERSION}",
            got=f"{version!r} in {name}",
            do="Use the version of dptext_spark that wrote it; or begin another ledger, and count "
            "what this one had as spent",
        )
    kind = event.pop("event", None)
    is_named = name == f"{event.get('release')}.{kind}.json"
    if not is_named or event.keys() - {"release"} != _EVENTS.get(kind):
        raise damaged(name)
    return event


def damaged(name: str, how: str = "it cannot say what was released") -> ConfigError:
    """Return the error for a ledger whose files are not what was written."""
    return ConfigError(
        f"The ledger is damaged: {how}",
        got=name,
        do="Restore the file from a copy, or begin another ledger and count this one's totals as "
        "spent",
    )


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Which columns of several releases may hold one text, by their names.

    Columns that come for the first time in one release are different texts. So is a column that
    some release names as new. Any other one that comes later may be an earlier one under another
    name.
    """

    first: Mapping[str, int]  # of each column, the place of its first release
    new: frozenset[str]

    def is_renamed(self, column: str) -> bool:
        """Return whether a column may be an earlier one under another name."""
        return column not in self.new and self.first.get(column, 0) > 0

    def others(self, column: str) -> frozenset[str]:
        """Return the columns that may hold the same text as this one."""
        if column not in self.first:
            return frozenset()
        columns = set()
        for name, place in self.first.items():
            later_name = name if place > self.first[column] else column
            if place != self.first[column] and self.is_renamed(later_name):
                columns.add(name)
        return frozenset(columns)

    def renamed(self, columns: Iterable[str]) -> list[str]:
        """Return the columns that these count for, or as, under another name."""
        names: set[str] = set()
        for column in columns:
            names |= {column, *self.others(column)}
        return sorted(filter(self.is_renamed, names))

    def groups(self, column: str) -> list[list[str]]:
        """Return the other columns that may hold the same text, in groups of different texts."""
        groups: dict[int, list[str]] = {}
        for name in sorted(self.others(column)):
            place = self.first[name] if self.is_renamed(name) else 0
            groups.setdefault(place, []).append(name)
        return [*groups.values()]


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """Something that a release lets out of a column, and whether earlier releases did too."""

    column: str
    raw: Raw
    covers: Mapping[str, Cover]  # by release

    def protected_in(self, number: int) -> str:
        """Return its name in words, and a release that protected it."""
        return f"{self.raw.of_column(self.column)} (protected in release {number})"


@dataclass(frozen=True)
class Ledger:
    """All releases, in the order of their numbers."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def from_events(cls, events: Iterable[Mapping[str, Any]]) -> Self:
        """Build the ledger from what :func:`read_event` returned, in any order."""
        facts_by_release: dict[str, dict[str, Any]] = {}
        for event in events:
            facts_by_release.setdefault(event["release"], {}).update(event)
        entries = []
        for release, facts in facts_by_release.items():
            try:
                entries.append(Entry.model_validate_json(json.dumps(facts)))
            except ValidationError:
                raise damaged(f"{release}.reserved.json") from None
        return cls(tuple(sorted(entries, key=lambda entry: (entry.number, entry.release))))

    @cached_property
    def counted(self) -> tuple[Entry, ...]:
        """Releases that anybody may have seen: all but those that were withdrawn."""
        return tuple(entry for entry in self.entries if entry.state != "withdrawn")

    def check_unit(self, place: str, *new_units: Unit) -> None:
        """Check that all epsilons count in one unit, with those of new releases."""
        units = dict.fromkeys([*(entry.terms.unit for entry in self.counted), *new_units])
        if len(units) > 1:
            first_unit, *other_units = map(str, units)
            raise ConfigError(
                f"The ledger {place} counts in another unit, and distances differ",
                allowed=first_unit,
                got="; ".join(other_units),
                do="Take the bundle of the earlier releases and a mechanism with an epsilon in the "
                "same distance, or begin another --ledger: nothing of this one is added there",
            )

    def family(self, terms: Terms) -> list[Entry]:
        """Return the releases whose rows can be compared with a release's."""
        return [entry for entry in self.counted if entry.terms.family == terms.family]

    @cached_property
    def family_totals(self) -> dict[Family, Decimal]:
        """The largest total of a row, for each family.

        What was cut off before it was assessed adds to each row, except to those whose total has it
        already.
        """
        cut_off = [entry for entry in self.counted if entry.total is None]
        largest: dict[Family, Decimal] = {}
        for entry in self.counted:
            family = entry.terms.family
            other_epsilons = [
                unassessed.terms.epsilon
                for unassessed in cut_off
                if unassessed.terms.family == family and unassessed.release not in entry.counts
            ]
            total = exact_sum([entry.total or Decimal(0), *other_epsilons])
            largest[family] = max(largest.get(family, total), total)
        return largest

    def total(self, *, without: Family | None = None) -> Decimal:
        """Return the largest total of a row, without a family if one is named.

        Rows of different families cannot be compared: a row may be the costliest of each.
        """
        totals = dict(self.family_totals)
        if without is not None:
            totals.pop(without, None)
        return exact_sum(totals.values())

    def texts(self, terms: Terms) -> Texts:
        """Return which columns of all releases, of which this is the last, may hold one text."""
        first: dict[str, int] = {}
        new: set[str] = set()
        for number, release in enumerate([*(entry.terms for entry in self.counted), terms]):
            new.update(map(terms.name, release.new_texts))
            for column in release.columns:
                first.setdefault(terms.name(column), number)
        return Texts(first=first, new=frozenset(new))

    def exposures(self, terms: Terms) -> list[Exposure]:
        """Return what a release lets out raw and some earlier one may have protected."""
        exposures = []
        texts = self.texts(terms)
        for column in dict.fromkeys((*terms.kept, *terms.columns)):
            for raw in terms.raw(column) or ():
                covers = self._covers(terms, column, raw, texts.others(terms.name(column)))
                if {*covers.values()} - {"yes"}:
                    exposures.append(Exposure(column=column, raw=raw, covers=covers))
        return exposures

    def exposed(self, terms: Terms) -> list[str]:
        """Return names of what is now released raw of rows that cannot be compared."""
        names = []
        for exposure in self.exposures(terms):
            last_number = 0
            for entry in self.counted:
                if exposure.covers.get(entry.release) in ("no", "same spans"):
                    last_number = max(last_number, entry.number)
            if last_number:
                names.append(exposure.protected_in(last_number))
        return [*dict.fromkeys(names)]

    def _covers(
        self, terms: Terms, column: str, raw: Raw, other_names: Collection[str]
    ) -> dict[str, Cover]:
        """Return whether earlier releases let the same out: those with the column, by any name."""
        covers: dict[str, Cover] = {}
        for entry in self.counted:
            raw_before = entry.terms.raw(column, terms)
            if raw_before is not None:
                cover = _cover(raw_before, raw)
            elif raw == WHOLE:
                cover = "no"
            else:
                column_covers: list[Cover] = []
                for name in entry.terms.columns:
                    if terms.name(name) in other_names:
                        raw_before = entry.terms.raw(name, terms) or []
                        column_covers.append(_cover(raw_before, raw))
                if not column_covers:
                    continue
                cover = min(column_covers, key=COVERS.index)
            if cover == "same spans" and entry.terms.family != terms.family:
                # Rows of two families cannot be compared.
                cover = "yes" if entry.terms.spans_column == terms.spans_column else "no"
            covers[entry.release] = cover
        return covers


def _cover(raw_before: Iterable[Raw], raw: Raw) -> Cover:
    """Return whether one of the things that an earlier release showed raw has all of this one."""
    return widest(earlier.covers(raw) for earlier in raw_before)


def _renamed(ledger: Ledger, terms: Terms) -> str:
    """Return a sentence on the columns that count as earlier ones; empty where there are none."""
    spellings = {terms.name(column): column for column in terms.columns}
    names = [spellings.get(name, name) for name in ledger.texts(terms).renamed(spellings)]
    if not names:
        return ""
    return (
        f"Counted as earlier columns under another name: {', '.join(names)}. "
        "If such a column has another text, name it with --new-text"
    )


def cost_of(
    ledger: Ledger,
    terms: Terms,
    *,
    place: str,
    rows: RowCounts | None,
    costliest: Decimal | None,
    budget: float | None,
    exposed: list[str],
) -> dict[str, Any]:
    """Return what a release adds to a ledger, and check that no row has more than the ``budget``.

    ``costliest`` is the largest earlier total, within the family, of the rows that get new noise,
    None where none does: then nothing is ever refused.
    """
    unit = terms.unit
    requested = Decimal(0)
    if costliest is not None:
        requested = Decimal(str(terms.epsilon))
    spent = exact_sum([ledger.total(without=terms.family), costliest or 0])
    total = exact_sum([spent, requested])
    renamed = _renamed(ledger, terms)
    sentences = [
        "The rows cannot be compared with earlier ones, for no other run has this key: each counts."
    ]
    if rows:
        sentences = [
            "Rows compared with earlier releases: {new:,} new, {equal:,} equal, {changed:,} "
            "changed; {free:,} of them cost nothing.".format(**rows)
        ]
    sentences += [f"Revealed from now on, without any bound: {name}." for name in exposed]
    if renamed:
        sentences.append(f"{renamed}.")
    if requested:
        sentences.append(
            f"The costliest row that gets new noise had spent {decimal_text(spent)}, and has spent "
            f"{decimal_text(total)} with this release, in {unit}."
        )
    else:
        nothing = "no epsilon" if exposed else "nothing"
        sentences.append(f"No row gets new noise: {nothing} is spent.")
    if requested and budget is not None:
        remaining = exact_sum([budget, total.copy_negate()])
        if remaining < 0:
            before = max(exact_sum([budget, spent.copy_negate()]), Decimal(0))
            remedies = [
                "Release what was released before under the same key, name and options, which "
                "costs nothing, leave out the rows that have spent the most, or lower --epsilon"
            ]
            if renamed:
                remedies.append(renamed)
            raise ConfigError(
                f"The release is over the budget of the ledger {place}",
                allowed=f"--budget {decimal_text(budget)} for each word of a row, of which the "
                f"costliest row that would get new noise has spent {decimal_text(spent)} and has "
                f"{decimal_text(before)} left, in {unit}",
                got=f"{decimal_text(requested)} requested",
                do=". ".join(remedies),
            )
        sentences.append(f"Budget: {decimal_text(budget)}, {decimal_text(remaining)} remain.")
    return {
        "unit": unit.model_dump(),
        "rows": rows,
        "requested": float(requested),
        "spent": float(spent),
        "total": float(total),
        "budget": budget,
        "exposed": exposed,
        "said": "\n".join(sentences),
    }
