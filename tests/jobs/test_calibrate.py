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
from dptext_spark.errors import ConfigError
from dptext_spark.jobs import calibrate
from dptext_spark.mechanisms import mechanism
from dptext_spark.options import CalibrateOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.tables.storage import Storage
from tests.helpers import calibration_oracle as oracle
from tests.helpers import worlds
from tests.helpers.drawing import without_drawing
from tests.helpers.tables import ROOT, names
from tests.helpers.worlds import among

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EPSILONS = (2.0, 40.0)
RUNS = 60


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
    # Where nothing can be drawn all but the page is written, and a remark is made where runs are too few.
    assert report.describe().endswith(f"\nOutput: {output}")
    exact = all(own["estimator"] == "exact" for own in found["mechanisms"])
    assert not exact or "Not enough runs" not in report.describe()
    return dict(found)


def table(folder, name):
    """One of a calibration's tables, sorted."""
    found = pq.ParquetDataset(folder / name).read()
    order = ("mechanism", "epsilon", "statistic", "word", "output")
    keys = [key for key in order if key in found.column_names]
    return found.sort_by([(key, "ascending") for key in keys])


def transitions(embedding, spec):
    """What the package itself finds for all words, dealt out to 16 blocks."""
    several = [mechanism(spec, epsilon=epsilon) for epsilon in EPSILONS]
    estimate = estimator(several, embedding, search=ExactSearch.over(embedding), runs=RUNS)
    words = np.arange(len(embedding.words))
    return oracle.concat(estimate(words[block::16], block=block) for block in range(16))


def by_word(found, embedding):
    """Rows of the package's tables under the words and epsilons that the job's tables have."""
    rows = [
        {"epsilon": EPSILONS[row.pop("epsilon_index")], **row, "word": embedding.words[row["word"]].as_py()}
        for row in found.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["epsilon"], row["word"]))


def without(found, *names, of=None):
    """The rows, of one mechanism if asked, without some columns."""
    if of is not None:
        found = found.filter(pa.compute.equal(found["mechanism"], of))
    return found.drop_columns(["mechanism", *names]).to_pylist()


SPECS = ("exponential", "laplace", "mahalanobis:lambda=0.9")
TABLES = {"calibration.json", "outputs", "words"}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """64 words, spread ten times wider along one axis than across."""
    return worlds.build(tmp_path_factory.mktemp("wide"), worlds.uneven(64, 2))


@pytest.fixture(scope="module")
def several(spark, wide, tmp_path_factory):
    """A calibration of several mechanisms, with transitions."""
    output = tmp_path_factory.mktemp("several") / "out"
    run(wide, output, mechanism=SPECS, transitions=True)
    return output


@pytest.mark.parametrize("spec", SPECS)
def test_the_tables_are_the_packages(wide, several, spec):
    """Each mechanism is measured apart, by the estimator that serves it."""
    expected = transitions(wide, spec)
    words = table(several, "words")
    assert words.column_names[:3] == ["mechanism", "epsilon", "word"]
    assert without(words, "posterior", of=spec) == by_word(word_statistics(expected), wide)
    outputs = [list(row.values()) for row in by_word(oracle.output_statistics(expected), wide)]
    found = [list(row.values()) for row in without(table(several, "outputs"), of=spec)]
    assert [row[:2] for row in found] == [row[:2] for row in outputs]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in outputs], rel=1e-6)
    cells = table(several, "transitions")
    assert cells.column_names == ["mechanism", "epsilon", "word", "output", "count"]
    names, listed = wide.words.to_pylist(), oracle.cells(expected).drop_columns("judged").to_pydict()
    listed = [(EPSILONS[e], names[w], names[o], c) for e, w, o, c in zip(*listed.values(), strict=True)]
    assert [tuple(row.values()) for row in without(cells, of=spec)] == sorted(listed)


