"""``dptext poincare``: its filters against brute force, and the whole run as a user runs it."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from dptext_spark.cli import main
from dptext_spark.demo import MAMMALS
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.poincare import training
from dptext_spark.spark.pairs import filter_pairs, read_pairs
from dptext_spark.text.stop_words import stop_words
from tests.helpers.drawing import without_drawing
from tests.helpers.tables import hashes, names

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.spark

Pair = tuple[str | None, str | None, int | None]


def write_tsv(path: Path, rows: list[Any], header: str = "", end: str = "\n") -> str:
    text = header + "".join("\t".join(map(str, row)) + end for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def brute_force(
    rows: list[Pair], vocabulary: list[str] | None, excluded: list[str], min_count: int, min_links: int
) -> tuple[list[int], set[tuple[str, str]]]:
    """The filters once more, in plain Python: what each leaves, and the pairs."""
    left = [len(rows)]
    usable = [
        (low, high, count)
        for low, high, count in rows
        if low
        and high
        and low == "".join(low.split())
        and high == "".join(high.split())
        and (count or 0) >= 0
    ]
    left.append(len(usable))
    usable = [row for row in usable if row[0] != row[1]]
    left.append(len(usable))
    counts: Counter[tuple[str, str]] = Counter()
    for low, high, count in usable:
        counts[low, high] += count or 0
    left.append(len(counts))
    seen = dict(counts)
    counted = any(count is not None for *_, count in rows)
    for keep in (
        lambda pair: vocabulary is None or {*pair} <= {*vocabulary},
        lambda pair: not counted or seen[pair] >= min_count,
        lambda pair: not {*pair} & stop_words(),
        lambda pair: not {*pair} & {*excluded},
    ):
        counts = Counter({pair: count for pair, count in counts.items() if keep(pair)})
        left.append(len(counts))
    links = Counter(word for pair in counts for word in pair)
    pairs = {pair for pair in counts if min(links[word] for word in pair) > min_links}
    return [*left, len(pairs)], pairs


def random_rows(seed: int, counted: bool) -> list[Pair]:
    rng = random.Random(seed)
    words = [*(f"w{row}" for row in range(12)), "the", "bad", "two words", "", "a\u00a0b", None]
    weights = [10] * 12 + [2] * 6
    return [
        (*rng.choices(words, weights, k=2), rng.randint(0, 12) if counted else None)  # type: ignore[misc]
        for _ in range(120)
    ]


@pytest.mark.parametrize(("seed", "min_links"), [(0, 4), (3, 8)])
def test_the_filters_are_those_of_brute_force(spark: SparkSession, seed: int, min_links: int) -> None:
    counted = seed % 2 == 0
    rows = random_rows(seed, counted)
    vocabulary = [f"w{row}" for row in range(10)] + ["the", "bad"] if seed < 2 else None
    frame = spark.createDataFrame(rows, "hyponym string, hypernym string, count bigint").repartition(3)
    steps, table = filter_pairs(
        frame, vocabulary=vocabulary, excluded=["bad", "w3"], min_count=9, min_links=min_links
    )
    left, pairs = brute_force(rows, vocabulary, ["bad", "w3"], 9, min_links)
    assert [steps[0].left + steps[0].removed, *(step.left for step in steps)] == left
    assert set(zip(table["hyponym"].to_pylist(), table["hypernym"].to_pylist(), strict=True)) == pairs
    assert table.num_rows == len(pairs) > 0
    # Every filter had something to do, so that none of them could be left out unseen.
    idle = {step.name for step in steps if step.removed == 0}
    allowed = {"pairs seen fewer than 9 times"} if not counted else set()
    assert idle <= allowed | ({"pairs with a word outside the vocabulary"} if vocabulary is None else set())


def collected(spark: SparkSession, path: str) -> list[Pair]:
    return sorted(tuple(row) for row in read_pairs(spark, path).collect())


def test_text_and_parquet_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("dog", "mammal", 3), ('"cat', "mammal\\", 12)]
    expected = sorted(rows)
    assert collected(spark, write_tsv(tmp_path / "plain.tsv", rows)) == expected
    assert collected(spark, write_tsv(tmp_path / "packed.tsv.gz", rows)) == expected
    assert (
        collected(spark, write_tsv(tmp_path / "dos.txt", rows, "word\thypernym\tcount\r\n", "\r\n"))
        == expected
    )
    table = pa.table(
        {"extra": [1, 2], "count": [3, 12], "hyponym": ["dog", '"cat'], "hypernym": ["mammal", "mammal\\"]}
    )
    pq.write_table(table, tmp_path / "table.parquet")
    assert collected(spark, str(tmp_path / "table.parquet")) == expected
    # The third column of a file with a header is a count only by its name.
    named = write_tsv(tmp_path / "distance.tsv", rows, "word\thypernym\tdistance\n")
    assert collected(spark, named) == sorted((low, high, None) for low, high, _ in rows)
    late = write_tsv(tmp_path / "late.tsv", [("dog", "mammal", "x", 3)], "word\thypernym\tnote\tcount\n")
    assert collected(spark, late) == [("dog", "mammal", 3)]


def test_a_count_that_is_none_makes_a_row_unusable(spark: SparkSession, tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "p.tsv", [("a1", "b1", 5), ("a1", "c1", "many"), ("b1", "c1", ""), ("b1",)])
    steps, table = filter_pairs(
        read_pairs(spark, path), vocabulary=None, excluded=[], min_count=0, min_links=0
    )
    assert (steps[0].removed, table.num_rows) == (3, 1)


def test_pairs_that_cannot_be_read_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"hyponym": ["a"]}), tmp_path / "half.parquet")
    with pytest.raises(InputError, match="no hypernym"):
        read_pairs(spark, str(tmp_path / "half.parquet"))
    for path in ("absent.tsv", "absent.parquet"):
        with pytest.raises(InputError, match="cannot be read"):
            read_pairs(spark, str(tmp_path / path))


# The command


def dptext(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["poincare", *map(str, arguments)])


def refused(result: Result, *parts: str) -> bool:
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert all(part in result.output for part in parts), result.output
    return True


QUICK = ["--epochs", 2, "--dimension", 3, "--min-links", 0]


@pytest.mark.e2e
def test_the_configuration_file_runs_as_it_stands(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    output = tmp_path / "mammals"
    result = dptext("--config", "conf/poincare.toml", "--output", output, "--seed", 1, "--epochs", 40)
    assert result.exit_code == 0, result.output
    bundle = Embedding.open(output)
    report = json.loads((tmp_path / "mammals.report.json").read_text())
    assert (bundle.space.geometry, bundle.dimension, bundle.vectors.dtype) == ("poincare", 5, np.float64)
    assert report["fingerprint"] == bundle.fingerprint
    assert report["words"] == len(bundle.words) == 1154
    assert report["cycles"] == {"groups": 0, "words": 0, "pairs": 0}
    assert report["steps"][-1]["left"] == report["pairs"] == -report["steps"][-1]["removed"] + 1171
    assert (tmp_path / report["picture"]).read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mammals",
        "mammals.png",
        "mammals.report.json",
        "mammals.vec",
    ]
    quality = report["quality"]
    print(quality)
    assert quality["reconstruction"]["mean_average_precision"] > 0.8
    assert quality["norm_depth_correlation"] > 0.1
    assert quality["largest_norm"] == pytest.approx(np.tanh(6 / 2), rel=1e-12)
    assert f"{quality['reconstruction']['mean_average_precision']:.3f}" in result.output
    # The text form has all that the bundle has, as gensim reads it: a header, then words and their numbers.
    again = build_embedding(tmp_path / "mammals.vec", tmp_path / "again", geometry="poincare")
    assert again.fingerprint == bundle.fingerprint
    header, first, *_ = (tmp_path / "mammals.vec").read_text(encoding="utf-8").split("\n")
    assert header == f"{len(bundle.words)} 5"
    word, *numbers = first.split(" ")
    assert word == bundle.words[0].as_py()
    assert [float(number) for number in numbers] == bundle.vectors[0].tolist()


def test_words_follow_the_vocabularys_order(spark: SparkSession, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal"), ("cat", "mammal"), ("eel", "fish")])
    (tmp_path / "words.txt").write_text("\ufeffeel\rmammal\r\n cat\n\ndog\n", encoding="utf-8")
    one, two = tmp_path / "one", tmp_path / "two"
    assert (
        dptext("--pairs", pairs, "--output", one, *QUICK, "--vocabulary", tmp_path / "words.txt").exit_code
        == 0
    )
    assert Embedding.open(one).words.to_pylist() == ["mammal", "cat", "dog"]
    other = write_tsv(tmp_path / "q.tsv", [("dog", "mammal"), ("cat", "eel"), ("mammal", "cat")])
    assert dptext("--pairs", other, "--output", two, *QUICK, "--vocabulary", one).exit_code == 0
    assert Embedding.open(two).words.to_pylist() == ["mammal", "cat", "dog"]


def test_a_deny_list_denies_or_is_refused_before_the_training(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal"), ("cat", "mammal")])
    denied, output = tmp_path / "never.txt", tmp_path / "bundle"
    denied.write_text("\ufeffDOG\r# worse\r", encoding="utf-8")
    arguments = ["--pairs", pairs, "--output", output, *QUICK, "--never-output", denied]
    result = dptext(*arguments)
    assert "--never-output never.txt: 1 of 2 entries match words; no match: line 2" in result.output
    bundle = Embedding.open(output)
    assert bundle.words[: bundle.releasable].to_pylist() == ["mammal", "cat"]
    report = json.loads((tmp_path / "bundle.report.json").read_text())
    assert report["word_lists"] == {"--never-output": {"entries": 2, "matched": 1, "unmatched_lines": [2]}}
    denied.write_text("'dog'\n")
    monkeypatch.setattr(training.Trainer, "run", None)
    assert refused(
        dptext(*arguments, "--overwrite"), "No entry of never.txt (--never-output)", "none of line 1"
    )


def test_partitions_and_row_order_leave_no_trace(spark: SparkSession, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in gzip.decompress(MAMMALS.read_bytes()).decode().splitlines()[1:]]
    for name, order in (("one", rows), ("two", rows[::-1])):
        folder = tmp_path / "pairs" / name
        folder.mkdir(parents=True)
        columns = {"hyponym": [low for low, _ in order], "hypernym": [high for _, high in order]}
        for part in range(1 if name == "one" else 5):
            table = pa.table(columns).slice(part * 300, 300 if name == "two" else None)
            pq.write_table(table, folder / f"{part}.parquet")
        (tmp_path / name).mkdir()
        assert dptext("--pairs", folder, "--output", tmp_path / name / "b", *QUICK).exit_code == 0
    assert hashes(tmp_path / "one" / "b") == hashes(tmp_path / "two" / "b")


def test_what_exists_is_not_replaced_unasked(spark: SparkSession, tmp_path: Path) -> None:
    """Rejects a bundle beside the picture of the bundle that it replaced."""
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal"), ("cat", "mammal")])
    output = tmp_path / "bundle"
    (tmp_path / "bundle.vec").write_text("mine")
    assert refused(dptext("--pairs", pairs, "--output", output, *QUICK), "bundle.vec", "exist")
    (tmp_path / "bundle.vec").unlink()
    assert dptext("--pairs", pairs, "--output", output, *QUICK).exit_code == 0
    assert refused(dptext("--pairs", pairs, "--output", output, *QUICK), "The output exists")
    assert (tmp_path / "bundle.png").exists()
    with without_drawing():
        result = dptext("--pairs", pairs, "--output", output, *QUICK, "--overwrite", "--seed", 3)
    assert result.exit_code == 0, result.output
    assert result.output.startswith(
        "Warning: the picture will not be drawn, as matplotlib is not installed. "
        "Run: pip install 'dptext-spark[report]'\n"
    )
    assert names(tmp_path) == {"bundle", "bundle.report.json", "bundle.vec", "p.tsv"}
    assert json.loads((tmp_path / "bundle.report.json").read_text())["picture"] is None
    assert Embedding.open(output).dimension == 3


def test_faults_are_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal", 3), ("the", "mammal", 30)])
    output = tmp_path / "bundle"
    lost = ["--vocabulary", tmp_path / "no.txt", "--exclude", tmp_path / "none.txt"]
    assert refused(
        dptext("--pairs", pairs, "--output", output, *lost), "2 things are wrong", "no.txt", "none.txt"
    )
    assert refused(
        dptext("--pairs", pairs, "--output", output),
        "The filters leave no pair",
        "1 after 1 pairs seen fewer than 10 times; 0 after 1 pairs with a stop word",
    )
    wrong = ["--dimension", 1, "--learning-rate", 0, "--seed", -1]
    assert refused(
        dptext("--pairs", pairs, "--output", output, *wrong),
        "--dimension has a wrong value. Allowed: a number, 2 or more. Got: 1.",
        "--learning-rate has a wrong value. Allowed: a number above 0. Got: 0.0.",
        "--seed has a wrong value. Allowed: a number, 0 or more. Got: -1.",
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.tsv"]


@pytest.mark.e2e
def test_a_job_that_was_cut_off_goes_on_and_writes_the_same_bundle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/poincare/test_training.py interrupts the training; here its job goes on."""
    pairs = write_tsv(tmp_path / "p.tsv", [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal")])
    options = ["--pairs", pairs, "--min-links", 0, "--transitive-closure", "--epochs", 15, "--dimension", 4]
    cut, whole, checkpoint = tmp_path / "cut" / "b", tmp_path / "whole" / "b", tmp_path / "state"
    cut.parent.mkdir()
    whole.parent.mkdir()
    right = training.Trainer._save

    def save_and_stop(self: training.Trainer, state: training.Trained) -> None:
        right(self, state)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(training.Trainer, "_save", save_and_stop)
        assert dptext(*options, "--output", cut, "--checkpoint", checkpoint).exit_code != 0
    assert list(cut.parent.iterdir()) == []
    began = (checkpoint / training.CHECKPOINT).read_bytes()
    assert dptext(*options, "--output", cut, "--checkpoint", checkpoint).exit_code == 0
    assert (checkpoint / training.CHECKPOINT).read_bytes() != began
    assert dptext(*options, "--output", whole).exit_code == 0
    assert hashes(cut) == hashes(whole)
    assert Path(f"{cut}.vec").read_bytes() == Path(f"{whole}.vec").read_bytes()
