"""Spark around the work: sessions, Java, bundles on executors, failures.

This file needs no pyspark.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from dptext_spark.errors import ConfigError

USER_SETTINGS: Final[ContextVar[Mapping[str, str]]] = ContextVar(
    "user_settings", default=MappingProxyType({})
)
"""The user's own settings until there is a session; never shown, as they may hold passwords."""


@contextmanager
def session_settings(settings: Mapping[str, str]) -> Iterator[None]:
    """Set what the session that is used meanwhile gets from the user."""
    token = USER_SETTINGS.set(settings)
    try:
        yield
    finally:
        USER_SETTINGS.reset(token)


def _check_version() -> None:
    """Check by its text alone that Spark is new enough: to import it takes a while, or fails."""
    version = re.search(r"__version__\D+((\d+)\.(\d+)[\w.]*)", _version_text())
    if version is None:
        return
    if (int(version[2]), int(version[3])) < (3, 5):
        raise ConfigError(
            "This Spark is too old",
            allowed="Spark 3.5 or newer",
            got=version[1],
            do="Choose a newer runtime of your platform, or install pyspark 3.5 or newer",
        )
    if int(version[2]) < 4 and find_spec("distutils") is None:
        raise ConfigError(
            "This Spark needs the module distutils, which this Python lacks",
            allowed="Spark 3.5 with Python 3.11, or Spark 4",
            got=f"Spark {version[1]} with Python {sys.version_info[0]}.{sys.version_info[1]}",
        )


def _version_text() -> str:
    """Read the module with pyspark's version; empty without one."""
    spec = None
    with suppress(ModuleNotFoundError):
        spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return ""
    # From a folder, or from the zip that a cluster has.
    read = getattr(spec.loader, "get_data", None)
    if read is None:
        return ""
    return str(read(re.sub(r"__init__\.py$", "version.py", spec.origin)).decode())


_check_version()
