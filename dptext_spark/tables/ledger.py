"""A ledger on any file system: its events, fingerprints of released rows, and what a run does with both.

``events/RELEASE.EVENT.json`` are the events of :mod:`dptext_spark.accounting.ledger`. An event is
written under another name and takes its own when it is whole; nothing is ever changed. What is
asked of the file
system: who lists a folder sees every file that was written before, and a small file appears whole.
Local disks, HDFS and today's object stores do so.

``rows/RELEASE`` has the fingerprints of a release's rows as Parquet:
:mod:`dptext_spark.tables.fingerprints`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
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
    read_event,
    recorded,
    write_event,
)
from dptext_spark.bars import progress
from dptext_spark.errors import ConfigError, DptextError, JobError
from dptext_spark.noise import NoiseKey
from dptext_spark.release import Release, in_euclidean_distance
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.spark.failures import FAILURES, condition
from dptext_spark.spark.session import is_connect
from dptext_spark.tables.fingerprints import (
    LINES,
    compare,
    exposed_by_row,
    fingerprint_batches,
    measures,
)
from dptext_spark.tables.storage import LocalFiles, Storage, literal, local_path
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


class LedgerFolder:
    """A ledger that is read."""

    def __init__(self, path: str, storage: LocalFiles) -> None:
        # A server of Spark Connect would begin a relative path elsewhere.
        whole = path if isinstance(storage, Storage) or ":" in path else os.path.abspath(path)
        self.path, self.storage = whole.rstrip("/"), storage
        self.events = f"{self.path}/events"
        self._read: dict[str, dict[str, Any]] = {}

    def read(self) -> Ledger:
        """Read all events; a ledger that nobody began has none. One that is damaged is refused."""
        # In this order: another run may begin the ledger meanwhile.
        others = [
            p for p in self.storage.children(self.path) if not p.rpartition("/")[2].startswith(".")
        ]
        if not self.storage.exists(self.events):
            if not others:
                return Ledger()
            raise ConfigError(
                f"The folder {self.path} is no ledger",
                allowed="a folder that a ledger began, or one that does not exist yet",
                do="Choose another --ledger",
            )
        paths = {path.rpartition("/")[2]: path for path in self.storage.children(self.events)}
        # What begins with a dot was not whole when its run was killed.
        whole = {name: path for name, path in paths.items() if not name.startswith(".")}
        for name in sorted(whole.keys() - self._read.keys()):  # no event ever changes
            self._read[name] = read_event(name, self.storage.read(whole[name]))
        if gone := sorted(self._read.keys() - whole.keys()):
            raise damaged(gone[0])
        return Ledger.from_events(self._read.values())

    def add(self, release: str, event: str, facts: Mapping[str, Any]) -> None:
        """Add an event, which is there whole or not at all."""
        name, content = write_event(release, event, facts)
        hidden = f"{self.events}/.{name}.part"
        self.storage.write(hidden, content)
        self.storage.rename(hidden, f"{self.events}/{name}")

    def rows(self, release: str) -> str:
        """Name the folder of a release's fingerprints."""
        return f"{self.path}/rows/{release}"

    def check_seen(self, spark: SparkSession) -> None:
        """Refuse a folder that a server of Spark Connect does not see as this machine does.

        A task copies a file that this machine wrote, and this machine reads the copy; both go
        again.
        """
        token, got = uuid4().hex, "a folder of this machine alone"
        place = f"{self.path}/.{token}"
        try:
            self.storage.write(f"{place}/here", token)
            spark.read.text(literal(f"{place}/here")).write.text(f"{place}/there")
            copies = [path for path in self.storage.children(f"{place}/there") if "/part-" in path]
            if token in "".join(map(self.storage.read, copies)):
                return
        except FAILURES as error:
            got = condition(error)
        finally:
            self.storage.delete(place)
            with suppress(OSError):  # where there is a ledger
                os.rmdir(str(local_path(self.path)))
        raise ConfigError(
            f"The server of Spark Connect does not see the ledger {self.path} as this machine does",
            allowed="a folder that both reach under one path and may write to, such as a volume",
            got=got,
            do="Choose such a folder for --ledger; file:/PATH means no other file system of the server's",
        )


# A run


