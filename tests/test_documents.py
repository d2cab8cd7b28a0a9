"""README.md and docs/: commands run as they stand and print what is shown; links and paths lead somewhere."""

import ast
import inspect
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import click
import pytest
from click.testing import CliRunner
from pyiceberg.utils.config import Config

import dptext_spark
from dptext_spark import privatize, privatize_table
from dptext_spark.cli import main
from dptext_spark.errors import JobError
from dptext_spark.mechanisms import MECHANISMS, Laplace
from dptext_spark.search.nearest import SEARCHES
from dptext_spark.tables.run import chosen_formats
from dptext_spark.text.actions import Action
from dptext_spark.text.identifiers import Identifiers
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection
from dptext_spark.text.tokens import Segmentation
from tests.helpers.cluster import QUICK_JAVA
from tests.helpers.documents import pattern_of, rewrite, rewritten

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(
    r"(?<![\w/.$-])(?:conf|docs|dptext_spark|jobs|requirements|scripts|tests)/[\w./-]*\w"
)
RUN = {"sh": "{}", "python": "python - <<'END OF BLOCK'\n{}END OF BLOCK\n"}
NOTEBOOKS = (
    "docs/guide/python.md",
    "docs/recipes/engines.md",
    "docs/recipes/sql.md",
    *(n for n in DOCUMENTS if "/notebooks/" in n),
)

document = pytest.mark.parametrize("name", DOCUMENTS)


def story(name):
    """The blocks ```sh and ```python of a document, in order, and what the ```text block after each shows.

    Other blocks are for reading. In a notebook blocks of Python that follow one another are one program.
    """
    steps = []
    for (kind, code), (after, shown) in pairwise([*BLOCK.findall(DOCUMENTS[name]), ("", "")]):
        if kind in RUN:
            shown = shown if after == "text" else "...\n"
            if name in NOTEBOOKS and steps and kind == steps[-1][0] == "python":
                code, shown = steps[-1][1] + code, steps.pop()[2] + shown
            steps.append((kind, code, shown))
    return steps


STORIES = {name: steps for name in DOCUMENTS if (steps := story(name))}
WITHOUT_JAVA = ("docs/recipes/sql.md",)
SLOW = ("docs/notebooks/choose-epsilon.md", "docs/notebooks/measure-a-release.md")


def test_the_documents_have_stories():
    """Rejects blocks that are no longer recognized, output of no command, and no search for Java."""
    assert STORIES.keys() >= {"README.md", "docs/guide/first-release.md", *WITHOUT_JAVA, *NOTEBOOKS}
    for name, text in DOCUMENTS.items():
        assert all(
            kind in RUN
            for (kind, _), (after, _) in pairwise(BLOCK.findall(text))
            if after == "text"
        )
        before, begun, _ = "".join(code for _, code, _ in STORIES.get(name, ())).partition(
            "SparkSession.builder"
        )
        assert "ensure_java()" in before or not begun


ASKS = f"""#!{sys.executable} -S
import os, sys
from multiprocessing.connection import Client
arguments = ["-c", sys.stdin.read()] if sys.argv[1:] == ["-"] else sys.argv[1:]
with Client(os.environ["DPTEXT_RUNNER"]) as runner:
    runner.send((arguments, os.getcwd(), dict(os.environ)))
    output, errors, code = runner.recv()
print(output, end="")
print(errors, end="", file=sys.stderr)
sys.exit(code)
"""
"""Programs ``dptext`` and ``python`` that let the process of the tests do it: Spark runs there already."""


@click.command()
@click.argument("code")
def python(code):
    exec(code, {"__name__": "__main__"})


