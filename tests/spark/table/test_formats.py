"""ORC, JSON, CSV and tables of catalogs: read whole or refused, written whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import orc
from pyspark.sql import SparkSession

from dptext_spark.errors import ConfigError, InputError, JobError
from dptext_spark.options import TableOptions, VectorsOptions
from dptext_spark.spark.jobs import vectors
from dptext_spark.spark.table.formats.format import FORMATS
from tests.helpers.tables import hashes, names, rows_of, run_table, spark_settings, write_table

# The shared session is the one that the jobs find.
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ROWS: Final = [
    {"id": 1, "text": 'w01 "w02", w03\nw04', "note": " a\\b "},
    {"id": 2, "text": None, "note": 'say "hi"'},
    {"id": 3, "text": "", "note": None},
    {"id": 7, "text": "w05 Unheardof", "note": "ü, x"},
]


@pytest.fixture
def options(ring_release: dict[str, Any]) -> dict[str, Any]:
    return {**ring_release, "epsilon": 1e-3, "id": "id", "keep": ["id", "note"]}


def write_rows(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    """Write a file in the format that its name ends with, as other programs do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows)
    match path.suffix:
        case ".orc":
            orc.write_table(table, path)
        case ".json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".csv":
            pd.DataFrame(rows).to_csv(path, index=False)  # which writes what is empty as it writes null
            path.write_text(path.read_text().replace("\n3,,", '\n3,"",'))
        case _:
            write_table(path, dict(zip(table.column_names, table.columns, strict=True)))
    return path


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """What other programs find in the files of a folder."""
    rows: list[dict[str, Any]] = []
    for file in sorted(folder.rglob("part-*")):
        if file.suffix == ".json":
            rows += [json.loads(line) for line in file.read_text().splitlines()]
        elif file.suffix == ".csv":
            found = pd.read_csv(file, keep_default_na=False, na_values=[], dtype=str)
            rows += found.to_dict(orient="records")
        else:
            rows += (
                orc.read_table(file) if file.suffix == ".orc" else pa.parquet.read_table(file)
            ).to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.fixture
def words(options: dict[str, Any], tmp_path: Path) -> list[dict[str, Any]]:
    """The release of the same rows from Parquet."""
    write_rows(tmp_path / "plain" / "x.parquet")
    run_table(**options | {"input": tmp_path / "plain", "output": tmp_path / "plain out"})
    return sorted(rows_of(tmp_path / "plain out"), key=lambda row: row["id"])


