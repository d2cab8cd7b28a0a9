"""Faults of paths and names of columns that are found before Spark starts, which takes seconds.

Spark finds the rest, and all of them where it runs already or is configured from outside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark

from dptext_spark.options import EvaluateOptions, TableOptions
from dptext_spark.spark.settings import WANTED
from dptext_spark.tables.columns import TableColumns, absent_columns
from dptext_spark.tables.formats.files import FileFormat, Parquet
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.local_files import LocalFiles, local_path
from dptext_spark.tables.run import Job, check_places, chosen_formats, mentioned, paths
from dptext_spark.tables.storage import NO_FILE

# Any of them may say that a path without a scheme lies in HDFS.
_ELSEWHERE: Final = (
    "HADOOP_CONF_DIR PYSPARK_GATEWAY_PORT PYSPARK_SUBMIT_ARGS SPARK_CONF_DIR SPARK_HOME YARN_CONF_DIR"
)


def is_plain() -> bool:
    """Say whether Spark is not running, and will be started as this package alone sets it up."""
    configured = any(name in os.environ for name in _ELSEWHERE.split())
    configured |= Path(pyspark.__file__).with_name("conf").exists()
    # These may say where paths lead and how names are read; others, such as the driver's memory, do not.
    configured |= any(name.startswith(("spark.hadoop.", "spark.sql.")) for name in WANTED.get().given)
    return not configured and pyspark.SparkContext._active_spark_context is None


def is_absent(path: str) -> bool:
    """Say whether a path of this machine, which is no pattern, leads nowhere; else Spark knows."""
    place = local_path(path)
    return is_plain() and place is not None and not _is_pattern(path) and not os.path.exists(place)


def check_paths(job: type[Job], options: TableOptions) -> None:
    """Refuse places of this machine that lie inside one another, or are there and must not be, or must be.

    Raises:
        DptextError: There is such a place, or a format cannot do what is asked of it.
    """
    read, written = chosen_formats(options, grows=job.grows)
    if not is_plain():
        return
    places, files = paths(options, read, written), LocalFiles()
    check_places(files, [place for place in places if local_path(place[2])])
    if isinstance(written, FileFormat) and all(
        local_path(path) for what, _, path in places if what != "Input"
    ):
        job.check_output(files, options, written)
    check_input(read, options.input)


def check_input(read: Format, path: str) -> None:
    """Refuse an input of this machine that is not there, or lies in a table of another format.

    Raises:
        DptextError: It does.
    """
    if is_plain() and isinstance(read, FileFormat):
        read.check_files(LocalFiles(), path)
        if is_absent(path):
            raise read.unreadable(path, NO_FILE)


def check_names(options: TableOptions | EvaluateOptions, columns: TableColumns) -> None:
    """Refuse columns that no Parquet file of this machine has, and name those of the first that are near.

    Raises:
        InputError: There are such columns.
    """
    place, missing, allowed = Path(local_path(options.input) or ""), mentioned(columns), list[str]()
    if not is_plain() or options.format != Parquet.name or options.read_options or not place.is_absolute():
        return
    try:
        for file in [] if _is_pattern(options.input) else _files(place):
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


def _is_pattern(path: str) -> bool:
    """Say whether Spark's reader takes a path for a pattern."""
    return any(letter in path for letter in "{}[]*?\\")


def _files(place: Path) -> Iterator[Path]:
    """Walk through a table's files, without those that Spark passes over."""
    if place.is_file():
        yield place
        return
    for entry in sorted(place.iterdir()):
        if not entry.name.startswith(".") and (not entry.name.startswith("_") or "=" in entry.name):
            yield from _files(entry)
