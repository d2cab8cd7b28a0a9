"""A release in a ledger: reserved before anything is perturbed, committed when its output has its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from dptext_spark.accounting.ledger import (
    Assessed,
    Committed,
    Cost,
    Ledger,
    Permission,
    Release,
    Reserved,
    SealedRows,
    Terms,
    Withdrawn,
)
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.spark.failures import FAILURES, condition
from dptext_spark.spark.progress import progress
from dptext_spark.tables.ledger_folder import OpenLedger, now
from dptext_spark.tables.sealed_rows import SEALED, Compared, compared, measures, seal_of


@dataclass(kw_only=True)
class Account:
    """What a run has to do with a ledger.

    Attributes:
        ledger: The folder.
        terms: Of the release.
        seal: Seals, lazily, the rows of a frame; None under a key that no other run has.
        budget: What no row's total may exceed, if anything.
        allowed: What is released under a budget all the same.
        nothing_written: Says, after a failure, whether it is certain that no output appeared.
        costs: What was found, a batch of a growing table each.
    """

    ledger: OpenLedger
    terms: Terms
    seal: Callable[[DataFrame], DataFrame] | None
    budget: float | None
    allowed: frozenset[Permission]
    nothing_written: Callable[[], bool]
    costs: list[Cost] = field(default_factory=list)
    _exposed: dict[str, None] = field(default_factory=dict)  # of all batches: the first exposes it

    def check(self, ledger: Ledger | None = None) -> None:
        """Refuse, whatever the rows are, what does not go with a ledger; by default with the folder's.

        Raises:
            ConfigError: The ledger is damaged, or has the key and name for another input; or under a budget
                the release is weaker than earlier ones, or counts in another unit.
        """
        ledger = self.ledger.read() if ledger is None else ledger
        if (other := ledger.other_input(self.terms)) is not None:
            raise ConfigError(
                f"The ledger {self.ledger.path} has a release of another input under this key and name",
                got=f"release {other.reserved.number} to {other.terms.output}",
                do="Give this input another --name: under this one rows with equal ids and texts come out "
                "equal, and no others, which tells who is in both",
            )
        exposed = ledger.exposed(self.terms)
        self._exposed.update(dict.fromkeys(exposed))
        if self.budget is None:
            return
        if exposed and "weaker-policy" not in self.allowed:
            raise ConfigError(
                f"The release lets out raw what earlier releases in the ledger {self.ledger.path} protected",
                allowed="with --budget: what they let out raw",
                got="; ".join(exposed),
                do="Protect it as before, or say that it may go out: --budget TOTAL:allow=weaker-policy",
            )
        unit, units = self.terms.unit, ledger.units
        if units and unit not in units and "new-unit" not in self.allowed:
            raise ConfigError(
                f"The release counts in a new unit, in which the ledger {self.ledger.path} has nothing spent",
                allowed="with --budget: " + ", or ".join(map(str, units)),
                got=str(unit),
                do="Take the bundle of the earlier releases and a mechanism with an epsilon in the same "
                "distance, or let the budget begin anew: --budget TOTAL:allow=new-unit",
            )

    def look(self, selected: DataFrame) -> None:
        """Find what a release of these rows would cost, and write nothing.

        Raises:
            ConfigError: The ledger refuses it, or is damaged.
        """
        ledger = self.ledger.read()
        self._find(ledger, uuid4().hex, self.seal(selected) if self.seal else None)

    @contextmanager
    def entered(self, selected: DataFrame) -> Iterator[None]:
        """Reserve a release of these rows, and commit it when the block has ended; nothing else enters it.

        Args:
            selected: The rows that the block perturbs and writes.

        Raises:
            ConfigError: The ledger refuses it, or is damaged; nothing was perturbed.
        """
        release = uuid4().hex
        self.ledger.begin()
        self.check()
        try:
            rows = self._write_rows(release, selected)
            with self.ledger.turn():
                self._reserve(release, selected, rows)
        except BaseException:
            self._leave(release)
            raise
        try:
            yield
        except BaseException:
            if self._is_nothing_written():
                self._leave(release)
            raise
        self.ledger.add(Committed(release=release, time=now()))

    def _write_rows(self, release: str, selected: DataFrame) -> SealedRows | None:
        """Write the sealed rows before they are reserved: whoever sees the reservation can read them."""
        if self.seal is None:
            return None
        observation = Observation("dptext sealed rows")
        rows = self.seal(selected).observe(observation, *measures())
        with progress(selected.sparkSession, "Sealing rows for the ledger"):
            rows.write.parquet(self.ledger.rows(release))
        return seal_of(observation.get)

    def _reserve(self, release: str, selected: DataFrame, rows: SealedRows | None) -> None:
        number = self.ledger.read().next_number
        self.ledger.add(Reserved(release=release, time=now(), number=number, terms=self.terms, rows=rows))
        # Read after the reservation is there: of two runs that reserve at once one at least sees the other.
        before = self.ledger.read().without(release)
        mine = None
        if rows is not None:
            mine = selected.sparkSession.read.schema(SEALED).parquet(self.ledger.rows(release))
        cost = self._find(before, release, mine)
        found = Assessed(release=release, time=now(), rows=cost.rows, histories=cost.histories)
        self.ledger.add(found)

    def _find(self, before: Ledger, release: str, mine: DataFrame | None) -> Cost:
        self.check(before)
        terms = self.terms
        found = Compared(rows=None, dearest=(), histories=((release,),))
        if mine is not None:
            family = before.family(terms)
            with progress(mine.sparkSession, "Comparing rows with the ledger"):
                found = compared(
                    mine,
                    self._earlier(mine, family),
                    release=release,
                    epsilon=terms.epsilon,
                    epsilons={r.id: r.terms.epsilon for r in family if r.terms.unit == terms.unit},
                    known_as=terms.known_as,
                    family=before.histories(terms.unit).get(terms.family, ()),
                    family_worst=[r.id for r in before.worst(terms.unit, of=terms.family)],
                )
        exposed = tuple(self._exposed)
        cost = Cost(ledger=before, terms=terms, **vars(found), budget=self.budget, exposed=exposed)
        cost.check(self.ledger.path)
        self.costs.append(cost)
        return cost

    def _earlier(self, mine: DataFrame, family: tuple[Release, ...]) -> DataFrame | None:
        """The sealed rows of earlier releases, as they were written.

        Raises:
            ConfigError: They are not.
        """
        wanted = {r.id: r.reserved.rows for r in family if r.reserved.rows and r.reserved.rows.lines}
        if not wanted:
            return None
        places = [self.ledger.rows(name) for name in wanted]
        try:
            read = mine.sparkSession.read.schema(SEALED).parquet(*places)
            path = read.metadataColumn("_metadata")["file_path"]
            earlier = read.withColumn("release", F.regexp_extract(path, _RELEASE, 1))
            rows = earlier.groupBy("release").agg(*measures()).collect()  # a line for each release
        except (PySparkException, Py4JJavaError) as error:
            if (got := condition(error)).startswith(_UNREADABLE):
                raise _lost(got) from None
            raise
        found = {row["release"]: seal_of(row.asDict()) for row in rows}
        if wrong := [name for name, seal in wanted.items() if found.get(name) != seal]:
            raise _lost(", ".join(f"rows/{name}" for name in wrong))
        return earlier

    def _is_nothing_written(self) -> bool:
        try:
            return self.nothing_written()
        except (*FAILURES, DptextError):
            return False

    def _leave(self, release: str) -> None:
        """Withdraw a release, if it was reserved; where that fails it counts.

        Its rows stay: another run may be reading them, which saw it before.
        """
        with suppress(*FAILURES, DptextError):
            if any(known.id == release for known in self.ledger.read().releases):
                self.ledger.add(Withdrawn(release=release, time=now()))
            else:
                self.ledger.storage.delete(self.ledger.rows(release))


def _lost(got: str) -> ConfigError:
    return ConfigError(
        "The ledger is damaged: the sealed rows of a release are not those that were written",
        got=got,
        do="Bring the files back from a copy; without one begin another ledger, and count what this one had "
        "as spent",
    )


_UNREADABLE: Final = ("CANNOT_READ", "FAILED_READ_FILE", "PATH_NOT_FOUND")
_RELEASE: Final = "/rows/([0-9a-f]{32})/[^/]*$"
