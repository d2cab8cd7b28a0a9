"""What a run does with the ledger: it reserves its release, compares rows, and commits it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from dptext_spark.accounting.exposure import recorded_policy
from dptext_spark.accounting.ledger import (
    LARGEST_EPSILON,
    NEIGHBOURS,
    Ledger,
    Naming,
    RowCounts,
    Terms,
    Unit,
    cost_of,
    damaged,
    decimal_text,
    exact_sum,
    recorded,
)
from dptext_spark.bars import progress
from dptext_spark.errors import ConfigError, DptextError, JobError
from dptext_spark.noise import NoiseKey
from dptext_spark.release import Release, euclidean_guarantee
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.spark.failures import FAILURES, condition
from dptext_spark.spark.session import is_connect
from dptext_spark.tables.fingerprints import LINES, fingerprint_batches, measures
from dptext_spark.tables.ledger_comparison import compare, exposed_by_row
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import literal, warn_of_others
from dptext_spark.version import __version__

if TYPE_CHECKING:  # workers import this module, and need neither
    from dptext_spark.guarantee import Guarantee
    from dptext_spark.options import PrivatizeOptions
    from dptext_spark.tables.table import Table

# Seconds that a run waits for its turn: others compare their rows meanwhile.
_PATIENCE: Final = 600.0
_PAUSE: Final = 0.2

_RELEASE: Final = "/rows/([0-9a-f]{32})/[^/]*$"
# The last one is all that Spark 3.5 says of a file that it fails to read.
_UNREADABLE: Final = (
    "CANNOT_READ",
    "FAILED_READ_FILE",
    "PATH_NOT_FOUND",
    "org.apache.spark.SparkException",
)


class LedgerRun:
    """What a run does with the ledger of its options; ``costs`` has the facts of each batch."""

    def __init__(
        self,
        table: Table,
        options: PrivatizeOptions,
        release: Release,
        guarantee: Guarantee,
        key: NoiseKey,
        sanitizer: Sanitizer,
    ) -> None:
        self.table = table
        self.options = options
        self.folder = LedgerFolder(str(options.ledger), table.output.storage)
        self.terms = _terms(table, options, release, guarantee, key)
        self.costs: list[dict[str, Any]] = []
        self._fingerprints = None  # under a fresh key no two runs have a row in common
        if options.key_file is not None:
            self._fingerprints = partial(
                fingerprint_batches, key.derive(b"ledger"), sanitizer, table.input.fields
            )
        self._exposed: dict[str, None] = {}  # of all batches: the first exposes it
        warn_of_others("the ledger", self.folder.path)
        self._check(self.folder.read())
        if is_connect(table.spark):
            self.folder.check_seen(table.spark)

    def _check(self, ledger: Ledger) -> None:
        """Refuse, whatever the rows are, what does not go with a ledger."""
        path = self.folder.path
        terms = self.terms
        ledger.check_unit(path, terms.unit)
        for entry in ledger.counted:
            is_same_name = (entry.terms.key, entry.terms.label) == (terms.key, terms.label)
            if is_same_name and entry.terms.input != terms.input:
                raise ConfigError(
                    f"The ledger {path} has a release of another input under this key and name",
                    got=f"release {entry.number} to {entry.terms.output}",
                    do="Give this input another --name: under this one equal ids and texts have "
                    "equal outputs, which would show which rows are in both",
                )
        if self._fingerprints is None:
            self._expose(ledger.exposed(terms))

    def _expose(self, exposed: list[str]) -> None:
        """Note what is released raw from now on, or refuse it under a budget."""
        self._exposed.update(dict.fromkeys(exposed))
        if exposed and self.options.budget is not None:
            raise ConfigError(
                f"The release reveals what earlier releases in the ledger {self.folder.path} "
                "protected",
                allowed="with --budget: only what they released raw of the same rows",
                got="; ".join(exposed),
                do="Use the earlier policy; or run once without --budget to accept it, which the "
                "report says",
            )

    def preview(self, rows: DataFrame) -> None:
        """Compute what a release of these rows would cost, or refuse it, and write nothing."""
        self._assess(self.folder.read(), self._lines(rows))

    def _lines(self, rows: DataFrame) -> DataFrame | None:
        """Return fingerprints of rows; None where none can be compared."""
        if self._fingerprints is None:
            return None
        return rows.mapInArrow(self._fingerprints, LINES)

    @contextmanager
    def reserve(self, rows: DataFrame) -> Iterator[None]:
        """Reserve a release of rows that the block perturbs and writes; commit it at its end."""
        release = uuid4().hex
        self._check(self.folder.read())
        self.folder.storage.make_folder(self.folder.events)
        try:
            self._enter(release, rows)
        except BaseException:
            self._leave(release)
            raise
        try:
            yield
        except BaseException:
            with suppress(*FAILURES, DptextError):
                if self._wrote_nothing():
                    self._leave(release)
            raise
        self.folder.add(release, "ended", {"state": "committed"})

    def _enter(self, release: str, rows: DataFrame) -> None:
        """Write fingerprints, reserve the release, and note what its rows cost."""
        lines = self._lines(rows)
        written = None
        if lines is not None:
            # Before they are reserved: whoever sees the reservation can read them.
            folder = self.folder.rows(release)
            observation = Observation("dptext fingerprints")
            with progress(rows.sparkSession, "Fingerprinting rows for the ledger"):
                lines.observe(observation, *measures()).write.parquet(folder)
            written = observation.get
            lines = rows.sparkSession.read.schema(LINES).parquet(literal(folder))
        with self._turn():
            numbers = [entry.number for entry in self.folder.read().entries]
            now = datetime.now(UTC).isoformat(timespec="seconds")  # for people: it orders nothing
            facts = {
                "number": 1 + max(numbers, default=0),
                "time": now,
                "terms": self.terms.model_dump(mode="json"),
                "fingerprints": written,
            }
            self.folder.add(release, "reserved", facts)
            # Read after the reservation is there: of two runs that reserve at once one sees the
            # other.
            entries = self.folder.read().entries
            before = Ledger(tuple(entry for entry in entries if entry.release != release))
            self.folder.add(release, "assessed", self._assess(before, lines))

    def _wrote_nothing(self) -> bool:
        """Return whether no output is there; where one was before, or grows, nobody can tell."""
        if not self.table.output.written.has_path or self.table.grows:
            return False
        return not self.folder.storage.exists(self.options.output)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the reservation lock (local file systems only; others have no locks)."""
        lock = f"{self.folder.path}/lock"
        deadline = time.monotonic() + _PATIENCE
        with ExitStack() as locks:
            while True:
                try:
                    locks.enter_context(
                        self.folder.storage.locked(lock, "Another run reserves in the ledger")
                    )
                    break
                except JobError:
                    if time.monotonic() >= deadline:
                        raise
                time.sleep(_PAUSE)
            yield

    def _assess(self, before: Ledger, lines: DataFrame | None) -> dict[str, Any]:
        """Compare rows with those of earlier releases, and refuse what is over the budget."""
        self._check(before)
        rows: RowCounts | None = None
        costliest: Decimal | None = Decimal(0)
        total = exact_sum([self.terms.epsilon])
        if lines is not None:
            with progress(lines.sparkSession, "Comparing rows with the ledger"):
                earlier = self._earlier(lines, before)
                exposures = before.exposures(self.terms)
                self._expose(exposed_by_row(lines, earlier, before, self.terms, exposures))
                rows, costliest, total = compare(lines, earlier, before, self.terms)
        cost = cost_of(
            before,
            self.terms,
            place=self.folder.path,
            rows=rows,
            costliest=costliest,
            budget=self.options.budget,
            exposed=[*self._exposed],
        )
        self.costs.append(cost)
        counts = [entry.release for entry in before.family(self.terms) if entry.total is None]
        return {"rows": rows, "total": decimal_text(total), "counts": counts}

    def _earlier(self, lines: DataFrame, before: Ledger) -> DataFrame | None:
        """Read fingerprints of earlier releases of the family; refuse those that were changed."""
        family = before.family(self.terms)
        entries = [entry for entry in family if (entry.fingerprints or {}).get("lines")]
        if not entries:
            return None
        try:
            files = [literal(self.folder.rows(entry.release)) for entry in entries]
            read = lines.sparkSession.read.schema(LINES).parquet(*files)
            release = F.regexp_extract("_metadata.file_path", _RELEASE, 1)
            earlier = read.withColumn("release", release)
            by_release = earlier.groupBy("release").agg(*measures()).collect()
        except (PySparkException, Py4JJavaError) as error:
            wrong = condition(error)
            if not wrong.startswith(_UNREADABLE):
                raise
        else:
            measured = {}
            for name, count, checksum in by_release:
                measured[name] = {"lines": count, "checksum": checksum}
            wrong = ", ".join(
                f"rows/{entry.release}"
                for entry in entries
                if measured.get(entry.release) != entry.fingerprints
            )
            if not wrong:
                return earlier
        raise damaged(wrong, "the fingerprints of a release's rows are not those that were written")

    def _leave(self, release: str) -> None:
        """Withdraw a release, if it was reserved: its rows stay, as others may be reading them."""
        with suppress(*FAILURES, DptextError):
            if any(entry.release == release for entry in self.folder.read().entries):
                self.folder.add(release, "ended", {"state": "withdrawn"})
            else:
                self.folder.storage.delete(self.folder.rows(release))