def run(name, folder, scratch, stand_ins, rewrites=False):
    """Run a document's blocks in one shell; each block's output goes to a file of its number.

    Some programs have a stand-in: all new keys are one there, so that outputs can be compared.
    With ``pytest --rewrite`` the page is made to show what was printed.
    """
    for program, code in {"openssl": "#!/bin/sh\nprintf '%064d\\n' 0", **stand_ins}.items():
        (scratch / program).write_text(code)
        (scratch / program).chmod(0o755)
    variables = os.environ | {
        "PATH": f"{scratch}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "80",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
        "DPTEXT_RUNNER": str(scratch / "runner"),
    }
    variables.pop("JAVA_HOME", None)  # the tests' own Spark leaves one behind
    steps = enumerate(STORIES[name])
    code = "".join(f"exec >{scratch}/{i}\n{RUN[kind].format(code)}" for i, (kind, code, _) in steps)
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(
        command, cwd=folder, env=variables, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for i, (_, code, shown) in enumerate(STORIES[name]):
        printed = (scratch / str(i)).read_text(encoding="utf-8")
        as_shown = re.fullmatch(pattern_of(shown), printed)
        if rewrites and not as_shown:
            rewrite(ROOT / name, code, shown, printed)
        else:
            assert as_shown, f"{code}\n{printed}"


def answer(asked, spark):
    """Do what a program is asked for, where and with the variables with which it was called."""
    arguments, folder, variables = asked.recv()
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as here, patch.dict(os.environ, variables):
        change_folder(spark, folder)
        here.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when the module was
        command, arguments = (python, arguments[1:]) if arguments[0] == "-c" else (main, arguments)
        try:
            result = CliRunner().invoke(
                command, arguments, prog_name="dptext", catch_exceptions=False
            )
        finally:
            change_folder(spark, before)
    asked.send((result.stdout, result.stderr, result.exit_code))


def change_folder(spark, folder):
    """Change the folder that relative paths begin in, here and in Java."""
    os.chdir(folder)
    java = spark._jvm
    java.System.setProperty("user.dir", str(folder))
    files = java.org.apache.hadoop.fs.FileSystem.getLocal(
        spark.sparkContext._jsc.hadoopConfiguration()
    )
    files.setWorkingDirectory(java.org.apache.hadoop.fs.Path(str(folder)))


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.long] if n in SLOW else []) for n in sorted(STORIES)],
)
def test_commands_run_and_print_what_is_shown(name, spark, tmp_path, tmp_path_factory, rewrites):
    """In an empty folder, in this process; rejects a renamed option and a number of old."""
    scratch = tmp_path_factory.mktemp("scratch")
    with Listener(str(scratch / "runner")) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, name, tmp_path, scratch, {"dptext": ASKS, "python": ASKS}, rewrites)
        done.add_done_callback(lambda _: Client(listener.address).close())  # nothing more is asked
        with suppress(EOFError):
            while True:
                with listener.accept() as asked:
                    answer(asked, spark)
    done.result()


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("name", WITHOUT_JAVA)
def test_a_command_and_a_notebook_need_no_java(name, tmp_path, tmp_path_factory, rewrites):
    """In processes of their own that find no Java."""
    no_java = {"java": "#!/bin/sh\nexit 127"}
    run(name, tmp_path, tmp_path_factory.mktemp("scratch"), no_java, rewrites)


def test_shown_output_may_be_shortened():
    matched = re.compile(pattern_of("a 1\n...\nc ...\n")).fullmatch
    assert matched("a 1\nc 3\n") and matched("a 1\nb\nc long\n  words\n")
    assert not any(map(matched, ("a 1\nc long\nd\n", "a 2\nc 3\n", "a 1\n")))


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a 1\nb ...\n", "a 2\nb 7\n", "a 2\nb ...\n"),
        ("a 1\n...\nz 1\n", "a 2\nb\nc\nz 3\n", "a 2\n...\nz 3\n"),
        ("...\nmean 1\n...\nlast 1\n", "x\nmean 2\ny\nlast 2\n", "...\nmean 2\n...\nlast 2\n"),
        ("a 1\n...\n", "a 2\nb\n", "a 2\n...\n"),
    ],
)
def test_rewritten_output_is_shortened_as_before(shown, printed, expected):
    assert rewritten(shown, printed) == expected
    assert re.fullmatch(pattern_of(expected), printed)


def anchors(text):
    """The anchors that GitHub gives headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@document
def test_links_and_paths_lead_somewhere(name):
    """Rejects a moved file, a renamed heading, and a script's old place; COMMAND and NAME stand for any."""
    for link in LINK.findall(BLOCK.sub("", DOCUMENTS[name])):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent.joinpath(path).resolve() if path else ROOT / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(DOCUMENTS[target.relative_to(ROOT).as_posix()]), link
    paths = [path for path in PATH.findall(DOCUMENTS[name]) if not re.search("COMMAND|NAME", path)]
    assert not [path for path in paths if not (ROOT / path).exists()]


