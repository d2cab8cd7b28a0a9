"""The command line: what is wrong is said before Spark starts, in one message, with exit code 2."""

import io
import os
import re
import runpy
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from click.testing import CliRunner
from pyspark import SparkContext
from pyspark.errors import PySparkException

from dptext_spark import cli
from dptext_spark.bars import stage
from dptext_spark.cli import main, read_config
from dptext_spark.errors import DptextError, JobError
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.options import COMMANDS
from dptext_spark.spark import USER_SETTINGS
from tests.helpers.tables import write_table

ROOT = Path(__file__).parents[1]
JOBS = sorted((ROOT / "jobs").glob("*.py"))


@pytest.fixture
def ran(monkeypatch):
    """The options that reach a job, and the session's settings; it is done as soon as it begins."""
    seen = []

    def run(options):
        with stage("a bar"):
            seen.append((options, dict(USER_SETTINGS.get())))
        return SimpleNamespace(describe=lambda: "The report", to_json=lambda: '{"rows": 3}\n')

    for command in ("privatize", "evaluate"):
        monkeypatch.setattr(f"dptext_spark.jobs.{command}.run", run)
    return seen


GIVEN = "--input in --output out --embedding b --mechanism laplace --epsilon 5 --text text"


def dptext(*arguments, without="--"):
    """``dptext privatize`` with right options, and those of the test after them."""
    options = [
        part for pair in re.findall(r"(\S+) (\S+)", GIVEN) if pair[0] != without for part in pair
    ]
    return CliRunner().invoke(main, ["privatize", *options, *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "content", "message"),
    [
        (
            "--epsilon 0",
            b"",
            r"dptext privatize: Options of privatize are wrong:\n.*--epsilon .*Got: 0\.",
        ),
        ("--release-words 5.5", b"", "--release-words .*Allowed: a valid integer. Got: 5.5"),
        ("--config /nonexistent.toml", b"", "configuration file /nonexistent.toml cannot be read"),
        ("--reprots r", b"", "No such option.*--reports"),
        (
            "",
            b"relase-words = 3",
            "--relase-words is not an option.* Perhaps you meant release-words",
        ),
        ("", b'config = "other.toml"', "--config is not an option of this command"),
        ("", b'[privatize]\nname = "x"', "--privatize is not an option of this command"),
        ("", b'keep = [["a"], ["b"]]', r"--keep has a wrong value.*string.*Got: \['a'\]"),
        ("", b"name = 2024-01-01", "--name has a wrong value.*string"),
        ("", b"name = ", "is not TOML"),
    ],
)
def test_what_is_wrong_is_one_message(ran, tmp_path, arguments, content, message):
    """On the command line, and in a file; others are in test_options.py and jobs/test_without_spark.py."""
    config = tmp_path / "options.toml"
    config.write_bytes(content)
    option, *_ = given = arguments.split() or [""]
    file = [] if option == "--config" else ["--config", config]
    result = dptext(*file, *filter(None, given), without=option)
    assert (result.exit_code, ran) == (2, []), (result.output, result.exception)
    assert re.search(message, result.output) and "Traceback" not in result.output, result.output


def test_the_command_line_wins_over_the_file(ran, tmp_path):
    config = tmp_path / "options.toml"
    config.write_text(
        'epsilon = 7\nname = "file"\nkeep = ["a", "b"]\ntokens = "words"\ndry-run = true\nrelease-words = 3'
    )
    file = dptext("--config", config, "--key-file", "key", without="--epsilon")
    line = dptext(
        "--config",
        config,
        "--key-file",
        "key",
        "--name",
        "line",
        "--keep",
        "c",
        "--release-words",
        4,
    )
    assert (file.exit_code, line.exit_code) == (0, 0)
    found = [(o.epsilon, o.name, o.keep, o.dry_run, o.release_words) for o, _ in ran]
    assert found[0] == (7.0, "file", ("a", "b"), True, 3)
    assert found[1] == (5.0, "line", ("c",), True, 4)


AGAIN = [
    ("--epsilon 10", "--epsilon"),
    ("--epsilon=5", "--epsilon"),  # the same value, too
    ("--config a.toml --config b.toml", "--config"),
    ("--dry-run --dry-run", "--dry-run"),
    ("--json --json", "--json"),
    ("--where x --where y", "--where"),
    ("--key-file k --name n --name n", "--name"),
    ("--remote sc://a --remote sc://a", "--remote"),
]


