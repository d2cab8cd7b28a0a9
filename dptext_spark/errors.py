"""Errors in one form: what is wrong, what is allowed, what was given, what to do; and values given by name.

Messages never hold row text, tokens of a table or key material.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

# Controls, line ends, what turns the direction of writing, and halves of characters.
_UNSEEN: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class DptextError(Exception):
    """An error that a user can mend; the command line prints it and exits with code 2.

    Args:
        what: What is wrong, one clause without a full stop.
        allowed: What would be accepted.
        got: What was given; never row content or key material.
        do: What to do about it.
        faults: Messages of errors that this one lists, a line each.
    """

    def __init__(
        self,
        what: str,
        *,
        allowed: str = "",
        got: str = "",
        do: str = "",
        faults: Sequence[str] = (),
    ) -> None:
        super().__init__(what)  # what unpickling gives back; the rest comes with the attributes
        self.what, self.allowed, self.got, self.do, self.faults = what, allowed, got, do, faults

    def __str__(self) -> str:
        listed = (
            "\n  ".join([f"{self.what}:", *self.faults])
            if self.faults
            else printable(f"{self.what}.")
        )
        parts = [f"Allowed: {self.allowed}."] if self.allowed else []
        parts += [f"Got: {self.got}."] if self.got else []
        parts += [f"{self.do}."] if self.do else []
        return " ".join([listed, *map(printable, parts)])


class ConfigError(DptextError):
    """An option or a combination of options is wrong."""


class InputError(DptextError):
    """An input table, or a column of it, cannot be used."""


class BundleError(DptextError):
    """An embedding source or an embedding bundle cannot be used."""


class JobError(DptextError):
    """A run failed although its options and its input's shape are right; the exit code is 1."""


def printable(line: str) -> str:
    """Write as escapes what would break a line of a terminal or a page, such as a line break in a name."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


def not_utf8(what: str, error: UnicodeDecodeError | UnicodeEncodeError) -> ConfigError:
    """Refuse bytes that are not UTF-8, as what decodes or encodes them does; the message has none of them."""
    got = f"another byte at place {error.start + 1}"
    return ConfigError(
        f"{what} is not UTF-8", allowed="text in UTF-8", got=got, do="Convert or rename it"
    )


def nearest(given: Iterable[str], known: Iterable[str]) -> str:
    """Suggest the names that mistyped ones are close to, as the ``do`` of an error; empty where none is."""
    names = {name.lower(): name for name in known}
    mistyped = [name.lower() for name in given if name not in names.values()]
    close = [names[near] for name in mistyped for near in difflib.get_close_matches(name, names, 1)]
    return f"Perhaps you meant {', '.join(dict.fromkeys(close))}" if close else ""


def all_of(*steps: Callable[[], Any]) -> list[Any]:
    """Run independent checks; raise the one failure, or a ConfigError that lists each of them once."""
    results, failures = [], []
    for step in steps:
        try:
            results.append(step())
        except DptextError as error:
            failures.append(error)
    distinct = {str(error): error for error in failures}
    if len(distinct) == 1:
        raise failures[0]
    if distinct:
        raise ConfigError(f"{len(distinct)} things are wrong", faults=[*distinct])
    return results


def parsed(spec: str) -> tuple[str, dict[str, float | str]]:
    """Read ``NAME:PARAMETER=VALUE,PARAMETER=VALUE``; a value that reads as a number is one."""
    name, colon, listed = spec.partition(":")
    pairs = [part.partition("=") for part in listed.split(",")] if colon else []
    given = {parameter: number(text) for parameter, _, text in pairs}
    if len(given) < len(pairs) or not all(parameter and text for parameter, _, text in pairs):
        what = f"Parameters of {name} cannot be read"
        raise ConfigError(
            what, allowed="NAME:PARAMETER=VALUE,PARAMETER=VALUE, each once", got=repr(spec)
        )
    return name, given


def number(text: str) -> float | str:
    """Read a number; text that is none stays text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def leaves(kind: Any) -> list[Any]:
    """Give the types, values and marks that an annotation is made of."""
    parts = get_args(kind)
    return [leaf for part in parts for leaf in leaves(part)] if parts else [kind]


