"""What a format of tables is asked for; one that has a name registers itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dptext_spark.errors import ConfigError, nearest
from dptext_spark.tables.source import Source
from dptext_spark.tables.storage import Places, Storage

FORMATS: Final[dict[str, type[Format]]] = {}
"""By name."""

PARQUET_CODECS: Final = ("snappy", "zstd", "gzip", "lz4_raw", "none")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a table goes.

    Attributes:
        place: As ``--output`` says it.
        partitions: Columns that name its folders, the outermost first.
        overwrite: Replace what is there.
        append: Add to what is there.
    """

    place: str
    partitions: tuple[str, ...] = ()
    overwrite: bool = False
    append: bool = False


@dataclass(frozen=True)
class Format(ABC):
    """A format of tables, with the options that its reader or writer was given.

    A run asks in this order: :meth:`check_input` and :meth:`check_output` before Spark starts,
    :meth:`check_place` and :meth:`open` before the first task, :meth:`write` once. Whatever is wrong is
    said as early as that.

    Attributes:
        options: ``--read-option`` or ``--write-option``, by name.
        name: What ``--format`` takes.
        has_positions: Whether Spark numbers the rows of its files, so that a row can be named by file and
            position; without it runs need ``--id``.
        has_path: Whether a table lies at a path, and not under a name that a catalog knows.
        names_are_data: Whether the names of columns may in fact be a first row, which no message quotes.
        cannot_hold: Types that nothing in a file of it can have.
        can_append: Whether rows can be added to a table in one step, which readers see whole or not at all.
        can_grow: Whether new files can be recognised, for ``--incremental``, and added batch by batch.
        remedy: What to do about columns that :meth:`left_out` names.
        codecs: What ``--write-option compression`` may be, the default first; empty where Spark checks it.
    """

    options: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str]
    has_positions: ClassVar[bool] = False
    has_path: ClassVar[bool] = True
    names_are_data: ClassVar[bool] = False
    cannot_hold: ClassVar[tuple[type[DataType], ...]] = ()
    can_append: ClassVar[bool] = False
    can_grow: ClassVar[bool] = False
    remedy: ClassVar[str] = ""
    codecs: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            FORMATS[cls.name] = cls

    @staticmethod
    def named(name: str, options: Mapping[str, str]) -> Format:
        """Choose a format by its name.

        Raises:
            ConfigError: There is none of this name.
        """
        if name not in FORMATS:
            known = sorted(FORMATS)
            raise ConfigError(
                "The format is unknown", allowed=", ".join(known), got=repr(name), do=nearest([name], known)
            )
        return FORMATS[name](options)

    def option(self, name: str, default: str = "") -> str:
        """Give an option's value; Spark takes their names in any capitals."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), default)

    @property
    def compression(self) -> str:
        """The codec of the output's files, for a format that has ``codecs``."""
        return self.option("compression", self.codecs[0])

    def check_input(self, *, has_id: bool, grows: bool) -> None:
        """Refuse what this format cannot do for an input, before Spark starts.

        Raises:
            ConfigError: Rows have no names without ``--id``, or the input shall grow and cannot.
        """
        if not has_id and not self.has_positions:
            raise ConfigError(
                f"Rows of format {self.name} cannot be named by file and position",
                allowed=f"that for {_listed('has_positions')}",
                do="Name the rows with --id",
            )
        self._check_grows("read", grows)

    def check_output(self, output: Output, *, grows: bool) -> None:
        """Refuse what this format cannot do for an output, before Spark starts.

        Raises:
            ConfigError: Rows shall be added, and cannot be; or there is no such compression.
        """
        if self.codecs and self.compression.lower() not in self.codecs:
            raise ConfigError(
                f"Option --write-option has a wrong compression for format {self.name}",
                allowed=", ".join(self.codecs),
                got=repr(self.compression),
            )
        if output.append and not self.can_append:
            raise ConfigError(
                f"Option --mode append cannot write format {self.name}",
                allowed=_listed("can_append"),
                do="Write a table of its own, or add new files with --incremental",
            )
        self._check_grows("write", grows)

    def _check_grows(self, verb: str, grows: bool) -> None:
        if grows and not self.can_grow:
            raise ConfigError(
                f"Option --incremental cannot {verb} format {self.name}", allowed=_listed("can_grow")
            )

    @abstractmethod
    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        """Look at a table; no row of it comes out, though a reader may look at rows to find their types.

        Raises:
            InputError: There is no such table, or it cannot be read whole.
        """

    def left_out(self, source: Source) -> list[str]:
        """Name the fields, by their paths, that its files have and the table that was opened has not.

        It may take a Spark job.

        Raises:
            InputError: They cannot be found.
        """
        return []

    @abstractmethod
    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        """Refuse an output that must not be written, before anything is read.

        For files it is called before Spark starts too, without a session, where they are on this machine.

        Raises:
            ConfigError: Something is there and shall not be replaced or added to, or is no such table.
        """

    def check_schema(self, storage: Storage, schema: StructType, output: Output) -> None:
        """Refuse columns that the output cannot have, before the first task.

        Raises:
            ConfigError: A column has such a type, or the table that is there has other columns.
        """
        if wrong := [
            f"{f.name} ({f.dataType.simpleString()})"
            for f in schema.fields
            if any(isinstance(part, self.cannot_hold) for part in parts(f.dataType))
        ]:
            raise ConfigError(
                f"Columns have types that format {self.name} cannot hold",
                got=", ".join(wrong),
                do="Choose another --output-format",
            )

    @abstractmethod
    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        """Write a table; what is under its name is always whole.

        ``result`` is evaluated once: each evaluation counts.

        Raises:
            DptextError: It cannot be written, or another run took over.
        """


def parts(kind: DataType) -> Iterator[DataType]:
    """Give a type, and those inside it."""
    yield kind
    inner: list[DataType] = []
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
    for part in inner:
        yield from parts(part)


def _listed(ability: str) -> str:
    return ", ".join(sorted(name for name, kind in FORMATS.items() if getattr(kind, ability))) or "none"
