"""What was released before, and what it adds up to.

A ledger is a folder of events that are never changed, and here it is what they say. A release is *reserved*
before anything of it is perturbed, *assessed* when it is known which of its rows were released before,
*committed* when its output has its name, or *withdrawn* when it ended without an output. What was reserved
and has no end was killed, or is at work: it counts.

Row and column together name a place whose words are released. Its history is the set of releases that gave
it noise of their own: a context that comes again gives the same noise again, which reveals nothing new. With
words w and w' there, its outputs lose the sum of epsilon over its history times d(w, w') at most (basic
composition of metric privacy), its total. The places of other rows and columns are other words: the distance
of two tables is the sum over words that differ, so that the largest total bounds the loss of all. Which
history loses the most up to a delta is another question, so an assessment keeps all that no other one holds.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Context, Decimal
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dptext_spark.accounting.laws import LAWS, LossLaw
from dptext_spark.errors import ConfigError
from dptext_spark.sealing import sealed, unsealed

FORMAT_VERSION: Final = 2

LARGEST_EPSILON: Final = 1e9
"""What a ledger adds up: beyond it nothing is hidden anyway."""

MOST_HISTORIES: Final = 256
"""Of more than these their union stands for all: it bounds what each of them loses."""

Permission: TypeAlias = Literal["new-unit", "weaker-policy"]
"""What a budget refuses unless ``--ledger-allow`` names it."""

# Policies under which nothing of a sanitized column goes out raw, and what passes under others.
_NOTHING_RAW: Final = {"oov": {"mask", "drop", "random", "fail"}, "protect": {"all"}, "layout": {"words"}}
_RAW: Final = {
    "keep-unprotected": "words outside the vocabulary",
    "content": "stop words",
    "slots": "words outside the slots",
    "keep": "punctuation, spacing and capitals",
}

_WHOLE: Final = ""
"""In place of words of a column: all of it."""

# More digits than the sum of all epsilons of a ledger can have: nothing is rounded.
_EXACT: Final = Context(prec=400)

ReleaseId: TypeAlias = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
Naming: TypeAlias = Literal["id", "position", "file"]
Number: TypeAlias = Annotated[int, Field(ge=0)]
History: TypeAlias = frozenset[str]


def claimed_total(releases: Iterable[tuple[Hashable, float]]) -> Decimal:
    """Give what is claimed of one place of a row that was released several times.

    The claim compares two histories of its words that are equal and change at the same times: whether a place
    changed shows in whether its outputs do.

    Args:
        releases: Of each release the noise context of the place, which is equal where the noise is, and
            epsilon, in nats per unit of one distance.

    Returns:
        Epsilon of the whole, in nats per unit of that distance, exact.
    """
    found: dict[Hashable, float] = {}
    for context, epsilon in releases:
        found[context] = max(epsilon, found.get(context, 0.0))
    total = Decimal(0)
    for epsilon in found.values():
        total = _EXACT.add(total, Decimal(repr(epsilon)))
    return total


def plainly(total: Decimal) -> str:
    """Write a total with all its digits."""
    return f"{total.normalize(_EXACT):f}"


def maximal(histories: Iterable[History]) -> tuple[History, ...]:
    """Leave out histories that another one holds; if too many stay, give their union alone."""
    every = sorted({*histories} - {frozenset()}, key=lambda history: (-len(history), sorted(history)))
    chosen: list[History] = []
    for history in every:
        if any(history <= larger for larger in chosen):
            continue
        if len(chosen) == MOST_HISTORIES:
            return (frozenset[str]().union(*every),)
        chosen.append(history)
    return tuple(chosen)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Unit(_Record):
    """In what an epsilon counts: no two units are ever added.

    Attributes:
        metric: The distance, in words.
        fingerprint: Of the bundle whose words lie so far apart.
    """

    metric: str
    fingerprint: str

    def __str__(self) -> str:
        return f"nats per unit of {self.metric}, bundle {self.fingerprint[:16]}"


class SealedRows(_Record):
    """What the files of a release's sealed rows must hold.

    Attributes:
        lines: One for each row and column.
        checksum: XOR over hashes of the lines.
    """

    lines: Number
    checksum: int


class Apart(_Record):
    """How far words of a bundle lie apart: medians over words; see ``guarantee.TypicalDistances``."""

    nearest: float
    tenth: float
    hundredth: float


class Terms(_Record):
    """What is released, and under which noise; no text, token, id, condition or key.

    Attributes:
        version: Of this package.
        label: As ``--name`` says it.
        key: A keyed hash by which releases under equal keys are known.
        naming: A keyed hash by which releases are known whose rows have names that can be compared.
        known_as: What names the rows. Under an ``id`` a row comes again wherever it lies. A ``position`` in a
            file may hold another row next time, which then may be any. A ``file`` of a table that grows is
            taken once: what is new in it is new.
        input: A keyed hash of where the rows come from.
        output: Where they go.
        columns: That are sanitized.
        kept: Columns that go out raw.
        policy: What becomes of words besides the noise, by option.
        law: Of the noise, with its parameters.
        unit: In what ``epsilon`` counts.
        epsilon: Proven nats per unit, at each word: per unit of Euclidean distance where that is proven.
        delta: Beside it.
        loss: The law of a word's loss, by name and parameters, where it has one.
        apart: Distances between words, in the unit.
    """

    version: str
    label: str
    key: str
    naming: str
    known_as: Naming
    input: str
    output: str
    columns: tuple[str, ...]
    kept: tuple[str, ...]
    policy: dict[str, str]
    law: dict[str, str | int | float]
    unit: Unit
    epsilon: float = Field(gt=0.0, le=LARGEST_EPSILON)
    delta: float = Field(ge=0.0, le=1.0)
    loss: dict[str, str | int | float | None] | None
    apart: Apart | None

    @property
    def family(self) -> tuple[str, str]:
        """Releases of one family know each other's rows."""
        return self.key, self.naming

    def raw(self, column: str) -> dict[str, str] | None:
        """Say what of a column goes out raw, in words, each with what decides which words these are.

        None where the release leaves the column out.
        """
        name = column.casefold()
        for kept in map(str.casefold, self.kept):
            if name == kept or name.startswith((f"{kept}.", f"{kept}[")):
                return {_WHOLE: ""}
        if name not in map(str.casefold, self.columns):
            return None
        words = f"{self.policy.get('tokenizer')} {self.unit.fingerprint}"
        return {
            f"{_RAW.get(policy.partition(':')[0], 'what passes')} of": "" if option == "layout" else words
            for option, safe in _NOTHING_RAW.items()
            if (policy := self.policy.get(option, "")) not in safe
        }


