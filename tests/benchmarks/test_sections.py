"""Benchmarks: sections show their help, a run has what was measured, small ones count."""

import importlib
import json
import platform
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from scripts.benchmarks.__main__ import SECTIONS
from tests.helpers.tables import ROOT
from tests.helpers.worlds import uneven, words

SHAPES = {"glove_840b_300d_33k": (3_000, 40), "glove_6b_50d": (12_000, 50)}


@pytest.fixture
def data(tmp_path):
    """Embeddings of ``SHAPES`` where the benchmarks look for the real ones; there are no novels."""
    for name, (count, dimension) in SHAPES.items():
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "vectors.npy", uneven(count, dimension).astype(np.float16))
        (tmp_path / name / "vocab.txt").write_text("".join(f"{word}\n" for word in words(count)))
    return tmp_path


def rows_of(section, data):
    """Run a section as small as it can be; give its rows."""
    command = [
        sys.executable,
        "-m",
        f"scripts.benchmarks.{section}",
        "--data",
        str(data),
        "--small",
    ]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)[
        "rows"
    ]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_is_imported_and_shows_its_help(section):
    result = CliRunner().invoke(
        importlib.import_module(f"scripts.benchmarks.{section}").main, ["--help"]
    )
    assert result.exit_code == 0, result.output


@pytest.mark.long
def test_one_run(data):
    """Rejects a failure that hides or takes what was measured, figures without a machine, and its name."""
    results = data / "results.json"

    def run(*options):
        command = [
            sys.executable,
            "-m",
            "scripts.benchmarks",
            "--data",
            data,
            "--output",
            results,
            "--small",
        ]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    failed = run("--only", "mechanisms", "--only", "job")
    assert failed.returncode == 1 and "FileNotFoundError" in failed.stderr
    ((name, section),) = json.loads(results.read_text()).items()
    assert (
        name == "mechanisms"
        and section["small"]
        and section["rows"]
        and section["machine"]["cores"]
    )
    assert not any(name in results.read_text() for name in (str(data), platform.node()))


@pytest.mark.long
def test_searches_find_the_nearest_word(data):
    """Rejects points of another search, and a recall that is not of the exact nearest word."""
    rows = rows_of("searches", data)
    exact = [row for row in rows if row["search"] == "exact, ours"]
    assert all(row["recall"] == 1.0 for row in exact) and min(row["recall"] for row in rows) > 0.9
    stays = np.reshape([row["N_w"] for row in exact], (3, 3))
    assert (np.diff(stays, axis=1) >= 0).all()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_words_cost_no_memory(data):
    """Rejects peaks of another role, a table whose words do not grow, and memory that grows with them."""
    few, many = rows_of("memory", data)
    assert (few["words of the table"], many["words of the table"]) == (400, 8_000)
    worker, executor = "a Python worker, resident", "an executor's JVM, resident"
    for row in (few, many):
        assert 50 < row[worker] < row[executor]
    assert many[worker] < 1.5 * few[worker]