def range_of(field: FieldInfo) -> str:
    """Say which values a field takes, as ``0 to 1`` or ``nearest or vickrey``; empty for any."""
    kinds = leaves(field.annotation)
    names = [leaf for leaf in kinds if isinstance(leaf, str)]
    if names and int not in kinds and float not in kinds:
        return " or ".join(names)
    marks = [
        mark for each in (field, *kinds) if isinstance(each, FieldInfo) for mark in each.metadata
    ]
    signs = {"ge": "{} or more", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
    found = {
        sign: f"{bound:g}"
        for mark in marks
        for sign in signs
        if (bound := getattr(mark, sign, None)) is not None
        and abs(bound) < 2.0**53  # as integers have it
    }
    if found.keys() == {"ge", "le"}:
        return f"{found['ge']} to {found['le']}"
    if found.keys() == {"gt", "lt"}:
        return f"between {found['gt']} and {found['lt']}"
    return ", ".join(text.format(found[sign]) for sign, text in signs.items() if sign in found)


def faults(
    error: ValidationError,
    called: Callable[[ErrorDetails], str],
    *,
    unknown: str,
    known: Collection[str],
    hidden: Callable[[ErrorDetails], bool] = lambda _: False,
) -> list[str]:
    """Write pydantic's findings in this package's form; the kinds of value that one name allows as one.

    ``called`` names a value, ``unknown`` ends the sentence on a name that is none of ``known``; a
    ``hidden`` value is not quoted.
    """
    found = groupby(
        error.errors(), key=lambda e: (called(e), "" if hidden(e) else _quoted(e["input"]))
    )
    said = []
    for (name, got), (first, *others) in found:
        if first["type"] == "value_error":  # in this form already
            said.append(first["msg"].removeprefix("Value error, ").rstrip(".") + ".")
        elif first["type"] == "missing":
            said.append(f"{name} is missing.")
        elif first["type"] == "extra_forbidden":
            do = nearest([str(first["loc"][-1])], known)
            said.append(str(ConfigError(f"{name} {unknown}", do=do)))
        else:
            allowed = ", or ".join(dict.fromkeys(map(_allowed, [first, *others])))
            choices = re.findall(r"[\w-]+", allowed) if first["type"] == "literal_error" else []
            do, got = nearest([str(first["input"])], choices), got or "a value that is not shown"
            said.append(
                str(ConfigError(f"{name} has a wrong value", allowed=allowed, got=got, do=do))
            )
    return said


def _quoted(value: object) -> str:
    """Quote plain values and lists of them; other values may hold anything."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_quoted, value))}]"
    return (
        repr(value)
        if value is None or isinstance(value, str | int | float)
        else type(value).__name__
    )


def _allowed(error: ErrorDetails) -> str:
    bounds = error.get("ctx", {})
    return {
        "greater_than": f"a number above {bounds.get('gt', 0):g}",
        "greater_than_equal": f"a number, {bounds.get('ge', 0):g} or more",
        "less_than": f"a number below {bounds.get('lt', 0):g}",
        "less_than_equal": f"a number, {bounds.get('le', 0):g} or less",
        "finite_number": "a finite number",
        "path_type": "a path",
        "string_pattern_mismatch": "NAME=VALUE",
        "literal_error": str(bounds.get("expected", "")).replace("'", ""),
    }.get(error["type"], error["msg"].removeprefix("Input should be "))


def check_names(
    owner: str, names: Collection[str], unnamed: Collection[object], unknown: Iterable[str] = ()
) -> None:
    """Refuse parameters without a name, or of a name that does not exist."""
    absent = [*unknown]
    if unnamed or absent:
        raise ConfigError(
            f"{owner} takes its parameters by name",
            allowed=", ".join(names),
            got=", ".join(absent) or f"{len(unnamed)} without a name",
            do=nearest(absent, names) or f"Write {owner}({next(iter(names))}=...)",
        )
