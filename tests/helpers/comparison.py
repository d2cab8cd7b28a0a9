"""What two runs of one command left, held against each other."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

_RANDOM_NAME: Final = re.compile(
    r"(part-\d+|batch-\d+-\d+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
_REPORTS: Final = ("report.json", ".release.json", ".release.html")
# When a run began, how long it took, and its random name.
_OF_A_RUN: Final = re.compile(
    rb'"(?:started|run)": "[^"]*"|"seconds": [\d.]+|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC'
)


def settled(folder: Path) -> dict[str, Path]:
    """The files below a folder, by their names without the random number that Spark gives to part files.

    Hadoop's checksums are left out: they are of files that are there.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".crc")
    return {_RANDOM_NAME.sub(r"\1", str(path.relative_to(folder))): path for path in files}


def content(file: Path) -> list[Any]:
    """A file's bytes; of a report without time and name of the run, of Parquet rows and what the footer says.

    The footer lists the encodings of a column in the order of a Java hash set, which is another in every JVM.
    """
    data = file.read_bytes()
    if file.name.endswith(_REPORTS):
        return [_OF_A_RUN.sub(b"", data)]
    if file.suffix != ".parquet":
        return [data]
    metadata = pq.read_metadata(file)
    said = metadata.to_dict()
    for column in (column for group in said["row_groups"] for column in group["columns"]):
        column["encodings"] = sorted(column["encodings"])
    footer = 8 + int.from_bytes(data[-8:-4], "little")
    return [data[:-footer], said, metadata.metadata]


def compared(left: Path, right: Path) -> tuple[list[str], str]:
    """Compare the content of every file of two folders, or a table's rows where it is cut into other files.

    Gives the names of what differs, and what was compared.
    """
    ours, theirs = settled(left), settled(right)
    files, both = ours.keys() | theirs.keys(), ours.keys() & theirs.keys()
    parts = {name for name in files if Path(name).name.startswith("part-")}
    tables = {
        table for table in map(os.path.dirname, parts) if cut(left / table) != cut(right / table)
    }
    whole = {name for name in files if not (name in parts and os.path.dirname(name) in tables)}
    different = {
        name for name in whole if name not in both or content(ours[name]) != content(theirs[name])
    }
    different |= {table for table in tables if rows(left / table) != rows(right / table)}
    said = [f"bytes of {len(whole)} files", *(f"rows of {table}" for table in sorted(tables))]
    return sorted(different), ", ".join(said)


def cut(table: Path) -> dict[str, int]:
    """How many rows each of a table's files has."""
    files = {name: file for name, file in settled(table).items() if file.suffix == ".parquet"}
    return {name: pq.read_metadata(file).num_rows for name, file in files.items()}


def rows(table: Path) -> Counter[str]:
    """A table's rows with their types, in no order; none where there is no table."""
    files = [pq.read_table(file) for file in table.glob("part-*.parquet")]
    return Counter(f"{file.schema.types} {row}" for file in files for row in file.to_pylist())