@pytest.mark.parametrize(("arguments", "option"), AGAIN)
def test_an_option_of_one_value_is_given_once(ran, arguments, option):
    """Rejects a last value that wins without a word, a flag that is forgotten, and a quote of a value."""
    result = dptext(*arguments.split())
    times = 1 + arguments.count(option) if option == "--epsilon" else 2
    assert (result.exit_code, ran) == (2, []), result.output
    assert f"Error: Option {option} must be given once; got it {times} times.\n" in result.output


def test_options_of_one_value_are_given_once_to_every_command_and_job(ran, monkeypatch):
    """Rejects a check of one command; evaluate measured the last of two columns alone."""
    for arguments in (
        "demo --output a --output b",
        "evaluate --text a --text b",
        "ledger --config a --config b",
    ):
        result = CliRunner().invoke(main, arguments.split())
        assert result.exit_code == 2 and "must be given once; got it 2 times." in result.output
    several = CliRunner().invoke(main, ["evaluate", "--text", "a", "--text", "b"])
    assert "Evaluate each column separately, and release all at the smallest" in several.output
    monkeypatch.setattr(sys, "argv", ["privatize.py", "--mode", "error", "--mode", "overwrite"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "jobs" / "privatize.py"), run_name="__main__")
    assert ended.value.code == 2
    # What may be given several times still may, and the help whatever is asked twice.
    repeated = ("--text", "other", "--keep", "a", "--keep", "b", "--spark-conf", "spark.a=1")
    assert dptext(*repeated, "--spark-conf", "spark.b=2").exit_code == 0
    assert ran[0][0].text == ("text", "other") and ran[0][0].keep == ("a", "b")
    assert CliRunner().invoke(main, ["privatize", "-h", "--help", "--help"]).exit_code == 0


def test_one_option_has_one_name_in_a_file(ran, tmp_path):
    """Rejects key_file that wins over key-file, and a command line that meets its own file's spelling."""
    config = tmp_path / "options.toml"
    config.write_text('release_words = 3\n"release-words" = 4\n')
    result = dptext("--config", config)
    assert (result.exit_code, ran) == (2, [])
    assert (
        "--release-words must be given once. Got: release_words and release-words." in result.output
    )
    config.write_text("release_words = 3\n")
    assert dptext("--config", config, "--release-words", 4).exit_code == 0
    assert ran[0][0].release_words == 4


class Full:
    """A full disk as standard output or error, and what the other one got."""

    def __init__(self, monkeypatch, stream):
        self.disk = Path("/dev/full").open("w")  # noqa: SIM115
        self.said = io.StringIO()
        other = {"stdout": "stderr", "stderr": "stdout"}[stream]
        monkeypatch.setattr(sys, stream, self.disk)
        monkeypatch.setattr(sys, other, self.said)

    def run(self, *arguments):
        """The exit code of a command, and what the stream that works has."""
        given = [part for pair in re.findall(r"(\S+) (\S+)", GIVEN) for part in pair]
        with pytest.raises(SystemExit) as ended:
            main(["privatize", *given, *arguments], prog_name="dptext")
        self.disk.close()  # raises, as Python does at its end, what is left to be written
        return ended.value.code, self.said.getvalue()


WHOLE = (
    "dptext privatize: Standard output cannot be written. Got: No space left on device. The run ended "
    "well, and all that it wrote is whole: output out, public report out.release.json, report "
    "out.private/report.json, page to sign out.release.html.\n"
)


@pytest.mark.usefixtures("ran")
@pytest.mark.parametrize(
    ("arguments", "code", "last"),
    [
        ("", 0, WHOLE),
        # Who reads the report from standard output must not take half of it for all.
        ("--json", 1, WHOLE),
        # Nothing but what it prints.
        (
            "--dry-run",
            1,
            "dptext: Standard output, or a file, cannot be written. Got: No space left on device.\n",
        ),
        (
            "--help",
            1,
            "dptext: Standard output, or a file, cannot be written. Got: No space left on device.\n",
        ),
    ],
)
def test_a_table_is_whole_though_standard_output_is_full(monkeypatch, arguments, code, last):
    """Rejects a traceback, and the code of a failure: a scheduler would run it again, and be refused."""
    ended, said = Full(monkeypatch, "stdout").run(*arguments.split())
    assert (ended, said.endswith(last)) == (code, True), said
    assert "Traceback" not in said and said.count("cannot be written") == 1


@pytest.mark.parametrize(
    ("arguments", "code"), [("", 0), ("--epsilon-from-private-rows", 0), ("--name n", 2)]
)
def test_a_full_standard_error_changes_nothing(ran, monkeypatch, arguments, code):
    """Rejects a run that ends because nobody can read its lines, and another exit code than its own."""
    ended, said = Full(monkeypatch, "stderr").run(*arguments.split())
    assert ended == code and len(ran) == (code == 0)
    assert said.startswith("The report\n") == (code == 0)


