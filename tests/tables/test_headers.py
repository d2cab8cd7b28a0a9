"""Names of columns, and files of text as pandas, Excel and `cat` leave them.

Rejects columns that are read by position where headers differ, a header that comes out as a row, rows that
are gone or doubled, and messages that quote a name which may be a row.
"""

import json
from typing import NamedTuple

import pandas as pd
import pytest

from dptext_spark.errors import InputError
from tests.helpers.tables import refused, spark_settings, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


class Situation(NamedTuple):
    """Files, and what comes of them: a message, or the rows by column."""

    id: str
    files: list[str]
    comes: str | dict[str, list[str | None]]
    options: tuple[str, ...] = ()
    source: str = "own trial"


PANDAS = pd.DataFrame({"id": [1, None], "text": ["w01", None]}).to_csv()
ROWS = [{"id": "1", "text": "w01"}, {"id": "2", "text": "w02"}]
LINES = "".join(f"{json.dumps(row)}\n" for row in ROWS)
BOTH = {"id": ["1", "2"], "text": ["w01", "w02"]}
WHOLE = ("multiLine=true",)
OTHER = "does not begin with the header of others.*Got: 1[.]csv.*0 times.*a run of its own"
AGAIN = "the header of others, or has it twice.*Got: 0[.]csv, which has it 2 times"
SEVERAL = "JSON values of several lines.*Give --read-option multiLine=true"
SO = "Stack Overflow: Read multiline JSON in Apache Spark"

CSV = [
    Situation(
        "an index without a name",
        [PANDAS, PANDAS],
        {
            "_c0": ["0", "0", "1", "1"],
            "id": ["1.0", "1.0", None, None],
            "text": ["w01", "w01", None, None],
        },
        source="Stack Overflow: How to get rid of 'Unnamed: 0' column in a pandas DataFrame",
    ),
    Situation("an index in one file of two", ["id,text\n1,w01\n", PANDAS], OTHER),
    Situation(
        "another order", ["id,text\n1,w01\n", "text,id\nw02,2\n"], OTHER, source="SPARK-23786"
    ),
    Situation("more columns", ["id,text\n1,w01\n", "id,text,note\n2,w02,x\n"], OTHER),
    Situation(
        "a name that only looks numbered", ["id,text,x2\n1,w01,x\n", "id,text,x\n1,w01,x\n"], OTHER
    ),
    Situation(
        "no header in the second file", ["id,text\n1,w01\n", "2,w02\n"], f"{OTHER}.*header=false"
    ),
    Situation("other capitals", ["id,text\n1,w01\n", "ID,Text\n2,w02\n"], BOTH),
    Situation("files without rows", ["id,text\n", "", "\nid,text\n1,w01\n2,w02\n"], BOTH),
    Situation(
        "a name that comes twice",
        ["id,text,note,note\n1,w01,x,y\n"],
        {"id": ["1"], "text": ["w01"], "note2": ["x"], "note3": ["y"]},
    ),
    Situation("cat a.csv b.csv", ["id,text\n1,w01\nid,text\n2,w02\n"], AGAIN),
    Situation("cat of files with a mark", ["\ufeffid,text\n1,w01\n\ufeffid,text\n2,w02\n"], AGAIN),
    Situation("a mark in one file", ["\ufeffid,text\n1,w01\n", "id,text\n2,w02\n"], BOTH),
    Situation(
        "NaN as a word",
        ["id,text\n1,w01\n2,NaN\n"],
        {**BOTH, "text": ["w01", None]},
        ("nullValue=NaN",),
    ),
    Situation("tabs", ["id\ttext\n1\tw01\n2\tw02\n"], BOTH, ("sep=\\t",)),
]
JSON = [
    Situation("an array of several lines", [json.dumps(ROWS, indent=1)], SEVERAL, source=SO),
    Situation(
        "its first row in its first line", [f"[{LINES.strip()}]".replace("}\n", "},\n")], SEVERAL
    ),
    Situation("an object of several lines", [json.dumps(ROWS[0], indent=1)], SEVERAL),
    Situation(
        "an array of several lines, read", ["\ufeff" + json.dumps(ROWS, indent=1)], BOTH, WHOLE, SO
    ),
    Situation("lines with a mark", [f"\ufeff{LINES}"], BOTH),
]
TEXTS = [(name, each) for name, table in {"csv": CSV, "json": JSON}.items() for each in table]


@pytest.mark.parametrize(
    ("name", "case"), TEXTS, ids=[f"{name}, {case.id}" for name, case in TEXTS]
)
def test_files_of_text(opened, tmp_path, name, case):
    (tmp_path / "in").mkdir()
    options = dict(option.split("=") for option in case.options)
    for number, content in enumerate(case.files):
        (tmp_path / "in" / f"{number}.{name}").write_text(content)
    if isinstance(case.comes, str):
        with pytest.raises(InputError, match=case.comes):
            opened(tmp_path / "in", name, **options)
    else:
        found = opened(tmp_path / "in", name, **options).df.toPandas()
        found = found.sort_values([*case.comes], kind="stable")
        assert found.astype(object).where(found.notna(), None).to_dict("list") == case.comes


def test_names_that_a_csv_file_lacks(dptext, tmp_path):
    """What helps is said, and nothing quoted but the user's own words: the first line may be a row."""
    (tmp_path / "in.csv").write_text("Zebulon;id;text\n")
    result = dptext(tmp_path / "in.csv", "--format", "csv", "--id", "id")
    lacking = "lacks columns. Got: text, id. .*separator, give --read-option 'sep=;'.*header=false"
    assert refused(result, lacking) and "Zebulon" not in result.output


def test_names_that_differ_in_capitals_only(opened, tmp_path, spark):
    """Own trial: both are read, and written, where Spark's setting says so, which the message names."""
    write_table(tmp_path / "in" / "a.parquet", {"id": [1], "text": ["w01"], "Text": ["w02"]})
    (tmp_path / "in.json").write_text('{"id": 1, "text": "w01", "Text": "w02"}\n')
    for place, name in ((tmp_path / "in", "parquet"), (tmp_path / "in.json", "json")):
        with pytest.raises(
            InputError, match=r"capitals only: --spark-conf spark\.sql\.caseSensitive=true"
        ):
            opened(place, name)
    with spark_settings(spark, caseSensitive="true"):
        assert opened(tmp_path / "in", "parquet").df.select("text", "Text").collect() == [
            ("w01", "w02")
        ]
