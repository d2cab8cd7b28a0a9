"""Files of text: malformed records, quotes, digits and letters that Spark would change are refused."""

import gzip
import json

import pandas as pd
import pytest

from dptext_spark.errors import ConfigError, InputError
from dptext_spark.spark.failures import spark_errors
from dptext_spark.tables.columns import TableColumns, check_refused
from dptext_spark.tables.formats.format import Format
from dptext_spark.tables.input_table import InputTable
from tests.helpers.tables import hashes, names, run_table, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def options(ring_release):
    return {**ring_release, "epsilon": 1e-3, "id": "id", "trust_id": True, "keep": ["id", "note"]}


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


def csv_file(folder, rows, name="a.csv", separator=",", end="\n"):
    """A file with a header, which is compressed if its name says so."""
    content = (separator.join(["id", "text", "note"]) + end + rows).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


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


AT = "timestamp '2026-01-01 12:00:00.123456'"
LOCAL = "timestamp_ntz '1850-01-01 12:00:00.000001'"


@pytest.mark.versions
def test_timestamps_keep_their_digits(options, opened, tmp_path, spark):
    """Rejects milliseconds, seconds of an offset that are cut, and a format of one's own that is not used."""
    sql = f"select 1L id, 'w01' text, {AT} at, timestamp '1850-01-01 12:00:00.5' old, {LOCAL} there"
    micros = {
        "parquet_outputTimestampType": "TIMESTAMP_MICROS",
        "parquet_datetimeRebaseModeInWrite": "CORRECTED",
    }
    with spark_settings(spark, **micros):
        spark.sql(f"{sql}, struct({AT} at) s, array({AT}) a").write.parquet(str(tmp_path / "in"))
    zoned, local = "2026-01-01T13:00:00.123456+01:00", "1850-01-01T12:00:00.000001"
    old = "1850-01-01T12:53:28.500000+00:53:28"
    given = {
        "a": {"keep": ["id", "at", "old", "there", "s", "a"], "output_format": "json"},
        "b": {"keep": ["id", "at", "old", "there"], "output_format": "csv"},
        "c": {"keep": ["at"], "output_format": "csv", "write_option": "timestampFormat=yyyy"},
        "d": {
            "input": tmp_path / "b",
            "format": "csv",
            "read_option": "inferSchema=true",
            "keep": ["*"],
        },
    }
    with spark_settings(spark, session_timeZone="Europe/Berlin"):
        for name, changes in given.items():
            run_table(**options | {"output": tmp_path / name} | changes)
    (row,) = [json.loads(file.read_text()) for file in (tmp_path / "a").glob("part-*")]
    assert (row["s"], row["a"]) == ({"at": zoned}, [zoned])
    (early,) = [pd.read_csv(file, dtype=str).iloc[0] for file in (tmp_path / "b").glob("part-*")]
    (again,) = [pd.read_csv(file, dtype=str).iloc[0] for file in (tmp_path / "d").glob("part-*")]
    assert {(r["at"], r["old"], r["there"]) for r in (row, early)} == {(zoned, old, local)}
    assert (again["at"], again["old"]) == (zoned, old)
    (file,) = (tmp_path / "c").glob("part-*")
    assert pd.read_csv(file, dtype=str)["at"].tolist() == ["2026"]


def numbers(*values):
    """Lines of JSON with these numbers, which are written so."""
    return "".join(f'{{"id": {i}, "text": "w01", {value}}}\n' for i, value in enumerate(values))


MANY = "has numbers with more digits than a double has"
PLAIN, DECIMALS, STRINGS = {}, {"prefersDecimal": "true"}, {"primitivesAsString": "true"}
BELOW = '"n": "2026-01-01T12:00:00.1234567"'


