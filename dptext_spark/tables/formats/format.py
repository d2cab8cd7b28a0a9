"""What a format of tables is asked for; one that has a name registers itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
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
        overwrite, append: Replace what is there, or add to it.
    """

    place: str
    partitions: tuple[str, ...] = ()
    overwrite: bool = False
    append: bool = False


@dataclass(frozen=True)
class Format(ABC):
    """A format of tables, with the options that its reader or writer was given.

    A run asks in this order, so that what is wrong is said early: :meth:`check_input` and
    :meth:`check_output` before Spark starts, :meth:`check_place`, :meth:`open` and :meth:`check_schema`
    before the first task, :meth:`write` once.

    Attributes:
        has_path: Whether a table lies at a path, and not under a name that a catalog knows.
        has_positions: Whether Spark numbers the rows of its files, which can then be named without ``--id``.
        can_append: Whether rows can be added to a table in one step, which readers see whole or not at all.
        can_grow: Whether new files can be recognised, for ``--incremental``, and added batch by batch.
        cannot_hold: Types that nothing in a file of it can have.
        codecs: What ``--write-option compression`` may be, the default first; empty where Spark checks it.
        remedy: What to do about columns that :meth:`left_out` names.
    """

    options: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str]
    has_path: ClassVar[bool] = True
    has_positions: ClassVar[bool] = False
    can_append: ClassVar[bool] = False
    can_grow: ClassVar[bool] = False
    cannot_hold: ClassVar[tuple[type[DataType], ...]] = ()
    codecs: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            FORMATS[cls.name] = cls

    @staticmethod
    def named(name: str, options: Mapping[str, str]) -> Format:
        """Choose a format by its name."""
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
        """Refuse what this format cannot do for an input, before Spark starts."""
        if not has_id:
            self._check_can(
                "has_positions",
                f"Rows of format {self.name} cannot be named by file and position",
                do="Name the rows with --id",
            )
        if grows:
            self._check_can("can_grow", f"Option --incremental cannot read format {self.name}", do=_NEW_ROWS)

    def check_output(self, output: Output, *, grows: bool) -> None:
        """Refuse what this format cannot do for an output, before Spark starts."""
        if self.codecs and self.compression.lower() not in self.codecs:
            raise ConfigError(
                f"Option --write-option has a wrong compression for format {self.name}",
                allowed=", ".join(self.codecs),
                got=repr(self.compression),
            )
        if output.append:
            self._check_can(
                "can_append",
                f"Option --mode append cannot write format {self.name}",
                do="Write a table of its own, or add new files with --incremental",
            )
        if grows:
            self._check_can("can_grow", f"Option --incremental cannot write format {self.name}", do=_NEW_ROWS)

    def _check_can(self, ability: str, what: str, do: str) -> None:
        if not getattr(self, ability):
            able = sorted(name for name, kind in FORMATS.items() if getattr(kind, ability))
            raise ConfigError(what, allowed=f"that for {', '.join(able)}", do=do)

    @abstractmethod
    def open(self, spark: SparkSession, storage: Storage, place: str) -> Source:
        """Look at a table; no row of it comes out, though a reader may look at rows to find their types.

        Raises:
            InputError: There is no such table, or it cannot be read whole.
        """

    def names_remedy(self, names: Sequence[str], wrong: str) -> str:
        """Say what to do about wrong names where names may be a row, which none quotes; else nothing."""
        return ""

    def left_out(self, source: Source) -> list[str]:
        """Name the fields, by their paths, that its files have and the opened table has not.

        It may take a Spark job.
        """
        return []

    @abstractmethod
    def check_place(self, spark: SparkSession | None, storage: Places, output: Output) -> None:
        """Refuse an output that must not be replaced or added to, before anything is read.

        For files on this machine it is called before Spark starts too, without a session.
        """

    def check_schema(self, storage: Storage, schema: StructType, output: Output) -> None:
        """Refuse columns that the output cannot have, before the first task."""
        if wrong := [
            f"{f.name} ({f.dataType.simpleString()})"
            for f in schema.fields
            if any(isinstance(part, self.cannot_hold) for part in _parts(f.dataType))
        ]:
            raise ConfigError(
                f"Columns have types that format {self.name} cannot hold",
                got=", ".join(wrong),
                do="Choose another --output-format",
            )

    @abstractmethod
    def write(self, storage: Storage, result: DataFrame, output: Output) -> None:
        """Write a table, which is whole or absent under its name; ``result`` is evaluated once."""


_NEW_ROWS: Final = (
    "Select the new rows with --where, and add them with --mode append to a format that takes it; under the "
    "same --key-file a row that is released again gets the same words"
)


def _parts(kind: DataType) -> Iterator[DataType]:
    """Give a type, and those inside it."""
    yield kind
    match kind:
        case StructType():
            inner = [field.dataType for field in kind.fields]
        case ArrayType():
            inner = [kind.elementType]
        case MapType():
            inner = [kind.keyType, kind.valueType]
        case _:
            inner = []
    for part in inner:
        yield from _parts(part)