class _Event(_Record):
    format_version: Literal[2] = FORMAT_VERSION
    release: ReleaseId
    time: str

    def name(self) -> str:
        """Give the name of its file."""
        return f"{self.release}.{self.model_dump()['event']}.json"

    def content(self) -> str:
        """Write its file: JSON with a hash over its entries."""
        return sealed(self.model_dump(mode="json")).decode("ascii")


class Reserved(_Event):
    """A release is about to be made.

    Attributes:
        number: One more than the largest that the ledger had: what orders releases, whatever clocks say.
        terms: What it is.
        rows: What its sealed rows must hold; None under a key that no other run has.
    """

    event: Literal["reserved"] = "reserved"
    number: int = Field(ge=1)
    terms: Terms
    rows: SealedRows | None


class RowCounts(_Record):
    """Rows of a release beside those of earlier ones: exact facts about the private table.

    Attributes:
        new: Under an id, or with a column, that was not released before.
        equal: All columns as they were in some earlier release.
        changed: Some column is not.
        free: Released under no new noise, which costs nothing.
    """

    new: Number
    equal: Number
    changed: Number
    free: Number

    @property
    def all(self) -> int:
        """How many rows there are."""
        return self.new + self.equal + self.changed


class Assessed(_Event):
    """It is known what a release adds to what was released before.

    Attributes:
        rows: None under a key that no other run has.
        histories: Distinct histories of its rows and columns with this release, within its family and unit,
            one release for each noise context; those alone that no other one holds, see :func:`maximal`.
            Empty where it has no rows.
    """

    event: Literal["assessed"] = "assessed"
    rows: RowCounts | None
    histories: tuple[tuple[ReleaseId, ...], ...]


