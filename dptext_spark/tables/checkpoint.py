"""The checkpoint of a growing table: what it says of its files and batches, read with care.

Whoever may write to its folder may have written anything there: what has another form than a run
writes is refused by name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from dptext_spark.errors import ConfigError
from dptext_spark.parsing import json_value
from dptext_spark.tables.storage import LocalFiles, file_url, spark_log

_RECORD: Final = "dptext.json"
_COUNTS: Final = "batches/*.json"
_SIZES: Final = "sizes/*.json"
_NUMBER: Final = re.compile(r"/(\d{1,18})\.json$", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The folder of a checkpoint, in the form that :mod:`dptext_spark.tables.incremental` has."""

    path: str
    storage: LocalFiles

    @property
    def record(self) -> str:
        """The path of what the release is made of."""
        return f"{self.path}/{_RECORD}"

    @property
    def lock(self) -> str:
        """The path of the file that a run locks."""
        return f"{self.path}/lock"

    @property
    def stream(self) -> str:
        """The folder of Spark's own account."""
        return f"{self.path}/stream"

    def counts_path(self, number: int) -> str:
        """Return the path of the counts of a batch."""
        return f"{self.path}/batches/{number:06d}.json"

    @property
    def counts_paths(self) -> list[str]:
        """The paths of the counts of all batches that are in the output."""
        return self.storage.below(self.path, _COUNTS)

    def identity(self) -> dict[str, Any]:
        """Read what the release is made of."""
        return self._entries(self.record)

    def counts(self, path: str) -> dict[str, int]:
        """Read the counts of a batch; there are always ``rows``."""
        counts = self._numbers(path)
        if "rows" not in counts:
            raise damaged(path)
        return counts

    def sizes(self) -> dict[str, int]:
        """Return, by digest of the path, the noted sizes of files as they were added."""
        sizes: dict[str, int] = {}
        for path in self.storage.below(self.path, _SIZES):
            sizes.update(self._numbers(path))
        return sizes

    def note_sizes(self, sizes: Mapping[str, int]) -> None:
        """Write down the sizes of files that were added."""
        number = len(self.storage.below(self.path, _SIZES))
        self.note(f"{self.path}/sizes/{number:06d}.json", sizes)

    def added_files(self) -> dict[str, int]:
        """Return, by path, the modification times in milliseconds of files in the output."""
        paths = self.counts_paths
        if not paths:
            return {}
        last = 0
        for path in paths:
            match = _NUMBER.search(path)
            if match is None:
                raise damaged(path)
            last = max(last, int(match[1]))
        offsets = f"{self.stream}/offsets/{last}"
        content = self.storage.read(offsets)
        last_entry = _read(offsets, lambda: _log_offset(content))
        log = f"{self.stream}/sources/0"
        entries = spark_log(self.storage, log)
        files: dict[str, int] = _read(log, lambda: _files_until(last_entry, entries))
        return files

    def note(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a file that is there whole or not at all."""
        self.storage.write(f"{path}.part", json.dumps(value, indent=2) + "\n", private=True)
        self.storage.rename(f"{path}.part", path)

    def _numbers(self, path: str) -> dict[str, int]:
        entries = self._entries(path)
        for number in entries.values():
            if type(number) is not int or number < 0:
                raise damaged(path)
        return entries

    def _entries(self, path: str) -> dict[str, Any]:
        content = self.storage.read(path)
        entries = _read(path, lambda: json_value(content))
        if not isinstance(entries, dict):
            raise damaged(path)
        return entries


def damaged(path: str) -> ConfigError:
    """Return the error of a file of a checkpoint that no run wrote so."""
    return ConfigError(
        "The checkpoint is damaged",
        got=path,
        do="Restore it from a copy, or begin again with another --incremental and --output, which "
        "costs ε again for all rows",
    )


def digest(path: str) -> str:
    """Return the digest of a path: values of rows name the folders of a partitioned table."""
    return hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()


def _read(path: str, read: Callable[[], Any]) -> Any:
    """Return what is read; refuse a file of another form."""
    try:
        return read()
    except (ValueError, LookupError, TypeError, AttributeError):
        raise damaged(path) from None


def _log_offset(content: str) -> int:
    """Return the last entry of Spark's log of files that a batch has."""
    number = json_value(content.splitlines()[-1])["logOffset"]
    if type(number) is not int:
        raise TypeError
    return number


def _files_until(last_entry: int, entries: list[dict[str, Any]]) -> dict[str, int]:
    files: dict[str, int] = {}
    for entry in entries:
        modified = entry["timestamp"]
        if type(modified) is not int:
            raise TypeError
        if entry["batchId"] <= last_entry:
            files[file_url(unquote(entry["path"]))] = modified
    return files
