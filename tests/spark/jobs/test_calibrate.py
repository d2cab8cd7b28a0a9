"""dptext calibrate: its tables against the calibration package, its restart, its target, and who reads it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from dptext_spark.bars import progress_bar
from dptext_spark.calibration import Transitions, estimator, word_statistics
from dptext_spark.cli import main
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.options import CalibrateOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.jobs import calibrate
from dptext_spark.spark.measuring.waves import Waves
from dptext_spark.spark.table.storage import Storage
from tests.helpers import calibration_oracle as oracle
from tests.helpers import worlds
from tests.helpers.tables import ROOT, killed_once, write_table
from tests.helpers.worlds import among

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

EPSILONS = (2.0, 40.0)
RUNS = 60


def options(embedding: Embedding, output: Path, **given: Any) -> dict[str, Any]:
    values = {
        "embedding": embedding.path,
        "mechanism": "laplace",
        "epsilon": EPSILONS,
        "runs": RUNS,
        "words": "all",
        "output": str(output),
    }
    return {name.replace("_", "-"): value for name, value in (values | given).items()}


def run(embedding: Embedding, output: Path, **given: Any) -> dict[str, Any]:
    """Run the job; what calibration.json says."""
    report = calibrate.run(CalibrateOptions.of(options(embedding, output, **given)))
    found = json.loads((output / "calibration.json").read_text())
    assert found == json.loads(report.to_json())
    assert not (output / ".parts").exists()
    assert report.describe()
    return dict(found)


def table(folder: Path, name: str) -> pa.Table:
    """One of a calibration's tables, sorted."""
    found = pq.ParquetDataset(folder / name).read()
    keys = [key for key in ("setting", "epsilon", "statistic", "word", "output") if key in found.column_names]
    return found.sort_by([(key, "ascending") for key in keys])


def transitions(
    mechanisms: list[Mechanism], embedding: Embedding, words: int, runs: int = RUNS
) -> Transitions:
    """What the package itself finds for as many words, dealt out to 16 blocks."""
    estimate = estimator(mechanisms, embedding, search=ExactSearch.over(embedding), runs=runs)
    blocks = [np.arange(b, words, 16) * len(embedding.words) // words for b in range(16)]
    return oracle.concat(estimate(block, block=number) for number, block in enumerate(blocks))


def by_word(found: pa.Table, embedding: Embedding, epsilons: tuple[float, ...]) -> list[dict[str, Any]]:
    """Rows of the package's tables under the words and epsilons that the job's tables have."""
    rows = [
        {"epsilon": epsilons[row.pop("epsilon_index")], **row, "word": embedding.words[row["word"]].as_py()}
        for row in found.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["epsilon"], row["word"]))


