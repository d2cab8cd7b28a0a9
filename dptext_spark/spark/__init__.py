"""Spark around the work: sessions, Java, the bundle on executors, failures and progress."""

import re
import sys
from contextlib import suppress
from importlib.util import find_spec

from dptext_spark.errors import ConfigError


def _check_version() -> None:
    """Refuse a Spark that is too old, from its text alone: to import it takes a while, or fails."""
    spec = None
    with suppress(ModuleNotFoundError):
        spec = find_spec("pyspark")
    read = getattr(spec and spec.loader, "get_data", None)  # from a folder, or the zip that a cluster has
    text = read(re.sub(r"__init__\.py$", "version.py", str(spec.origin))).decode() if spec and read else ""
    found = re.search(r"__version__\D+((\d+)\.(\d+)[\w.]*)", text)
    if found and (int(found[2]), int(found[3])) < (3, 5):
        do = "Choose a newer runtime of your platform, or install pyspark 3.5 or newer"
        raise ConfigError("This Spark is too old", allowed="Spark 3.5 or newer", got=found[1], do=do)
    if found and int(found[2]) < 4 and find_spec("distutils") is None:
        raise ConfigError(
            "This Spark needs the module distutils, which this Python lacks",
            allowed="Spark 3.5 with Python 3.11, or Spark 4",
            got=f"Spark {found[1]} with Python {sys.version_info[0]}.{sys.version_info[1]}",
        )


_check_version()