@pytest.mark.versions
def test_the_summary_describes_the_tables(wide, several):
    """In calibration.json; tests/calibration have each statistic against brute force."""
    expected = transitions(wide, "laplace")
    of_words, posteriors = word_statistics(expected), oracle.posterior(expected)
    limits = [name for name in of_words.column_names if name.endswith(("_low", "_high"))]
    of_words = of_words.drop_columns(limits).append_column("posterior", pa.array(posteriors.ravel()))
    facts = json.loads((several / "calibration.json").read_text())
    own = (row for row in facts["summary"] if row["mechanism"] == "laplace")
    rows = {(row["epsilon"], row["statistic"]): row for row in own}
    described = [
        row
        for found in (of_words, oracle.output_statistics(expected))
        for row in oracle.summary(found).to_pylist()
    ]
    assert len(rows) == len(described) + 4 * len(EPSILONS) == len(EPSILONS) * 13
    for row in described:
        found = rows[EPSILONS[row["epsilon_index"]], row["statistic"]]
        for name in ("mean", "sd", "min", "p5", "p50", "p95", "max"):
            assert found[name] == pytest.approx(row[name], rel=1e-8, abs=1e-9)
    _, won = oracle.guessed(expected, np.full(64, 1.0 / 64))
    for index, epsilon in enumerate(EPSILONS):
        risk, deniability = (rows[epsilon, name] for name in ("bayes_risk_uniform", "deniability"))
        assert risk["mean"] == pytest.approx(max(won[index], risk["floor"]), rel=1e-9)
        assert risk["floor"] == 1 / 64 <= risk["low"] <= risk["mean"] <= risk["high"] <= 1.0
        assert deniability["mean"] == pytest.approx(1.0 / posteriors[index].mean())
        n_w = [row["n_w"] for row in of_words.to_pylist() if row["epsilon_index"] == index]
        expected_zipf = np.average(n_w, weights=1 / np.arange(1, 65))
        assert rows[epsilon, "n_w_zipf"]["mean"] == pytest.approx(expected_zipf)
    assert facts["embedding"]["fingerprint"] == wide.fingerprint
    assert (facts["runs"], facts["release_words"], facts["sample"]) == (RUNS, 64, 64)
    kinds = [(own["mechanism"], own["estimator"]) for own in facts["mechanisms"]]
    assert kinds == list(zip(SPECS, ("exact", "shared-ray", "shared-ray"), strict=True))
    assert [g["configured_epsilon"] for g in facts["guarantee"]] == [*EPSILONS] * len(SPECS)
    assert [len(row["top"]) for row in facts["words"]] == [12] * len(EPSILONS) * len(SPECS)


def test_a_folder_is_replaced_only_where_asked_and_known(ring, several, tmp_path):
    """Rejects a run that goes on where another one is at work, or was killed."""
    with pytest.raises(ConfigError, match=r"exists.*--overwrite"):
        run(ring, several)
    (tmp_path / "mine.txt").write_text("not a calibration")
    with pytest.raises(ConfigError, match="is not a calibration"):
        run(ring, tmp_path, overwrite=True)
    assert names(tmp_path) == {"mine.txt"}
    (tmp_path / ".out.other-1.part").mkdir()
    with pytest.raises(ConfigError, match="Another run is writing the output"):
        run(ring, tmp_path / "out")


def test_a_calibration_is_replaced_when_its_successor_is_whole(ring, several, tmp_path, monkeypatch, capsys):
    """Rejects removal at the start, parts of a run that failed, and old tables left among the new."""
    # Also rejects a page that is missed only when hours of measuring are over. The configuration file runs as
    # it stands. The page is the same where the storage is not on this machine, by Hadoop's own copies.
    # Without a terminal each stage is a line.
    monkeypatch.chdir(ROOT)
    place = tmp_path / "out"
    shutil.copytree(several, place)
    with monkeypatch.context() as patch:
        patch.setattr(calibrate, "summary", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(ring, place, overwrite=True, words=2, runs=5, epsilon=(2.0,))
    assert (
        "Warning: report.html and plots will not be drawn, as jinja2 is not installed. "
        "Run: pip install 'dptext-spark[report]'\nMeasuring 2 words at epsilon 2 ...\n"
    ) in capsys.readouterr().err
    assert (place / "calibration.json").read_bytes() == (several / "calibration.json").read_bytes()
    assert (place / "transitions").exists() and os.listdir(tmp_path) == ["out"]

    (tmp_path / ".out.killed-1.part").mkdir()
    small = ["--embedding", ring.path, "--output", place, "--words", 5, "--runs", 4, "--epsilon", 7, 9]
    small += ["--overwrite"]
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "real", lambda *_: "elsewhere://host/out")
        result = CliRunner().invoke(main, ["calibrate", "--config", "conf/calibrate.toml", *map(str, small)])
    assert result.exit_code == 0, result.output
    assert os.listdir(tmp_path) == ["out"]
    visible = {name for name in names(place) if not name.startswith(".")}
    assert visible == TABLES | {"plots", "report.html"}
    assert "5 of 64 words were measured with 4 runs each" in result.stdout
    assert "Epsilon 7, 9: Not enough runs for a reliable number; increase --runs." in result.stdout
    assert f"\nPage: {place}/report.html\n" in result.stdout
    stages = result.stderr.splitlines()
    assert stages == [
        *("Loading libraries ...", "Opening the embedding ...", "Measuring 5 words at epsilon 7, 9 ..."),
        *("Adding up ...", "Writing tables ...", "Measuring distances between words ..."),
        "Writing the report ...",
    ]
    assert table(place, "words")["word"].to_pylist() == [f"w{i * 64 // 5:02}" for i in range(5)] * 2
    page = (place / "report.html").read_text(encoding="utf-8")
    assert "http://" not in page
    assert "Not enough runs" in page and len(list((place / "plots").glob("*.png"))) == 2


