"""The folder of a ledger, on any file system: events that are added, and sealed rows.

``events/RELEASE.KIND.json`` are the events of :mod:`dptext_spark.accounting.ledger`, and ``rows/RELEASE`` has
the sealed rows of a release as Parquet. An event is written under another name and takes its own when it is
whole; nothing is ever changed. What is asked of the file system: who lists a folder sees every file that was
written before, and a small file appears whole. Local disks, HDFS and today's object stores do so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from dptext_spark.accounting.ledger import Event, Ledger, damaged, read_event
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.tables.storage import Places, Storage, literal

# Seconds that a run waits for its turn: others compare their rows meanwhile.
_PATIENCE: Final = 600.0
_PAUSE: Final = 0.2


@dataclass(frozen=True, kw_only=True)
class LedgerFolder:
    """A ledger that is read."""

    path: str
    storage: Places
    _read: dict[str, Event] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _events(self) -> str:
        return f"{self.path.rstrip('/')}/events"

    @property
    def begun(self) -> bool:
        """Whether it has been begun."""
        return self.storage.exists(self._events)

    def check(self) -> None:
        """Refuse a folder of other things.

        Raises:
            ConfigError: It is one.
        """
        # In this order: another run may begin the ledger meanwhile.
        if self.storage.matches(f"{literal(self.path.rstrip('/'))}/*") and not self.begun:
            raise ConfigError(
                f"The folder {self.path} is no ledger",
                allowed="a folder that a ledger began, or one that does not exist yet",
                do="Choose another --ledger",
            )

    def read(self) -> Ledger:
        """Read all events.

        Raises:
            ConfigError: It is damaged.
        """
        if not self.begun:
            return Ledger()
        paths = {path.rpartition("/")[2]: path for path in self.storage.matches(f"{literal(self._events)}/*")}
        # What begins with a dot was not whole when its run was killed.
        whole = {name: path for name, path in paths.items() if not name.startswith(".")}
        for name in sorted(whole.keys() - self._read.keys()):  # no event ever changes
            self._read[name] = read_event(name, self.storage.read(whole[name]))
        if gone := sorted(self._read.keys() - whole.keys()):
            raise damaged(gone[0])
        return Ledger.of(self._read.values())


@dataclass(frozen=True, kw_only=True)
class OpenLedger(LedgerFolder):
    """A ledger to which events are added."""

    storage: Storage

    def rows(self, release: str) -> str:
        """Give the folder of a release's sealed rows."""
        return f"{self.path.rstrip('/')}/rows/{release}"

    def begin(self) -> None:
        """Make the folder, unless it is there.

        Raises:
            ConfigError: It is one of other things.
        """
        self.check()
        self.storage.make_folder(self._events)

    def add(self, event: Event) -> None:
        """Add an event, which is there whole or not at all.

        Raises:
            JobError: It cannot be written.
        """
        hidden = f"{self._events}/.{event.name()}.part"
        self.storage.write(hidden, event.content())
        self.storage.rename(hidden, f"{self._events}/{event.name()}")

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be the only one that reserves, where the file system is this machine's; others have no locks.

        Raises:
            JobError: Another run did not end its turn.
        """
        deadline = time.monotonic() + _PATIENCE
        lock = f"{self.path.rstrip('/')}/lock"
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(self.storage.locked(lock, "Another run reserves in the ledger"))
                    break
                except JobError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(_PAUSE)
            yield


def now() -> str:
    """Give the time, for people to read; nothing is ordered by it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
