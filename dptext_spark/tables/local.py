"""This machine's files, where there is no JVM to ask: before one starts, and after one has ended.

Spark finds all other faults, and these too where it runs already or is configured from outside.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from dptext_spark.errors import ConfigError, JobError
from dptext_spark.spark import WANTED, java
from dptext_spark.spark.failures import condition
from dptext_spark.tables.columns import TableColumns, absent_columns

if TYPE_CHECKING:  # workers load this module with others, and need no options
    from dptext_spark.options import EvaluateOptions, TableOptions

NO_FILE: Final = "no such file"
# Any of them may say that a path without a scheme lies in HDFS.
_ELSEWHERE: Final = (
    "HADOOP_CONF_DIR PYSPARK_GATEWAY_PORT PYSPARK_SUBMIT_ARGS SPARK_CONF_DIR SPARK_HOME YARN_CONF_DIR"
)


def is_plain() -> bool:
    """Say whether Spark is not running, and will be started as this package alone sets it up."""
    configured = any(name in os.environ for name in _ELSEWHERE.split())
    configured |= Path(pyspark.__file__).with_name("conf").exists()
    # These may say where paths lead and how names are read; others, such as the driver's memory, do not.
    configured |= any(name.startswith(("spark.hadoop.", "spark.sql.")) for name in WANTED.get())
    return not configured and not java.is_running()


def is_absent(path: str) -> bool:
    """Say whether a path of this machine, which is no pattern, leads nowhere; else Spark knows."""
    place = local_path(path)
    return is_plain() and place is not None and literal(path) == path and not os.path.exists(place)


def check_names(options: TableOptions | EvaluateOptions, columns: TableColumns) -> None:
    """Refuse columns that no Parquet file of this machine has, and name those of the first that are near."""
    place, missing, allowed = Path(local_path(options.input) or ""), columns.mentioned, list[str]()
    if not is_plain() or options.format != "parquet" or options.read_options or not place.is_absolute():
        return
    try:
        for file in _files(place):
            folders = [name.split("=") for name in file.relative_to(place).parts[:-1] if "=" in name]
            names = [*pq.read_schema(file).names, *(unquote(name) for name, *_ in folders)]
            inside = tuple(f"{name}{mark}" for name in names for mark in (".", "["))
            missing = [name for name in missing if name not in names and not name.startswith(inside)]
            allowed = allowed or names
            if not missing:
                return
    except (OSError, pa.ArrowException):
        return  # Spark finds what is wrong
    if allowed:
        raise absent_columns(missing, allowed)


def _files(place: Path) -> Iterator[Path]:
    """Walk through a table's files, without those that Spark passes over."""
    if place.is_file():
        yield place
        return
    for entry in sorted(place.iterdir()):
        if not entry.name.startswith(".") and (not entry.name.startswith("_") or "=" in entry.name):
            yield from _files(entry)


def local_path(path: str) -> str | None:
    """Give the full path where Hadoop would look for a place of this machine; None for another place."""
    if scheme := re.match(r"[^/:]*:", path):  # as Hadoop finds it
        path = re.sub(r"^file:(//(?=/))?", "", path)
        if scheme[0] != "file:" or not path.startswith("/"):
            return None
    return None if path.startswith("//") else os.path.abspath(path)


def literal(path: str) -> str:
    """Write a path as a pattern that stands for it alone."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


class LocalFiles:
    """What is asked of paths, answered for this machine; nothing off it exists."""

    def exists(self, path: str) -> bool:
        """Say whether anything is at ``path``."""
        place = local_path(path)
        return place is not None and os.path.exists(place)

    def qualified(self, path: str) -> str:
        """Give the full path with scheme."""
        place = local_path(path)
        return path if place is None else f"file:{place}"

    def real(self, path: str) -> str:
        """Give the full path, symbolic links of local files followed: one place has one."""
        place = local_path(path)
        return path if place is None else f"file:{os.path.realpath(place)}"

    def matches(self, pattern: str) -> list[str]:
        """Give the path where there is such a one, or else what Spark takes it for as a pattern."""
        return [self.qualified(pattern)] if self.exists(pattern) else []

    def children(self, folder: str) -> list[str]:
        """Give the full paths of what lies in a folder; none where there is no such folder."""
        try:
            return [f"file:{entry.path}" for entry in os.scandir(local_path(folder) or "")]
        except OSError:
            return []

    def below(self, folder: str, pattern: str) -> list[str]:
        """Give the paths below a folder of any name, as Hadoop does not, that a pattern with ``*`` means."""
        found = [folder]
        for part in pattern.split("/"):
            inside = [p for f in found for p in (self.children(f) if "*" in part else [f"{f}/{part}"])]
            found = [path for path in inside if fnmatchcase(path.rpartition("/")[2], part)]
        return [path for path in found if "*" in part or self.exists(path)]

    def read(self, path: str) -> str:
        """Read a text file; raises ConfigError where there is none."""
        try:
            return self.content(path).decode()
        except FileNotFoundError:
            raise ConfigError(f"The file {path} cannot be read", got=NO_FILE) from None
        except (OSError, Py4JJavaError, PySparkException, UnicodeDecodeError) as error:
            if isinstance(error, ConnectionError):  # of a JVM that has ended: it is not the file
                raise
            raise ConfigError(f"The file {path} cannot be read", got=condition(error)) from None

    def content(self, path: str) -> bytes:
        """Read a file."""
        return Path(local_path(path) or path).read_bytes()

    def write(self, path: str, text: str) -> None:
        """Write a text file, and the folders above it, replacing what is there."""
        place = Path(local_path(path) or path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, unless it is there."""
        os.makedirs(local_path(path) or path, exist_ok=True)

    def make_private_folder(self, path: str) -> None:
        """Make a folder for its owner alone, where the file system knows of owners, unless it is there."""
        place = Path(local_path(path) or path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename; the target must not exist."""
        os.rename(str(local_path(source)), str(local_path(target)))

    def delete(self, path: str) -> None:
        """Remove what is there, with all that is in it."""
        shutil.rmtree(str(local_path(path)), ignore_errors=True)

    @contextmanager
    def locked(self, path: str, taken: str) -> Iterator[None]:
        """Hold a lock that ends with the driver, where the file system has such locks.

        Raises:
            JobError: Another process has it; the message is ``taken``.
        """
        with open(local_path(path) or path, "w") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as Java does
            except (BlockingIOError, PermissionError):
                raise JobError(taken, got=path, do="Wait until it has ended") from None
            except OSError:
                pass  # a volume without locks
            yield
