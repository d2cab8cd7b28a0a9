"""Folders ``COLUMN=VALUE``: which files Spark reads below them, and what their names mean.

Other programs write percent-encoded UTF-8 into such names; Spark takes each byte for a letter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.tables.fields import quoted

Names = dict[str, str]
"""What names mean, by what Spark reads; those that it reads right are left out."""


def partition_names(
    files: Iterable[str], bases: Sequence[str], partitions: Sequence[str], place: str
) -> tuple[Names, dict[str, Names]]:
    """Read the names of the folders in which a table's files lie.

    Args:
        files: URLs of all files that Spark lists.
        bases: URLs of the folders that are read, none of which is a partition itself.
        partitions: The columns that Spark found in folders' names.
        place: The input, as the user names it.

    Returns:
        The names of columns, and for each column as Spark names it those of its values.

    Raises:
        InputError: Spark does not read a file, an escape is no UTF-8, or Spark reads two names as one.
    """
    columns, values = Names(), dict[str, Names]()
    wanted, outside = [name.lower() for name in partitions], list[str]()
    by_folder = {file.rpartition("/")[0]: file for file in sorted(files, reverse=True)}
    for folder in by_folder:
        parts = _parts(folder, bases)
        if [_as_spark(column).lower() for column, _ in parts] != wanted:
            outside.append(folder)
            continue
        for column, value in parts:
            for known, name in ((columns, column), (values.setdefault(_as_spark(column), {}), value)):
                try:
                    meant = _as_utf8(name)
                except UnicodeDecodeError:
                    raise InputError(
                        f"The input {place} has folders whose percent-encoded names are not UTF-8",
                        got=f"{column}={value}",
                        do="Rename them",
                    ) from None
                if (other := known.setdefault(_as_spark(name), meant)) != meant:
                    raise InputError(
                        f"The input {place} has folders of different names that Spark reads as one",
                        got=" and ".join(sorted(f"{_as_utf8(column)}={each}" for each in (other, meant))),
                        do="Rename one of them, without percent signs",
                    )
    if outside:
        missed = sorted(file for file in files if file.rpartition("/")[0] in outside)
        around = [base for base in bases if missed[0].startswith(f"{base}/")]
        example = unquote(missed[0][len(max(around, key=len)) + 1 :] if around else missed[0])
        raise InputError(
            f"The input {place} has files outside its partitions, which Spark does not read",
            allowed=f"files in folders {'/'.join(f'{name}=VALUE' for name in partitions)}",
            got=f"{len(missed)} files, for example {example}",
            do="Move them into such folders, or give them to a run of their own",
        )
    wrong = ((column, _misread(names)) for column, names in values.items())
    return _misread(columns), {column: names for column, names in wrong if names}


def corrected(
    prepare: Callable[[DataFrame], DataFrame], columns: Names, values: Mapping[str, Names]
) -> Callable[[DataFrame], DataFrame]:
    """Give ``prepare`` with the right names and values, and as it is where none are misread."""
    if not columns and not values:
        return prepare

    def column(name: str) -> Column:
        if name not in values:
            return quoted(name)
        meant = F.create_map(*[F.lit(text) for pair in values[name].items() for text in pair])
        return F.coalesce(meant[quoted(name)], quoted(name))

    return lambda df: prepare(df).select(*[column(n).alias(columns.get(n, n)) for n in df.columns])


def _misread(names: Names) -> Names:
    return {read: meant for read, meant in names.items() if read != meant}


def _parts(folder: str, bases: Sequence[str]) -> list[tuple[str, str]]:
    """Take the columns and values out of a folder's URL, from the inside out, as Spark does."""
    parts: list[tuple[str, str]] = []
    while folder not in bases:
        folder, slash, name = folder.rpartition("/")
        column, equals, value = unquote(name).partition("=")
        if equals:
            parts.insert(0, (column, value))
        if not slash or (parts and not equals):
            break
    return parts


def _as_spark(name: str) -> str:
    """Undo percent-encoding as Spark does, a letter for each byte."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda escape: chr(int(escape[1], 16)), name)


def _as_utf8(name: str) -> str:
    def decoded(escapes: re.Match[str]) -> str:
        return bytes.fromhex(escapes[0].replace("%", "")).decode()

    return re.sub("(%[0-9A-Fa-f]{2})+", decoded, name)
