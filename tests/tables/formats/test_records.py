"""Files of text: malformed records, quotes and letters that Spark would change are refused."""

import pytest

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.input_table import InputTable
from tests.helpers.tables import csv_file, hashes, names, run_table, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_partitions_of_csv_in_percent(opened, tmp_path):
    """Rejects a table that cannot be read, as its mark of malformed records is looked for again."""
    csv_file(tmp_path / "in" / "dt=M%C3%A4rz", "1,w01,x\n")
    assert opened(tmp_path / "in", "csv").df.select("id", "dt").collect() == [("1", "März")]


BAD = {
    "short.csv": "id,text,note\n1,w01,x\n2,Quartzman Zebulon\n",
    "cut.json": '{"id": 1, "text": "w01", "note": "x"}\n{"id": 2, "text": "Quartzman", "no\n',
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_record_fails_the_run_and_is_not_quoted(options, opened, tmp_path, name, capfd):
    """Rejects records that become nulls, and Spark's FAILFAST, whose log quotes them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_text(BAD[name])
    before = hashes(tmp_path)
    with pytest.raises(
        InputError, match=f"The file {tmp_path}/in/{name} has records that are not"
    ) as caught:
        run_table(**options | {"keep": []}, format=name.partition(".")[2])
    assert hashes(tmp_path) == before and names(tmp_path) == {"in"}
    shown = "".join([str(caught.value), *capfd.readouterr()])
    assert "Quartzman" not in shown and "Zebulon" not in shown
    assert opened(tmp_path / "in" / name, mode="DROPMALFORMED").df.select("id").count() == 1


ONE_LINE = {"multiLine": "false"}
OPEN_QUOTES = [
    # (the rows, options of the reader, the line where the value begins); other rules: test_quotes.py
    ('1,w01,"x\n2,Quartzman,y\n3,w02,z\n', {}, 2),
    ('1,w01,"x\n2,Quartzman,y\n3,w02,z\n', ONE_LINE, 2),
    ('1,w01,x\n2,w02,"y\n3,Quartzman,"z"\n', {}, 3),
    ('1,w01,"x""\n2,Quartzman,y\n', {}, 2),
    ('1,"w01,x\n2,Quartzman,y\n', {}, 2),
    ("1;w01;'x\\'\n2;Quartzman;y\n", {"sep": ";", "quote": "'", "escape": "\\"}, 2),
    ('1\tw01\t"x\n2\tQuartzman\ty\n', {"delimiter": "\\t", "mode": "DROPMALFORMED"}, 2),
]


def test_a_quote_that_is_left_open_fails_the_run_by_its_line(options, opened, tmp_path, capfd):
    """Rejects rows below that become a part of a kept value, and rows that vanish in a text."""
    for number, (rows, given, line) in enumerate(OPEN_QUOTES):
        name = "a.csv.gz" if number == 2 else "a.csv"
        separator = given.get("sep", "\t" if "delimiter" in given else ",")
        file = csv_file(tmp_path / f"{number}", rows, name, separator)
        place = f"The file {file} has records that are not CSV.*begins in line {line}\\."
        with pytest.raises(InputError, match=place) as caught:
            opened(file.parent, "csv", **given)
        assert "Quartzman" not in str(caught.value)
    csv_file(tmp_path / "in", OPEN_QUOTES[0][0])
    before = hashes(tmp_path)
    with pytest.raises(InputError, match="begins in line 2"):
        run_table(**options, format="csv")
    assert hashes(tmp_path) == before and "out" not in names(tmp_path)
    assert "Quartzman" not in "".join(capfd.readouterr())
    # As the message advises.
    kept = opened(tmp_path / "in", "csv", quote="").df.orderBy("id").collect()
    assert [row.note for row in kept] == ['"x', "y", "z"]


QUOTED = '1,"w01 ""a""\n\nb","x,y"\n2,w02,""\n3,w03,z"z\n'
WHOLE = "4194304"
SLASHES = QUOTED.replace('""a""', '\\"a\\"')


@pytest.mark.versions
@pytest.mark.parametrize(
    ("rows", "end", "given", "name", "size"),
    [
        (QUOTED, "\n", {}, "a.csv", WHOLE),
        (QUOTED, "\n", {}, "a.csv", "16"),  # of bytes: a quoted value lies in several splits
        (QUOTED, "\r\n", {}, "a.csv", "16"),
        (QUOTED, "\r\n", {}, "a.csv.gz", WHOLE),
        (QUOTED, "\r", {}, "a.csv", WHOLE),
        (QUOTED.replace(",", "||").replace("x||y", "x,y"), "\r\n", {"sep": "||"}, "a.csv", "16"),
        (SLASHES, "\n", {"escape": "\\"}, "a.csv", "16"),
    ],
    ids=["LF", "LF in splits", "CR LF in splits", "gzip", "CR", "long separators", "escape"],
)
def test_quoted_values_come_as_they_are_written(
    opened, tmp_path, spark, rows, end, given, name, size
):
    """Rejects CR LF that becomes LF, doubled quotes and escapes that are refused, and splits read alone."""
    file = csv_file(tmp_path / "in", rows.replace("\n", end), name, given.get("sep", ","), end)
    with spark_settings(spark, files_maxPartitionBytes=size, files_openCostInBytes="1"):
        values = [tuple(row) for row in opened(file, "csv", **given).df.orderBy("id").collect()]
    assert values == [("1", f'w01 "a"{end}{end}b', "x,y"), ("2", "w02", ""), ("3", "w03", 'z"z')]


def test_what_spark_would_change_in_quotes_is_refused_by_its_line(opened, tmp_path):
    """Rejects CR LF that becomes LF, where files' lines end in two ways, and NUL that is dropped."""
    csv_file(tmp_path / "in", '1,w01,x\r\n2,"w02\r\nw03",y\r\n', end="\r\n")
    later = csv_file(tmp_path / "in", '3,"w04\r\nw05",z\n', "b.csv")
    with pytest.raises(
        InputError, match=r"The file .*/in/a.csv has line ends inside quotes.*Got: line 3\."
    ):
        opened(tmp_path / "in", "csv")
    alone = opened(tmp_path / "in", "csv", pathGlobFilter="a*").df.orderBy("id").collect()
    assert [row.text for row in alone] == ["w01", "w02\r\nw03"]
    assert [row.text for row in opened(later, "csv").df.collect()] == ["w04\r\nw05"]
    for rows in ('1,w01,"x\0"\n', '1,w01,"""\0x"\n', "1,w01,\0\n"):
        csv_file(tmp_path / "nul", rows)
        with pytest.raises(
            InputError, match=r"a.csv has characters that Spark would drop.*Got: line 2\."
        ):
            opened(tmp_path / "nul", "csv")
    csv_file(tmp_path / "nul", "1,w01,x\0y\n")
    assert opened(tmp_path / "nul", "csv").df.head().note == "x\0y"


def test_a_file_that_comes_after_the_start_is_checked(options, tmp_path, monkeypatch):
    """Rejects an open quote in a file that the stream takes and that nobody looked at."""
    csv_file(tmp_path / "in", "1,w01,x\n")
    checked = InputTable.check_rows

    def check_rows(table):
        csv_file(tmp_path / "in", '2,w02,"x\n3,Quartzman,y\n', "b.csv")
        return checked(table)

    monkeypatch.setattr(InputTable, "check_rows", check_rows)
    with pytest.raises(InputError, match=r"b.csv has records that are not CSV.*line 2"):
        run_table(**options, format="csv", incremental=tmp_path / "state")
    assert not [*(tmp_path / "out").glob("*.csv")]


def test_values_are_not_written_as_other_ones(opened, tmp_path, spark):
    """Rejects LF in values that Spark writes as the line end, and empty texts that are read as two quotes."""
    rows = spark.createDataFrame([("1", "a\nb"), ("2", ""), ("3", None)], "id string, text string")
    with pytest.raises(InputError, match=r"Values have line breaks.*lineSep"), spark_errors():
        Format.named("csv", str(tmp_path / "out"), {"lineSep": "\r\n"}).write(rows)
    place = tmp_path / "quotes.csv"
    Format.named("csv", str(place), {"quote": "'"}).write(rows)
    values = {row.id: row.text for row in opened(place, quote="'").df.collect()}
    assert values == {"1": "a\nb", "2": "", "3": None}


HEAD = b"id,text,note\n"
NO_LETTERS = {
    "later.csv": (HEAD + b"1,w01,x\n" * 2000 + b"2,w01,Z\xfcrich\n", ""),
    "surrogate.csv": (HEAD + b"1,w01,\xed\xa0\x80\n", ""),
    "latin.json": ('{"id": 1, "text": "w01", "note": "Zürich"}\n'.encode("latin-1"), ""),
    "a.csv": (HEAD + b"1,w01,Z\x81rich", "cp1252"),
}


@pytest.mark.parametrize("name", NO_LETTERS)
def test_bytes_that_are_no_letters_are_refused(opened, tmp_path, name):
    """Rejects U+FFFD in place of them, in columns that are kept too, and JSON that is called malformed."""
    content, encoding = NO_LETTERS[name]
    (tmp_path / name).write_bytes(content)
    more = (
        {"mode": "DROPMALFORMED"} if "latin" in name else {"encoding": encoding} if encoding else {}
    )
    with pytest.raises(
        InputError, match=rf"bytes that are not {encoding or 'UTF-8'}\. Got: some in {name}\. "
    ):
        opened(tmp_path / name, **more)


@pytest.mark.parametrize(
    ("encoding", "given", "note"),
    [
        ("utf-8-sig", None, "Zürich \ufffd 東京"),
        ("cp1252", "Windows-1252", "Zürich – €"),
        ("cp932", "cp932", "東京 ①"),
    ],
)
def test_texts_in_the_encoding_that_is_named(opened, tmp_path, encoding, given, note):
    """U+FFFD that a text has itself is a letter."""
    (tmp_path / "a.csv").write_bytes(f"id,text,note\n1,w01,x\n2,w02,{note}\n".encode(encoding))
    named = {} if given is None else {"encoding": given}
    assert [row.note for row in opened(tmp_path / "a.csv", **named).df.collect()] == ["x", note]


LINES = [
    '{"id": 1, "text": "} {", "note": "\\ud83d\\ude00"} ',
    "",
    '[{"id": 2, "text": ""}, {"id": 3}]',
]


@pytest.mark.parametrize(
    ("content", "multi_line", "message"),
    [
        (
            '{"id": 1, "text": "w01"}, {"id": 2, "text": "w02"}\n',
            "false",
            "several values in one record",
        ),
        (
            '{"id": 1, "text": "w01"}\n{"id": 2, "text": "w02"}\n',
            "true",
            "several values in one record",
        ),
        ('{"id": 1, "text": "w01", "more": {"\\uDE00": 1}}\n', "false", "half a letter"),
        ("\r\n".join(LINES), "false", ""),  # it only looks as if it were several values
    ],
)
def test_json_that_spark_would_read_in_part_is_refused(
    opened, tmp_path, content, multi_line, message
):
    """Rejects rows that are gone behind the first value of a line or file, and letters that become `?`."""
    (tmp_path / "a.json").write_text(content)
    if message:
        with pytest.raises(InputError, match=message):
            opened(tmp_path / "a.json", multiLine=multi_line)
    else:
        assert [row.id for row in opened(tmp_path / "a.json").df.collect()] == [1, 2, 3]


def test_the_first_line_of_a_csv_file_may_be_a_row(options, opened, tmp_path):
    """Rejects messages that list a table's columns, which are a row's values where there is no header."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.csv").write_text("1,Quartzman w01,x\n2,w02,y\n")
    first = {"text": ["Quartzman w01"], "id": "1", "keep": [], "where": "Zebulon ="}
    for given, message in [
        ({}, r"lacks columns\. Got: .*header=false"),
        (first, "filter --where cannot be understood"),
    ]:
        with pytest.raises((InputError, ConfigError), match=message) as caught:
            run_table(**options | {"format": "csv"} | given)
        assert "Quartzman" not in str(caught.value)
    rows = opened(tmp_path / "in", "csv", header="false").df.select("_c1", "_c2").collect()
    assert [tuple(row) for row in rows] == [("Quartzman w01", "x"), ("w02", "y")]
