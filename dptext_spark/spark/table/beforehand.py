"""What is wrong with a run's paths and columns, told before Spark starts, which takes many seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from dptext_spark.errors import ConfigError
from dptext_spark.options import TableOptions
from dptext_spark.spark.local_paths import is_pattern, local_path
from dptext_spark.spark.table.columns import TableColumns
from dptext_spark.spark.table.formats.files import FileFormat, Parquet
from dptext_spark.spark.table.formats.format import Format
from dptext_spark.spark.table.local_files import LocalFiles
from dptext_spark.spark.table.local_table import LocalTable, is_plain
from dptext_spark.spark.table.run import Job, absent, check_places, chosen_formats, paths
from dptext_spark.spark.table.source import unnamed_rows

Check: TypeAlias = Callable[[], object]
"""Raises the DptextError of a fault."""


def checks_beforehand(
    job: type[Job], options: TableOptions, columns: Callable[[], TableColumns]
) -> list[Check]:
    """Give the checks of :meth:`Job.open` that files of this machine answer without a JVM.

    Their errors are those of :meth:`Job.open`. Where Spark runs already, or is configured from outside, there
    are none.
    """
    try:
        read, written = chosen_formats(options, grows=job.grows)
    except ConfigError:
        return [partial(chosen_formats, options, grows=job.grows)]  # told beside other errors
    if not is_plain():
        return []
    places = paths(options, read, written)
    return [
        partial(_check_outputs, job, options, places, written),
        lambda: _check_input(options, read, columns()),
    ]


def _check_outputs(
    job: type[Job], options: TableOptions, places: list[tuple[str, str, str]], written: Format
) -> None:
    files = LocalFiles()
    check_places(files, [place for place in places if local_path(place[2])])
    if isinstance(written, FileFormat) and all(
        local_path(path) for what, _, path in places if what != "Input"
    ):
        job.check_output(files, options, written)


def _check_input(options: TableOptions, read: Format, columns: TableColumns) -> None:
    if isinstance(read, FileFormat) and local_path(options.input):
        read.check_files(LocalFiles(), options.input)
    if not isinstance(read, Parquet) or read.options:
        return
    if table := LocalTable.look(options.input):
        if (missing := absent(columns, table.schema)) and table.others_have(missing):
            return  # Spark's answer names the option that reads them
        columns.named(table.schema).check_schema(table.schema, table.partitions)
    elif options.id is None and is_pattern(options.input) and not LocalFiles().exists(options.input):
        raise unnamed_rows(options.input)
