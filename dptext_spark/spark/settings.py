"""What the command line wants of Spark's session, until there is one; free of pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The user's own settings of a session, which may hold passwords and are never shown.

    Attributes:
        given: By name.
        remote: The URL of a server of Spark Connect, in place of a session of this machine.
    """

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    remote: str = field(default="", repr=False)


NOTHING: Final = Wanted()
WANTED: Final = ContextVar("wanted", default=NOTHING)


@contextmanager
def session_settings(given: Mapping[str, str], remote: str = "") -> Iterator[None]:
    """Have the session that is used meanwhile get the user's settings, and lie at ``remote``, if given."""
    token = WANTED.set(Wanted(given=given, remote=remote))
    try:
        yield
    finally:
        WANTED.reset(token)