def test_every_format_gives_the_words_that_parquet_gives(
    options: dict[str, Any], words: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Rejects doubled quotes, line breaks in quotes, spaces, nulls and empty texts that are misread."""
    assert [row["text"] is None for row in words] == [False, True, False, False]
    for name in ("orc", "json", "csv"):
        paths = {"input": tmp_path / name, "output": tmp_path / f"{name} out", "format": name}
        write_rows(tmp_path / name / f"x.{name}")
        report = run_table(**options | paths)
        text = json.loads((tmp_path / f"{name} out.private" / "report.json").read_text())
        assert (report.rows, text["options"]["format"]) == (4, name)
        wanted: list[dict[str, Any]] = words
        if name == "csv":
            wanted = [{k: "" if v is None else str(v) for k, v in row.items()} for row in words]
        assert read_rows(tmp_path / f"{name} out") == wanted, name
        back = {"input": tmp_path / f"{name} out", "output": tmp_path / f"{name} back"}
        back |= {"format": name, "output_format": "parquet", "text": ["note"], "keep": ["id", "text"]}
        run_table(**options | back)
        again = sorted(rows_of(tmp_path / f"{name} back"), key=lambda row: int(row["id"]))
        # Null stays null and empty stays empty, in CSV too.
        assert [row["text"] for row in again] == [row["text"] for row in words], name


@pytest.mark.parametrize("name", ["parquet", "orc", "json", "csv"])
def test_rows_of_a_file_keep_their_order(options: dict[str, Any], tmp_path: Path, name: str) -> None:
    """Those of several files do not: Spark takes larger files first."""
    for number, rows in enumerate([1, 40, 9]):
        ids = [100 * number + row for row in range(rows)]
        write_rows(
            tmp_path / "in" / f"{number}.{name}", [{"id": i, "text": "w01", "note": "x" * 50} for i in ids]
        )
    run_table(**options, format=name, output_format="parquet")
    found = [int(row["id"]) for row in rows_of(tmp_path / "out")]
    assert {i // 100 for i in found} == {0, 1, 2} and found != sorted(found)
    for number, rows in enumerate([1, 40, 9]):
        assert [i % 100 for i in found if i // 100 == number] == [*range(rows)]


def test_partitions_options_and_compression_of_other_formats(options: dict[str, Any], tmp_path: Path) -> None:
    for number, folder in enumerate(["dt=007", "dt=x%2Fy"]):
        rows = [{**row, "id": 10 * number + int(str(row["id"]))} for row in ROWS[1:]]
        file = write_rows(tmp_path / "in" / folder / "x.csv", rows)
        file.write_text(file.read_text().replace(",", ";").replace("ü; x", "ü, x"))
    given = {"keep": ["id", "dt"], "format": "csv", "read_option": "sep=;"}
    run_table(**options | given, write_option=["sep=|", "compression=gzip"])
    files = sorted((tmp_path / "out").rglob("*.csv.gz"))
    assert {file.parent.name for file in files} == {"dt=007", "dt=x%2Fy"}
    assert pd.read_csv(files[0], sep="|").columns.tolist() == ["id", "text"]
    report = json.loads((tmp_path / "out.private" / "report.json").read_text())
    assert report["options"]["read-option"] == ["sep"]  # a value may be a password


BAD: Final = {
    "short.csv": "id,text,note\n1,w01,x\n2,Quartzman\n",
    "long.csv": "id,text,note\n1,w01,x\n2,Quartzman,Zebulon,y\n",
    "cut.json": '{"id": 1, "text": "w01", "note": "x"}\n{"id": 2, "text": "Quartzman", "no\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_record_fails_the_run_and_is_not_quoted(
    options: dict[str, Any], tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rejects records that become nulls, and Spark's FAILFAST, whose log quotes them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(BAD[name])
    options["format"] = name.partition(".")[2]
    before = hashes(tmp_path)
    with pytest.raises(InputError, match="The input has records that are not") as caught:
        run_table(**options | {"keep": []})
    assert hashes(tmp_path) == before
    assert names(tmp_path) == {"in"}
    shown = "".join([str(caught.value), *capfd.readouterr()])
    assert "Quartzman" not in shown and "Zebulon" not in shown
    assert run_table(**options, read_option="mode=DROPMALFORMED").rows == 1


LATIN: Final = "id,text,note\n1,w01,Zürich\n".encode("latin-1")
NO_LETTERS: Final = {
    "latin.csv": LATIN,
    "later.csv": b"id,text,note\n" + b"1,w01,x\n" * 2000 + b"2,w01,Z\xfcrich\n",
    "header.csv": "id,text,note,größe\n1,w01,x,2\n".encode("latin-1"),
    "packed.csv.gz": gzip.compress(LATIN),
    "packed.csv.bz2": bz2.compress(LATIN),
    "cut.csv": b"id,text,note\n1,w01,\xe6\x9d",
    "surrogate.csv": b"id,text,note\n1,w01,\xed\xa0\x80\n",
    "wide.csv": "id,text,note\n1,w01,x\n".encode("utf-16"),
    "latin.json": '{"id": 1, "text": "w01", "note": "Zürich"}\n'.encode("latin-1"),
    "wide.json": '{"id": 1, "text": "w01", "note": "x"}\n'.encode("utf-16"),
    "latin.json.gz": gzip.compress('{"id": 1, "text": "w01", "note": "Zürich"}\n'.encode("latin-1")),
}


@pytest.mark.parametrize("name", NO_LETTERS)
def test_bytes_that_are_no_letters_are_refused(options: dict[str, Any], tmp_path: Path, name: str) -> None:
    """Rejects U+FFFD in place of them, in columns that are kept too, and JSON that is called malformed."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(NO_LETTERS[name])
    options["format"] = name.split(".")[1]
    message = rf"bytes that are not UTF-8\. Got: some in {name}\. .*--read-option encoding="
    for more in ({}, {"read_option": ["mode=DROPMALFORMED", "encoding=utf8"]}):
        with pytest.raises(InputError, match=message):
            run_table(**options | more)
    assert names(tmp_path) == {"in"}


@pytest.mark.parametrize(
    ("encoding", "given", "note"),
    [
        ("utf-8", "UTF8", "Zürich \ufffd 東京"),
        ("utf-8-sig", None, "Zürich \ufffd 東京"),
        ("latin-1", "latin1", "Zürich"),
        ("cp1252", "windows-1252", "Zürich – €"),
        ("utf-16", "UTF-16", "Zürich 東京"),
        ("gb18030", "gb18030", "北京"),
    ],
)
def test_texts_in_the_encoding_that_is_named(
    options: dict[str, Any], tmp_path: Path, encoding: str, given: str | None, note: str
) -> None:
    """In CSV, and in JSON where lines can be cut; U+FFFD that a text has itself is a letter."""
    files = {"csv": f"id,text,note\n1,w01,x\n2,w02,{note}\n"}
    if not encoding.startswith("utf-16"):
        files["json"] = (
            f'{{"id": 1, "text": "w01", "note": "x"}}\n{{"id": 2, "text": "w02", "note": "{note}"}}\n'
        )
    for kind, text in files.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"a.{kind}").write_bytes(text.encode(encoding))
        paths = {"input": tmp_path / kind, "output": tmp_path / f"{kind} out", "output_format": "parquet"}
        named = {} if given is None else {"read_option": f"encoding={given}"}
        run_table(**options | paths | named, format=kind)
        assert [row["note"] for row in rows_of(paths["output"])] == ["x", note]


