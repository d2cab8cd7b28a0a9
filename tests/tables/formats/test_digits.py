"""Numbers and times in files of text: digits that Spark would change are refused."""

import json

import pandas as pd
import pytest

from dptext_spark.errors import InputError
from dptext_spark.tables.columns import TableColumns, check_refused
from tests.helpers.tables import csv_file, run_table, spark_settings

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

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