def _terms(
    table: Table,
    options: PrivatizeOptions,
    release: Release,
    guarantee: Guarantee,
    key: NoiseKey,
) -> Terms:
    """Return what is released, and under which noise."""
    columns = table.columns
    guarantee = euclidean_guarantee(guarantee, release.embedding)
    if guarantee.epsilon > LARGEST_EPSILON:
        raise ConfigError(
            "Epsilon is too large for a ledger", allowed=f"{LARGEST_EPSILON:g} or less"
        )
    known_as: Naming
    if options.id is not None:
        known_as = "id"
        names = f"id {options.id}"
    else:
        known_as = "file" if table.grows else "position"
        checkpoint = ""
        if options.incremental:
            checkpoint = table.output.storage.real(options.incremental)
        names = f"{known_as} {table.identity}\n{checkpoint}"
    distances = None
    if guarantee.distances is not None:
        distances = {name: getattr(guarantee.distances, name) for name in NEIGHBOURS}
    policy = recorded_policy(release.policy)
    policy["release words"] = str(release.search.release_words)
    exact_names = table.spark.conf.get("spark.sql.caseSensitive") == "true"
    return Terms(
        version=__version__,
        label=options.name,
        key=key.seal("ledger"),
        naming=key.seal(names),
        known_as=known_as,
        input=key.seal(f"input {table.identity}"),
        output=table.output.place,
        columns=columns.sanitized,
        tokens=columns.tokens,
        new_texts=options.new_text,
        exact_names=exact_names,
        kept=columns.keep,
        policy=policy,
        law=dict(release.mechanism.noise_parameters(release.embedding.dimension)),
        unit=Unit(metric=guarantee.metric, fingerprint=guarantee.fingerprint),
        epsilon=guarantee.epsilon,
        delta=0.0,
        loss=recorded(guarantee.law),
        distances=distances,
    )
