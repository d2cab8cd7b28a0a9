"""The run of all benchmarks: its page has what was measured, and what failed."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SIZES = {"glove_840b_300d_33k": (600, 12), "glove_6b_50d": (900, 8)}

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


def run(data: Path | None, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.benchmarks", "--output", str(output), *options]
    command += [] if data is None else ["--data", str(data), "--small"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def cells(page: str, section: str) -> list[list[str]]:
    """The rows of a section's table, without its header."""
    lines = page.partition(f"## {section}\n")[2].partition("\n## ")[0].splitlines()
    table = [line.removeprefix("|").removesuffix("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made embeddings where the real ones would be; no novels."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, size in SIZES.items():
        (folder / name).mkdir()
        np.save(folder / name / "vectors.npy", rng.standard_normal(size).astype(np.float16))
        (folder / name / "vocab.txt").write_text("".join(f"word{row}\n" for row in range(size[0])))
    return folder


@pytest.fixture(scope="module")
def measured(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """A section that cannot be measured, for there are no novels."""
    output = tmp_path_factory.mktemp("measured")
    done = run(data, output, "--only", "kernel_and_job")
    return done.returncode, output


def test_a_page_has_the_numbers_of_the_results(tmp_path: Path) -> None:
    """Rejects mixed-up columns, a cell of another row where a row lacks one, and failures left out."""
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    assert run(None, tmp_path, "--render").returncode == 0
    page = (tmp_path / "results.md").read_text()
    assert cells(page, "Searches") == [
        ["900 x 8", "exact", "1", "–", "123,457", ""],
        ["900 x 8", "lists", "3.46", "", "0.0123", "yes"],
    ]
    assert "**Failed: rivals.**" in page.partition("\n## ")[0]
    assert "**Failed: no network.**" in page.partition("## rivals\n")[2]
    figure = (tmp_path / "searches-figure-1.svg").read_text()
    assert "![All" in page and "(searches-figure-1.svg)" in page and "<svg" in figure


def test_what_fails_is_recorded(measured: tuple[int, Path], data: Path) -> None:
    """Rejects a failure that ends the run or hides, and a reason that names folders or the machine."""
    code, output = measured
    text = (output / "results.json").read_text()
    failed = json.loads(text)["sections"]["kernel_and_job"]
    assert code == 1 and "FileNotFoundError" in failed["failed"] and "rows" not in failed
    assert str(data) not in text and str(output) not in text and platform.node() not in text
    assert "kernel_and_job" in (output / "results.md").read_text().partition("\n## ")[0]


def test_results_of_two_machines_are_not_mixed(data: Path, tmp_path: Path) -> None:
    """Rejects a page of which a part was measured elsewhere."""
    (tmp_path / "results.json").write_text(json.dumps(RESULTS))
    done = run(data, tmp_path, "--only", "throughput", "--seconds", "0.01")
    assert done.returncode == 2 and "another machine" in done.stderr
    assert json.loads((tmp_path / "results.json").read_text()) == RESULTS
