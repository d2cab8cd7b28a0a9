"""Spark around the work: sessions, Java, the bundle on executors, failures and progress."""

import re
from contextlib import suppress
from importlib.util import find_spec

from dptext_spark.errors import ConfigError

_OLDEST = (3, 5)


def _check_version() -> None:
    """Refuse a Spark that is too old, from its text alone: to import it takes a while, or fails."""
    spec = None
    with suppress(ModuleNotFoundError):
        spec = find_spec("pyspark")
    read = getattr(spec and spec.loader, "get_data", None)  # from a folder, or the zip that a cluster has
    text = read(re.sub(r"__init__\.py$", "version.py", str(spec.origin))).decode() if spec and read else ""
    found = re.search(r"__version__\D+(\d+)\.(\d+)[\w.]*", text)
    if found and (int(found[1]), int(found[2])) < _OLDEST:
        raise ConfigError(
            "This Spark is too old",
            allowed=f"Spark {_OLDEST[0]}.{_OLDEST[1]} or newer",
            got=re.sub(r"^\D+", "", found[0]),
            do="Choose a newer runtime of your platform, or install pyspark 3.5 or newer",
        )


_check_version()
