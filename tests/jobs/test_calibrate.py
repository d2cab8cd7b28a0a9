"""dptext calibrate: its tables against the calibration package, its folder, its target and its options."""

import json
import math
import os
import shlex
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.cli import main
from dptext_spark.jobs import calibrate
from dptext_spark.mechanisms import mechanism
from dptext_spark.options import CalibrateOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.tables.storage import Storage
from tests.helpers import calibration_oracle as oracle
from tests.helpers import worlds
from tests.helpers.drawing import without_drawing
from tests.helpers.tables import ROOT, names, write_table
from tests.helpers.worlds import among

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EPSILONS = (2.0, 8.0)
RUNS = 40
WORDS = 8
TABLES = {"calibration.json", "outputs", "summary", "words"}


def options(embedding, output, **given):
    values = {"embedding": embedding.path, "output": str(output), "mechanism": "laplace"}
    values |= {"epsilon": EPSILONS, "runs": RUNS, "words": "all"} | given
    return CalibrateOptions.of({name.replace("_", "-"): value for name, value in values.items()})


def run(embedding, output, **given):
    """Run the job where nothing can be drawn; what calibration.json says."""
    with without_drawing():
        report = calibrate.run(options(embedding, output, **given))
    found = json.loads((output / "calibration.json").read_text())
    assert found == json.loads(report.to_json())
    assert not list(output.parent.glob(".*.part"))
    assert report.describe().endswith(f"\nOutput: {output}")
    return dict(found)


def table(folder, name, mechanism=None):
    """One of a calibration's tables, sorted; the rows of one mechanism."""
    found = pq.ParquetDataset(folder / name).read()
    if mechanism is not None:
        found = found.filter(pa.compute.equal(found["mechanism"], mechanism)).drop_columns(
            "mechanism"
        )
    keys = [key for key in ("epsilon", "statistic", "word") if key in found.column_names]
    return found.sort_by([(key, "ascending") for key in keys])


def by_word(found, embedding):
    """Rows of the package's tables under the words and epsilons that the job's tables have."""
    rows = [
        {
            "epsilon": EPSILONS[row.pop("epsilon_index")],
            **row,
            "word": embedding.words[row["word"]].as_py(),
        }
        for row in found.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["epsilon"], row["word"]))


MECHANISMS = {"laplace": "shared-ray", "exponential": "exact"}


@pytest.fixture(scope="module")
def circle(tmp_path_factory):
    """Eight words evenly on the unit circle."""
    angles = 2 * np.pi * np.arange(WORDS) / WORDS
    return worlds.build(
        tmp_path_factory.mktemp("circle"), np.stack([np.cos(angles), np.sin(angles)], axis=1)
    )


@pytest.fixture(scope="module")
def measured(spark, circle, tmp_path_factory):
    """A calibration of two mechanisms on the circle."""
    output = tmp_path_factory.mktemp("measured") / "out"
    run(circle, output, mechanism=[*MECHANISMS])
    return output


@pytest.fixture(scope="module")
def expected(circle):
    """What the package itself finds, by mechanism; each word is a block."""
    found = {}
    for spec in MECHANISMS:
        grid = [mechanism(spec, epsilon=e) for e in EPSILONS]
        estimate = estimator(grid, circle, search=ExactSearch.over(circle), runs=RUNS)
        found[spec] = oracle.concat(estimate(np.array([word]), block=word) for word in range(WORDS))
    return found


def test_the_tables_are_the_packages(circle, measured, expected):
    """Of each mechanism apart, by the estimator that serves it."""
    assert {name for name in names(measured) if not name.startswith(".")} == TABLES
    facts = json.loads((measured / "calibration.json").read_text())
    assert facts["mechanisms"] == [{"mechanism": m, "estimator": e} for m, e in MECHANISMS.items()]
    assert table(measured, "words").column_names[:3] == ["mechanism", "epsilon", "word"]
    for spec, own in expected.items():
        words = table(measured, "words", spec).drop_columns(["posterior", "k_gamma"])
        assert words.to_pylist() == by_word(word_statistics(own), circle)
        outputs = by_word(oracle.output_statistics(own), circle)
        rows = table(measured, "outputs", spec).to_pylist()
        for row, other in zip(rows, outputs, strict=True):
            assert row.pop("k_w") == pytest.approx(other.pop("k_w"), rel=1e-6)
        assert rows == outputs


