"""Tables of every format, as other programs write and read them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow import orc
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.utils.config import Config
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.spark.versions import from_arrow
from dptext_spark.tables.formats.delta import Delta
from dptext_spark.tables.formats.iceberg import Iceberg
from tests.helpers.tables import RING_WORDS, texts, write_table

Commit: TypeAlias = Callable[..., Any]

ROWS: list[dict[str, Any]] = [
    {"id": 1, "text": 'w01 "w02", w03\nw04', "note": " a\\b "},
    {"id": 2, "text": None, "note": 'say "hi"'},
    {"id": 3, "text": "", "note": None},
    {"id": 7, "text": "w05 Unheardof", "note": "ü, x"},
]
"""What a format must keep: quotes, line breaks, nulls and empty texts."""

KEPT: dict[str, Any] = {
    "id": [1, 2, 3, 4],
    "text": texts(4),
    "place": ["a b/c=%d é #?%41", "x", None, "x"],
    "day": [dt.date(2026, 1, 1), None, dt.date(2026, 1, 2), dt.date(2026, 1, 2)],
    "number": pa.array([7, None, 8, 8], pa.int32()),
    "at": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us", "UTC")),
    "local": pa.array([1_767_268_801_000_005] * 4, pa.timestamp("us")),
    "good": [True, False, None, True],
    "turns": [[{"who": "x"}], [], None, [{"who": None}]],
}
"""Columns of types that a lakehouse knows."""

SCHEMA = "id bigint, text string"
"""Of :func:`rows`."""


def rows(ids: list[int]) -> pa.Table:
    return pa.table({"id": ids, "text": texts(len(ids))})


def read(spark: SparkSession, lake: Any, place: str, **options: str) -> DataFrame:
    """Read a table of a lake as a run does."""
    df: DataFrame = lake.kind(place, options).open(spark).df
    return df


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a file in the format that its name ends with, as other programs do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    match path.suffix:
        case ".orc":
            orc.write_table(table, path)
        case ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".csv":
            pd.DataFrame(rows).to_csv(
                path, index=False
            )  # which writes what is empty as it writes null
            path.write_text(path.read_text().replace("\n3,,", '\n3,"",'))
        case _:
            write_table(path, dict(zip(table.column_names, table.columns, strict=True)))
    return path


class Files:
    """Files in a folder."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder / "lake"

    def place(self, name: str) -> str:
        return str(self.folder / name)

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        number = len([*(self.folder / name).glob("*")])
        write_rows(self.folder / name / f"{number}.{self.name}", rows)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What other programs find in the files, in their order."""
        rows: list[dict[str, Any]] = []
        for file in sorted((self.folder / name).rglob("part-*")):
            match file.suffix:
                case ".json":
                    rows += [json.loads(line) for line in file.read_text().splitlines()]
                case ".csv":
                    frame = pd.read_csv(file, keep_default_na=False, na_values=[], dtype=str)
                    rows += frame.to_dict(orient="records")
                case ".orc":
                    rows += orc.read_table(file).to_pylist()
                case _:
                    rows += pq.read_table(file).to_pylist()
        return rows


class Catalog:
    """Tables that Spark knows by name."""

    name = "table"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder / "lake"
        spark.sql(f"create database lake location '{self.folder}'")

    def place(self, name: str) -> str:
        return f"spark_catalog.lake.{name}"

    def write_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        df = from_arrow(self.spark, pa.Table.from_pylist(rows))
        df.coalesce(1).write.mode("append").saveAsTable(f"lake.{name}")

    def rows(self, name: str) -> list[dict[str, Any]]:
        self.spark.catalog.refreshTable(f"lake.{name}")
        return [row.asDict() for row in self.spark.table(f"lake.{name}").orderBy("id").collect()]


class Lakehouse:
    """Tables whose files a Python library keeps an account of."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    commit_methods: tuple[tuple[Any, str], ...]

    def write_rows(self: Any, name: str, rows: list[dict[str, Any]]) -> None:
        self.write(name, pa.Table.from_pylist(rows), mode="append")

    def files(self, name: str) -> Path:
        return self.folder / name

    @contextmanager
    def broken_commits(self, commit: Callable[[Commit], Commit]) -> Iterator[None]:
        """Replace what commits by what ``commit`` makes of it."""
        with self.monkeypatch.context() as patch:
            for owner, method in self.commit_methods:
                patch.setattr(owner, method, commit(getattr(owner, method)))
            yield