@pytest.mark.versions
@pytest.mark.parametrize(
    ("lines", "given", "name", "comes"),
    [
        (
            ('"n": 9007199254740993', '"n": 1.5'),
            PLAIN,
            "n",
            f"Column n {MANY}.*primitivesAs.*prefersD",
        ),
        (('"n": 9007199254740993', '"n": 1.5'), DECIMALS, "n", ["9007199254740993.0", "1.5"]),
        (('"n": 9007199254740993', '"n": 1.5'), PLAIN, "text", ["w01", "w01"]),
        (('"n": 9007199254740993', '"n": 15'), STRINGS, "n", ["9007199254740993", "15"]),
        (('"n": 0.1', '"n": 1e10', '"n": -1.50'), PLAIN, "n", ["0.1", "10000000000.0", "-1.5"]),
        (('"n": 0.12345678901234567890',), PLAIN, "n", MANY),
        (('"n": 0.12345678901234567890',), DECIMALS, "n", ["0.12345678901234567890"]),
        (('"n": 1e400',), PLAIN, "n", MANY),
        ((f'"n": {"9" * 39}',), DECIMALS, "n", f"{MANY}.*=true, and numbers are strings.$"),
        (('"n": [1.5, 9007199254740993]',), PLAIN, "n", f"Column n {MANY}"),
        (
            ('"p": {"q": [{"n": 9007199254740993}, {"n": 0.5}]}',),
            PLAIN,
            "p",
            rf"Column p.q\[\].n {MANY}",
        ),
        (('"p": {"m": "x", "n": 1.2345678901234567891}',), PLAIN, "p.m", ["x"]),
        (("'n': 0.5",), PLAIN, "n", "Column n has numbers in records that are no strict JSON"),
        ((BELOW,), {"inferTimestamp": "true"}, "n", "Column n has timestamps with digits below"),
        ((BELOW,), PLAIN, "n", ["2026-01-01T12:00:00.1234567"]),
    ],
)
def test_numbers_of_json_keep_their_digits(opened, tmp_path, lines, given, name, comes):
    """Rejects numbers that a double rounds, also inside others, and refusals of columns nobody asked for."""
    (tmp_path / "a.json").write_text(numbers(*lines))
    values = kept(opened(tmp_path / "a.json", **given), name, comes)
    assert values in (None, comes)


def kept(source, name, comes):
    """The values of a column that is kept, as texts; None where it is refused as it should be."""
    wanted = TableColumns(text=("text",), id=None, keep=(name,))
    if isinstance(comes, str):
        with pytest.raises(InputError, match=comes):
            check_refused(source, wanted)
        return None
    check_refused(source, wanted)
    return [str(value) for (value,) in source.df.select(name).collect()]


@pytest.mark.parametrize(
    ("values", "comes"),
    [
        (["9007199254740993.5", "1.5"], f"Column note {MANY}.*Leave out --read-option inferSchema"),
        (["12", "5.5D"], f"Column note {MANY}"),
        (["0.1", "1.50", "NaN", ""], ["0.1", "1.5", "nan", "None"]),
        (["123456789012345678901234567890"], ["123456789012345678901234567890"]),
        (
            ["2026-01-01 12:00:00.1234567"],
            "Column note has timestamps with digits below a microsecond",
        ),
        (["2026-01-01 12:00:00.1234560"], ["2026-01-01 12:00:00.123456"]),
    ],
)
def test_numbers_of_csv_whose_types_are_guessed_keep_their_digits(opened, tmp_path, values, comes):
    """Rejects numbers that become doubles of other digits, and a column beside them that is lost."""
    csv_file(tmp_path / "in", "".join(f"{i},w01,{value}\n" for i, value in enumerate(values)))
    source = opened(tmp_path / "in", "csv", inferSchema="true")
    assert kept(source, "note", comes) in (None, comes)
    assert kept(source, "text", ["w01"]) == ["w01"] * len(values)


def test_fields_that_would_lose_digits_can_be_left_out(options, tmp_path):
    """Rejects a refusal of what ``--except`` leaves out, itself or what is around it."""
    (tmp_path / "in").mkdir()
    line = '"p": {"m": "x", "q": [{"n": 9007199254740993}, {"n": 0.5}]}'
    (tmp_path / "in" / "a.json").write_text(numbers(line))
    given = options | {"format": "json", "keep": ["*"]}
    with pytest.raises(InputError, match=MANY):
        run_table(**given)
    for name, p in {"p.q[].n": {"m": "x"}, "p.q": {"m": "x"}, "p": None}.items():
        run_table(**given, **{"except": [name]}, mode="overwrite")
        (file,) = (tmp_path / "out").glob("part-*")
        assert json.loads(file.read_text()).get("p") == p


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