@pytest.mark.versions
def test_the_summary_describes_the_tables(circle, measured, expected):
    """And calibration.json has it; tests/calibration have each statistic against brute force."""
    own = expected["laplace"]
    posteriors = oracle.posterior(own)
    of_words = word_statistics(own).drop_columns(["n_w_low", "n_w_high"])
    of_words = of_words.append_column("posterior", pa.array(posteriors.ravel()))
    of_words = of_words.append_column("k_gamma", pa.array(oracle.k_gamma(own).ravel()))
    rows = {
        (r["epsilon"], r["statistic"]): r for r in table(measured, "summary", "laplace").to_pylist()
    }
    described = [
        row
        for found in (of_words, oracle.output_statistics(own))
        for row in oracle.summary(found).to_pylist()
    ]
    assert len(rows) == len(described) + 3 * len(EPSILONS) == len(EPSILONS) * 13
    for row in described:
        found = rows[EPSILONS[row["epsilon_index"]], row["statistic"]]
        for name in ("mean", "sd", "min", "p5", "p50", "p95", "max"):
            assert found[name] == pytest.approx(row[name], rel=1e-8, abs=1e-9)
    _, won = oracle.guessed(own, oracle.grid(WORDS, runs=RUNS), "uniform")
    exact = {
        (r["epsilon"], r["statistic"]): r
        for r in table(measured, "summary", "exponential").to_pylist()
    }
    for index, epsilon in enumerate(EPSILONS):
        risk, deniability = (rows[epsilon, name] for name in ("bayes_risk_uniform", "deniability"))
        assert risk["mean"] == pytest.approx(
            max(won[index] / WORDS / (RUNS // 2), 1 / WORDS), rel=1e-9
        )
        assert risk["floor"] == 1 / WORDS <= risk["low"] <= risk["mean"] <= risk["high"] <= 1.0
        assert deniability["mean"] == pytest.approx(1.0 / posteriors[index].mean())
        bound = mechanism("exponential", epsilon=epsilon).bind(circle, among(WORDS))
        law, risk = bound.probabilities(np.arange(WORDS)), exact[epsilon, "bayes_risk_uniform"]
        sure = pytest.approx([oracle.risk(law, np.ones(WORDS))] * 3)
        assert [risk[name] for name in ("mean", "low", "high")] == sure
        posterior = (law * law / law.sum(axis=0)).sum() / WORDS
        assert exact[epsilon, "deniability"]["mean"] == pytest.approx(1.0 / posterior)
    facts = json.loads((measured / "calibration.json").read_text())
    assert facts["summary"] == pq.ParquetDataset(measured / "summary").read().to_pylist()
    assert facts["embedding"]["fingerprint"] == circle.fingerprint
    assert (facts["runs"], facts["release_words"], facts["sample"]) == (RUNS, WORDS, WORDS)
    assert [g["configured_epsilon"] for g in facts["guarantee"]] == [*EPSILONS] * 2
    assert sorted((row["epsilon"], len(row["top"])) for row in facts["words"]) == [
        (e, WORDS) for e in EPSILONS for _ in MECHANISMS
    ]


def test_a_calibration_is_replaced_by_its_whole_successor(
    circle, measured, tmp_path, monkeypatch, capsys
):
    """Rejects removal at the start, parts of a run that failed, and old tables left among the new."""
    # Also rejects a page that is missed only when hours of measuring are over. The configuration file runs as
    # it stands. The page is the same where the storage is not on this machine, by Hadoop's own copies.
    # Without a terminal each stage is a line.
    monkeypatch.chdir(ROOT)
    place = tmp_path / "out"
    shutil.copytree(measured, place)
    (place / "old").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(calibrate, "from_arrow", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(circle, place, overwrite=True, words=2, runs=5, epsilon=(2.0,))
    assert (
        "Warning: report.html and plots will not be drawn, as jinja2 is not installed. "
        "Run: pip install 'dptext-spark[report]'\nMeasuring 2 words at epsilon 2 ...\n"
    ) in capsys.readouterr().err
    assert (place / "calibration.json").read_bytes() == (measured / "calibration.json").read_bytes()
    assert (place / "old").exists() and os.listdir(tmp_path) == ["out"]

    (tmp_path / ".out.killed-1.part").mkdir()
    small = [
        "--embedding",
        circle.path,
        "--output",
        place,
        "--words",
        5,
        "--runs",
        4,
        "--epsilon",
        0.7,
        9,
    ]
    small += ["--overwrite"]
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "real", lambda *_: "elsewhere://host/out")
        result = CliRunner().invoke(
            main, ["calibrate", "--config", "conf/calibrate.toml", *map(str, small)]
        )
    assert result.exit_code == 0, result.output
    assert os.listdir(tmp_path) == ["out"]
    visible = {name for name in names(place) if not name.startswith(".")}
    assert visible == TABLES | {"plots", "report.html"}
    assert "5 of 8 words were measured with 4 runs each" in result.stdout
    assert "Epsilon 0.7: Not enough runs for a reliable number; increase --runs." in result.stdout
    assert f"\nPage: {place}/report.html\n" in result.stdout
    assert result.stderr.splitlines() == [
        *(
            "Loading libraries ...",
            "Opening the embedding ...",
            "Measuring 5 words at epsilon 0.7, 9 ...",
        ),
        *("Adding up ...", "Writing tables ...", "Measuring distances between words ..."),
        "Writing the report ...",
    ]
    assert table(place, "words").num_rows == 2 * 5
    assert "Not enough runs" in (place / "report.html").read_text(encoding="utf-8")


def test_a_target_is_met_by_the_closed_form(tmp_path):
    """Of two words 1 apart on a line each stays with probability 1 - exp(-epsilon / 2) / 2."""
    # The command that is printed makes a release once the table and its column are filled in.
    pair, output = worlds.build(tmp_path, [[-0.5], [0.5]]), tmp_path / "out"
    arguments = ["--embedding", pair.path, "--mechanism", "laplace", "--epsilon", 2.84, 2.87]
    arguments += [
        "--words",
        "all",
        "--runs",
        4000,
        "--target",
        "max(n_w) <= 0.9",
        "--output",
        output,
    ]
    with without_drawing():
        result = CliRunner().invoke(main, ["calibrate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    facts = json.loads((output / "calibration.json").read_text())
    (found,) = facts["target"]
    stays = 1.0 - math.exp(-found["epsilon"] / 2.0) / 2.0
    assert 2.84 < found["epsilon"] < found["missed"] <= found["epsilon"] + 0.0101
    assert stays <= 0.9 and found["measured"] <= found["bound"] <= 0.9
    assert found["bound"] == pytest.approx(0.9, abs=0.015)
    assert abs(found["measured"] - stays) < 5 * math.sqrt(0.09 / 4000)
    release, verdict, path = (line for line in result.stdout.splitlines()[-5:] if line)
    assert path == f"Output: {output}"
    assert verdict.startswith(
        f"laplace: epsilon {found['epsilon']:g} meets max(n_w) <= 0.9 (95% confidence)"
    )
    program, *words = shlex.split(release.removeprefix("The release: "))
    source = write_table(tmp_path / "in.parquet", {"text": ["w0 w1"]})
    filled = [{"TABLE": str(source), "COLUMN": "text"}.get(word, word) for word in words]
    assert program == "dptext" and filled[0] == "privatize"
    result = CliRunner().invoke(main, [*filled, "--dry-run"])
    assert result.exit_code == 0, result.output
    summed = {row["epsilon"]: row["max"] for row in facts["summary"] if row["statistic"] == "n_w"}
    assert sorted(summed) == [2.84, found["epsilon"], 2.87]
    assert summed[found["epsilon"]] == found["measured"]
    for name in ("words", "outputs", "summary"):
        assert set(table(output, name)["epsilon"].to_pylist()) == {*summed}


def test_a_target_of_deniability_is_met_by_the_closed_form(tmp_path):
    """Of two words 1 apart exponential gives each output e^(epsilon / 2) times as often to its own word."""
    # Rejects a factor that counts one way, and a statistic that the search does not have.
    pair = worlds.build(tmp_path, [[-0.5], [0.5]])
    given = {"mechanism": "exponential", "epsilon": (1.0, 2.0), "gamma": 3.0}
    facts = run(pair, tmp_path / "out", target="min(k_gamma) >= 1.5", **given)
    (target,) = facts["target"]
    assert target["epsilon"] <= 2.0 * math.log(3.0) * (1.0 + 1e-5) < target["missed"] * 1.001
    assert target["measured"] == pytest.approx(2.0)