class Committed(_Event):
    """The output has its name."""

    event: Literal["committed"] = "committed"


class Withdrawn(_Event):
    """The run ended without an output."""

    event: Literal["withdrawn"] = "withdrawn"


Event: TypeAlias = Reserved | Assessed | Committed | Withdrawn
_EVENT: Final[TypeAdapter[Event]] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def read_event(name: str, content: str) -> Event:
    """Read the file of an event.

    Raises:
        ConfigError: It is damaged, is none, or is of another version.
    """
    entries = unsealed(content.encode())
    if entries is None:
        raise damaged(name)
    if (version := entries.get("format_version")) != FORMAT_VERSION:
        raise ConfigError(
            "The ledger has an event of another version",
            allowed=f"format_version {FORMAT_VERSION}",
            got=f"{version!r} in {name}",
            do="Use the version of dptext_spark that wrote it; or begin another ledger, and count what this "
            "one had as spent",
        )
    try:
        event = _EVENT.validate_json(json.dumps(entries))
    except ValidationError:
        raise damaged(name) from None
    if event.name() != name:
        raise damaged(name)
    return event


def damaged(name: str) -> ConfigError:
    """Make the error of a ledger with a file that is not what was written."""
    return ConfigError(
        "The ledger is damaged: it cannot say what was released",
        got=name,
        do="Bring the file back from a copy; without one begin another ledger, and count what this one had "
        "as spent",
    )


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release, and what became of it."""

    reserved: Reserved
    assessed: Assessed | None = None
    end: Committed | Withdrawn | None = None

    @property
    def id(self) -> str:
        """What names it."""
        return self.reserved.release

    @property
    def terms(self) -> Terms:
        """What it is."""
        return self.reserved.terms

    @property
    def state(self) -> str:
        """Whether its output has its name: ``unfinished`` where a run was killed, or is at work."""
        return "unfinished" if self.end is None else self.end.event

    @property
    def counts(self) -> bool:
        """Whether it may have been seen by anybody."""
        return not isinstance(self.end, Withdrawn)


@dataclass(frozen=True)
class Ledger:
    """All releases, in the order of their numbers."""

    releases: tuple[Release, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Put events together, in whatever order they come.

        Raises:
            ConfigError: A release has no beginning, or two ends.
        """
        found: dict[str, dict[str, Event]] = {}
        for event in events:
            found.setdefault(event.release, {})[event.event] = event
        releases = []
        for kinds in found.values():
            reserved, assessed = kinds.get("reserved"), kinds.get("assessed")
            ends = [kinds[kind] for kind in ("committed", "withdrawn") if kind in kinds]
            if not isinstance(reserved, Reserved) or len(ends) > 1:
                raise damaged(next(iter(kinds.values())).name())
            releases.append(
                Release(
                    reserved=reserved,
                    assessed=assessed if isinstance(assessed, Assessed) else None,
                    end=ends[0] if ends and isinstance(ends[0], Committed | Withdrawn) else None,
                )
            )
        return cls(tuple(sorted(releases, key=lambda r: (r.reserved.number, r.id))))

    @property
    def next_number(self) -> int:
        """The number of a release that is reserved now."""
        return 1 + max((release.reserved.number for release in self.releases), default=0)

    @cached_property
    def counted(self) -> tuple[Release, ...]:
        """Releases that count: all but those that were withdrawn."""
        return tuple(release for release in self.releases if release.counts)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """Units of the releases that count."""
        return tuple(dict.fromkeys(release.terms.unit for release in self.counted))

    def without(self, release: str) -> Ledger:
        """Give the ledger of all other releases."""
        return Ledger(tuple(other for other in self.releases if other.id != release))

    def family(self, terms: Terms) -> tuple[Release, ...]:
        """Releases that count and whose rows can be compared with those of ``terms``."""
        return tuple(r for r in self.counted if r.terms.family == terms.family)

    def other_input(self, terms: Terms) -> Release | None:
        """Find a release under the same key and name whose rows come from another place."""
        same = (r for r in self.counted if (r.terms.key, r.terms.label) == (terms.key, terms.label))
        return next((r for r in same if r.terms.input != terms.input), None)

    def exposed(self, terms: Terms) -> list[str]:
        """Say, in words, what a release lets out raw that an earlier one protected or left out.

        What another release of the same input has let out raw since is out already.
        """
        found, same = [], (terms.key, terms.input, "committed")
        for column in dict.fromkeys((*terms.kept, *terms.columns)):
            for what, which in (terms.raw(column) or {}).items():
                protecting = None
                for release in self.counted:
                    raw = release.terms.raw(column)
                    if raw is None and what != _WHOLE:
                        continue
                    if raw is None or (raw.get(what) != which and _WHOLE not in raw):
                        protecting = release
                    elif (release.terms.key, release.terms.input, release.state) == same:
                        protecting = None
                if protecting is not None:
                    name = f"{what} column {column}".strip()
                    found.append(f"{name} (protected in release {protecting.reserved.number})")
        return found

    def histories(self, unit: Unit) -> dict[tuple[str, str], tuple[History, ...]]:
        """Give the histories of rows in a unit, for each family."""
        found: dict[tuple[str, str], tuple[History, ...]] = {}
        for release in self.counted:
            if release.terms.unit != unit:
                continue
            before = found.get(family := release.terms.family, ())
            if release.assessed is None:
                # Nobody knows which rows a run had that was cut off early: it adds to each.
                found[family] = maximal(each | {release.id} for each in before or [frozenset[str]()])
            else:
                found[family] = maximal([*before, *map(frozenset, release.assessed.histories)])
        return found

    def combined(self, unit: Unit) -> tuple[History, ...]:
        """Give the histories that a row may have in a unit: one of each family, as in :meth:`worst`."""
        whole: tuple[History, ...] = (frozenset(),)
        for histories in filter(None, self.histories(unit).values()):
            whole = maximal(one | other for one in whole for other in histories)
        return whole

    def worst(
        self, unit: Unit, *, of: tuple[str, str] | None = None, but: tuple[str, str] | None = None
    ) -> tuple[Release, ...]:
        """Give the releases that make up the largest total that a row may have in a unit.

        Rows of different families cannot be compared: a row may be the worst of each. ``of`` names a family
        that is looked at alone, ``but`` one that is left out.
        """
        chosen = [
            max(histories, key=self.total)
            for family, histories in self.histories(unit).items()
            if histories and family != but and of in (None, family)
        ]
        names = frozenset[str]().union(*chosen)
        return tuple(release for release in self.releases if release.id in names)

    def total(self, releases: Iterable[str | Release]) -> Decimal:
        """Give the total of a place that was released by these, each under a noise of its own."""
        names = (release if isinstance(release, str) else release.id for release in releases)
        return claimed_total((name, self._epsilons[name]) for name in names)

    @cached_property
    def _epsilons(self) -> Mapping[str, float]:
        return {release.id: release.terms.epsilon for release in self.releases}


