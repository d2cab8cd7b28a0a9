"""What a format of tables is asked for; one that has a name registers itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.tables.source import TableSource
from dptext_spark.tables.storage import LocalFiles

if TYPE_CHECKING:
    from dptext_spark.tables.columns import TableColumns

FORMATS: Final[dict[str, type[Format]]] = {}
"""By name."""

PARQUET_CODECS: Final = ("snappy", "zstd", "gzip", "lz4_raw", "none")


@dataclass(frozen=True)
class Format(ABC):
    """A table, which is read or written, of a format; ``name`` is what the options call it.

    A run asks in this order, so that what is wrong is said early: :meth:`check_can_read` and
    :meth:`check_can_write` once; :meth:`check_place` and :meth:`check_files` before Spark starts
    and again with it; :meth:`check_columns` before; :meth:`open` and :meth:`check_schema` before
    the first task; :meth:`write` once.

    Attributes:
        place: As ``--input`` or ``--output`` says it.
        options: Those of the format's reader or writer.
        mode: What becomes of an output that exists: ``error``, ``overwrite`` or ``append``.
        partitions: Columns that name the output's folders, the outermost first.
        has_path: Whether a table lies at a path, and not under a name that a catalog knows.
        has_positions: Whether Spark numbers the rows of its files, which can then be named without
            ``--id``.
        can_append: Whether rows can be added to a table in one step, which readers see whole or not
            at all.
        can_grow: Whether new files can be recognised, for ``--incremental``, and added batch by
            batch.
        cannot_hold: Types, as Spark begins their names, that nothing in a file of it can have.
        codecs: What ``--write-option compression`` may be, the default first; empty where Spark
            checks it.
        names_remedy: What to do about wrong names of columns, where names may be a row and are not
            quoted.
    """

    place: str
    options: Mapping[str, str] = field(default_factory=dict)
    mode: str = "error"
    partitions: tuple[str, ...] = ()

    name: ClassVar[str]
    has_path: ClassVar[bool] = True
    has_positions: ClassVar[bool] = False
    can_append: ClassVar[bool] = False
    can_grow: ClassVar[bool] = False
    cannot_hold: ClassVar[tuple[str, ...]] = ()
    codecs: ClassVar[tuple[str, ...]] = ()
    names_remedy: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            FORMATS[cls.name] = cls

    @staticmethod
    def named(name: str, place: str, options: Mapping[str, str], mode: str = "error") -> Format:
        """Return a table of the format of this name."""
        if name not in FORMATS:
            raise ConfigError(
                "The format is unknown",
                allowed=", ".join(sorted(FORMATS)),
                got=repr(name),
                do=nearest([name], sorted(FORMATS)),
            )
        return FORMATS[name](place, options, mode)

    def option(self, name: str, default: str = "") -> str:
        """Return an option's value; Spark takes their names in any capitals."""
        for option, value in self.options.items():
            if option.lower() == name.lower():
                return value
        return default

    def options_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the options with these names, which are in small letters."""
        return {name: value for name, value in self.options.items() if name.lower() in names}

    def options_without(self, *names: str) -> dict[str, str]:
        """Return the options but those of these names, which are in small letters."""
        return {name: value for name, value in self.options.items() if name.lower() not in names}

    @property
    def compression(self) -> str:
        """Return the codec of the output's files, for a format that has ``codecs``."""
        return self.option("compression", self.codecs[0])

    def check_can_read(self, *, has_id: bool, grows: bool) -> None:
        """Refuse what this format cannot do for an input."""
        if not has_id:
            self._check_can(
                "has_positions",
                f"Rows of format {self.name} cannot be named by file and position",
                do="Name the rows with --id",
            )
        if grows:
            self._check_can(
                "can_grow", f"Option --incremental cannot read format {self.name}", do=_NEW_ROWS
            )

    def check_can_write(self, *, grows: bool) -> None:
        """Refuse what this format cannot do for an output."""
        if self.codecs and self.compression.lower() not in self.codecs:
            raise ConfigError(
                f"Option --write-option has a wrong compression for format {self.name}",
                allowed=", ".join(self.codecs),
                got=repr(self.compression),
            )
        if self.mode == "append":
            self._check_can(
                "can_append",
                f"Option --mode append cannot write format {self.name}",
                do="Write a table of its own, or add new files with --incremental",
            )
        if grows:
            self._check_can(
                "can_grow", f"Option --incremental cannot write format {self.name}", do=_NEW_ROWS
            )

    def _check_can(self, ability: str, what: str, do: str) -> None:
        if not getattr(self, ability):
            names = sorted(name for name in FORMATS if getattr(FORMATS[name], ability))
            raise ConfigError(what, allowed=f"that for {', '.join(names)}", do=do)

    @abstractmethod
    def open(self, spark: SparkSession) -> TableSource:
        """Open the table; no row comes out, though a reader may read rows to find their types.

        Raises:
            InputError: There is no such table, or it cannot be read whole.
        """

    @abstractmethod
    def check_place(self, storage: LocalFiles) -> None:
        """Refuse an output that must not be replaced or added to, if ``storage`` can see it."""

    def check_files(self, storage: LocalFiles) -> None:  # noqa: B027 - most formats have no files
        """Refuse an input that is absent, or part of another table, if ``storage`` can see it."""

    def check_columns(  # noqa: B027 - most formats say so as they are opened
        self, storage: LocalFiles, columns: TableColumns
    ) -> None:
        """Refuse, before Spark starts, columns that the input lacks, if ``storage`` can see it."""

    def check_schema(self, spark: SparkSession, schema: StructType) -> None:
        """Check, before the first task, that the output can have these columns."""
        if not self.cannot_hold:
            return
        unsupported_type = re.compile(rf'ype":"({"|".join(self.cannot_hold)})')
        unsupported_columns = [
            f"{column.name} ({column.dataType.simpleString()})"
            for column in schema
            if unsupported_type.search(column.json())
        ]
        if unsupported_columns:
            raise ConfigError(
                f"Columns have types that format {self.name} cannot hold",
                got=", ".join(unsupported_columns),
                do="Choose another --output-format",
            )

    @abstractmethod
    def write(self, result: DataFrame) -> None:
        """Write the table, whole or absent under its name; ``result`` is evaluated once."""


_NEW_ROWS: Final = (
    "Select the new rows with --where, and add them with --mode append to a format that takes it; "
    "under the same --key-file a row that is released again gets the same words"
)


def check_fits(schema: StructType, table_schema: StructType, table: str) -> None:
    """Check that rows fit a table: the same columns and types, none of which must not be null."""
    output_types = _types(schema)
    table_types = _types(table_schema)
    faults = []
    for name in {**output_types, **table_types}:
        in_output = output_types.get(name, "absent")
        in_table = table_types.get(name, "absent")
        if in_output != in_table:
            faults.append(f"{name} is {in_output} in the output and {in_table} in the table")
    faults += [f"{c.name} is NOT NULL in the table" for c in table_schema if not c.nullable]
    if faults:
        raise ConfigError(
            f"The output's columns do not fit {table}",
            allowed="columns of the same names and types, all of which may be null",
            got="; ".join(faults),
            do="Choose other columns with --keep, or another --output",
        )


def _types(schema: StructType) -> dict[str, str]:
    """Return the types of columns, as Spark writes them, by name."""
    return {column.name: column.dataType.simpleString() for column in schema}
