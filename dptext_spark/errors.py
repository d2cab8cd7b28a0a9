"""Errors in one form: what is wrong, what is allowed, what was given, what to do.

Messages never hold row text, tokens of a table or key material.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

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
        self, what: str, *, allowed: str = "", got: str = "", do: str = "", faults: Sequence[str] = ()
    ) -> None:
        super().__init__(what)  # what unpickling gives back; the rest comes with the attributes
        self.what, self.allowed, self.got, self.do, self.faults = what, allowed, got, do, faults

    def __str__(self) -> str:
        listed = "\n  ".join([f"{self.what}:", *self.faults]) if self.faults else printable(f"{self.what}.")
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
    return ConfigError(f"{what} is not UTF-8", allowed="text in UTF-8", got=got, do="Convert or rename it")


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