@document
def test_code_of_a_page_fits_a_screen(name):
    """Rejects a command that 1,280 pixels cut off; what it prints is as wide as it is."""
    code = "".join(code for kind, code in BLOCK.findall(DOCUMENTS[name]) if kind in RUN)
    assert [line for line in code.splitlines() if len(line) > 100] == []


PLAIN = {
    "say compared with, or next to": r"\bbeside\b",
    "say how many": r"\bso many\b",
    "say who": r"\bWhoever\b",
    "say worst case": r"\bat worst\b",
    "say unchanged": r"\bstays? itself\b|\bwords that stay\b",
    "say output, or emitted": r"\bcomes? out\b|\bcame out\b",
    "say required": r"\bis a must\b|\bneedless\b",
    "say substitute": r"\bstand-ins?\b",
    "say as before": r"\bas ever\b",
    "say reveal": r"\btells? (?:of|from)\b",
}


@pytest.mark.parametrize(
    "name", [n for n in DOCUMENTS if not re.search("experiments|mathematics", n)]
)
def test_pages_say_it_in_the_words_of_the_field(name):
    """Rejects what readers who are not native speakers read twice; proofs and experiments are notes."""
    prose = BLOCK.sub("", DOCUMENTS[name])
    assert {
        word: better for better, pattern in PLAIN.items() for word in re.findall(pattern, prose)
    } == {}


def test_every_page_is_in_the_navigation_of_the_site():
    """Rejects a page that nobody finds, and one that is gone."""
    configuration = (
        (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    )
    named = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", configuration, re.MULTILINE)
    pages = {name.removeprefix("docs/") for name in DOCUMENTS if name != "README.md"}
    assert sorted(named) == sorted({"index.md", "options.md", *pages})  # made by the site


def test_every_public_name_is_in_the_reference():
    """Rejects a name that is new, and one that is gone; a contract of another module is one of its names."""
    named = re.findall(r"^::: ([\w.]+)\.(\w+)$", DOCUMENTS["docs/reference.md"], re.MULTILINE)
    assert [name for module, name in named if not hasattr(import_module(module), name)] == []
    own = {name for module, name in named if module == "dptext_spark"}
    assert own == {*dptext_spark.__all__} - {"__version__"}


@document
def test_python_compiles_and_gives_arguments_that_exist(name):
    """Rejects a renamed argument in blocks that are only read."""
    known = {
        call.__name__: {*inspect.signature(call).parameters}
        for call in (privatize, privatize_table)
    }
    for kind, block in BLOCK.findall(DOCUMENTS[name]):
        for node in ast.walk(ast.parse(block)) if kind in ("python", "py") else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in known
            ):
                given = {each.arg for each in node.keywords if each.arg}
                assert given - known[node.func.id] == set(), block


OWN_OPTIONS = {option for each in main.commands["privatize"].params for option in each.opts}

OF_PLATFORMS = {
    *("--archives", "--conf", "--deploy-mode", "--master", "--py-files"),  # spark-submit
    *("--additional-python-modules", "--command", "--default-arguments", "--extra-files"),  # Glue
    *("--glue-version", "--number-of-workers", "--role", "--worker-type"),
    *("--application-id", "--execution-role-arn", "--job-driver"),  # EMR
    *(
        "--cluster",
        "--image-version",
        "--initialization-actions",
        "--properties",
        "--region",
        "--secret",
    ),
    *("--file", "--filename", "--from-file", "--rm", "--tag"),  # docker, kubectl
}
"""Options that are not ours; those before the last ones are of gcloud."""


@pytest.mark.parametrize(
    "name", [name for name in DOCUMENTS if re.match("docs/recipes/[a-z]", name)]
)
def test_a_recipe_gives_options_that_exist_and_says_what_was_run(name):
    """Rejects a renamed option in blocks that are only read, and a page that says nothing of trials."""
    blocks = "\n".join(block for kind, block in BLOCK.findall(DOCUMENTS[name]) if kind != "sh")
    given = {*re.findall(r"(?<![\w-])--[a-z][\w-]+", blocks)}
    assert given - OWN_OPTIONS - OF_PLATFORMS == set()
    assert re.search(r"^\*\*Run:\*\* (?!RUN)", DOCUMENTS[name], re.MULTILINE)


