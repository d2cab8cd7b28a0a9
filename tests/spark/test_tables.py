"""dptext privatize: Parquet in, Parquet out, a report beside it, and nothing half done."""

from __future__ import annotations

import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from dptext_spark import __version__
from dptext_spark.cli import main
from dptext_spark.demo import QUERIES
from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.mechanisms import Laplace
from dptext_spark.spark import failures
from dptext_spark.spark.storage import Storage
from scripts.canaries import found, key_forms, text_forms
from tests.helpers.worlds import KEY, release
from tests.spark.helpers_tables import (
    RING_WORDS,
    command,
    hashes,
    rows_of,
    run_table,
    texts,
    write_key,
    write_table,
)

pytestmark = pytest.mark.spark

TINY = 1e-3
EXACT = 1e9


@pytest.fixture(autouse=True)
def session(spark: SparkSession) -> SparkSession:
    """The shared session is the one that the job finds."""
    return spark


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A folder of two files: 12 rows of ids and ring words, some of them unknown."""
    for name, start in (("a", 0), ("b", 6)):
        ids = list(range(start, start + 6))
        rows = [f"{text} Unheardof{i}" for i, text in zip(ids, texts(6), strict=True)]
        write_table(tmp_path / "in" / f"{name}.parquet", {"id": ids, "text": rows})
    return tmp_path / "in"


@pytest.fixture
def dptext(ring: Embedding, key_file: Path, tmp_path: Path) -> Callable[..., Result]:
    """``dptext privatize`` in this process, on the ring unless told otherwise."""

    def invoke(source: Path | str, *arguments: str | Path, output: Path | str = tmp_path / "out") -> Result:
        given = ["--input", source, "--output", output, "--embedding", ring.path, "--key-file", key_file]
        given += ["--mechanism", "laplace", "--epsilon", "10", "--text", "text", *arguments]
        return CliRunner().invoke(main, ["privatize", *map(str, given)])

    return invoke


def refused(result: Result, message: str, code: int = 2) -> bool:
    """Say whether a run ended with one message of one line, without a Python traceback."""
    assert result.exit_code == code, result.output
    assert result.output.count("\n") == 1, result.output
    assert result.output.startswith("dptext privatize: ")
    assert re.search(message, result.output), result.output
    return True


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# The whole path


@pytest.mark.e2e
def test_the_demo_table_end_to_end(demo_bundle: Embedding, key_file: Path, tmp_path: Path) -> None:
    source = tmp_path / "queries.parquet"
    shutil.copyfile(QUERIES, source)
    before = hashes(tmp_path)
    arguments = (
        f"--input {source} --output {tmp_path}/out --embedding {demo_bundle.path} --key-file {key_file} "
    )
    arguments += "--mechanism laplace --epsilon 10 --text text --id id --keep id --keep intent"
    result = CliRunner().invoke(main, ["privatize", *arguments.split()])
    assert result.exit_code == 0, result.output

    assert names(tmp_path) == {"queries.parquet", "out", "out.report.json"}
    assert hashes(tmp_path).items() >= before.items()
    kinds = {field.name: field.type for field in pq.read_schema(next((tmp_path / "out").glob("part-*")))}
    assert kinds == {"id": pa.int64(), "intent": pa.string(), "text": pa.string()}
    given, got = pq.read_table(source).to_pylist(), rows_of(tmp_path / "out")
    assert [(row["id"], row["intent"]) for row in got] == [(row["id"], row["intent"]) for row in given]
    words = [word for row in got for word in row["text"].split(" ")]
    assert set(words) <= {*demo_bundle.words.to_pylist(), "[MASK]"}

    report = json.loads((tmp_path / "out.report.json").read_text())
    counts = report["columns"]["text"]
    assert report["rows"] == len(given) == 2002
    assert counts["tokens"] == len(words)
    assert counts["out_of_vocabulary"] == {"policy": "mask", "tokens": words.count("[MASK]")}
    assert counts["unprotected"] == counts["blank"] == counts["dropped"] == 0
    assert counts["replaced"] + counts["unchanged"] + words.count("[MASK]") == len(words)
    # Typical distances are 5 and the noise is about 50 / 10 long: both kinds must occur, in thousands.
    assert min(counts["replaced"], counts["unchanged"]) > 1000
    for said in (
        f"Rows: {len(given):,}",
        f"{len(words):,} words",
        "laplace",
        "epsilon 10",
        str(tmp_path / "out"),
    ):
        assert said in result.output


def test_the_report_says_what_was_done(ring: Embedding, key_file: Path, table: Path, tmp_path: Path) -> None:
    run_table(
        input=table, output=tmp_path / "out", embedding=ring.path, key_file=key_file, salt="s", keep=["id"]
    )
    text = (tmp_path / "out.report.json").read_text()
    report = json.loads(text)
    assert report["format_version"] == 1
    guarantee = report["guarantee"]
    assert guarantee["mechanism"] == "laplace"
    assert (guarantee["epsilon"], guarantee["delta"]) == (10.0, 0.0)
    assert guarantee["metric"] == "Euclidean distance of their vectors"
    assert guarantee["fingerprint"] == report["embedding"]["fingerprint"] == ring.fingerprint
    assert "epsilon 10" in guarantee["words"]
    assert report["embedding"]["words"] == report["embedding"]["release_words"] == len(RING_WORDS)
    options = report["options"]
    assert options["input"] == str(table)
    assert (options["mechanism"], options["epsilon"], options["oov"]) == ("laplace", 10.0, "mask")
    assert (options["text"], options["keep"], options["salt"], options["key"]) == (
        ["text"],
        ["id"],
        "s",
        "file",
    )
    assert str(key_file) not in text
    assert "file's path" in report["row_id"]
    assert any("without protection: id" in line for line in report["scope"])
    assert report["versions"]["dptext-spark"] == __version__
    assert set(report["versions"]) >= {"python", "pyspark", "numpy", "pyarrow"}
    assert "unheardof" not in text.lower()


def test_the_counters_are_those_of_the_rows(ring: Embedding, tmp_path: Path) -> None:
    rows = ["w00 w01 nope", None, "", "the w02 W03"]
    words = [["w00", None, "", "nope"], [], None, ["w01"]]
    source = write_table(
        tmp_path / "in.parquet", {"text": rows, "words": pa.array(words, pa.list_(pa.string()))}
    )
    report = run_table(
        input=source,
        output=tmp_path / "out",
        embedding=ring.path,
        text=["text"],
        tokens=["words"],
        oov="drop",
        epsilon=EXACT,
    )
    assert report.rows == 4
    columns = json.loads((tmp_path / "out.report.json").read_text())["columns"]
    dropped = {"replaced": 0, "unprotected": 0}
    assert columns == {
        "text": {
            **dropped,
            "tokens": 6,
            "unchanged": 4,
            "out_of_vocabulary": {"policy": "drop", "tokens": 2},
            "blank": 0,
            "dropped": 2,
        },
        "words": {
            **dropped,
            "tokens": 5,
            "unchanged": 2,
            "out_of_vocabulary": {"policy": "drop", "tokens": 1},
            "blank": 2,
            "dropped": 1,
        },
    }
    assert rows_of(tmp_path / "out") == [
        {"text": "w00 w01", "words": ["w00", None, ""]},
        {"text": None, "words": []},
        {"text": "", "words": None},
        {"text": "w02 w03", "words": ["w01"]},
    ]


def test_protect_content_counts_the_stop_words_it_releases(ring: Embedding, tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.parquet", {"text": ["the w00 and The w01"]})
    report = run_table(
        input=source, output=tmp_path / "out", embedding=ring.path, protect="content", epsilon=EXACT
    )
    counts = report.columns["text"]
    assert (counts.tokens, counts.unprotected, counts.unchanged) == (5, 3, 2)
    assert "Stop words are released" in (tmp_path / "out.report.json").read_text()


def test_a_dry_run_writes_nothing(dptext: Callable[..., Result], table: Path, tmp_path: Path) -> None:
    before = hashes(tmp_path)
    result = dptext(table, "--dry-run", "--id", "id")
    assert result.exit_code == 0
    assert hashes(tmp_path) == before
    assert "epsilon 10" in result.output
    assert "nothing was written" in result.output
    assert refused(dptext(table, "--dry-run", "--keep", "nope"), "Got: nope")


# The output appears whole or not at all


def test_an_output_that_exists_is_kept_unless_told(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    assert dptext(table).exit_code == 0
    first = hashes(tmp_path)
    assert refused(dptext(table, "--salt", "x"), "exists.*--overwrite")
    assert hashes(tmp_path) == first
    assert dptext(table, "--salt", "x", "--overwrite").exit_code == 0
    assert rows_of(tmp_path / "out") != []
    assert hashes(tmp_path / "out") != {
        k.removeprefix("out/"): v for k, v in first.items() if k.startswith("out/")
    }
    assert names(tmp_path) == {"in", "out", "out.report.json"}


def test_the_old_table_survives_a_failing_overwrite(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    assert dptext(table).exit_code == 0
    before = hashes(tmp_path)
    result = dptext(table, "--overwrite", "--oov", "fail")
    assert refused(result, "words outside the vocabulary, which --oov fail forbids")
    assert "unheardof" not in result.output.lower()
    assert hashes(tmp_path) == before
    assert names(tmp_path) == {"in", "out", "out.report.json"}


def test_the_old_table_survives_a_rename_that_fails(
    dptext: Callable[..., Result], table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dptext(table).exit_code == 0
    before = hashes(tmp_path)
    rename = Storage.rename

    def fails_once_written(storage: Storage, source: str, target: str) -> None:
        if source.endswith("/table"):
            raise JobError("The disk is full")
        rename(storage, source, target)

    monkeypatch.setattr(Storage, "rename", fails_once_written)
    assert refused(dptext(table, "--overwrite", "--salt", "x"), "The disk is full", code=1)
    assert hashes(tmp_path) == before
    assert names(tmp_path) == {"in", "out", "out.report.json"}


def test_a_failed_run_leaves_nothing(dptext: Callable[..., Result], table: Path, tmp_path: Path) -> None:
    before = hashes(tmp_path)
    result = dptext(table, "--oov", "fail")
    assert refused(
        result, "Column text has words outside the vocabulary.*Allowed: words of the embedding bundle"
    )
    assert "unheardof" not in result.output.lower()
    assert hashes(tmp_path) == before
    assert names(tmp_path) == {"in"}


def test_a_folder_that_no_job_wrote_is_not_replaced(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    precious = write_table(tmp_path / "mine" / "precious.parquet", {"x": [1]})
    before = hashes(tmp_path)
    assert refused(dptext(table, "--overwrite", output=tmp_path / "mine"), "_SUCCESS")
    assert refused(dptext(table, "--overwrite", output=precious), "_SUCCESS")
    assert hashes(tmp_path) == before


def test_output_and_input_must_not_lie_inside_one_another(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    (table / "_SUCCESS").touch()
    (tmp_path / "link").symlink_to(table)
    before = hashes(tmp_path)
    for source, output in [
        (table, table / "out"),
        (table, table),
        (table, tmp_path),
        (table / "a.parquet", table),
        (table, f"{tmp_path}/other/../in/"),
        (table, f"file:{tmp_path}/in"),
        (tmp_path / "link", table),
        (table, tmp_path / "link"),
        (table, tmp_path / "link" / "out"),
        (f"{tmp_path}/i*", table),
        (f"{tmp_path}/i*", table / "out"),
    ]:
        assert refused(dptext(source, "--overwrite", "--id", "id", output=output), "inside one another")
        assert hashes(tmp_path) == before
    neighbour = dptext(
        table, output=tmp_path / "in-sanitized"
    )  # a name that only begins alike is no folder above
    assert neighbour.exit_code == 0, neighbour.output


def test_the_report_replaces_neither_input_nor_output_nor_a_file(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    before = hashes(tmp_path)
    for report, message in [
        (table / "a.parquet", "Report and input lie inside one another"),
        (table / "report.json", "Report and input lie inside one another"),
        (tmp_path / "out" / "report.json", "Report and output lie inside one another"),
        (tmp_path / "out", "Report and output lie inside one another"),
        (notes, "The report .*notes.txt exists"),
    ]:
        assert refused(dptext(table, "--report", report), message)
        assert hashes(tmp_path) == before
    assert dptext(table, "--report", notes, "--overwrite").exit_code == 0
    assert json.loads(notes.read_text())["rows"] == 12


def test_a_report_that_cannot_be_written_is_told_apart(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = dptext(table, "--report", tmp_path / "file" / "report.json")
    assert refused(result, "The output was written, but its report could not be", code=1)
    assert len(rows_of(tmp_path / "out")) == 12


# Inputs that cannot be used


def test_inputs_that_are_no_table(dptext: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "x.parquet").write_text("no Parquet at all " * 50)
    (tmp_path / "cut").mkdir()
    whole = write_table(tmp_path / "whole.parquet", {"text": texts(500)}).read_bytes()
    (tmp_path / "cut" / "x.parquet").write_bytes(whole[: len(whole) // 2])
    before = hashes(tmp_path)
    for source, message in [
        (tmp_path / "nowhere", "cannot be read as a table.*PATH_NOT_FOUND"),
        (tmp_path / "empty", "cannot be read as a table"),
        (tmp_path / "text", "is not Parquet, or is damaged"),
        (tmp_path / "text" / "x.parquet", "is not Parquet, or is damaged"),
        (tmp_path / "cut", "is not Parquet, or is damaged"),
        ("nosuch://bucket/table", "The path nosuch://bucket/table cannot be used"),
    ]:
        assert refused(dptext(source), message)
        assert hashes(tmp_path) == before
    assert refused(dptext(tmp_path / "whole.parquet", output="nosuch://x/y"), "nosuch://x/y cannot be used")


@pytest.mark.parametrize("place", ["first", "last"])
def test_one_truncated_file_among_several_fails_the_run(
    dptext: Callable[..., Result], table: Path, tmp_path: Path, place: str
) -> None:
    cut = table / ("0.parquet" if place == "first" else "z.parquet")
    whole = write_table(tmp_path / "whole.parquet", {"id": range(500), "text": texts(500)}).read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    result = dptext(table)
    assert result.exit_code in (1, 2)  # 2 where Spark happens to read the schema from this file
    assert refused(result, "damaged|The Spark job failed and no output was written", result.exit_code)
    assert names(tmp_path) == {"in", "whole.parquet"}


def test_files_that_spark_would_leave_out_are_refused(
    dptext: Callable[..., Result], table: Path, tmp_path: Path
) -> None:
    write_table(table / "deeper" / "x.parquet", {"id": [50], "text": ["w00"]})
    assert refused(dptext(table), "subfolders that are not part of the table.*Got: 1 more files")
    shutil.rmtree(table / "deeper")
    write_table(
        table / "_hidden" / "x.parquet", {"id": [50], "text": ["w00"]}
    )  # as Spark's own temporary files
    assert dptext(table).exit_code == 0
    assert len(rows_of(tmp_path / "out")) == 12


@pytest.mark.parametrize("ids", [[1, 1, 2], [1, 2, None]], ids=["duplicates", "nulls"])
def test_ids_that_do_not_name_the_rows(
    dptext: Callable[..., Result], tmp_path: Path, ids: list[int | None]
) -> None:
    source = write_table(tmp_path / "in.parquet", {"id": ids, "text": texts(3)})
    assert refused(dptext(source, "--id", "id"), "Column id does not name the rows.*in 3 rows")
    assert names(tmp_path) == {"in.parquet"}


def test_columns_that_are_absent_or_of_the_wrong_type(dptext: Callable[..., Result], table: Path) -> None:
    assert refused(dptext(table, "--keep", "nope"), "Allowed: id, text.*Got: nope")
    assert refused(dptext(table, "--text", "id"), r"id \(bigint\), not string")
    assert refused(dptext(table, "--tokens", "id", "--id", "gone"), "Got: id, gone|Got: gone")


def test_a_table_without_rows(dptext: Callable[..., Result], tmp_path: Path) -> None:
    empty = {"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())}
    source = write_table(tmp_path / "in" / "x.parquet", empty)
    for options in ((), ("--id", "id")):
        assert dptext(source, "--keep", "id", "--overwrite", *options).exit_code == 0
        files = list((tmp_path / "out").glob("part-*"))
        assert [pq.read_schema(file).names for file in files] == [["id", "text"]]
        assert rows_of(tmp_path / "out") == []
        report = json.loads((tmp_path / "out.report.json").read_text())
        assert report["rows"] == 0
        assert report["columns"]["text"]["tokens"] == 0


# Row ids by file and position


@pytest.fixture
def release_of(
    dptext: Callable[..., Result], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., list[dict[str, Any]]]:
    """Run at a tiny epsilon, where equal words mean equal noise; give the rows in a settled order."""

    def run(source: Path | str, *options: str) -> list[dict[str, Any]]:
        output = tmp_path_factory.mktemp("released") / "out"
        result = dptext(source, "--epsilon", str(TINY), *options, output=output)
        assert result.exit_code == 0, result.output
        # Spark orders files of equal size as the file system lists them.
        return sorted(rows_of(output), key=lambda row: row["text"])

    return run


ODD_FILES = ["plain", "with space", "per%20cent%", "東京 é", "a+b&c;d#e", "(x)$^~'q'"]


@pytest.mark.parametrize("name", ODD_FILES)
def test_a_copy_of_the_table_elsewhere_gets_the_same_noise(
    release_of: Callable[..., list[dict[str, Any]]], tmp_path: Path, name: str
) -> None:
    for place in ("here", f"else {name}/deep"):
        for file in (
            f"flat/{name}.parquet",
            "flat/x.parquet",
            f"deep/p={name}/x.parquet",
            "deep/p=q/x.parquet",
        ):
            write_table(tmp_path / place / file, {"text": texts(10)})
    for table in ("flat", "deep"):
        here = release_of(tmp_path / "here" / table)
        there = release_of(tmp_path / f"else {name}" / "deep" / table)
        assert here == there
        assert len(here) == 20
        # Two files of equal content, and rows of equal content within one, share no noise.
        assert len({row["text"] for row in here}) == 20


def test_a_file_alone_has_the_noise_that_it_has_in_its_folder(
    release_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    for name in "ab":
        write_table(tmp_path / "in" / f"{name}.parquet", {"text": texts(10)})
    folder = release_of(tmp_path / "in")
    alone = [release_of(tmp_path / "in" / f"{name}.parquet") for name in "ab"]
    assert sorted(row["text"] for rows in alone for row in rows) == [row["text"] for row in folder]
    assert release_of(f"{tmp_path}/./in/") == folder
    assert release_of(f"file:{tmp_path}/in") == folder


def test_equal_file_names_in_partition_folders_get_different_noise(
    release_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    for day in ("2024-01-01", "2024-01-02"):
        write_table(tmp_path / "in" / f"dt={day}" / "x.parquet", {"text": texts(10)})
    rows = release_of(tmp_path / "in")
    assert len({row["text"] for row in rows}) == 20  # two texts of 8 words agree by chance with 64^-8


def test_how_spark_splits_a_file_does_not_matter(
    release_of: Callable[..., list[dict[str, Any]]], spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts(200)}), tmp_path / "in" / "x.parquet", row_group_size=10)
    whole = release_of(tmp_path / "in")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    try:
        assert release_of(tmp_path / "in") == whole
        assert spark.read.parquet(str(tmp_path / "in")).rdd.getNumPartitions() > 3  # it was split indeed
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert len({row["text"] for row in whole}) == 200


def test_a_column_named_metadata_is_no_row_id(
    release_of: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    fake = [{"file_path": "x", "row_index": 0}] * 10
    write_table(tmp_path / "in" / "x.parquet", {"_metadata": fake, "text": ["w00 w01 w02 w03 w04"] * 10})
    rows = release_of(tmp_path / "in")
    assert len({row["text"] for row in rows}) == 10


def test_a_pattern_as_input_needs_an_id(dptext: Callable[..., Result], table: Path, tmp_path: Path) -> None:
    assert refused(dptext(f"{table}/*.parquet"), "cannot be named by file and position.*--id")
    assert names(tmp_path) == {"in"}
    assert dptext(f"{table}/*.parquet", "--id", "id").exit_code == 0
    by_pattern = rows_of(tmp_path / "out")
    assert dptext(table, "--id", "id", "--overwrite").exit_code == 0
    assert rows_of(tmp_path / "out") == by_pattern


def test_without_a_key_file_every_run_has_other_noise(ring: Embedding, table: Path, tmp_path: Path) -> None:
    releases = []
    for name in ("one", "two"):
        run_table(input=table, output=tmp_path / name, embedding=ring.path, epsilon=TINY)
        releases.append(rows_of(tmp_path / name))
    assert releases[0] != releases[1]
    assert "fresh, not kept" in (tmp_path / "one.report.json").read_text()


# A hostile table

SECRETS = [
    "ZEBULON Quartzman",
    "zebulon.quartzman@example.com",
    "4111-1111-1111-1111 4111111111111111",
    "SSN 078-05-1120, tel. +49 (0)30 1234567",
    "Åse Çağla naïveté Ωmega Straße ŠKODA",
    "A\u030ase C\u0327ag\u0306la nai\u0308vete\u0301",
    "\ufb01ancée \u2167 x\u00b2 \u017fecretly \u210cilbert",
    "\uff33\uff25\uff23\uff32\uff25\uff34\uff39",
    "\U0001d42c\U0001d41e\U0001d41c\U0001d42b\U0001d41e\U0001d42d\U0001d432",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd \u0645\u0631\u062d\u0628\u0627 \u202equartzman\u202c",
    "Quartz\u200bman Zebu\u00adlon zero\u2060width \ufeffQuartzman\u200d",
    "O\u2019Quartzman d'Zebulon rock'n'quartz Quartzman's Zebulonn't",
    "\u0661\u0662\u0663\u0664 \u0967\u0968\u0969 \u6771\u4eac\u90fd",
    "\u0e20\u0e32\u0e29\u0e32 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0130STANBULLU d\u0131\u015far\u0131l\u0131",
    "snake_case_quartz https://quartz.example/zebulon?q=1 QmFzZTY0U2VjcmV0",
    "nul\x00quartz tab\tquartzman\nline\r\nzebulon\u2028end\u0085",
    "\u0301\u0302 \u200b \u00ad",
    "q" * 50_000,
    "zebulon\u20ddquartz quartz\u0336man",
]


def forms(word: str) -> set[str]:
    """A word under every normal form, before and after case folding."""
    found = set()
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        normal = unicodedata.normalize(form, word)
        found |= {normal, unicodedata.normalize(form, normal.casefold())}
    return found


def pieces(text: str) -> set[str]:
    """Words of a text however one cuts it: at white space, at anything that is no letter or digit."""
    return {piece for cut in (r"\s+", r"\W+", r"[\W_]+") for piece in re.split(cut, text) if piece}


def leaks(given: Iterable[str | None], released: Iterable[str | None], vocabulary: list[str]) -> set[str]:
    """Input tokens that stand in the output in any form, but not in the release vocabulary."""
    known = {*vocabulary, "[MASK]"}.union(*map(pieces, [*vocabulary, "[MASK]"]))
    allowed = {form for word in known for form in forms(word)}
    seen = {form for text in released if text for piece in pieces(text) for form in forms(piece)}
    private = {piece for text in given if text for piece in pieces(text)}
    return {piece for piece in private if forms(piece) & seen and not forms(piece) & allowed}


@pytest.mark.parametrize("oov", ["mask", "drop", "random"])
def test_no_unknown_token_of_a_hostile_table_comes_out(
    demo_bundle: Embedding, tmp_path: Path, oov: str
) -> None:
    vocabulary = demo_bundle.words.to_pylist()
    plain = [word for word in vocabulary if word.isalpha()][:5_000]
    million = " ".join([*(f"zq{i}" for i in range(990_000)), *plain, *plain])
    given = [None, "", *SECRETS, " ".join(SECRETS), million]
    words = [
        None,
        [],
        *([*secret.split(" "), None, ""] for secret in SECRETS),
        [" ".join(SECRETS)],
        ["Zebulon"],
    ]
    source = write_table(
        tmp_path / "in" / "x.parquet",
        {"text": given, "words": pa.array(words, pa.list_(pa.string())), "other": ["Zebulon"] * len(given)},
    )
    before = hashes(tmp_path / "in")
    report = run_table(
        input=source,
        output=tmp_path / "out",
        embedding=demo_bundle.path,
        text=["text"],
        tokens=["words"],
        oov=oov,
    )
    rows = rows_of(tmp_path / "out")
    assert [set(row) for row in rows] == [{"text", "words"}] * len(given)
    assert [row["text"] is None for row in rows] == [text is None for text in given]
    assert rows[1] == {"text": "", "words": []}
    released = [row["text"] for row in rows]
    tokens = [token for row in rows if row["words"] for token in row["words"] if token]
    assert leaks(given, released, vocabulary) == set()
    assert leaks([w for row in words if row for w in row if w], tokens, vocabulary) == set()
    allowed = {*vocabulary, "[MASK]"}
    assert {word for text in released if text for word in text.split(" ")} <= allowed
    assert set(tokens) <= allowed
    if oov != "drop":
        assert len(released[-1].split(" ")) == 1_000_000
    assert report.columns["text"].out_of_vocabulary >= 990_000
    assert hashes(tmp_path / "in") == before
    written = (tmp_path / "out.report.json").read_text() + report.describe()
    assert not re.search("zebulon|quartz|4111|zq1|qqq", written, re.IGNORECASE)


def test_the_leak_check_catches_unprotected_words(demo_bundle: Embedding, tmp_path: Path) -> None:
    source = write_table(tmp_path / "in.parquet", {"text": SECRETS})
    run_table(input=source, output=tmp_path / "out", embedding=demo_bundle.path, oov="keep-unprotected")
    released = [row["text"] for row in rows_of(tmp_path / "out")]
    found = leaks(SECRETS, released, demo_bundle.words.to_pylist())
    assert found >= {"Quartzman", "4111111111111111", "q" * 50_000, "\u05e9\u05dc\u05d5\u05dd"}
    assert "RELEASED AS THEY ARE" in (tmp_path / "out.report.json").read_text()


@pytest.mark.parametrize("form", ["NFD", "NFKC"])
def test_the_leak_check_sees_through_normal_forms_and_case(form: str) -> None:
    disguised = [unicodedata.normalize(form, secret).upper() for secret in SECRETS]
    assert leaks(SECRETS, disguised, ["in"]) >= {"naïveté", "Quartzman", "\ufb01ancée"}
    assert leaks(SECRETS, ["in [MASK]"], ["in"]) == set()


# The key


@pytest.mark.e2e
def test_key_and_rows_show_nowhere_and_threads_do_not_matter(
    ring: Embedding, table: Path, tmp_path: Path
) -> None:
    secret = bytes.fromhex("c0ffee0ddba11" + "5eed" * 12 + "abc")
    place = tmp_path / "run"
    place.mkdir()
    key_file = write_key(place / "key", secret.hex().encode())
    for part in ("events", "temporary"):
        (place / part).mkdir()
    options = ["--input", table, "--embedding", ring.path, "--mechanism", "laplace", "--epsilon", "1"]
    options += ["--text", "text", "--id", "id", "--keep", "id", "--key-file", key_file]
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{place}/events",
        "spark.eventLog.compress": "false",
        "spark.sql.maxPlanStringLength": "1000000",
        "spark.executorEnv.OMP_NUM_THREADS": "2",
        "spark.log.level": "DEBUG",
    }
    submit = " ".join(f"--conf {name}={value}" for name, value in settings.items()) + " pyspark-shell"
    done = command(
        Path(sys.executable).with_name("dptext"),
        "privatize",
        *options,
        "--output",
        place / "out",
        cwd=tmp_path,
        env={"PYSPARK_SUBMIT_ARGS": submit, "TMPDIR": str(place / "temporary")},
    )
    assert done.returncode == 0, done.stderr
    key_file.unlink()
    (place / "stdout").write_text(done.stdout)
    (place / "stderr").write_text(done.stderr)
    assert " DEBUG DAGScheduler: " in done.stderr
    assert b"MapInArrow" in b"".join(f.read_bytes() for f in (place / "events").rglob("*") if f.is_file())
    derived = release(Laplace(epsilon=1.0), ring, key=type(KEY)(secret)).key.secret
    secrets = {"key": key_forms(secret), "derived": key_forms(derived), "word": text_forms("Unheardof")}
    assert list(found([place], secrets)) == []
    for name, forms in secrets.items():
        for planted in forms:
            (place / "temporary" / "planted").write_bytes(b"x" + planted + b"y")
            assert list(found([place], secrets)) == [(place / "temporary" / "planted", name)]

    # The same release in this process, where workers have one thread each.
    key_file = write_key(place / "key", secret)
    arguments = [*options, "--output", place / "again"]
    assert CliRunner().invoke(main, ["privatize", *map(str, arguments)]).exit_code == 0
    assert rows_of(place / "again") == rows_of(place / "out")
    assert len(rows_of(place / "out")) == 12


def test_errors_are_of_the_packages_own_kinds(ring: Embedding, table: Path, tmp_path: Path) -> None:
    """A notebook that calls the job gets exceptions that it can tell apart."""
    good: dict[str, Any] = {"input": table, "output": tmp_path / "out", "embedding": ring.path}
    with pytest.raises(InputError):
        run_table(**good | {"input": tmp_path / "nowhere"})
    with pytest.raises(ConfigError):
        run_table(**good | {"output": table})


def test_the_name_of_an_error_never_comes_from_a_row(spark: SparkSession) -> None:
    """Rejects taking whatever stands in brackets: Spark quotes values of rows in its messages."""
    quoting = F.raise_error(F.lit("the value [SECRET.WORD] is wrong"))
    with pytest.raises(JobError) as caught, failures.plain_errors():
        spark.range(1).select(quoting).collect()
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in failures.condition(RuntimeError("An error\n: java.lang.Error: no [SECRET] "))
