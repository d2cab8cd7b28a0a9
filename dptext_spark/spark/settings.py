"""What the command line wants of Spark's session, until there is one; free of pyspark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

WANTED: Final[ContextVar[Mapping[str, str]]] = ContextVar("wanted", default=MappingProxyType({}))
"""The user's own settings of a session, which may hold passwords and are never shown."""


@contextmanager
def session_settings(given: Mapping[str, str]) -> Iterator[None]:
    """Have the session that is used meanwhile get the user's settings."""
    token = WANTED.set(given)
    try:
        yield
    finally:
        WANTED.reset(token)
