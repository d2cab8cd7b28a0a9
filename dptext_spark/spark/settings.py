"""What the command line wants of Spark's session, until there is one; free of pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings of a session.

    Attributes:
        given: The user's own, which may hold passwords and are never shown.
        at_start: What only a session that is not yet there can take; no loss where it cannot.
    """

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    at_start: Mapping[str, str] = field(default_factory=dict)


NOTHING: Final = Wanted()
WANTED: Final = ContextVar("wanted", default=NOTHING)


@contextmanager
def session_settings(given: Mapping[str, str], *, verbose: bool) -> Iterator[None]:
    """Have the session that is used meanwhile get the user's settings, and show more."""
    logged = {"spark.log.level": "INFO"} if verbose else {}
    token = WANTED.set(Wanted(given=given, at_start=logged))
    try:
        yield
    finally:
        WANTED.reset(token)