def test_a_target_is_met_by_the_closed_form(tmp_path, monkeypatch):
    """Of two words 1 apart on a line each stays with probability 1 - exp(-epsilon / 2) / 2."""
    # The command that is printed makes the release with it.
    pair, output, chosen = worlds.build(tmp_path, [[-0.5], [0.5]]), tmp_path / "out", []
    arguments = ["--embedding", pair.path, "--mechanism", "laplace", "--epsilon", 2.8, 2.95, "--words", "all"]
    arguments += ["--runs", 4000, "--target", "max(n_w) <= 0.9", "--output", output]
    with without_drawing():
        result = CliRunner().invoke(main, ["calibrate", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    facts = json.loads((output / "calibration.json").read_text())
    (found,) = facts["target"]
    stays = 1.0 - math.exp(-found["epsilon"] / 2.0) / 2.0
    assert 2.8 < found["epsilon"] < found["missed"] <= found["epsilon"] + 0.0101
    assert stays <= 0.9 and found["measured"] <= found["bound"] <= 0.9 and found["looks"] == 1
    assert found["bound"] == pytest.approx(0.9, abs=0.015)
    assert abs(found["measured"] - stays) < 5 * math.sqrt(0.09 / 4000)
    assert {2.8, 2.95} <= {tried["epsilon"] for tried in found["tried"]}
    release, verdict, path = (line for line in result.stdout.splitlines()[-5:] if line)
    assert path == f"Output: {output}"
    assert verdict.startswith(f"laplace: epsilon {found['epsilon']:g} meets max(n_w) <= 0.9 (95% confidence)")
    program, *words = shlex.split(release.removeprefix("The release: "))
    monkeypatch.setattr("dptext_spark.jobs.privatize.run", chosen.append)
    CliRunner().invoke(main, words)
    assert (program, chosen[0].mechanism) == ("dptext", mechanism("laplace", epsilon=found["epsilon"]))
    assert (chosen[0].embedding, chosen[0].input) == (pair.path, "TABLE")
    summed = {row["epsilon"]: row["max"] for row in facts["summary"] if row["statistic"] == "n_w"}
    assert sorted(summed) == [2.8, found["epsilon"], 2.95]
    assert summed[found["epsilon"]] == found["measured"]
    for name in ("words", "outputs"):
        assert set(table(output, name)["epsilon"].to_pylist()) == {*summed}


def test_an_exact_law_is_computed(ring, tmp_path):
    """Exact, and over all words: the target's bound is the value itself, and the largest epsilon is sharp."""
    output, epsilons = tmp_path / "out", (12.68, 12.72, 1000.0)
    given = {"mechanism": "exponential", "epsilon": epsilons, "target": "max(n_w) <= 0.3"}
    facts = run(ring, output, **given)
    (found,) = facts["target"]
    outputs = table(output, "outputs")["k_w"].to_numpy()
    assert outputs.min() >= 1.0  # of an output that hardly ever comes too

    def law(epsilon):
        return mechanism("exponential", epsilon=epsilon).bind(ring, among(64)).probabilities(np.arange(64))

    rows = {row["statistic"]: row for row in facts["summary"] if row["epsilon"] == 12.68}
    truth, own = oracle.risk(law(12.68), np.ones(64)), law(12.68)
    assert [rows["bayes_risk_uniform"][n] for n in ("mean", "low", "high")] == pytest.approx([truth] * 3)
    assert rows["deniability"]["mean"] == pytest.approx(64 / (own * own / own.sum(axis=0)).sum())
    assert found["bound"] == found["measured"] <= 0.3
    met, missed = (np.diag(law(found[name])).max() for name in ("epsilon", "missed"))
    assert met <= 0.3 < missed