def without(found: pa.Table, *names: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = found.drop_columns(["mechanism", "setting", *names]).to_pylist()
    return rows


@pytest.fixture(scope="module")
def laplace(spark: SparkSession, ring: Embedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration of ``laplace`` on the ring, with transitions."""
    output = tmp_path_factory.mktemp("laplace") / "out"
    run(ring, output, transitions=True)
    return output


def test_the_tables_are_the_packages(ring: Embedding, laplace: Path) -> None:
    expected = transitions([mechanism("laplace", epsilon=e) for e in EPSILONS], ring, 64)
    statistics = word_statistics(expected)
    words = table(laplace, "words")
    assert words.column_names[:4] == ["mechanism", "setting", "epsilon", "word"]
    assert without(words, "posterior") == by_word(statistics, ring, EPSILONS)
    outputs = oracle.output_statistics(expected)
    assert without(table(laplace, "outputs")) == by_word(outputs, ring, EPSILONS)
    cells = table(laplace, "transitions")
    names = ["epsilon", "word", "output", "count"]
    assert cells.column_names == ["mechanism", "setting", *names]
    listed = [
        (EPSILONS[e], f"w{w:02d}", f"w{o:02d}", c)
        for e, w, o, c in zip(
            *oracle.cells(expected).drop_columns("judged").to_pydict().values(), strict=True
        )
    ]
    assert [tuple(row.values()) for row in without(cells)] == sorted(listed)


def test_the_summary_describes_the_tables(ring: Embedding, laplace: Path) -> None:
    expected = transitions([mechanism("laplace", epsilon=e) for e in EPSILONS], ring, 64)
    of_words = word_statistics(expected)
    limits = [name for name in of_words.column_names if name.endswith(("_low", "_high"))]
    posteriors = oracle.posterior(expected)
    of_words = of_words.drop_columns(limits).append_column("posterior", pa.array(posteriors.ravel()))
    summary = table(laplace, "summary")
    numbers = ["mean", "sd", "min", "p5", "p50", "p95", "max"]
    shown = ["mean", "low", "high", "floor", "sd", "min", "p5", "p50", "p95", "max", "few_runs"]
    assert summary.column_names == ["mechanism", "setting", "epsilon", "statistic", *shown]
    rows = {(row["epsilon"], row["statistic"]): row for row in summary.to_pylist()}
    described = [
        row
        for found in (of_words, oracle.output_statistics(expected))
        for row in oracle.summary(found).to_pylist()
    ]
    assert len(rows) == len(described) + 4 * len(EPSILONS) == len(EPSILONS) * 13
    for row in described:
        found = rows[EPSILONS[row["epsilon_index"]], row["statistic"]]
        assert [found[n] for n in numbers] == pytest.approx([row[n] for n in numbers], rel=1e-8, abs=1e-9)
    for name, prior in (("uniform", np.ones(64)), ("zipf", 1.0 / np.arange(1, 65))):
        prior /= prior.sum()
        counted, won = oracle.guessed(expected, prior)
        for index, epsilon in enumerate(EPSILONS):
            risk = rows[epsilon, f"bayes_risk_{name}"]
            assert risk["mean"] == pytest.approx(max(won[index], prior[0]), rel=1e-9)
            assert risk["floor"] == pytest.approx(prior[0]) and risk["floor"] <= risk["low"] <= risk["mean"]
            assert min(counted[index], 1.0) <= risk["high"] <= 1.0
    # At a huge epsilon every word stays: it alone is as likely, and is named.
    risks = [rows[epsilon, "bayes_risk_uniform"] for epsilon in EPSILONS]
    assert risks[0]["mean"] < 0.5 < risks[1]["low"]
    for index, epsilon in enumerate(EPSILONS):
        deniability = rows[epsilon, "deniability"]
        assert deniability["mean"] == pytest.approx(1.0 / posteriors[index].mean())
        assert 1.0 <= deniability["low"] <= deniability["mean"] <= deniability["high"] <= 64.0
        own = by_word(word_statistics(expected), ring, EPSILONS)
        zipf = sum(r["n_w"] / (int(r["word"][1:]) + 1) for r in own if r["epsilon"] == epsilon)
        assert rows[epsilon, "n_w_zipf"]["mean"] == pytest.approx(zipf / (1.0 / np.arange(1, 65)).sum())
    facts = json.loads((laplace / "calibration.json").read_text())
    assert sorted(facts["summary"], key=lambda r: (r["epsilon"], r["statistic"])) == summary.to_pylist()


def test_what_a_calibration_says_of_itself(ring: Embedding, laplace: Path) -> None:
    facts = json.loads((laplace / "calibration.json").read_text())
    assert facts["embedding"]["fingerprint"] == ring.fingerprint
    assert (facts["estimator"], facts["runs"], facts["release_words"]) == ("shared-ray", RUNS, 64)
    assert facts["sample"] == {"words": 64, "blocks": 16}
    assert [g["configured_epsilon"] for g in facts["guarantee"]] == [*EPSILONS]
    (nearest, *_) = facts["distances"][""]["neighbours"]
    assert nearest["neighbour"] == 1
    assert nearest["p50"] == pytest.approx(2 * math.sin(math.pi / 64), rel=1e-4)
    assert facts["gains"] == facts["target"] == facts["matches"] == []


# Several settings, and a run that is killed


LAMBDAS = (0.0, 0.9)


@pytest.fixture(scope="module")
def grid(spark: SparkSession, plane64: Embedding, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed calibration of ``mahalanobis`` at two lambdas."""
    output = tmp_path_factory.mktemp("grid") / "out"
    run(plane64, output, **GRID)
    return output


GRID: dict[str, Any] = {"mechanism": "mahalanobis", "lambda": LAMBDAS, "transitions": True, "words": 40}


@pytest.fixture(scope="module")
def plane64(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """64 words of the plane, spread ten times wider along one axis than across it."""
    return worlds.build(tmp_path_factory.mktemp("plane64"), worlds.uneven(64, 2))


def test_each_lambda_is_a_setting_and_gains_are_differences_of_batches(
    plane64: Embedding, grid: Path
) -> None:
    facts = json.loads((grid / "calibration.json").read_text())
    assert [g["setting"] for g in facts["gains"]] == ["lambda=0.9"] * 4
    words = table(grid, "words").to_pylist()
    assert {(row["mechanism"], row["setting"]) for row in words} == {
        ("mahalanobis", "lambda=0"),
        ("mahalanobis", "lambda=0.9"),
    }
    assert len(words) == 2 * 2 * 40
    rows = {plane64.words[i * 64 // 40].as_py(): i for i in range(40)}
    values = np.zeros((2, 2, 40))
    for row in words:
        setting = ["lambda=0", "lambda=0.9"].index(row["setting"])
        values[setting, EPSILONS.index(row["epsilon"]), rows[row["word"]]] = row["n_w"]
    for gain in facts["gains"]:
        if gain["statistic"] == "n_w":
            apart = np.diff(values[:, EPSILONS.index(gain["epsilon"])], axis=0)[0]
            assert gain["difference"] == pytest.approx(apart.mean(), rel=1e-9)
            assert gain["low"] < gain["difference"] < gain["high"]
    package = transitions(
        [mechanism("mahalanobis", epsilon=e, **{"lambda": 0.9}) for e in EPSILONS], plane64, 40
    )
    own = table(grid, "words")
    own = own.filter(pa.compute.equal(own["setting"], "lambda=0.9"))
    expected = by_word(word_statistics(package), plane64, EPSILONS)
    assert without(own, "posterior") == expected


@pytest.fixture
def killed(plane64: Embedding, tmp_path: Path) -> Iterator[Path]:
    """The folder of such a run that was killed once some of its waves were done."""
    given = options(plane64, tmp_path / "out", **GRID)
    arguments = ["calibrate", "--transitions"]
    for name, value in given.items():
        if name != "transitions":
            several = value if isinstance(value, tuple) else (value,)
            arguments += [f"--{name}", *map(str, several)]
    killed_once(lambda: waves(tmp_path / "out"), *arguments)
    return tmp_path / "out"


def waves(output: Path) -> list[str]:
    return sorted(path.name for path in output.glob(".parts/*/grid/blocks-*"))


def test_a_killed_run_continues_and_ends_with_the_same_tables(
    plane64: Embedding, grid: Path, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = waves(killed)
    assert done
    assert not (killed / "calibration.json").exists()
    for other in (
        {"runs": RUNS + 1},
        {"noise_seed": 1},
        {"epsilon": (2.0,)},
        {"words": 41},
        {"lambda": (0.0,)},
    ):
        with pytest.raises(ConfigError, match="parts of a calibration with other options"):
            run(plane64, killed, **GRID | other)
    measured = []
    own = Waves._wave

    def counted(waves: Any, grid: Any, place: str, start: int, stop: int, cells: bool) -> None:
        measured.append((start, stop))
        own(waves, grid, place, start, stop, cells)

    monkeypatch.setattr(Waves, "_wave", counted)
    run(plane64, killed, **GRID)
    assert sum(stop - start for start, stop in measured) < 16
    for name in ("words", "outputs", "transitions", "summary"):
        assert table(killed, name).equals(table(grid, name)), name
    facts, undisturbed = (json.loads((p / "calibration.json").read_text()) for p in (killed, grid))
    facts["options"]["output"] = undisturbed["options"]["output"]
    assert facts == undisturbed


def test_words_are_counted_as_they_are_measured(
    ring: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects a bar of waves, of tasks, or one that begins anew what a run before has done."""
    bars: list[Any] = []

    def shown(**shape: Any) -> Any:
        bars.append(progress_bar(anywhere=True, file=StringIO(), mininterval=0.0, **shape))
        return bars[-1]

    def fails(*_: Any) -> None:
        raise JobError("Cut off")

    monkeypatch.setattr("dptext_spark.spark.measuring.waves.progress_bar", shown)
    given = {"mechanism": "mahalanobis", "lambda": (0.0, 0.9), "words": 40, "runs": 5, "epsilon": (2.0,)}
    with monkeypatch.context() as patch:
        patch.setattr(Waves, "kept", fails)
        with pytest.raises(JobError):
            run(ring, tmp_path / "out", **given)
    run(ring, tmp_path / "out", **given, target="mean(n_w) <= 0.5")
    first, again, *searched = bars
    assert (first.n, first.total, first.initial) == (80, 80, 0)
    assert (again.n, again.total, again.initial) == (80, 80, 80)
    assert " 80/80 [" in first.fp.getvalue() and " words/s]" in first.fp.getvalue()
    assert searched and {(bar.n, bar.total) for bar in searched} == {(40, 40)}


def test_a_folder_is_replaced_only_where_asked_and_known(
    ring: Embedding, laplace: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"exists.*--overwrite"):
        run(ring, laplace)
    (tmp_path / "mine.txt").write_text("not a calibration")
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="is not a calibration"):
            run(ring, tmp_path, overwrite=overwrite)
    assert (tmp_path / "mine.txt").exists()


def test_a_calibration_is_replaced_when_its_successor_is_measured(
    ring: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects removal at the start, and tables of the old calibration left among the new."""
    place, small = tmp_path / "out", {"words": 2, "runs": 5, "epsilon": (2.0,)}
    old = run(ring, place, transitions=True, **small)

    def fails(*_: Any) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(calibrate, "summary", fails)
        with pytest.raises(RuntimeError):
            run(ring, place, overwrite=True, noise_seed=1, **small)
    assert json.loads((place / "calibration.json").read_text()) == old
    assert (place / "transitions").exists()
    new = run(ring, place, overwrite=True, noise_seed=2, **small)
    assert new["options"]["noise-seed"] == 2
    assert not (place / "transitions").exists()


def test_the_page_comes_to_storage_that_is_not_on_this_machine(
    ring: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes as beside a local calibration, by Hadoop's own copies."""
    place, small = tmp_path / "out", {"words": 2, "runs": 5, "epsilon": (2.0,)}
    run(ring, place, **small)
    pages = [{f.name: f.read_bytes() for f in (place / "report.html", *sorted((place / "plots").iterdir()))}]
    with monkeypatch.context() as patch:
        patch.setattr(Storage, "real", lambda *_: "elsewhere://host/out")
        run(ring, place, overwrite=True, **small)
    pages.append(
        {f.name: f.read_bytes() for f in (place / "report.html", *sorted((place / "plots").iterdir()))}
    )
    names = [[name for name in page if not name.startswith(".")] for page in pages]
    assert names[0] == names[1]
    assert len(names[0]) > 2
    plots = names[0][1:]
    assert [pages[0][name] for name in plots] == [pages[1][name] for name in plots]


# Target and comparison


def test_a_target_is_met_by_the_closed_form(tmp_path: Path) -> None:
    """Of two words 1 apart on a line each stays with probability 1 - exp(-epsilon / 2) / 2."""
    pair = worlds.build(tmp_path, [[-0.5], [0.5]])
    facts = run(pair, tmp_path / "out", epsilon=(2.0, 3.4), runs=4000, target="max(n_w) <= 0.9")
    (found,) = facts["target"]
    stays = 1.0 - math.exp(-found["epsilon"] / 2.0) / 2.0
    assert stays <= 0.9
    assert 2.0 < found["epsilon"] < found["missed"] <= found["epsilon"] + 0.0101
    assert found["measured"] <= found["bound"] <= 0.9 and found["looks"] == 1
    assert found["bound"] == pytest.approx(0.9, abs=0.015)
    assert abs(found["measured"] - stays) < 5 * math.sqrt(0.09 / 4000)
    assert found["options"] == f"--mechanism laplace --epsilon {found['epsilon']:g}"
    assert {2.0, 3.4} <= {tried["epsilon"] for tried in found["tried"]}

    # The options as they are printed are those of a release.
    source = write_table(tmp_path / "in.parquet", {"text": ["w0 w1"]})
    given = ["--input", source, "--output", tmp_path / "new", "--embedding", pair.path, "--text", "text"]
    given += [*found["options"].split(), "--dry-run"]
    result = CliRunner().invoke(main, ["privatize", *map(str, given)])
    assert result.exit_code == 0, result.output
    summed = {row["epsilon"]: row["max"] for row in facts["summary"] if row["statistic"] == "n_w"}
    assert sorted(summed) == [2.0, found["epsilon"], 3.4]
    assert summed[found["epsilon"]] == found["measured"]
    for name in ("words", "outputs", "summary"):
        assert set(table(tmp_path / "out", name)["epsilon"].to_pylist()) == {*summed}
    assert [g["configured_epsilon"] for g in facts["guarantee"]] == sorted(summed)


def test_an_exact_law_is_compared_with_a_measured_one(ring: Embedding, laplace: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    epsilons = (1.0, 12.0, 13.0, 1000.0)
    facts = run(
        ring,
        output,
        mechanism="exponential",
        epsilon=epsilons,
        compare=str(laplace),
        target="mean(n_w) <= 0.3",
    )
    assert facts["estimator"] == "exact"
    (found,) = facts["target"]
    epsilons = tuple(sorted({*epsilons, found["epsilon"]}))
    package = transitions([mechanism("exponential", epsilon=e) for e in epsilons], ring, 64)
    words = without(table(output, "words"), "posterior")
    assert words == by_word(word_statistics(package), ring, epsilons)
    outputs = table(output, "outputs")["k_w"].to_numpy()
    expected = [row["k_w"] for row in by_word(oracle.output_statistics(package), ring, epsilons)]
    assert outputs == pytest.approx(expected, rel=1e-6)
    assert outputs.min() >= 1.0  # of an output that hardly ever comes too
    law = mechanism("exponential", epsilon=12.0).bind(ring, among(64)).probabilities(np.arange(64))  # type: ignore[attr-defined]
    rows = {row["statistic"]: row for row in facts["summary"] if row["epsilon"] == 12.0}
    truth = oracle.risk(law, np.ones(64))
    assert [rows["bayes_risk_uniform"][n] for n in ("mean", "low", "high")] == pytest.approx([truth] * 3)
    posterior = (law * law / law.sum(axis=0)).sum() / 64
    assert rows["deniability"]["mean"] == pytest.approx(1.0 / posterior)
    assert not any(row["few_runs"] for row in rows.values())
    # Exact, and over all words: the target's bound is the value itself, and the largest epsilon is sharp.
    assert found["bound"] == found["measured"] <= 0.3
    exact = [
        estimator([mechanism("exponential", epsilon=e)], ring, search=among(64), runs=1)(
            np.arange(64), block=0
        )
        for e in (found["epsilon"], found["missed"])
    ]
    met, missed = (word_statistics(t)["n_w"].to_numpy().mean() for t in exact)
    assert met <= 0.3 < missed
    assert len(facts["matches"]) == 4
    for match in facts["matches"]:
        assert match["other"]["epsilon"] in EPSILONS
        assert match["epsilon"] is None or 1.0 <= match["epsilon"] <= 1000.0
    assert any(match["epsilon"] for match in facts["matches"])


# The command line, and the release that quotes a calibration


def test_several_numbers_follow_an_option(
    monkeypatch: pytest.MonkeyPatch, ring: Embedding, tmp_path: Path
) -> None:
    seen = []

    def stop(given: Any) -> None:
        seen.append(given)
        raise ConfigError("Enough")

    monkeypatch.setattr(calibrate, "run", stop)
    toml = tmp_path / "c.toml"
    toml.write_text('mechanism = "mahalanobis"\nepsilon = [5, 10.0]\nlambda = 0.5\nwords = "all"\n')
    common = ["calibrate", "--embedding", ring.path, "--output", tmp_path / "out"]
    for arguments in (
        ["--mechanism", "mahalanobis", "--epsilon", "10", "5", "--lambda", "0.5", "--words", "all"],
        ["--epsilon=5,10", "--lambda=0.5", "--mechanism=mahalanobis", "--words=all"],
        [
            "--epsilon",
            "5",
            "--epsilon",
            "10",
            "5.0",
            "--lambda",
            "0.5",
            "--mechanism=mahalanobis",
            "--words=all",
        ],
        ["--config", toml],
    ):
        result = CliRunner().invoke(main, [*map(str, common), *map(str, arguments)])
        assert "Enough" in result.output, result.output
    assert len({given.model_dump_json() for given in seen}) == 1
    assert [(m.epsilon, m.mixing) for m in seen[0].mechanism] == [(5.0, 0.5), (10.0, 0.5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0"], "--epsilon has a wrong value"),
        (["--epsilon"], "--epsilon"),
        (["--epsilon", "5", "many"], "many"),
        (["--epsilon", "5", "--lambda", "0.5"], "--lambda is not an option"),
        (["--epsilon", "5", "--words", "1"], "--words has a wrong value"),
        (["--epsilon", "5", "--estimator", "quick"], "--estimator has a wrong value"),
        (["--epsilon", "5", "--estimator", "exact"], "does not serve"),
        (["--epsilon", "5", "--target", "n_w small"], "--target has a wrong value"),
        (["--epsilon", "5", "--compare", "nowhere"], "cannot be read"),
        (["--epsilon", "5", "--release-words", "65"], "--release-words"),
        (["--epsilon", "5", "--target", "max(n_w) <= 0.5", "--words", "30"], "cannot be told"),
    ],
)
def test_wrong_options_are_refused(
    ring: Embedding, tmp_path: Path, arguments: list[str], message: str
) -> None:
    given = ["--embedding", ring.path, "--mechanism", "laplace", "--output", tmp_path / "out", *arguments]
    result = CliRunner().invoke(main, ["calibrate", *map(str, given)])
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_the_configuration_file_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, ring: Embedding, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    small = [
        "--embedding",
        ring.path,
        "--output",
        tmp_path / "out",
        "--words",
        5,
        "--runs",
        4,
        "--epsilon",
        7,
        "--example",
        "w01",
    ]
    result = CliRunner().invoke(main, ["calibrate", "--config", "conf/calibrate.toml", *map(str, small)])
    assert result.exit_code == 0, result.output
    assert "5 of 64 words, 4 runs each" in result.output
    assert table(tmp_path / "out", "words").num_rows == 5


def test_the_report_is_there_with_the_examples(line: Embedding, tmp_path: Path) -> None:
    """The job's own folder makes the report: its format and the report's cannot drift apart."""
    output = tmp_path / "calibration"
    run(line, output, words=4, example=("w4", "w1"))
    found = pq.ParquetDataset(output / "examples").read().to_pylist()
    assert {row["word"] for row in found} == {"w1", "w4"}
    counts: dict[tuple[float, str], float] = {}
    for row in found:
        counts[row["epsilon"], row["word"]] = counts.get((row["epsilon"], row["word"]), 0) + row["count"]
    assert counts == {(epsilon, word): RUNS for epsilon in EPSILONS for word in ("w1", "w4")}
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "w4" in page and "What words become" in page and "http://" not in page
    assert len(list((output / "plots").glob("*.png"))) == 5


def test_an_example_that_the_bundle_lacks_is_refused(line: Embedding, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"lacks words of --example.*absent"):
        calibrate.run(CalibrateOptions.of(options(line, tmp_path / "c", example=("w1", "absent"))))
    assert not (tmp_path / "c").exists()
