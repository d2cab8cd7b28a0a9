"""The demo and the configuration files, run as a user would run them."""

import json
import shlex
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark import demo
from dptext_spark.cli import main

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def dptext(*arguments):
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_demo_shows_more_noise_at_less_epsilon(spark, tmp_path, monkeypatch):
    """And replaces what an earlier one left."""
    monkeypatch.setattr(demo, "EPSILONS", demo.EPSILONS[::2])
    (tmp_path / "sanitized-epsilon-5").mkdir()
    (tmp_path / "sanitized-epsilon-5" / "_SUCCESS").touch()
    shown = dptext("demo", "--output", str(tmp_path))
    assert shown.count("    -> ") == demo.SHOWN_ROWS * len(demo.EPSILONS)
    assert shown.count("shifts the odds between any two input words") == 1
    replaced = []
    for epsilon in demo.EPSILONS:
        output = tmp_path / f"sanitized-epsilon-{epsilon:g}"
        assert str(output) in shown
        assert pq.read_table(output).num_rows == pq.read_table(demo.QUERIES).num_rows
        counts = json.loads(Path(f"{output}.private/report.json").read_text())["columns"]["text"]
        replaced.append(counts["replaced"] / counts["tokens"])
    # Rejects an epsilon that is ignored or used upside down. A share's standard error is below 0.004.
    assert replaced[0] > replaced[1] + 0.5
    # It ends with the setting that it recommends, and its commands work as they stand.
    *_, tried, recommended = [line for line in shown.splitlines() if line.startswith("$ ")]
    assert recommended == shown.splitlines()[-1]
    _, name, *arguments = shlex.split(recommended)
    assert (name, arguments[0]) == ("dptext", "privatize")
    assert dptext(*arguments, "--dry-run").count("exponential, epsilon 2:") == 1
    _, name, *arguments = shlex.split(tried)
    assert demo.SENTENCE in dptext(*arguments)


def test_the_configuration_files_run_as_they_stand(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    bundle, output = str(tmp_path / "bundle"), str(tmp_path / "sanitized")
    dptext("embedding", "--config", "conf/embedding.toml", "--output", bundle)
    dptext(
        "privatize", "--config", "conf/privatize.toml", "--embedding", bundle, "--output", output
    )
    assert pq.read_table(output).column_names == ["intent", "text"]
    averages = str(tmp_path / "averages")
    dptext("vectors", "--config", "conf/vectors.toml", "--embedding", bundle, "--output", averages)
    assert pq.read_table(averages).column_names == ["intent", "text"]
    tried = dptext("try", demo.SENTENCE, "--config", "conf/try.toml", "--embedding", bundle)
    assert tried.count("%") == 18
