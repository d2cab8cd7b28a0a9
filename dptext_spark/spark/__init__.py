"""Spark around the work: sessions, Java, bundles on executors, failures; this file needs no pyspark."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from dptext_spark.errors import ConfigError

WANTED: Final[ContextVar[Mapping[str, str]]] = ContextVar("wanted", default=MappingProxyType({}))
"""The user's own settings of a session until there is one; they may hold passwords and are never shown."""


@contextmanager
def session_settings(given: Mapping[str, str]) -> Iterator[None]:
    """Have the session that is used meanwhile get the user's settings."""
    token = WANTED.set(given)
    try:
        yield
    finally:
        WANTED.reset(token)


def _check_version() -> None:
    """Refuse a Spark that is too old, from its text alone: to import it takes a while, or fails."""
    spec = None
    with suppress(ModuleNotFoundError):
        spec = find_spec("pyspark")
    read = getattr(
        spec and spec.loader, "get_data", None
    )  # from a folder, or the zip that a cluster has
    text = (
        read(re.sub(r"__init__\.py$", "version.py", str(spec.origin))).decode()
        if spec and read
        else ""
    )
    found = re.search(r"__version__\D+((\d+)\.(\d+)[\w.]*)", text)
    if found and (int(found[2]), int(found[3])) < (3, 5):
        do = "Choose a newer runtime of your platform, or install pyspark 3.5 or newer"
        raise ConfigError(
            "This Spark is too old", allowed="Spark 3.5 or newer", got=found[1], do=do
        )
    if found and int(found[2]) < 4 and find_spec("distutils") is None:
        raise ConfigError(
            "This Spark needs the module distutils, which this Python lacks",
            allowed="Spark 3.5 with Python 3.11, or Spark 4",
            got=f"Spark {found[1]} with Python {sys.version_info[0]}.{sys.version_info[1]}",
        )


_check_version()
