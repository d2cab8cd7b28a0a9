"""How a mechanism is named by its options, and how what a command wrote is read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism


def setting(mechanism: Mechanism) -> str:
    """Name a mechanism's parameters other than epsilon that are not their defaults, as ``lambda=0.5``."""
    fields = type(mechanism).model_fields
    values = mechanism.model_dump(exclude={"epsilon"})
    chosen = {fields[name].alias or name: v for name, v in values.items() if v != fields[name].default}
    return ", ".join(f"{n}={v:.15g}" if isinstance(v, float) else f"{n}={v}" for n, v in chosen.items())


def option_line(mechanism: Mechanism) -> str:
    """Write the options of a mechanism for the command line, each number so that reading gives it back."""
    epsilon = repr(mechanism.epsilon).removesuffix(".0")
    return f"--mechanism {mechanism.spec} --epsilon {epsilon}"


def read_findings(
    path: str,
    text_of: Callable[[str], str],
    *,
    file: str,
    of: set[str],
    version: int,
    what: str,
    command: str,
) -> Mapping[str, Any]:
    """Read what a command found.

    Args:
        path: The folder that it wrote, or the file of JSON in it.
        text_of: Reads a file.
        file, of, version: That file's name, entries that it has, and the version of its format.
        what, command: What it is, and of which command, in words.

    Raises:
        ConfigError: It is not one, or of another format.
    """
    place = path if path.endswith(".json") else f"{path.rstrip('/')}/{file}"
    try:
        value = json.loads(text_of(place))
        found = value["format_version"] if of <= value.keys() else None
    except (json.JSONDecodeError, AttributeError, TypeError, KeyError):
        found = None
    if found != version:
        raise ConfigError(
            f"{place} is not {what} of this version",
            allowed=f"format version {version}",
            do=f"Give the folder of a finished {command}",
        )
    return dict(value)