class DeltaLake(Lakehouse):
    """Delta tables in a folder whose name needs escapes."""

    kind = Delta
    name = Delta.name
    partitions: tuple[str, ...] = ("place", "day", "number", "at", "local", "good")
    other: Final = "x"
    failed: Exception = CommitFailedError("no room")
    commit_methods = (
        (DeltaTable, "create_write_transaction"),
        (transaction, "create_table_with_add_actions"),
    )

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder / "a folder é", monkeypatch
        self.folder.mkdir()

    def place(self, name: str) -> str:
        return str(self.files(name))

    def table(self, name: str) -> DeltaTable:
        return DeltaTable(f"file://{quote(self.place(name))}")

    def write(
        self, name: str, table: pa.Table, partitions: tuple[str, ...] = (), **options: Any
    ) -> Any:
        write_deltalake(
            f"file://{quote(self.place(name))}", table, partition_by=[*partitions], **options
        )
        return self.table(name)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).to_pyarrow_table().sort_by("id").to_pylist()

    def types(self, name: str) -> Any:
        table = self.table(name)
        kinds = {
            field.name: str(field.type) for field in table.schema().fields if field.name != "turns"
        }
        return kinds, tuple(table.metadata().partition_columns)

    def old(self) -> dict[str, str]:
        """The option of the reader that gives the first version of the table ``in``."""
        return {"version": "0"}

    def change(self, name: str) -> None:
        """Delete rows 1 and 4, and replace row 2."""
        table = self.table(name)
        table.delete("id in (1, 4)")
        table.update(updates={"text": f"'{RING_WORDS[9]}'"}, predicate="id = 2")

    def commits(self, name: str) -> int:
        return len(self.table(name).history())


class IcebergLake(Lakehouse):
    """Iceberg tables of a catalog ``lake`` in SQLite, by the variables that users set."""

    kind = Iceberg
    name = Iceberg.name
    partitions: tuple[str, ...] = ("place", "day", "number")
    other: Final = ""  # an empty text and none at all lie in parts of their own
    failed: Exception = CommitFailedException("no room")

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if int(pa.__version__.partition(".")[0]) < Iceberg.oldest_arrow:
            pytest.skip(f"Iceberg needs pyarrow {Iceberg.oldest_arrow}")
        self.folder, self.monkeypatch = folder / "warehouse" / "db", monkeypatch
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{folder}/warehouse")
        monkeypatch.setattr(
            "pyiceberg.catalog._ENV_CONFIG", Config()
        )  # it was read when the module was
        self.catalog = load_catalog("lake")
        self.catalog.create_namespace("db")
        self.commit_methods = ((type(self.catalog), "commit_table"),)

    def place(self, name: str) -> str:
        return f"lake.db.{name}"

    def table(self, name: str) -> Any:
        return self.catalog.load_table(f"db.{name}")

    def write(
        self, name: str, table: pa.Table, partitions: tuple[str, ...] = (), mode: str = ""
    ) -> Any:
        if not (mode and self.catalog.table_exists(f"db.{name}")):
            made = self.catalog.create_table(f"db.{name}", schema=table.schema)
            with made.update_spec() as spec:
                for column in partitions:
                    spec.add_identity(column)
        made = self.table(name)
        made.append(table)
        return made

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).scan().to_arrow().sort_by("id").to_pylist()

    def types(self, name: str) -> Any:
        table = self.table(name)
        kinds = {f.name: str(f.field_type) for f in table.schema().fields if f.name != "turns"}
        return kinds, tuple(field.name for field in table.spec().fields)

    def old(self) -> dict[str, str]:
        return {"snapshot-id": str(self.table("in").snapshots()[0].snapshot_id)}

    def change(self, name: str) -> None:
        table = self.table(name)
        table.delete("id in (1, 4)")
        table.overwrite(pa.table({"id": [2], "text": [RING_WORDS[9]]}), overwrite_filter="id = 2")

    def commits(self, name: str) -> int:
        return len([*(self.files(name) / "metadata").glob("*.metadata.json")])