@pytest.mark.parametrize(
    ("content", "given", "message"),
    [
        (b"1,w01,Z\x81rich", "windows-1252", "are not windows-1252"),
        (b"1,w01,\xff", "Shift_JIS", "are not Shift_JIS"),
        (b"1,w01,\xfc", "ascii", "are not US-ASCII"),
        (b"1,w01,\x00\xd8", "UTF-16LE", "are not UTF-16LE"),
    ],
)
def test_bytes_that_are_none_of_the_named_encoding(
    options: dict[str, Any], tmp_path: Path, content: bytes, given: str, message: str
) -> None:
    (tmp_path / "in").mkdir()
    head = "id,text,note\n".encode("utf-16-le" if given == "UTF-16LE" else "ascii")
    (tmp_path / "in" / "a.csv").write_bytes(head + content)
    with pytest.raises(InputError, match=message):
        run_table(**options, format="csv", read_option=f"encoding={given}")


@pytest.mark.parametrize(
    ("content", "multi_line", "message"),
    [
        ('{"id": 1, "text": "w01"}{"id": 2, "text": "w02"}\n', False, "several JSON values"),
        ('{"id": 1, "text": "w01"}, {"id": 2, "text": "w02"}\n', False, "several JSON values"),
        ('{"id": 1, "text": "w01"}\n{"id": 2, "text": "w02"}\n', True, "several JSON values"),
        ('[{"id": 1, "text": "w01"}]\n\n[{"id": 2, "text": "w02"}]\n', True, "several JSON values"),
        ('{"id": 1, "text": "\\ud83d w01"}\n', False, "half a letter"),
        ('{"id": 1, "text": "w01", "more": {"\\uDE00": 1}}\n', False, "half a letter"),
    ],
)
def test_json_that_spark_would_read_in_part_is_refused(
    options: dict[str, Any], tmp_path: Path, content: str, multi_line: bool, message: str
) -> None:
    """Rejects rows that are gone behind the first value of a line or file, and letters that become `?`."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text(content)
    more = {"read_option": "multiLine=true"} if multi_line else {}
    with pytest.raises(InputError, match=message):
        run_table(**options | {"keep": ["id"], "format": "json"} | more)


def test_json_that_looks_as_if_it_were_several_values(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = ['{"id": 1, "text": "} {", "note": "\\ud83d\\ude00"} ', "", '[{"id": 2, "text": ""}, {"id": 3}]']
    (tmp_path / "in" / "a.json").write_text("\r\n".join(lines))
    assert run_table(**options, format="json").rows == 3


@pytest.mark.parametrize("name", ["parquet", "orc"])
def test_columns_that_only_later_files_have(
    options: dict[str, Any], tmp_path: Path, name: str, spark: SparkSession
) -> None:
    """Rejects columns, and fields inside columns that are kept whole, that are gone without a word."""
    few = {"id": 1, "text": "w01", "p": {"n": 1}}
    many = {"id": 2, "text": "w02", "p": {"n": 1, "m": "x"}, "more": "y"}
    files = [tmp_path / "in" / f"{file}.{name}" for file in "bc"]
    for file, row in zip(files, [few, many], strict=True):
        write_rows(file, [row])
    if "more" in spark.read.format(name).load(str(tmp_path / "in")).columns:
        for file, row in zip(files, [many, few], strict=True):  # ORC's first file is that of the listing
            write_rows(file, [row])
    options["format"] = name
    lost = r"columns that not all files show, .*Got: {}\. .*mergeSchema=true"
    for more, got in [
        ({"keep": ["*"]}, r"p\.m, more"),
        ({"keep": ["*"], "except": ["more"]}, r"p\.m, more"),
        ({"keep": ["*"], "except": ["p"]}, "more"),
        ({"keep": ["p"]}, r"p\.m"),
        ({"keep": ["id", "more"]}, "more"),
        ({"text": ["text", "p.m"]}, r"p\.m"),
    ]:
        with pytest.raises(InputError, match=lost.format(got)):
            run_table(**options | {"keep": ["id"]} | more)
    with pytest.raises(InputError, match=r"lacks columns\. .*Got: gone\."):
        run_table(**options | {"keep": ["gone"]})
    run_table(**options | {"keep": ["id", "p.n"], "output": tmp_path / "some"})
    run_table(**options | {"keep": ["*"], "read_option": "mergeSchema=true", "output_format": "parquet"})
    found = sorted(rows_of(tmp_path / "out"), key=lambda row: row["id"])
    assert [(row["p"], row["more"]) for row in found] == [
        ({"n": 1, "m": None}, None),
        ({"n": 1, "m": "x"}, "y"),
    ]


def test_files_whose_columns_cannot_be_merged(options: dict[str, Any], tmp_path: Path) -> None:
    for file, kind in {"a": pa.int64(), "b": pa.int32()}.items():
        write_table(tmp_path / "in" / f"{file}.parquet", {"id": pa.array([ord(file)], kind), "text": ["w01"]})
    with pytest.raises(InputError, match=r"same columns cannot be told.*Got: CANNOT_MERGE_SCHEMAS"):
        run_table(**options | {"keep": ["*"]})
    assert run_table(**options | {"keep": ["id"]}).rows == 2


def test_empty_objects_of_json_are_named(options: dict[str, Any], tmp_path: Path) -> None:
    """Rejects columns that Spark leaves out, since no field of theirs is known."""
    lines = [
        {"id": 1, "text": "{}", "e": {}, "p": {"q": {}, "r": 1, "s": {}}, "turns": [{"who": {}, "n": 1}]},
        {"id": 2, "text": "w01", "e": None, "p": {"s": {"t": 1}}, "list": [{}], "nulls": None},
    ]
    write_rows(tmp_path / "in" / "a.json", lines)
    options["format"] = "json"
    for more, got in [
        ({"keep": ["*"]}, r"e, list\[\], p\.q, turns\[\]\.who"),
        ({"keep": ["p"]}, r"p\.q"),
        ({"keep": ["e"]}, "e"),
    ]:
        with pytest.raises(
            InputError, match=rf"columns that not all files show.*Got: {got}\. They hold nothing"
        ):
            run_table(**options | more)
    run_table(**options | {"keep": ["id", "p.r", "nulls"]})


def test_settings_that_pass_over_files_are_not_the_tables(
    options: dict[str, Any], tmp_path: Path, spark: SparkSession
) -> None:
    """Rejects a damaged file whose rows are gone because a cluster's settings say so."""
    write_rows(tmp_path / "in" / "a.parquet")
    damaged = write_rows(tmp_path / "in" / "b.parquet")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:4] + bytes(len(whole) - 12) + whole[-8:])
    with (
        spark_settings(spark, files_ignoreCorruptFiles="true"),
        pytest.raises((InputError, JobError)),
    ):
        run_table(**options)