def test_the_shortest_dag_writes_its_reports_outside_of_the_table(tmp_path, monkeypatch):
    """Rejects arguments that the job refuses: a partition without --reports, a name without a key."""
    (block,) = [
        block for kind, block in BLOCK.findall(DOCUMENTS["docs/recipes/airflow.md"]) if kind == "py"
    ]
    operators = []
    code = "\n".join(line for line in block.splitlines() if not line.startswith("from "))
    exec(code, {"SparkSubmitOperator": lambda **given: operators.append(given)})
    (operator,) = operators
    config = tmp_path / "release.toml"
    config.write_text('embedding = "b"\nmechanism = "laplace"\nepsilon = 5\ntext = "text"\n')
    day = [each.replace("{{ ds }}", "2026-03-01") for each in operator["application_args"]]
    arguments = [str(config) if each.endswith(".toml") else each for each in day]
    done = []

    def release(options):
        done.append(chosen_formats(options, grows=False))
        raise JobError("Not run")

    monkeypatch.setattr("dptext_spark.jobs.privatize.run", release)
    result = CliRunner().invoke(main, ["privatize", *arguments])
    assert len(done) == 1, result.output


OFFERED = {
    "--mechanism": {*MECHANISMS},
    "select": {*get_args(Laplace.model_fields["select"].annotation)},
    "--search": {*SEARCHES},
    "--protect": {*Protection.policies},
    "--oov": {*OovPolicy.policies},
    "--layout": {*Layout.policies},
    "--tokenizer": {*Segmentation.policies},
    "--identifiers": {*Identifiers.policies},
    "TYPE=ACTION": {*Action.policies},
    "--row-budget": {"B"},
    "dptext vectors": {"projection"},
}


def test_what_is_offered_has_a_statement_with_a_proof():
    """Rejects a mechanism or a policy that somebody adds without saying what is proven of it, and where."""
    text = DOCUMENTS["docs/mathematics.md"]
    first = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    lines = [line for line in first.splitlines() if line.startswith("|")][2:]
    found = {option: set() for option in OFFERED}
    option = ""
    for line in lines:
        given, name, claim, inputs, proof = (cell.strip() for cell in line.strip("|").split("|"))
        option = given.strip("`") or option
        if option in found:
            found[option].add(name.strip("`"))
        assert claim and inputs, line
        (anchor, *_) = re.findall(r"\]\(#([^)]+)\)", proof)
        assert anchor in anchors(text), line
    assert found == OFFERED


def test_every_parameter_of_a_mechanism_is_explained():
    """Rejects a parameter that is new, renamed or gone."""
    table = (
        DOCUMENTS["docs/guide/choosing.md"].partition("| parameter | of |")[2].partition("\n\n")[0]
    )
    first = "".join(line.split("|")[1] for line in table.splitlines()[2:])
    names = {
        field.alias or name
        for kind in MECHANISMS.values()
        for name, field in kind.model_fields.items()
    }
    assert {*re.findall(r"[a-z][a-z-]*", first)} - {"vickrey"} == names - {"epsilon"}


def test_the_plan_of_the_house_is_whole():
    """Rejects a module or folder that is new, and one that is gone."""
    start, end = "| in `dptext_spark/` |", "`import dptext_spark` works"
    table = DOCUMENTS["docs/development.md"].partition(start)[2].partition(end)[0]
    named = [
        name
        for row in table.splitlines()
        for name in re.findall(r"`([\w/.]+)`", row[: row.find("|", 1)])
    ]
    package = ROOT / "dptext_spark"
    there = {path.name for path in package.glob("*.py")} | {
        f"{path.parent.name}/" for path in package.glob("*/*.py")
    }
    assert {name for name in named if name.count("/") + name.endswith(".py") == 1} == there - {
        "__init__.py"
    }
    assert all((package / name).exists() for name in named)
