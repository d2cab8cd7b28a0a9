"""The table that a run reads: opened and checked, its rows, and a sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import Column, DataFrame, SparkSession

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.spark.versions import metadata
from dptext_spark.tables.batch import FieldPaths
from dptext_spark.tables.columns import TableColumns, check_ids, check_refused
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.partitioning import POSITION
from dptext_spark.tables.sampling import Sample
from dptext_spark.tables.source import TableSource, check_met, where
from dptext_spark.word_reader import WordReader

if TYPE_CHECKING:  # workers load no options
    from dptext_spark.options import InputOptions


def input_format(options: InputOptions, *, grows: bool = False) -> Format:
    """Return the format of the input; refuse what it cannot do. ``grows``: files come later."""
    read = Format.named(options.format, options.input, options.read_options)
    read.check_can_read(has_id=options.id is not None, grows=grows)
    return read


@dataclass(frozen=True, kw_only=True)
class InputTable:
    """A private table that is open."""

    source: TableSource
    columns: TableColumns
    where: str | None = None  # the filter, in SQL
    trust_id: bool = False  # whether ids are not checked
    has_positions: bool = False  # whether its format numbers the rows of files
    grows: bool = False  # whether files come later

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        options: InputOptions,
        read: Format,
        columns: TableColumns,
        *,
        grows: bool = False,
    ) -> Self:
        """Open a table, and check its columns and the filter; no row is released."""
        source = read.open(spark)
        table = cls(
            source=source,
            columns=check_refused(source, columns),
            where=options.where,
            trust_id=options.trust_id,
            has_positions=read.has_positions,
            grows=grows,
        )
        try:
            return table.checked()
        except (ConfigError, InputError) as error:
            if not (read.names_remedy and error.allowed):
                raise
            # What is allowed would quote names that may be a row.
            raise type(error)(error.what, got=error.got, do=read.names_remedy) from None

    def checked(self) -> Self:
        """Return the table with the names that ``*`` stands for; refuse wrong columns, filters."""
        columns = self.columns.named(self.source.df.schema)
        columns.check(self.source.df, self.source.partitions)
        table = replace(self, columns=columns)
        _ = table.positioned_rows  # or refuse the filter, or the names of rows
        return table

    @cached_property
    def df(self) -> DataFrame:
        """The rows that the filter takes."""
        if self.where is None:
            return self.source.df
        return where(self.source.df, self.where)

    @property
    def rows(self) -> DataFrame:
        """What workers read of them."""
        return self.positioned_rows.drop(*POSITION)

    @cached_property
    def positioned_rows(self) -> DataFrame:
        """The same, and where each lies, if its format knows."""
        row_id = self.source.position if self.columns.id is None else None
        rows = self.columns.select(self.df, row_id)
        if not self.has_positions:
            return rows
        file, row = POSITION
        place = metadata(self.source.read)
        return rows.withColumns({file: place["file_path"], row: place["row_index"]})

    @property
    def fields(self) -> FieldPaths:
        """The paths to sanitized fields in ``rows``."""
        return self.columns.field_paths(self.source.df.schema)

    def streamed(self) -> Self:
        """Return the same table as a stream of its files."""
        return replace(self, source=self.source.stream())

    def check_rows(self, *measures: Column) -> list[Any]:
        """Check ids in one pass, which also returns measures; refuse a filter that no row meets."""
        measured = check_ids(self.df, None if self.trust_id else self.columns.id, *measures)
        if self.where and not self.grows:
            check_met(self.df, self.source.df)
        return measured

    def sample(
        self,
        reader: WordReader,
        *,
        fate: str,
        identifiers: str = "",
        is_sized: bool = False,
        rehearsed: Sanitizer | None = None,
    ) -> Sample:
        """Return what looks at some rows; arguments as :class:`Sample` says."""
        return Sample(
            columns=self.columns,
            table=self.source.df.schema,
            reader=reader,
            fate=fate,
            identifiers=identifiers,
            is_sized=is_sized,
            rehearsed=rehearsed,
        )
