"""A made table and its release, of which words are estimated."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

from dptext_spark.embedding.bundle import Embedding
from tests.helpers.made_texts import sentences
from tests.helpers.tables import run_table, write_table

ROWS = 300
TEXTS = sentences(ROWS, 1)
GROUPS = ["even", "odd", None]


def write_private(folder: Path) -> Path:
    columns = {
        "id": list(range(ROWS)),
        "text": [None if i == 7 else f"{TEXTS[i]} 0170 1234567" for i in range(ROWS)],
        "group": [GROUPS[i % 3] for i in range(ROWS)],
        "day": [date(2026, 1 + i % 2, 1 + i % 5) for i in range(ROWS)],
        "person": [None if i == 8 else f"p{i % 40}" for i in range(ROWS)],
    }
    return write_table(folder / "in.parquet", columns)


def released(folder: Path, private: Path, bundle: Embedding, **options: Any) -> Path:
    """A release of the table, with all other columns."""
    values = {"mechanism": "exponential", "epsilon": 6.0, "id": "id"} | options
    run_table(input=private, output=folder / "out", embedding=bundle.path, keep=["*"], **values)
    return folder / "out"