@pytest.mark.usefixtures("ran")
def test_a_pipe_that_is_closed(monkeypatch):
    """As `dptext privatize | head -1`: the table is whole; of what prints alone nothing is said."""
    codes = []
    for arguments in ([], ["--dry-run"]):
        reading, writing = os.pipe()
        os.close(reading)
        said = io.StringIO()
        # click leaves what it could not write to the end of the process.
        with suppress(BrokenPipeError), open(writing, "w") as pipe, monkeypatch.context() as here:
            here.setattr(sys, "stdout", pipe)
            here.setattr(sys, "stderr", said)
            given = [part for pair in re.findall(r"(\S+) (\S+)", GIVEN) for part in pair]
            with pytest.raises(SystemExit) as ended:
                main(["privatize", *given, *arguments], prog_name="dptext")
        codes.append((ended.value.code, "whole: output out" in said.getvalue()))
        assert "Traceback" not in said.getvalue()
    assert codes == [(0, True), (1, False)]


def test_several_numbers_follow_an_option(ran, tmp_path):
    """Rejects an argument that is swallowed, a parameter that the others get, too, epsilons as they come."""
    # And a file's mechanism besides the command line's, and one that is there twice.
    config = tmp_path / "options.toml"
    config.write_text('mechanism = ["laplace", "exponential", "laplace"]\n')
    given = f"evaluate --config {config} --embedding b --input i --output o --text t"
    for rest in ("--epsilon 5 7 --release-words 9", "--release-words 9 --epsilon=7 5 7"):
        CliRunner().invoke(main, f"{given} --mechanism exponential:truncate=4 {rest}".split())
        CliRunner().invoke(main, f"{given} {rest}".split())
    line, file, *again = (options for options, _ in ran)
    assert again == [line, file] and line.release_words == 9
    assert line.mechanism == tuple(Exponential(epsilon=e, truncate=4.0) for e in (5.0, 7.0))
    assert file.mechanism == tuple(
        of(epsilon=e) for of in (Laplace, Exponential) for e in (5.0, 7.0)
    )
    strange = CliRunner().invoke(main, f"{given} --epsilon 5 none".split())
    assert strange.exit_code == 2 and "unexpected extra argument" in strange.output


def test_a_job_is_the_command_of_its_name(monkeypatch):
    called = []
    monkeypatch.setattr("dptext_spark.__main__.main", called.append)
    monkeypatch.setattr(sys, "argv", ["job.py", "--help"])
    for job in JOBS:
        runpy.run_path(str(job), run_name="__main__")
    assert called == [[job.stem, "--help"] for job in JOBS] != []


def test_each_command_has_its_job_its_module_and_its_file_of_options():
    assert set(COMMANDS) == set(main.commands) - {"demo"}
    # What needs no Spark's workers needs no spark-submit.
    assert {job.stem for job in JOBS} == set(COMMANDS) - {"try", "account"}
    for name, model in COMMANDS.items():
        run = import_module(model.runner.format(command=name)).run
        assert (
            callable(get_type_hints(run)["return"].to_json)
            and (ROOT / "conf" / f"{name}.toml").exists()
        )


LOADED = """
import sys, dptext_spark.cli
print(*sys.modules)
sys.modules |= {"pyspark": None, "py4j": None}
import dptext_spark.demo
from dptext_spark import Embedding, Laplace, NoiseKey, Sanitizer, TextPolicy
print(*sys.modules)
for line in (
    "privatize --help",
    "audit --mechanism laplace --epsilon 2 --world line --runs 100",
    f"try w0 --embedding {sys.argv[1]} --mechanism laplace --epsilon 5",
):
    dptext_spark.cli.main(line.split(), standalone_mode=False)
try:
    dptext_spark.privatize
except ModuleNotFoundError as error:
    print("needs", error.name.partition(".")[0])
for name in ("pyspark", "py4j"):
    del sys.modules[name]
import dptext_spark.jobs.privatize, dptext_spark.tables.formats.format as f
print(*f.FORMATS)
"""


def test_what_is_slow_to_load_is_loaded_where_it_is_used(line):
    """Rejects an import of pyspark, or of parts of scipy, on the way to the checks of the options."""
    # And a package that does not work without pyspark, and formats that only their own tests import.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))}
    run = [sys.executable, "-c", LOADED, line.path]
    said = subprocess.check_output(run, cwd=ROOT, env=environment, text=True).splitlines()
    options, sanitizer, *_, needed, formats = said
    slow = {"bm25s", "pandas", "matplotlib", "jinja2"}
    assert not {*slow, "pyspark", "scipy.special", "scipy.stats", "scipy.optimize"} & {
        *options.split()
    }
    assert needed == "needs pyspark" and any(each.startswith("1 word.") for each in said)
    assert "dptext_spark.sanitizer" in sanitizer and not slow & {*sanitizer.split()}
    assert {*formats.split()} >= {"csv", "delta", "iceberg", "json", "orc", "parquet", "table"}


