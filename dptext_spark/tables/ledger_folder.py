"""The folder of a ledger, on any file system: its events, and fingerprints of released rows.

``events/RELEASE.EVENT.json`` are the events of :mod:`dptext_spark.accounting.ledger`. An event is
written under another name and takes its own when it is whole; nothing is ever changed. What is
asked of the file system: who lists a folder sees every file that was written before, and a small
file appears whole. Local disks, HDFS and today's object stores do so.

``rows/RELEASE`` has the fingerprints of a release's rows as Parquet:
:mod:`dptext_spark.tables.fingerprints`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from dptext_spark.accounting.ledger import Ledger, damaged, read_event, write_event
from dptext_spark.errors import ConfigError
from dptext_spark.spark.failures import FAILURES, condition
from dptext_spark.tables.storage import LocalFiles, Storage, literal, local_path


class LedgerFolder:
    """A ledger that is read."""

    def __init__(self, path: str, storage: LocalFiles) -> None:
        # A server of Spark Connect would begin a relative path elsewhere.
        if not isinstance(storage, Storage) and ":" not in path:
            path = os.path.abspath(path)
        self.path = path.rstrip("/")
        self.storage = storage
        self.events = f"{self.path}/events"
        self._read: dict[str, dict[str, Any]] = {}

    def read(self) -> Ledger:
        """Read all events; a ledger that nobody began has none. One that is damaged is refused."""
        # In this order: another run may begin the ledger meanwhile.
        entries = self._entries(self.path)
        if not self.storage.exists(self.events):
            if not entries:
                return Ledger()
            raise ConfigError(
                f"The folder {self.path} is not a ledger",
                allowed="a folder that a ledger began, or one that does not exist yet",
                do="Choose another --ledger",
            )
        events = self._entries(self.events)
        for name in sorted(events.keys() - self._read.keys()):  # no event ever changes
            self._read[name] = read_event(name, self.storage.read(events[name]))
        missing = sorted(self._read.keys() - events.keys())
        if missing:
            raise damaged(missing[0])
        return Ledger.from_events(self._read.values())

    def _entries(self, folder: str) -> dict[str, str]:
        """Return, by name, what lies in a folder; hidden files may not be whole."""
        entries = {path.rpartition("/")[2]: path for path in self.storage.children(folder)}
        return {name: path for name, path in entries.items() if not name.startswith(".")}

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

        A task copies a file that this machine wrote, and this machine reads the copy; both are
        removed.
        """
        token = uuid4().hex
        place = f"{self.path}/.{token}"
        got = "a folder of this machine alone"
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
            do="Choose such a folder for --ledger; file:/PATH means no other file system of the "
            "server's",
        )
