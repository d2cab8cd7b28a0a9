"""The page of all benchmarks has what was measured, and what failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULTS: dict[str, Any] = {
    "machine": {"processor": "made", "cores": 2},
    "small": False,
    "sections": {
        "searches": {
            "date": "2026-01-01 00:00 UTC",
            "load before": 0.1,
            "seconds": 7,
            "title": "Searches",
            "rows": [
                {
                    "embedding": "900 x 8",
                    "search": "exact",
                    "multiple": 1.0,
                    "recall": None,
                    "words/s": 123456.7,
                },
                {
                    "embedding": "900 x 8",
                    "search": "lists",
                    "multiple": 3.456,
                    "words/s": 0.01234,
                    "sure": True,
                },
            ],
            "plots": [{"title": "All", "x": "search", "y": ["multiple"], "by": "embedding", "log": "y"}],
            "notes": ["In one thread."],
        },
        "rivals": {"date": "2026-01-01 00:01 UTC", "load before": 0.2, "seconds": 9, "failed": "no network"},
    },
}


def cells(page: str, section: str) -> list[list[str]]:
    """The rows of a section's table, without its header."""
    lines = page.partition(f"## {section}\n")[2].partition("\n## ")[0].splitlines()
    table = [line.removeprefix("|").removesuffix("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


def test_a_page_has_the_numbers_of_the_results(tmp_path: Path) -> None:
    """Rejects mixed-up columns, a cell of another row where a row lacks one, and failures left out."""
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    command = [sys.executable, "-m", "scripts.benchmarks", "--output", str(tmp_path), "--render"]
    subprocess.run(command, check=True)
    page = (tmp_path / "results.md").read_text()
    assert cells(page, "Searches") == [
        ["900 x 8", "exact", "1", "–", "123,457", ""],
        ["900 x 8", "lists", "3.46", "", "0.0123", "yes"],
    ]
    assert "**Failed: rivals.**" in page.partition("\n## ")[0]
    assert "**Failed: no network.**" in page.partition("## rivals\n")[2]
    figure = (tmp_path / "searches-figure-1.svg").read_text()
    assert "![All" in page and "(searches-figure-1.svg)" in page and "<svg" in figure
