"""Optional parts of a bundle: what was computed from it and would take long to compute again.

A part is a small record, sealed by a hash and bound to the bundle by its fingerprint, and files that the
record names with their hashes: a search index, a projection's constant. It lies in the bundle's subfolder
``parts`` and travels with it. A bundle is whole without any, and no part changes its fingerprint.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dptext_spark.errors import BundleError
from dptext_spark.sealing import file_sha256, sealed, unsealed

FOLDER: Final = "parts"


@dataclass(frozen=True)
class Part:
    """One part: what ``parts/NAME.json`` holds; equal content, equal part."""

    record: bytes

    @classmethod
    def of(
        cls, name: str, fingerprint: str, values: Mapping[str, Any], files: Mapping[str, str] | None = None
    ) -> Part:
        """Seal a part of the bundle of a fingerprint: JSON-ready values, and the SHA-256 in hex of its files.

        Its name tells all that it was computed by, and is fit for a file's.
        """
        bound = {"name": name, "fingerprint": fingerprint}
        return cls(sealed({**bound, "values": {**values}, "files": {**(files or {})}}))

    @classmethod
    def read(cls, bundle: Path, name: str, fingerprint: str) -> Part | None:
        """Read a part from a bundle's folder; None where it is not whole, or belongs to another bundle."""
        try:
            content = (bundle / FOLDER / f"{name}.json").read_bytes()
        except OSError:
            return None
        entries = unsealed(content)
        if entries is None or (entries.get("name"), entries.get("fingerprint")) != (name, fingerprint):
            return None
        part = cls(content)
        return part if part.is_whole(bundle) else None

    @cached_property
    def _entries(self) -> dict[str, Any]:
        entries = unsealed(self.record)
        if entries is None:
            raise BundleError("A part of the embedding bundle is damaged", do="Make it again")
        return entries

    @property
    def name(self) -> str:
        """What the part is called."""
        return str(self._entries["name"])

    @property
    def values(self) -> dict[str, Any]:
        """The record's own values."""
        return dict(self._entries["values"])

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of the part's files by their paths below the bundle's folder."""
        return {f"{FOLDER}/{self.name}.{file}": sha for file, sha in self._entries["files"].items()}

    def path(self, bundle: Path, file: str) -> Path:
        """Say where a file of the part lies."""
        return bundle / FOLDER / f"{self.name}.{file}"

    def is_whole(self, bundle: Path) -> bool:
        """Say whether all files are there, and as they were written."""
        places = {bundle / path: sha for path, sha in self.files.items()}
        return all(path.is_file() and file_sha256(path) == sha for path, sha in places.items())

    def write(self, bundle: Path, files: Mapping[str, Path]) -> None:
        """Put the part into a bundle's folder, the record last: it is there whole or not at all.

        Its finished files, by name, are moved.

        Raises:
            OSError: The folder cannot be written to.
        """
        folder = bundle / FOLDER
        folder.mkdir(exist_ok=True)
        for name, file in files.items():
            shutil.move(file, self.path(bundle, name))
        unfinished = folder / f"{self.name}.{secrets.token_hex(8)}.tmp"
        try:
            unfinished.write_bytes(self.record)
            os.replace(unfinished, folder / f"{self.name}.json")
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
