"""``dptext poincare``: the whole run as a user runs it."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.jobs import poincare as job
from tests.helpers.drawing import without_drawing
from tests.helpers.poincare import write_tsv
from tests.helpers.tables import names

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.spark


def dptext(*arguments):
    return CliRunner().invoke(main, ["poincare", *map(str, arguments)])


def made(*arguments):
    result = dptext(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(result, *parts):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert all(part in result.output for part in parts), result.output


QUICK = ["--epochs", 2, "--dimension", 3, "--min-links", 0]


@pytest.mark.e2e
def test_the_configuration_file_runs_as_it_stands(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    output = tmp_path / "mammals"
    said = made("--config", "conf/poincare.toml", "--output", output, "--seed", 1, "--epochs", 40)
    bundle, report = (
        Embedding.open(output),
        json.loads((tmp_path / "mammals.report.json").read_text()),
    )
    assert (bundle.space.geometry, bundle.dimension, bundle.vectors.dtype) == (
        "poincare",
        5,
        np.float64,
    )
    assert (report["format_version"], report["fingerprint"]) == (1, bundle.fingerprint)
    assert report["words"] == len(bundle.words) == 1154
    assert report["cycles"] == {"groups": 0, "words": 0, "pairs": 0}
    assert report["steps"][-1]["left"] == report["pairs"] == -report["steps"][-1]["removed"] + 1171
    assert (tmp_path / report["picture"]).read_bytes().startswith(b"\x89PNG")
    assert names(tmp_path) == {"mammals", "mammals.png", "mammals.report.json", "mammals.vec"}
    quality = report["quality"]
    assert (precision := quality["reconstruction"]["mean_average_precision"]) > 0.8
    assert f"{precision:.3f}" in said
    assert quality["largest_norm"] == pytest.approx(np.tanh(6 / 2), rel=1e-12)
    # The text form has all that the bundle has.
    again = build_embedding(tmp_path / "mammals.vec", tmp_path / "again", geometry="poincare")
    assert again.fingerprint == bundle.fingerprint


def test_lists_of_words_and_outputs_that_exist(spark, tmp_path, monkeypatch):
    """A vocabulary gives the order, also as a bundle; a deny list denies, or is refused at once.

    Rejects a bundle beside the picture of the bundle that it replaced.
    """
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal"), ("cat", "mammal"), ("eel", "fish")])
    other = write_tsv(tmp_path / "q.tsv", [("dog", "mammal"), ("cat", "eel"), ("mammal", "cat")])
    (tmp_path / "words.txt").write_text("\ufeffeel\rmammal\r\n cat\n\ndog\n", encoding="utf-8")
    denied, one, two = tmp_path / "never.txt", tmp_path / "one", tmp_path / "two"
    denied.write_text("\ufeffDOG\r# worse\r", encoding="utf-8")
    (tmp_path / "one.vec").write_text("mine")
    first = ["--pairs", pairs, "--output", one, *QUICK, "--vocabulary", tmp_path / "words.txt"]
    refused(dptext(*first), "one.vec", "exist")
    (tmp_path / "one.vec").unlink()
    made(*first)
    refused(dptext(*first), "The output exists")
    lists = ["--vocabulary", one, "--never-output", denied]
    arguments = ["--pairs", other, "--output", two, *QUICK, *lists]
    said = made(*arguments)
    assert Embedding.open(one).words.to_pylist() == ["mammal", "cat", "dog"]
    assert "--never-output never.txt: 1 of 2 entries match words; no match: line 2" in said
    bundle = Embedding.open(two)
    assert (bundle.words.to_pylist(), bundle.releasable) == (["mammal", "cat", "dog"], 2)
    assert json.loads((tmp_path / "two.report.json").read_text())["word_lists"] == {
        "--never-output": {"entries": 2, "matched": 1, "unmatched_lines": [2]},
    }
    with without_drawing():
        said = made(*first, "--overwrite", "--seed", 3)
    assert "the picture will not be drawn, as jinja2 is not installed. Run: pip install" in said
    assert (tmp_path / "two.png").exists() and not (tmp_path / "one.png").exists()
    assert json.loads((tmp_path / "one.report.json").read_text())["picture"] is None
    denied.write_text("'dog'\n")
    monkeypatch.setattr(job, "train", None)
    refused(
        dptext(*arguments, "--overwrite"),
        "No entry of never.txt (--never-output)",
        "none of line 1",
    )


def test_faults_are_said_at_once(spark, tmp_path):
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal", 3), ("the", "mammal", 30)])
    run = ["--pairs", pairs, "--output", tmp_path / "bundle"]
    lost = ["--vocabulary", tmp_path / "no.txt", "--never-output", tmp_path / "none.txt"]
    refused(dptext(*run, *lost), "2 things are wrong", "no.txt", "none.txt")
    steps = "1 after 1 pairs seen fewer than 10 times; 0 after 1 pairs with a stop word"
    refused(dptext(*run), "The filters leave no pair", steps)
    refused(
        dptext(*run, "--dimension", 1, "--learning-rate", 0, "--seed", -1),
        "--dimension has a wrong value. Allowed: a number, 2 or more. Got: 1.",
        "--learning-rate has a wrong value. Allowed: a number above 0. Got: 0.",
        "--seed has a wrong value. Allowed: a number, 0 or more. Got: -1.",
    )
    assert names(tmp_path) == {"p.tsv"}
