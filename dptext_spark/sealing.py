"""Hashes that show whether files are those that were written: of bundles, and of ledgers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dptext_spark.parsing import json_value


def sealed(entries: Mapping[str, Any]) -> bytes:
    """Render a record with a hash over its other entries; a record has exactly one rendering."""
    record = {**entries, "sha256": json_sha256(entries)}
    return (json.dumps(record, sort_keys=True, indent=2) + "\n").encode("ascii")


def unsealed(content: bytes) -> dict[str, Any] | None:
    """Read the entries of a record; None where the content is no record, or was changed."""
    try:
        entries = json_value(content)
    except ValueError:
        return None
    if not isinstance(entries, dict):
        return None
    entries.pop("sha256", None)
    if content != sealed(entries):
        return None
    return entries


def json_sha256(entries: Mapping[str, Any]) -> str:
    """Hash JSON-ready values: SHA-256 in hex."""
    text = json.dumps(entries, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def file_sha256(path: Path) -> str:
    """Hash a file: SHA-256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
