"""Benchmarks: sections show their help, a run has what was measured and what failed, small ones count."""

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


def made_embeddings(folder):
    """Write embeddings of ``SHAPES`` where the benchmarks look for the real ones."""
    for name, (count, dimension) in SHAPES.items():
        (folder / name).mkdir(parents=True)
        np.save(folder / name / "vectors.npy", uneven(count, dimension).astype(np.float16))
        (folder / name / "vocab.txt").write_text("".join(f"{word}\n" for word in words(count)))
    return folder


def tried(section, data, *options):
    """Run a section of the benchmarks as small as it can be; give what it prints."""
    command = [sys.executable, "-m", f"scripts.benchmarks.{section}", "--data", str(data), "--small"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_is_imported_and_shows_its_help(section):
    result = CliRunner().invoke(importlib.import_module(f"scripts.benchmarks.{section}").main, ["--help"])
    assert result.exit_code == 0, result.output


def test_one_run(tmp_path):
    """Rejects a failure that ends the run or hides, one that forgets other sections, and mixed machines."""
    # There are made embeddings and no novels, so that one section succeeds and one cannot.
    data, results = made_embeddings(tmp_path / "data"), tmp_path / "results.json"

    def run(*options):
        command = [sys.executable, "-m", "scripts.benchmarks", "--data", data, "--output", results, "--small"]
        return subprocess.run([*command, *options], capture_output=True, text=True, check=False)

    assert run("--only", "mechanisms", "--only", "job").returncode == 1
    text = results.read_text()
    before = json.loads(text)
    done, failed = (before["sections"][name] for name in ("mechanisms", "job"))
    assert before["small"] and done["rows"] and "failed" not in done
    assert "FileNotFoundError" in failed["failed"] and "rows" not in failed
    assert not any(name in text for name in (str(tmp_path), platform.node()))

    assert run("--only", "searches", "--seconds", "0.01").returncode == 1
    after = json.loads(results.read_text())
    assert after["sections"].pop("searches")["failed"] == "not done after 0.01 s"
    assert after == before

    results.write_text(json.dumps({**before, "machine": {"processor": "another"}}))
    refused = run("--only", "searches")
    assert refused.returncode == 2 and "another machine" in refused.stderr


@pytest.mark.long
def test_a_bundle_is_opened_in_a_process_of_its_own(tmp_path):
    """Rejects peaks of the process that measures."""
    rows = tried("large_vocabulary", made_embeddings(tmp_path))["rows"]
    assert all(0 < row["MB"] < 200 for row in rows if row["what"].startswith("open"))


@pytest.mark.long
def test_searches_find_the_nearest_word(tmp_path):
    """Rejects points of another search, and a recall that is not of the exact nearest word."""
    rows = tried("searches", made_embeddings(tmp_path))["rows"]
    exact = [row for row in rows if row["search"] == "exact, ours"]
    assert all(row["recall"] == 1.0 for row in exact) and min(row["recall"] for row in rows) > 0.9
    stays = np.reshape([row["N_w"] for row in exact], (3, 3))
    assert (np.diff(stays, axis=1) >= 0).all()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.e2e
def test_words_cost_no_memory(tmp_path):
    """Rejects peaks of another role, a table whose words do not grow, and memory that grows with them."""
    few, many = tried("memory", made_embeddings(tmp_path))["rows"]
    assert (few["words of the table"], many["words of the table"]) == (400, 8_000)
    worker, executor = "a Python worker, resident", "an executor's JVM, resident"
    for row in (few, many):
        assert 50 < row[worker] < row[executor]
    assert many[worker] < 1.5 * few[worker]
