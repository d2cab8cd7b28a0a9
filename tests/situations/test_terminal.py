"""What a terminal or a log shows: bytes that are no text, and the lines of Spark."""

import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark import SparkContext

from dptext_spark import cli
from dptext_spark.cli import main, read_config
from dptext_spark.errors import DptextError, JobError
from tests.helpers.tables import ROOT, command, write_table

LATIN1 = b"caf\xe9"
ARGUMENT = os.fsdecode(LATIN1)
BYTE = r"Allowed: text in UTF-8. Got: another byte at place 4. Convert or rename it."


def privatize(line, *arguments, **changes):
    """The arguments of a run."""
    given = {"input": "in", "output": "out", "embedding": line.path, "text": "text"}
    given |= {"mechanism": "laplace", "epsilon": 5} | changes
    options = [
        part
        for name, value in given.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["privatize", *options, *map(str, arguments)]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a table, and no Spark in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    write_table(tmp_path / "in" / "x.parquet", {"id": [1], "text": ["w1"]})
    return tmp_path


TRY = "try {} --embedding {{line}} --mechanism laplace --epsilon 5"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param("{run} --id {wrong}", "privatize, --id", id="pallets/click #35: a column"),
        pytest.param(
            "{run} --key-file {wrong}", "privatize, --key-file", id="chardet #278: a path"
        ),
        pytest.param("{run} --keep a --keep {wrong}", "privatize, --keep", id="one of several"),
        pytest.param("{run} --config {wrong}", "privatize, --config", id="a configuration's path"),
        pytest.param("demo --output {wrong}", "demo, --output", id="the demo's folder"),
        pytest.param(TRY.format("{wrong}"), "try, [SENTENCE]", id="a sentence"),
        pytest.param(TRY.format("-"), "try: The sentence on standard input", id="standard input"),
    ],
)
@pytest.mark.usefixtures("here")
def test_bytes_that_are_no_utf_8_are_one_line(arguments, said, line):
    """Rejects a traceback, code 1, and a quote of what may be private. Source: own trial, or as named."""
    words = {"wrong": ARGUMENT, "line": str(line.path)}
    run = " ".join(privatize(line))
    arguments = [part.format(**words) for part in arguments.replace("{run}", run).split()]
    result = CliRunner().invoke(main, arguments, input=LATIN1)
    said = re.sub(", (.*)", r": The value of '\1'", said)
    assert (result.exit_code, result.output) == (2, f"dptext {said} is not UTF-8. {BYTE}\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(
            b"# " + LATIN1, r"c.toml is not UTF-8\. .*another byte at place 6", id="Latin-1"
        ),
        pytest.param(
            "text = 'a'".encode("utf-16"),
            r"c.toml is not UTF-8\. .*another byte at place 1",
            id="PowerShell's >",
        ),
        pytest.param(b'text = "\\ud800"', "c.toml is not TOML.*line 1", id="half a character"),
    ],
)
def test_a_configuration_file_that_is_no_utf_8(here, content, said):
    (here / "c.toml").write_bytes(content)
    with pytest.raises(DptextError, match=said):
        read_config(here / "c.toml")


def test_a_byte_order_mark_is_no_fault(here):
    """Notepad writes one. Source: own trial."""
    (here / "c.toml").write_bytes(b'\xef\xbb\xbftext = "a"')
    assert read_config(here / "c.toml") == {"text": "a"}


@pytest.mark.parametrize(
    ("there", "said"),
    [
        pytest.param(["out", "out.release.json"], "The output out exists", id="output and reports"),
        pytest.param(
            ["out.release.json"], "The public report out.release.json exists", id="reports alone"
        ),
        pytest.param(
            [".out.app-1.part", "out.release.json"],
            "Another run .* out, or was killed",
            id="killed",
        ),
    ],
)
def test_a_second_run_is_told_of_the_output_first(here, line, there, said):
    """Rejects advice to move the reports, after which the output is in the way. Source: own trial."""
    for name in there:
        (here / name).mkdir()
    result = CliRunner().invoke(main, privatize(line))
    assert result.exit_code == 2 and re.search(f"privatize: {said}", result.output), result.output


@pytest.mark.usefixtures("here")
def test_a_line_comes_before_libraries_are_loaded(line, monkeypatch):
    """Rejects seconds without a word, while pyspark and scipy are imported. Source: own trial."""

    def load(_):
        raise JobError("They are not loaded")

    monkeypatch.setattr(cli, "import_module", load)
    result = CliRunner().invoke(main, privatize(line))
    said = "Loading libraries ...\ndptext privatize: They are not loaded.\n"
    assert (result.exit_code, result.stderr) == (1, said)


LOGGED = """\
rootLogger.level = info
rootLogger.appenderRef.it.ref = it
appender.it.type = Console
appender.it.name = it
appender.it.target = SYSTEM_ERR
appender.it.layout.type = PatternLayout
appender.it.layout.pattern = OWN %p %m%n
"""


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.parametrize(
    "own",
    [
        pytest.param(False, id="Stack Overflow 27781187: Spark's own settings"),
        pytest.param(True, id="a log4j2 file of the user's stays", marks=pytest.mark.long),
    ],
)
def test_our_line_is_seen_under_spark_submit(here, line, own):
    """Rejects 60 to 350 lines of Spark's around ours, and a cluster's log that loses its own level."""
    (here / "log.properties").write_text(LOGGED)
    options = ["--driver-java-options", "-Dlog4j2.configurationFile=log.properties"] if own else []
    submit = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", *options]
    arguments = privatize(line, text="nope")[1:]
    environment = {"PYTHONPATH": str(ROOT), "TMPDIR": str(here)}
    done = command(*submit, ROOT / "jobs" / "privatize.py", *arguments, cwd=here, env=environment)
    assert done.returncode == 2, done.stderr
    said = "The input table lacks columns. Allowed: id, text. Got: nope."
    stages, _, last = done.stdout.partition("\n\n")
    assert last == f"dptext privatize: {said}\n"
    assert all(line.endswith(" ...") for line in stages.splitlines())
    assert ("OWN INFO" in done.stderr) == own
    assert own or len(done.stderr.splitlines()) < 20, done.stderr
