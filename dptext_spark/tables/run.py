"""A run from table to table: its formats and paths, resolved once; opened, it is a table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from dptext_spark.bars import stage
from dptext_spark.errors import ConfigError
from dptext_spark.options import TableOptions
from dptext_spark.report.facts import now
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.session import is_connect, session
from dptext_spark.tables.columns import TableColumns
from dptext_spark.tables.formats.catalog import CatalogTable
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.input_table import InputTable, input_format
from dptext_spark.tables.output_table import OutputTable
from dptext_spark.tables.places import INPUT, OUTPUT, Places
from dptext_spark.tables.source import own_session
from dptext_spark.tables.storage import (
    check_private_folder,
    check_target,
    is_partition,
    local_path,
)
from dptext_spark.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """A run of some options, whose formats can do what they say.

    Its paths are checked twice by the same checks: before Spark starts those of this machine, as
    :meth:`open` begins all of them.
    """

    kind: ClassVar[type[Table]] = Table  # what it opens

    options: TableOptions
    columns: TableColumns
    read: Format
    written: Format
    places: Places
    started: str = field(default_factory=now)

    @classmethod
    def of(cls, options: TableOptions, columns: TableColumns) -> Self:
        """Choose formats, and resolve places; no place is looked at."""
        read, written = chosen_formats(options, grows=cls.kind.grows)
        is_path = {INPUT: read.has_path, OUTPUT: written.has_path}
        paths = [place for place in options.places if is_path.get(place[0], True)]
        return cls(
            options=options, columns=columns, read=read, written=written, places=Places.of(paths)
        )

    def check_paths(self) -> None:
        """Refuse, of the places that can be seen, those that overlap, must not exist, or must."""
        self.places.check_apart()
        if self.written.has_path:
            self.places.check_outside(self.options.output)
        self.check_free()
        self.read.check_files(self.places.storage)

    def check_free(self) -> None:
        """Refuse to replace what exists, unless told to: the output before its reports."""
        storage = self.places.storage
        self.written.check_place(storage)
        self.check_targets()
        if self.options.mode != "error":
            return
        for what, path in self.options.files:
            if storage.sees(path) and storage.exists(path):
                raise ConfigError(
                    f"The {what.lower()} {path} exists",
                    do="Choose another place with --reports, or replace it with --mode overwrite",
                )

    def check_targets(self) -> None:
        """Refuse reports that would be written elsewhere, or into another user's private folder."""
        paths = [path for _, path in self.options.files]
        for path in filter(self.places.storage.sees, paths):
            check_target(path)
        private = self.options.beside("private")
        if self.places.storage.sees(private):
            check_private_folder(private)

    def check_columns(self) -> None:
        """Refuse, before Spark starts, columns that the input lacks."""
        self.read.check_columns(self.places.storage, self.columns)

    def open(self, app: str) -> Table:
        """Start Spark under this name, check everything, and open the table; no row is released."""
        spark = own_session(session(app, on_connect=self.options.on_connect))
        with stage("Opening the table"):
            if is_connect(spark):
                _check_connect(self.options, self.read, self.written)
            run = replace(self, places=self.places.with_spark(spark))
            with spark_errors("The paths of input, output or report could not be looked up"):
                run.check_paths()
            table = InputTable.open(
                spark, self.options, self.read, self.columns, grows=self.kind.grows
            )
            partitions = table.source.partitions
            kept_partitions = tuple(name for name in partitions if name in table.columns.keep)
            written = replace(self.written, partitions=kept_partitions)
            written.check_schema(spark, table.columns.released(table.source.df.schema))
        output = OutputTable(
            options=self.options,
            written=written,
            storage=run.places.storage,
            started=self.started,
        )
        return self.kind(options=self.options, input=table, output=output)


def chosen_formats(options: TableOptions, *, grows: bool) -> tuple[Format, Format]:
    """Choose the formats of input and output, and refuse what they cannot do; needs no Spark."""
    read = input_format(options, grows=grows)
    name = options.output_format or options.format
    written = Format.named(name, options.output, options.write_options, options.mode)
    if not (read.has_path or written.has_path) and options.input == options.output:
        raise ConfigError(
            "Input and output are one table", got=options.input, do="Choose another --output"
        )
    written.check_can_write(grows=grows)
    if not (written.has_path or options.reports or options.dry_run):
        raise ConfigError(
            "Option --reports is missing: an --output that is a name has no folder for them",
            do="Name a folder for the reports",
        )
    if written.has_path and is_partition(options.output) and not options.reports:
        raise ConfigError(
            f"Option --reports is missing: the output {options.output} is a partition, and next "
            "to it its reports would lie inside the table, with counts that are private",
            do="Name a folder outside the table for them",
        )
    return read, written


def _check_connect(options: TableOptions, read: Format, written: Format) -> None:
    """Refuse what needs files, plans or a scheduler, which a client of Spark Connect lacks."""
    refused = []
    for option, form in {"--format": read, "--output-format": written}.items():
        if form.name != CatalogTable.name:
            refused.append(f"{option} {form.name}")
    without = ("where", "incremental")
    refused += [f"--{option}" for option in without if getattr(options, option, None)]
    if options.mode != "error":
        refused.append(f"--mode {options.mode}")
    for option in ("reports", "ledger"):
        folder = getattr(options, option, None)
        if folder and not local_path(folder):
            refused.append(f"--{option} {folder}")
    if refused:
        raise ConfigError(
            "Spark Connect sanitizes a catalog's table into a new one",
            allowed="--format table, without --where, --incremental and --mode; --reports and "
            "--ledger in folders of this machine, such as a volume",
            got=", ".join(refused),
            do="Make a table of the wanted rows first, or start a session that is not remote",
        )