@pytest.mark.usefixtures("ran")
def test_what_is_printed_goes_where_it_is_wanted():
    """Rejects words beside the JSON on standard output."""
    places = "\nOutput: out\nPublic report: out.release.json\nReport: out.private/report.json\n"
    places += "Page to sign: out.release.html\n"
    plain, as_json, failed = dptext(), dptext("--json"), dptext("--json", "--epsilon", "0")
    stages = "Loading libraries ...\na bar ...\n"
    assert (plain.exit_code, plain.stdout, plain.stderr) == (0, "The report\n" + places, stages)
    assert (as_json.exit_code, as_json.stdout, as_json.stderr) == (
        0,
        '{"rows": 3}\n',
        stages + places,
    )
    assert (failed.exit_code, failed.stdout) == (2, "") and "--epsilon" in failed.stderr


def test_a_traceback_shows_nothing_that_spark_said(monkeypatch):
    """Rejects a fault of ours, while an error of Spark's is handled, that prints that one's rows too."""

    def run(options):
        try:
            raise PySparkException(message="the row SECRET")
        finally:
            raise AttributeError("ours")

    monkeypatch.setattr("dptext_spark.jobs.privatize.run", run)
    error = dptext().exception
    assert error is not None
    printed = "".join(traceback.format_exception(error))
    assert "AttributeError: ours" in printed and "SECRET" not in printed


def test_what_spark_is_told(ran):
    """Rejects a message that quotes a password."""
    settings = ("--spark-conf", "spark.driver.memory=2g", "--spark-conf", "spark.hadoop.a=b=c")
    assert (dptext(*settings).exit_code, dptext().exit_code) == (0, 0)
    assert [given for _, given in ran] == [
        {"spark.driver.memory": "2g", "spark.hadoop.a": "b=c"},
        {},
    ]
    for value in ("spark.hadoop.password", "hunter2=secret", "spark.a=hunter2"):
        result = dptext("--spark-conf", value, "--spark-conf", "spark.a=1")
        assert result.exit_code == 2 and "--spark-conf has a wrong value" in result.output
        assert "hunter2" not in result.output and "password" not in result.output


@pytest.mark.usefixtures("signals_as_before")
def test_a_run_that_is_interrupted_says_what_it_leaves(monkeypatch):
    """Rejects click's own "Aborted!" with exit code 1, and a promise that cannot be kept."""
    monkeypatch.setattr(
        "dptext_spark.jobs.privatize.run", lambda _: signal.raise_signal(signal.SIGTERM)
    )
    result = dptext("--incremental", "checkpoint", "--key-file", "key", "--name", "s")
    left = "The output has the batches before; the same command goes on."
    said = f"Loading libraries ...\ndptext privatize: Interrupted by SIGTERM. {left}\n"
    assert (result.exit_code, result.output) == (143, said)


LATIN1 = b"caf\xe9"
ARGUMENT = os.fsdecode(LATIN1)
BYTE = "(byte 4). Convert or rename it."


def run_of(line):
    """The arguments of a run."""
    options = f"--input in --output out --embedding {line.path} --text text"
    return ["privatize", *options.split(), "--mechanism", "laplace", "--epsilon", "5"]


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
    run = " ".join(run_of(line))
    arguments = [part.format(**words) for part in arguments.replace("{run}", run).split()]
    result = CliRunner().invoke(main, arguments, input=LATIN1)
    said = re.sub(", (.*)", r": The value of '\1'", said)
    assert (result.exit_code, result.output) == (2, f"dptext {said} is not valid UTF-8 {BYTE}\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"# " + LATIN1, r"c.toml is not valid UTF-8 \(byte 6\)", id="Latin-1"),
        pytest.param(
            "text = 'a'".encode("utf-16"),
            r"c.toml is not valid UTF-8 \(byte 1\)",
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


@pytest.mark.usefixtures("here")
def test_a_line_comes_before_libraries_are_loaded(line, monkeypatch):
    """Rejects seconds without a word, while pyspark and scipy are imported. Source: own trial."""

    def load(_):
        raise JobError("They are not loaded")

    monkeypatch.setattr(cli, "import_module", load)
    result = CliRunner().invoke(main, run_of(line))
    said = "Loading libraries ...\ndptext privatize: They are not loaded.\n"
    assert (result.exit_code, result.stderr) == (1, said)