def recorded(law: LossLaw) -> dict[str, str | int | float | None] | None:
    """Write down a law of losses; None where it has more to it than numbers."""
    if LAWS.get(type(law).__name__) is not type(law):
        return None
    return {"law": type(law).__name__, **{name: getattr(law, name) for name in _parameters(type(law))}}


def law_of(terms: Terms) -> LossLaw | None:
    """Give the law of a word's loss again, where the ledger has it."""
    if terms.loss is None or (kind := LAWS.get(str(terms.loss.get("law")))) is None:
        return None
    parameters = {name: value for name, value in terms.loss.items() if name != "law"}
    return kind(**parameters) if parameters.keys() == _parameters(kind) else None


def _parameters(kind: type[LossLaw]) -> set[str]:
    """Name what makes a law another one; how finely it is computed does not."""
    return {field.name for field in fields(kind) if field.repr}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a release adds to a ledger.

    Attributes:
        ledger: The releases before it.
        terms: The release.
        rows: What its rows are beside those before; None under a key that no other run has.
        dearest: Releases before it that the row counts which costs the most afterwards, among those that this
            release adds to; None where it adds to none.
        histories: As in :class:`Assessed`.
        budget: What no row's total may exceed, if anything.
        exposed: What it lets out raw that earlier releases protected; see :meth:`Ledger.exposed`.
    """

    ledger: Ledger
    terms: Terms
    rows: RowCounts | None
    dearest: Sequence[str] | None
    histories: tuple[tuple[str, ...], ...]
    budget: float | None = None
    exposed: Sequence[str] = ()

    @property
    def requested(self) -> Decimal:
        """What it adds to the rows that it adds to."""
        return Decimal(0) if self.dearest is None else Decimal(repr(self.terms.epsilon))

    @property
    def spent(self) -> Decimal:
        """What the row has spent that is the worst of those."""
        others = self.ledger.worst(self.terms.unit, but=self.terms.family)
        return _EXACT.add(self.ledger.total(others), self.ledger.total(self.dearest or ()))

    @property
    def total(self) -> Decimal:
        """That row's total with this release."""
        return _EXACT.add(self.spent, self.requested)

    def check(self, place: str) -> None:
        """Refuse a release over the budget; one that adds nothing never is.

        Raises:
            ConfigError: The row would have more.
        """
        if self.budget is None or not self.requested or self.total <= (limit := Decimal(repr(self.budget))):
            return
        left = max(_EXACT.subtract(limit, self.spent), Decimal(0))
        raise ConfigError(
            f"The release is over the budget of the ledger {place}",
            allowed=f"--budget {plainly(limit)} for each word of a row, of which the dearest row that would "
            f"be released anew has spent {plainly(self.spent)} and has {plainly(left)} left, in "
            f"{self.terms.unit}",
            got=f"{plainly(self.requested)} requested",
            do="Release what was released before under the same key, name and options, which costs nothing, "
            "leave out the rows that have spent the most, or lower --epsilon",
        )

    def describe(self) -> str:
        """Say it in plain words."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        unit = self.terms.unit
        if self.rows is None:
            yield "The rows cannot be compared with earlier ones, for no other run has this key: each counts."
        else:
            yield (
                f"Rows beside those of earlier releases: {self.rows.new:,} new, {self.rows.equal:,} equal, "
                f"{self.rows.changed:,} changed; {self.rows.free:,} of them cost nothing."
            )
        for what in self.exposed:
            yield f"Raw from now on, without any bound: {what}."
        if not self.requested:
            spent = "nothing is spent" if not self.exposed else "no epsilon is spent"
            yield f"No row is released under new noise: {spent}."
        else:
            yield (
                f"The dearest row that is released anew had spent {plainly(self.spent)}, and has spent "
                f"{plainly(self.total)} with this release, in {unit}."
            )
            if self.budget is not None:
                limit = Decimal(repr(self.budget))
                yield f"Budget: {plainly(limit)}, {plainly(_EXACT.subtract(limit, self.total))} remain."
        for other in self.ledger.units:
            if other != unit:
                total = self.ledger.total(self.ledger.worst(other))
                yield f"Not added, for distances differ: {plainly(total)} spent in {other}."

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON-ready values."""
        others = (other for other in self.ledger.units if other != self.terms.unit)
        return {
            "unit": self.terms.unit.model_dump(),
            "rows": None if self.rows is None else self.rows.model_dump(),
            "requested": float(self.requested),
            "spent": float(self.spent),
            "total": float(self.total),
            "budget": self.budget,
            "exposed": list(self.exposed),
            "said": self.describe(),
            "not_added": [
                {**other.model_dump(), "spent": float(self.ledger.total(self.ledger.worst(other)))}
                for other in others
            ],
        }
