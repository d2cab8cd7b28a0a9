"""Tables, options and checks that the Spark tests share."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import Result
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.jobs import privatize
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import Report
from tests.helpers.cluster import QUICK_JAVA

ROOT = Path(__file__).parents[2]
RING_WORDS = [f"w{row:02d}" for row in range(64)]


@contextmanager
def spark_settings(spark: SparkSession, **values: object) -> Iterator[None]:
    """Settings below ``spark.sql``, with ``_`` for a point, and afterwards what there was before.

    ``unset`` alone would go back to Spark's own default where the tests' session has a value.
    """
    names = {"spark.sql." + name.replace("_", "."): str(value) for name, value in values.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def write_table(path: Path, columns: Mapping[str, Any]) -> Path:
    """Write a Parquet file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
    return path


def csv_file(
    folder: Path, rows: str, name: str = "a.csv", separator: str = ",", end: str = "\n"
) -> Path:
    """Write a file of CSV with a header, which is compressed if its name says so."""
    content = (separator.join(["id", "text", "note"]) + end + rows).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


def texts(rows: int, length: int = 8) -> list[str]:
    """Texts of ring words; every third row repeats the text of the row before."""
    return [
        " ".join(RING_WORDS[(row - (row % 3 == 2)) * 7 % 64 - i] for i in range(length))
        for row in range(rows)
    ]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """A Parquet folder's rows in the order of its files."""
    files = sorted(path.rglob("*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by its path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def run_table(**options: Any) -> Report:
    """Run ``dptext privatize`` in this process; underscores for dashes, epsilon 10 by default."""
    values = {"mechanism": "laplace", "epsilon": 10.0, "text": ["text"]} | options
    if "tokens" in options and "text" not in options:
        values["text"] = []
    return privatize.run(
        PrivatizeOptions.of(
            {k.replace("_", "-"): str(v) if isinstance(v, Path) else v for k, v in values.items()}
        )
    )


def by_id(frame: DataFrame, column: str = "text") -> dict[Any, Any]:
    """Collect a frame's column by its id."""
    return {row["id"]: row[column] for row in frame.select("id", column).collect()}


def spark_environment() -> dict[str, str]:
    """This environment without another Spark; workers run this Python."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK", "PYTHONPATH"))
    }
    return kept | {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }


def command(*arguments: str | Path, env: Mapping[str, str] | None = None, cwd: Path) -> Any:
    """Run a program as a user would."""
    return subprocess.run(
        list(map(str, arguments)),
        cwd=cwd,
        env=spark_environment() | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def refused(result: Result, message: str, code: int = 2) -> bool:
    """Say whether a run ended with one message of one line, without a Python traceback.

    It may have named its stages and warned of unknown words before.
    """
    assert result.exit_code == code, result.output
    lines = [line for line in result.output.splitlines() if not line.endswith(" ...")]
    lines = [line for line in lines if not line.startswith("Warning, for those who run")]
    assert len(lines) == 1, result.output
    assert re.match("dptext (privatize|vectors): ", lines[0])
    assert re.search(message, lines[0]), result.output
    return True


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