class LedgerRun:
    """What a run does with the ledger of its options; ``costs`` has the facts of each batch."""

    def __init__(
        self,
        job: Table,
        options: PrivatizeOptions,
        release: Release,
        guarantee: Guarantee,
        key: NoiseKey,
        sanitizer: Sanitizer,
    ) -> None:
        storage, columns = job.storage, job.columns
        guarantee = in_euclidean_distance(guarantee, release.embedding)
        if guarantee.epsilon > LARGEST_EPSILON:
            raise ConfigError(
                "Epsilon is too large for a ledger", allowed=f"{LARGEST_EPSILON:g} or less"
            )
        far, place = (
            guarantee.distances,
            storage.real(options.incremental) if options.incremental else "",
        )
        known_as: Naming = "id" if options.id is not None else "file" if job.grows else "position"
        names = f"id {options.id}" if known_as == "id" else f"{known_as} {job.identity}\n{place}"
        self.job, self.options = job, options
        self.folder = LedgerFolder(str(options.ledger), storage)
        self.terms = Terms(
            version=__version__,
            label=options.name,
            key=key.seal("ledger"),
            naming=key.seal(names),
            known_as=known_as,
            input=key.seal(f"input {job.identity}"),
            output=storage.real(options.output) if job.written.has_path else options.output,
            columns=columns.sanitized,
            tokens=columns.tokens,
            new_texts=options.new_text,
            exact_names=job.df.sparkSession.conf.get("spark.sql.caseSensitive") == "true",
            kept=columns.keep,
            policy=recorded_policy(release.policy)
            | {"release words": str(release.search.release_words)},
            law=dict(release.mechanism.noise_parameters(release.embedding.dimension)),
            unit=Unit(metric=guarantee.metric, fingerprint=guarantee.fingerprint),
            epsilon=guarantee.epsilon,
            delta=0.0,
            loss=recorded(guarantee.law),
            distances=None if far is None else {name: getattr(far, name) for name in NEIGHBOURS},
        )
        own, ways = key.derive(b"ledger"), columns.ways(job.source.df.schema)
        made = partial(fingerprint_batches, own, sanitizer, ways)
        # Under a fresh key no two runs have a row in common.
        self._fingerprints = None if options.key_file is None else made
        self._exposed: dict[str, None] = {}  # of all batches: the first exposes it
        self.costs: list[dict[str, Any]] = []
        self._check(self.folder.read())
        if is_connect(job.df.sparkSession):
            self.folder.check_seen(job.df.sparkSession)

    def _check(self, ledger: Ledger) -> None:
        """Refuse, whatever the rows are, what does not go with a ledger."""
        path, terms = self.folder.path, self.terms
        ledger.check_unit(path, terms.unit)
        known = (
            e for e in ledger.counted if (e.terms.key, e.terms.label) == (terms.key, terms.label)
        )
        if (other := next((e for e in known if e.terms.input != terms.input), None)) is not None:
            raise ConfigError(
                f"The ledger {path} has a release of another input under this key and name",
                got=f"release {other.number} to {other.terms.output}",
                do="Give this input another --name: under this one equal ids and texts come out as equal "
                "words, which would show which rows are in both",
            )
        if self._fingerprints is None:
            self._expose(ledger.exposed(terms))

    def _expose(self, exposed: list[str]) -> None:
        """Note what goes out raw from now on, or refuse it under a budget."""
        self._exposed.update(dict.fromkeys(exposed))
        if exposed and self.options.budget is not None:
            raise ConfigError(
                f"The release reveals what earlier releases in the ledger {self.folder.path} protected",
                allowed="with --budget: what they let out of the same rows",
                got="; ".join(exposed),
                do="Protect it as before; or leave out --budget once: then it is out, and the report says so",
            )

    def look(self, selected: DataFrame) -> None:
        """Find what a release of these rows would cost, or refuse it, and write nothing."""
        mine = (
            None if self._fingerprints is None else selected.mapInArrow(self._fingerprints, LINES)
        )
        self._assess(self.folder.read(), mine)

    @contextmanager
    def reserve(self, selected: DataFrame) -> Iterator[None]:
        """Reserve a release of rows that the block perturbs and writes, and commit it when it has ended."""
        release, storage, spark = uuid4().hex, self.job.storage, selected.sparkSession
        made, mine = None, None
        self._check(self.folder.read())
        storage.make_folder(self.folder.events)
        try:
            if self._fingerprints is not None:
                # Before they are reserved: whoever sees the reservation can read them.
                observation = Observation("dptext fingerprints")
                lines = selected.mapInArrow(self._fingerprints, LINES).observe(
                    observation, *measures()
                )
                with progress(spark, "Fingerprinting rows for the ledger"):
                    lines.write.parquet(self.folder.rows(release))
                made = observation.get
                mine = spark.read.schema(LINES).parquet(literal(self.folder.rows(release)))
            with self._turn():
                facts = {
                    "number": 1 + max((e.number for e in self.folder.read().entries), default=0),
                    "time": datetime.now(UTC).isoformat(
                        timespec="seconds"
                    ),  # for people: it orders nothing
                    "terms": self.terms.model_dump(mode="json"),
                    "fingerprints": made,
                }
                self.folder.add(release, "reserved", facts)
                # Read after the reservation is there: of two runs that reserve at once one sees the
                # other.
                others = (entry for entry in self.folder.read().entries if entry.release != release)
                self.folder.add(release, "assessed", self._assess(Ledger(tuple(others)), mine))
        except BaseException:
            self._leave(release)
            raise
        try:
            yield
        except BaseException:
            with suppress(*FAILURES, DptextError):
                # Where a table was before, or grows, nobody can tell.
                place = (
                    self.options.output
                    if self.job.written.has_path and not self.job.grows
                    else None
                )
                if place is not None and not storage.exists(place):
                    self._leave(release)
            raise
        self.folder.add(release, "ended", {"state": "committed"})

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Be the only one that reserves, where the file system is this machine's; others have no locks."""
        lock, deadline = f"{self.folder.path}/lock", time.monotonic() + _PATIENCE
        with ExitStack() as held:
            while True:
                with suppress(JobError) if time.monotonic() < deadline else nullcontext():
                    held.enter_context(
                        self.job.storage.locked(lock, "Another run reserves in the ledger")
                    )
                    break
                time.sleep(_PAUSE)
            yield

    def _assess(self, before: Ledger, mine: DataFrame | None) -> dict[str, Any]:
        """Compare rows with those of earlier releases, and refuse what is over the budget."""
        self._check(before)
        rows: RowCounts | None = None
        costliest: Decimal | None = Decimal(0)
        total = exact_sum([self.terms.epsilon])
        if mine is not None:
            with progress(mine.sparkSession, "Comparing rows with the ledger"):
                earlier = self._earlier(mine, before)
                exposures = before.exposures(self.terms)
                self._expose(exposed_by_row(mine, earlier, before, self.terms, exposures))
                rows, costliest, total = compare(mine, earlier, before, self.terms)
        facts = cost_of(
            before,
            self.terms,
            place=self.folder.path,
            rows=rows,
            costliest=costliest,
            budget=self.options.budget,
            exposed=[*self._exposed],
        )
        self.costs.append(facts)
        counts = [entry.release for entry in before.family(self.terms) if entry.total is None]
        return {"rows": rows, "total": decimal_text(total), "counts": counts}

    def _earlier(self, mine: DataFrame, before: Ledger) -> DataFrame | None:
        """Read the fingerprints of earlier releases of the family; refuse those that are not as written."""
        family = before.family(self.terms)
        wanted = {
            e.release: e.fingerprints for e in family if e.fingerprints and e.fingerprints["lines"]
        }
        if not wanted:
            return None
        try:
            files = [literal(self.folder.rows(name)) for name in wanted]
            read = mine.sparkSession.read.schema(LINES).parquet(*files)
            earlier = read.withColumn(
                "release", F.regexp_extract("_metadata.file_path", _RELEASE, 1)
            )
            found = earlier.groupBy("release").agg(*measures()).collect()  # a line for each release
        except (PySparkException, Py4JJavaError) as error:
            if not (got := condition(error)).startswith(_UNREADABLE):
                raise
        else:
            measured = {
                name: {"lines": lines, "checksum": checksum} for name, lines, checksum in found
            }
            got = ", ".join(
                f"rows/{name}" for name, facts in wanted.items() if measured.get(name) != facts
            )
            if not got:
                return earlier
        raise damaged(got, "the fingerprints of a release's rows are not those that were written")

    def _leave(self, release: str) -> None:
        """Withdraw a release, if it was reserved: its rows stay, as another run may be reading them."""
        with suppress(*FAILURES, DptextError):
            if any(entry.release == release for entry in self.folder.read().entries):
                self.folder.add(release, "ended", {"state": "withdrawn"})
            else:
                self.job.storage.delete(self.folder.rows(release))
