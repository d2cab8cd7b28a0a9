"""Files of this machine, looked at without a JVM: what is wrong with a path or a column is told at once.

It says the same as :class:`~dptext_spark.spark.table.storage.Storage` and Spark's reader, or nothing: places
of other schemes, patterns, and what only Spark's reader understands are left to Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from dptext_spark.spark.local_paths import is_pattern, local_path
from dptext_spark.spark.settings import WANTED
from dptext_spark.spark.table.columns import Unknown
from dptext_spark.spark.table.fields import Field
from dptext_spark.spark.table.source import unreadable

# Any of them may say that a path without a scheme lies in HDFS, or that columns are read in another way.
_ELSEWHERE: Final = (
    "HADOOP_CONF_DIR",
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "YARN_CONF_DIR",
)


def is_plain() -> bool:
    """Say whether Spark is not running, and will be started as this package alone sets it up."""
    configured = any(name in os.environ for name in _ELSEWHERE)
    configured |= Path(pyspark.__file__).with_name("conf").exists()
    # These may say where paths lead and how names are read; others, such as the driver's memory, do not.
    configured |= any(name.startswith(("spark.hadoop.", "spark.sql.")) for name in WANTED.get().given)
    return not configured and pyspark.SparkContext._active_spark_context is None


@dataclass(frozen=True, kw_only=True)
class LocalTable:
    """A Parquet table of this machine as Spark would read it.

    Attributes:
        schema: Its columns; of type :class:`Unknown` what Arrow and Spark may read differently.
        partitions: Columns named by folders.
        others: Files that Spark does not take the columns from.
    """

    schema: StructType
    partitions: tuple[str, ...]
    others: tuple[str, ...] = ()

    @classmethod
    def look(cls, path: str) -> Self | None:
        """Look at the file that Spark would take the columns from; None where it is for Spark to say.

        Raises:
            InputError: There is no table.
        """
        place = local_path(path)
        if place is None or is_pattern(path) or _is_hidden(os.path.basename(place)):
            return None
        try:
            if not os.path.exists(place):
                raise unreadable(path, "PATH_NOT_FOUND")
            files = [place] if os.path.isfile(place) else [*_files(place)]
            if not files:
                raise unreadable(path, "UNABLE_TO_INFER_SCHEMA")
            file, *others = files
            if _is_other(file):
                raise unreadable(path, "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER", damaged=True)
            found = pq.read_schema(file)
        except (OSError, pa.ArrowException):
            return None
        if os.path.basename(file).startswith("_"):  # a summary: its columns are those of all files
            return None
        schema = _spark_schema(found)
        if _has_twins(schema):
            raise unreadable(path, "COLUMN_ALREADY_EXISTS")
        folders = [] if file == place else os.path.relpath(file, place).split(os.sep)[:-1]
        names = [name for name, _, value in (folder.partition("=") for folder in folders) if name and value]
        return cls._of(schema, names, others) if len(names) == len(folders) else None

    def others_have(self, names: Iterable[str]) -> bool:
        """Say whether another file has one of these columns, or cannot be read."""
        try:
            schemas = [_spark_schema(pq.read_schema(file)) for file in self.others]
        except (OSError, pa.ArrowException):
            return True
        return any(Field.find(schema, name) for schema in schemas for name in names)

    @classmethod
    def _of(cls, inside: StructType, partitions: list[str], others: list[str]) -> Self | None:
        """Put the partitions' columns behind those of the files; None where Spark mixes them."""
        names = [name.lower() for name in (*inside.names, *partitions)]
        if len({*names}) < len(names) or any("%" in name for name in partitions):
            return None
        schema = StructType([*inside.fields, *(StructField(name, StringType()) for name in partitions)])
        return cls(schema=schema, partitions=tuple(partitions), others=tuple(others))


_SUMMARIES: Final = ("_metadata", "_common_metadata")


def _is_hidden(name: str) -> bool:
    """Say whether Spark passes over files and folders of this name."""
    hidden = name.startswith("_") and "=" not in name and not name.startswith(_SUMMARIES)
    return hidden or name.startswith(".") or name.endswith("._COPYING_")


def _files(folder: str) -> Iterator[str]:
    """Walk through a table's files in the order of their paths, but in each folder the summaries first."""
    with os.scandir(folder) as entries:
        found = {f"{e.name}/" if e.is_dir() else e.name: e.path for e in entries if not _is_hidden(e.name)}
    for name in sorted(found, key=lambda name: (not name.startswith(_SUMMARIES), name)):
        yield from _files(found[name]) if name.endswith("/") else [found[name]]


def _is_other(path: str) -> bool:
    """Say whether a file that is not empty is no whole Parquet file: its last bytes are others."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4))
        return size > 0 and file.read() not in (b"PAR1", b"PARE")


_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
_ALIKE: Final = (
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.float32(), pa.float64(), pa.date32(), pa.string(), pa.large_string()),
)
# Spark has no unsigned integers: it takes the next larger ones.
_TYPES: Final = {
    **{kind: from_arrow_type(kind) for kind in _ALIKE},
    pa.uint8(): ShortType(),
    pa.uint16(): IntegerType(),
    pa.uint32(): LongType(),
}


def _spark_schema(schema: pa.Schema) -> StructType:
    """Give a file's columns as Spark finds them: as it wrote them down itself, or by their Arrow types."""
    if written := (schema.metadata or {}).get(_SPARK_SCHEMA):
        return StructType.fromJson(json.loads(written))
    return StructType([StructField(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: Any) -> DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _spark_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    return _nested_type(kind) if pa.types.is_nested(kind) else _flat_type(kind)


def _has_twins(kind: DataType) -> bool:
    """Say whether a struct has names that differ in capitals only, which Spark refuses wherever it is."""
    match kind:
        case StructType():
            distinct = {name.lower() for name in kind.names}
            return len(distinct) < len(kind) or any(_has_twins(field.dataType) for field in kind)
        case ArrayType():
            return _has_twins(kind.elementType)
        case MapType():
            return _has_twins(kind.keyType) or _has_twins(kind.valueType)
    return False


def _nested_type(kind: Any) -> DataType:
    if pa.types.is_struct(kind):
        return StructType([StructField(field.name, _spark_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return MapType(_spark_type(kind.key_type), _spark_type(kind.item_type))
    return ArrayType(_spark_type(kind.value_type))


def _flat_type(kind: Any) -> DataType:
    """Give the type of a column without fields.

    Arrow hides what Spark sees in others: binary may be an ENUM, nanoseconds INT96, an interval a number.
    """
    alike = pa.types.is_timestamp(kind) and kind.unit in ("ms", "us")
    if alike or pa.types.is_decimal128(kind):
        return from_arrow_type(kind)
    return _TYPES.get(kind, Unknown())
