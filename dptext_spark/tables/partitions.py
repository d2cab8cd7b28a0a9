"""Folders ``COLUMN=VALUE``: which files Spark reads below them, and what their names say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from dptext_spark.errors import InputError
from dptext_spark.tables.fields import quoted


def check_partitions(
    files: Iterable[str], bases: Sequence[str], partitions: Sequence[str], place: str
) -> None:
    """Refuse files that Spark lists with a partitioned table, and does not read.

    Args:
        files: URLs of all files that are listed.
        bases: URLs of the folders that are read, none of which is a partition itself.
        partitions: The columns that Spark found in folders' names.
        place: The input, as the user names it.

    Raises:
        InputError: A file lies in other folders than those of the partitions.
    """
    columns = [name.lower() for name in partitions]
    fitting = {
        folder: [_as_spark(column).lower() for column, _ in _parts(folder, bases)] == columns
        for folder in {_folder(file) for file in files}
    }
    if outside := sorted(file for file in files if not fitting[_folder(file)]):
        count = "1 file" if len(outside) == 1 else f"{len(outside)} files"
        raise InputError(
            f"The input {place} has files beside its partitions, which Spark leaves out",
            allowed=f"files in folders {'/'.join(f'{name}=VALUE' for name in partitions)}",
            got=f"{count}, for example {_relative(outside[0], bases)}",
            do="Move them into such folders, or give them to a run of their own",
        )


@dataclass(frozen=True, kw_only=True)
class PartitionNames:
    """Names that other programs write as percent-encoded UTF-8; Spark takes each byte for a letter.

    Attributes:
        columns: Names of columns that Spark misreads, and what they say.
        values: The same for values, by the column as Spark names it.
    """

    columns: Mapping[str, str]
    values: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, files: Iterable[str], bases: Sequence[str], place: str) -> Self:
        """Read the names of the folders in which a table's files lie.

        Raises:
            InputError: An escape is no UTF-8, or Spark reads two names as one.
        """
        columns: dict[str, str] = {}
        values: dict[str, dict[str, str]] = {}
        for folder in {_folder(file) for file in files}:
            for column, value in _parts(folder, bases):
                said = _decoded(column, value, place)
                for known, name, decoded in (
                    (columns, column, said[0]),
                    (values.setdefault(_as_spark(column), {}), value, said[1]),
                ):
                    if (other := known.setdefault(_as_spark(name), decoded)) != decoded:
                        raise InputError(
                            f"The input {place} has folders of different names that Spark reads as one",
                            got=" and ".join(sorted(f"{said[0]}={each}" for each in (other, decoded))),
                            do="Rename one of them: letters as they are, without percent signs",
                        )
        return cls(columns=_misread(columns), values={c: m for c, v in values.items() if (m := _misread(v))})

    def named(self, partitions: Iterable[str]) -> tuple[str, ...]:
        """Give the names of partition columns as they are meant."""
        return tuple(self.columns.get(name, name) for name in partitions)

    def mend(self, prepare: Callable[[DataFrame], DataFrame]) -> Callable[[DataFrame], DataFrame]:
        """Give ``prepare`` with the right names and values, and as it is where none are misread."""
        if not self.columns and not self.values:
            return prepare
        return lambda df: prepare(df).transform(self._mended)

    def _mended(self, df: DataFrame) -> DataFrame:
        return df.select(*[self._column(name).alias(self.columns.get(name, name)) for name in df.columns])

    def _column(self, name: str) -> Column:
        if (misread := self.values.get(name)) is None:
            return quoted(name)
        said = F.create_map(*[F.lit(text) for pair in misread.items() for text in pair])
        return F.coalesce(said[quoted(name)], quoted(name))


def _misread(names: Mapping[str, str]) -> dict[str, str]:
    return {read: said for read, said in names.items() if read != said}


def _folder(url: str) -> str:
    return url.rpartition("/")[0]


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


def _relative(file: str, bases: Sequence[str]) -> str:
    around = [base for base in bases if file.startswith(f"{base}/")]
    return unquote(file[len(max(around, key=len)) + 1 :] if around else file)


def _as_spark(name: str) -> str:
    """Undo percent-encoding as Spark does, a letter for each byte."""
    return re.sub("%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), name)


def _decoded(column: str, value: str, place: str) -> tuple[str, str]:
    try:
        return _as_utf8(column), _as_utf8(value)
    except UnicodeDecodeError:
        raise InputError(
            f"The input {place} has folders whose percent-encoded names are not UTF-8",
            got=f"{column}={value}",
            do="Rename them",
        ) from None


def _as_utf8(name: str) -> str:
    return re.sub("(%[0-9A-Fa-f]{2})+", lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), name)
