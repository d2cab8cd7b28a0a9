"""JSON and TOML that others wrote, read so that every fault is one kind of exception."""

from __future__ import annotations

import json
import tomllib
from typing import Any


def json_value(text: str | bytes) -> Any:
    """Read JSON; raises ValueError where it is none, or nested too deeply to be meant."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def toml_table(text: str) -> dict[str, Any]:
    """Read TOML; raises ValueError likewise, whose message has the line, and keys alone."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
