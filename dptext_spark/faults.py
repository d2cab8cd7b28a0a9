"""What is wrong with values that are given by name, in this package's form; pydantic finds most of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from itertools import groupby

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dptext_spark.errors import ConfigError, nearest


def faults(
    error: ValidationError,
    called: Callable[[ErrorDetails], str],
    *,
    unknown: str,
    known: Collection[str],
    hidden: Callable[[ErrorDetails], bool] = lambda _: False,
) -> list[str]:
    """Write pydantic's findings in this package's form; the kinds of value that one name allows as one.

    Args:
        called: What a value is called.
        unknown: What is said of a name that there is not.
        known: The names that there are.
        hidden: Whether a value must not be quoted.
    """
    found = groupby(error.errors(), key=lambda e: (called(e), "" if hidden(e) else _quoted(e["input"])))
    return [
        _fault(name, list(group), got or "a value that is not shown", unknown, known)
        for (name, got), group in found
    ]


def check_names(
    owner: str, names: Collection[str], unnamed: Collection[object], unknown: Iterable[str] = ()
) -> None:
    """Refuse parameters without a name, or of a name that there is not.

    Raises:
        ConfigError: There are any.
    """
    allowed = ", ".join(names)
    if unnamed:
        raise ConfigError(
            f"{owner} takes its parameters by name",
            allowed=allowed,
            got=f"{len(unnamed)} without a name",
            do=f"Write {owner}({next(iter(names))}=...)",
        )
    if absent := [*unknown]:
        raise ConfigError(
            f"{owner} has no such parameters",
            allowed=allowed,
            got=", ".join(absent),
            do=nearest(absent, names),
        )


def _quoted(value: object) -> str:
    """Quote plain values and lists of them; what others hold is nobody's business."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    return repr(value) if value is None or isinstance(value, str | int | float) else type(value).__name__


def _fault(name: str, group: list[ErrorDetails], got: str, unknown: str, known: Collection[str]) -> str:
    error = group[0]
    if error["type"] == "value_error":  # said in this form already
        return error["msg"].removeprefix("Value error, ").rstrip(".") + "."
    if error["type"] == "missing":
        return f"{name} is missing."
    if error["type"] == "extra_forbidden":
        return str(ConfigError(f"{name} {unknown}", do=nearest([str(error["loc"][-1])], known)))
    allowed = ", or ".join(dict.fromkeys(map(_allowed, group)))
    chosen = error["type"] in ("literal_error", "enum", "one_of", "oov")
    do = nearest([str(error["input"])], re.findall(r"[\w-]+", allowed)) if chosen else ""
    return str(ConfigError(f"{name} has a wrong value", allowed=allowed, got=got, do=do))


def _allowed(error: ErrorDetails) -> str:
    bounds = error.get("ctx", {})
    choices = str(bounds.get("expected", "")).replace("'", "")
    return {
        "greater_than": f"a number above {bounds.get('gt', 0):g}",
        "greater_than_equal": f"a number, {bounds.get('ge', 0):g} or more",
        "less_than": f"a number below {bounds.get('lt', 0):g}",
        "less_than_equal": f"a number, {bounds.get('le', 0):g} or less",
        "finite_number": "a finite number",
        "path_type": "a path",
        "enum": choices,
        "literal_error": choices,
    }.get(error["type"], error["msg"].removeprefix("Input should be "))