def test_csv_files_with_columns_in_another_order_are_no_table(
    options: dict[str, Any], tmp_path: Path
) -> None:
    """Rejects Spark's default, which takes the first file's names: a private text came out as a kept note."""
    write_rows(tmp_path / "in" / "a.csv")
    other = [{"id": 9, "note": "Quartzman", "text": "w01"}]
    write_rows(tmp_path / "in" / "b.csv", other)
    with pytest.raises(JobError, match="FAILED_READ_FILE"):
        run_table(**options, format="csv")
    assert names(tmp_path) == {"in"}


def test_the_first_line_of_a_csv_file_may_be_a_row(options: dict[str, Any], tmp_path: Path) -> None:
    """Rejects messages that list a table's columns, which are a row's values where there is no header."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_text("1,Quartzman w01,x\n2,w02,y\n")
    wrong = options | {"format": "csv"}
    with pytest.raises(InputError, match=r"lacks columns\. Got: .*header=false") as caught:
        run_table(**wrong)
    assert "Quartzman" not in str(caught.value)
    given = {"read_option": "header=false", "text": ["_c1"], "id": "_c0", "keep": ["_c2"]}
    first = {"text": ["Quartzman w01"], "id": "1", "keep": []}
    with pytest.raises(ConfigError, match="filter --where cannot be understood") as refused:
        run_table(**wrong | first, where="Zebulon =")
    assert "Quartzman" not in str(refused.value)
    assert run_table(**wrong | given, write_option="header=false").rows == 2


MARKS: Final = {
    "_delta_log/00000000000000000000.json": "a Delta table",
    "metadata/00000-1a2b.metadata.json": "an Iceberg table",
    ".hoodie/hoodie.properties": "a Hudi table",
}


@pytest.mark.parametrize("mark", MARKS)
def test_tables_that_keep_an_account_of_their_files_are_no_plain_files(
    dptext: Callable[..., Any], tmp_path: Path, mark: str
) -> None:
    """Rejects rows that were deleted from such a table, and outputs that its readers would not know."""
    file = write_rows(tmp_path / "lake" / "t" / "data" / "dt=1" / "x.parquet")
    (tmp_path / "lake" / "t" / mark).parent.mkdir()
    (tmp_path / "lake" / "t" / mark).write_text("{}")
    before = hashes(tmp_path)
    for place in ("lake/t", "lake/t/data", "lake/t/data/dt=1/x.parquet", "lake/*", "lake/t/d*"):
        result = dptext(tmp_path / place, "--id", "id")
        assert result.exit_code == 2
        assert f"is {MARKS[mark]}, or lies in one" in result.output
        assert "--format" in result.output
    plain = write_rows(tmp_path / "plain" / "x.parquet", ROWS)
    for place in ("lake/t", "lake/t/out"):
        result = dptext(plain, "--id", "id", "--mode", "overwrite", output=tmp_path / place)
        assert f"The output {tmp_path / place} is {MARKS[mark]}" in result.output
        assert "--output-format" in result.output
    assert file.exists()
    assert {name: digest for name, digest in hashes(tmp_path).items() if name in before} == before
    # A folder of that name alone is none.
    (tmp_path / "plain" / "metadata").mkdir()
    assert dptext(plain.parent, "--id", "id").exit_code == 0


def test_what_a_format_cannot_do_is_said_before_spark_starts(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptext_spark.spark.table.run.session", lambda app: pytest.fail("Spark was started"))
    key = {name: options[name] for name in ("key_file", "salt")}
    for changes, message in [
        ({"format": "orc", "id": None}, "Rows of format orc cannot be named by file.*for .*parquet.*--id"),
        ({"format": "parqet"}, "The format is unknown. Allowed: avro, csv, .*Got: 'parqet'"),
        ({"output_format": "Orc"}, "The format is unknown"),
        ({"mode": "append"}, "--mode append does not go with an output of format parquet. Allowed: .*table"),
        ({"mode": "append", "incremental": "c", **key}, "--incremental and --mode append do not go together"),
        ({"format": "csv", "write_option": "compression=zstd"}, "wrong compression for format csv"),
        ({"format": "table", "incremental": "c", "trust_id": True}, "--incremental cannot read format table"),
        ({"read_option": "Zebulon"}, "--read-option has a wrong value. Allowed: NAME=VALUE"),
        (
            {"format": "csv", "read_option": "mode=FAILFSAT"},
            "mode has a wrong value.*DROPMALFORMED, .*'FAILFSAT'",
        ),
        (
            {"format": "csv", "read_option": "haeder=true"},
            "csv does not take.*Got: haeder. Perhaps you meant header",
        ),
        ({"format": "json", "read_option": "MULTILIN=true"}, "json does not take.*meant multiLine"),
        ({"format": "json", "read_option": "samplingRatio=0.1"}, "json does not take"),
        ({"read_option": "mergeSchma=true"}, "parquet does not take.*Got: mergeSchma. Write mergeSchema"),
        ({"format": "orc", "read_option": "fileNameOnly=true"}, "orc does not take"),
        ({"format": "csv", "read_option": "columnNameOfCorruptRecord=c"}, "csv does not take"),
        ({"format": "csv", "write_option": "quotAll=true"}, "--write-option has a name.*meant quoteAll"),
        (
            {"format": "csv", "read_option": "encoding=nonsense"},
            "encoding has a wrong value.*windows-1252,.*'nonsense'",
        ),
        (
            {"format": "csv", "read_option": ["encoding=UTF-16", "multiLine=false"]},
            "UTF-16 cannot be cut into lines",
        ),
        ({"format": "json", "read_option": "charset=utf-32"}, "UTF-32 cannot be cut into lines"),
        ({"format": "csv", "write_option": "encoding=latin1"}, "In ISO-8859-1 letters of the output"),
    ]:
        with pytest.raises(ConfigError, match=message) as caught:
            run_table(**options | changes)
        assert "Zebulon" not in str(caught.value)


def test_help_names_every_format() -> None:
    described = TableOptions.fields()["format"].description or ""
    assert [name for name in FORMATS if name not in described] == []


def test_a_reader_that_spark_lacks_is_named_with_its_package(options: dict[str, Any], tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "x.parquet")
    with pytest.raises(InputError, match=r"--packages org.apache.spark:spark-avro_2.13:4"):
        run_table(**options, format="avro")
    with pytest.raises(InputError, match=r"lake.db.t cannot be read.*--packages: io.delta"):
        run_table(**options | {"input": "lake.db.t", "output": "t"}, format="table")


def test_new_files_of_json(options: dict[str, Any], tmp_path: Path) -> None:
    grow = {
        "format": "json",
        "output_format": "orc",
        "trust_id": True,
        "incremental": tmp_path / "checkpoint",
    }
    for number in range(2):
        rows = [{**row, "id": 10 * number + int(str(row["id"]))} for row in ROWS]
        write_rows(tmp_path / "in" / f"{number}.json", rows)
        report = run_table(**options | grow)
    assert (report.rows, report.added_rows) == (8, 4)
    assert [row["id"] for row in read_batches(tmp_path / "out")] == [1, 2, 3, 7, 11, 12, 13, 17]
    with pytest.raises(ConfigError, match=r"of a release with other options.*Got: output-format\."):
        run_table(**options | grow | {"output_format": "json"})


def read_batches(folder: Path) -> list[dict[str, Any]]:
    rows = [row for file in folder.glob("batch-*.orc") for row in orc.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def test_vectors_in_orc_and_what_csv_cannot_hold(options: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"id": i, "v": [1.0, float(i)], "text": "w01 w02"} for i in range(3)]
    write_rows(tmp_path / "in" / "x.orc", rows)
    paths = {name: str(options[name]) for name in ("input", "output", "embedding")}
    given = {
        **paths,
        "key-file": str(options["key_file"]),
        "salt": options["salt"],
        "format": "orc",
        "id": "id",
        "keep": ["id"],
    }
    given |= {"vector": ["v"], "text": ["text"], "epsilon": 1.0}
    with pytest.raises(ConfigError, match=r"format csv cannot hold. Got: v \(.*\), text \(array<float>\)"):
        vectors.run(VectorsOptions.of({**given, "output-format": "csv"}))
    assert vectors.run(VectorsOptions.of(given)).rows == 3
    assert {len(row["v"]) for row in read_rows(tmp_path / "out")} == {2}


def test_times_without_a_zone_do_not_become_numbers(options: dict[str, Any], tmp_path: Path) -> None:
    """Rejects ORC files whose times other readers than Spark take for integers."""
    moment = datetime(2026, 3, 1, 9, tzinfo=UTC).replace(tzinfo=None)
    write_rows(tmp_path / "in" / "x.parquet", [{"id": 1, "text": "w01", "at": {"begin": moment}}])
    kept = {"keep": ["at.begin"], "output_format": "orc"}
    with pytest.raises(ConfigError, match=r"format orc cannot hold. Got: at \(struct<begin:timestamp_ntz>\)"):
        run_table(**options | kept)
    run_table(**options | kept | {"keep": []})


def test_tables_by_name(
    options: dict[str, Any], words: list[dict[str, Any]], tmp_path: Path, spark: SparkSession
) -> None:
    """A new table appears whole or not at all, and rows are added to one of the same columns."""
    spark.sql("create database shop location '" + str(tmp_path / "warehouse") + "'")
    try:
        spark.read.parquet(str(tmp_path / "plain")).write.saveAsTable("shop.queries")
        named = {"input": "shop.queries", "format": "table", "output": "spark_catalog.shop.clean"}
        report = {"reports": tmp_path / "reports"}
        with pytest.raises(InputError, match="words outside the vocabulary"):
            run_table(**options | named | report, oov="fail")
        assert [table.name for table in spark.catalog.listTables("shop")] == ["queries"]
        run_table(**options | named | report)

        def clean() -> list[dict[str, Any]]:
            spark.catalog.refreshTable("shop.clean")
            return [row.asDict() for row in spark.table("shop.clean").orderBy("id", "text").collect()]

        assert clean() == words
        with pytest.raises(ConfigError, match=r"The (public report|output table) .* exists"):
            run_table(**options | named | report)
        with pytest.raises(ConfigError, match=r"The output table .* exists.*--mode append"):
            run_table(**options | named | report, mode="overwrite")
        run_table(**options | named | report, mode="append", where="id < 3")
        assert [row["id"] for row in clean()] == [1, 1, 2, 2, 3, 7]
        with pytest.raises(ConfigError, match=r"has other columns than this release.*Got: text string\."):
            run_table(**options | named | report | {"keep": []}, mode="append")
        with pytest.raises(ConfigError, match=r"is the input"):
            run_table(**options | named | report | {"output": "spark_catalog.shop.queries"}, mode="append")
        assert len(clean()) == 6
        place = tmp_path / "more"
        spark.sql("create view shop.seen as select *, rand() r from shop.queries")
        with pytest.raises(InputError, match="gives other rows each time"):
            run_table(**options | named | {"input": "shop.seen", "output": "shop.x", "reports": place})
        disguised = f"parquet.`{tmp_path / 'plain'}`"
        with pytest.raises(InputError, match="cannot be read"):
            run_table(**options | named | {"input": disguised, "output": "shop.x", "reports": place})
    finally:
        spark.sql("drop database shop cascade")
