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
from typing import NamedTuple, get_args
from unittest.mock import patch

import pytest
from click.testing import CliRunner
from pyiceberg.utils.config import Config

import dptext_spark
from dptext_spark import privatize
from dptext_spark.cli import main
from dptext_spark.mechanisms import MECHANISMS, Laplace
from dptext_spark.search.nearest import SEARCHES
from dptext_spark.text.identifiers import Identifiers
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection
from dptext_spark.text.tokens import Segmentation
from tests.helpers.cluster import QUICK_JAVA

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"(?<![\w/.$-])(?:conf|docs|dptext_spark|jobs|requirements|scripts|tests)/[\w./-]*\w")
RUN = {"sh": "{}", "python": "python - <<'END OF BLOCK'\n{}END OF BLOCK\n"}

document = pytest.mark.parametrize("name", DOCUMENTS)


class Step(NamedTuple):
    """A block that is run, as shell code, and what the ```text block after it says that it prints."""

    code: str
    shown: str


def story(text):
    """The blocks ```sh and ```python of a document, in order; others are for reading."""
    blocks = [*BLOCK.findall(text), ("", "")]
    return [
        Step(RUN[kind].format(code), shown if after == "text" else "")
        for (kind, code), (after, shown) in pairwise(blocks)
        if kind in RUN
    ]


NOTEBOOKS = (
    *("docs/guide/python.md", "docs/recipes/sql.md"),
    *(name for name in DOCUMENTS if name.startswith("docs/notebooks/")),
)
"""Their blocks are the cells of one notebook each."""

WITHOUT_JAVA = ("README.md", *NOTEBOOKS)
STORIES = {name: steps for name, text in DOCUMENTS.items() if (steps := story(text))}


def test_the_documents_have_stories():
    """Rejects blocks that are no longer recognized, and output that belongs to no command."""
    assert STORIES.keys() >= {"docs/guide/first-release.md", *WITHOUT_JAVA}
    outputs = sum(kind == "text" for text in DOCUMENTS.values() for kind, _ in BLOCK.findall(text))
    assert outputs == sum(bool(step.shown) for steps in STORIES.values() for step in steps)


ASKS = f"""#!{sys.executable} -S
import os, sys
from multiprocessing.connection import Client
with Client(os.environ["DPTEXT_RUNNER"]) as runner:
    runner.send((sys.argv[1:], os.getcwd(), dict(os.environ)))
    output, errors, code = runner.recv()
print(output, end="")
print(errors, end="", file=sys.stderr)
sys.exit(code)
"""
"""A program ``dptext`` that lets the process of the tests run the command, in which Spark runs already."""


CELLS = """
import os, subprocess, sys

def run(blocks, outputs):
    names = {}
    for i, (kind, block) in enumerate(blocks):
        sys.stdout.flush()
        os.dup2(os.open(f"{outputs}/{i}", os.O_WRONLY | os.O_CREAT), 1)
        if kind == "sh":
            subprocess.run(["bash", "-euo", "pipefail", "-c", block], check=True)
        else:
            exec(block, names)
"""
"""A program that runs blocks as the cells of one notebook: one process, and one Spark."""


def environment(programs, stand_ins):
    """Programs that stand before others; all new keys are one there, so that outputs can be compared."""
    for name, code in {"openssl": "#!/bin/sh\nprintf '%064d\\n' 0", **stand_ins}.items():
        (programs / name).write_text(code)
        (programs / name).chmod(0o755)
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "COLUMNS": "80", "JAVA_TOOL_OPTIONS": QUICK_JAVA}
    variables.pop("JAVA_HOME", None)  # the tests' own Spark leaves one behind
    return variables


def run(name, folder, outputs, variables):
    """Run a document's blocks in one shell; each block's output goes to a file of its number."""
    code = "".join(f"exec >{outputs}/{i}\n{step.code}" for i, step in enumerate(STORIES[name]))
    if name in NOTEBOOKS:
        blocks = [(kind, block) for kind, block in BLOCK.findall(DOCUMENTS[name]) if kind in RUN]
        code = f"python - <<'END OF BLOCKS'\n{CELLS}\nrun({blocks!r}, {str(outputs)!r})\nEND OF BLOCKS\n"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=variables,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for i, step in enumerate(STORIES[name]):
        printed = (outputs / str(i)).read_text(encoding="utf-8")
        assert not step.shown or re.fullmatch(pattern_of(step.shown), printed), f"{step.code}\n{printed}"


def answer(asked, spark):
    """Run the ``dptext`` that somebody asks for, where and with the variables with which it was called."""
    arguments, folder, variables = asked.recv()
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as here, patch.dict(os.environ, variables):
        change_folder(spark, folder)
        here.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it was read when the module was
        try:
            result = CliRunner().invoke(main, arguments, prog_name="dptext")
        finally:
            change_folder(spark, before)
    asked.send((result.stdout, result.stderr, result.exit_code))


def change_folder(spark, folder):
    """Change the folder that relative paths begin in, here and in Java."""
    os.chdir(folder)
    java = spark._jvm
    java.System.setProperty("user.dir", str(folder))
    files = java.org.apache.hadoop.fs.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    files.setWorkingDirectory(java.org.apache.hadoop.fs.Path(str(folder)))


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(STORIES.keys() - WITHOUT_JAVA))
def test_commands_run_and_print_what_is_shown(name, spark, tmp_path_factory):
    """In an empty folder, ``dptext`` in this process; rejects a renamed option and a number of old."""
    folder, outputs, programs = (tmp_path_factory.mktemp(name) for name in ("story", "outputs", "bin"))
    address = str(programs / "runner")
    variables = environment(programs, {"dptext": ASKS}) | {"DPTEXT_RUNNER": address}
    with Listener(address) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(run, name, folder, outputs, variables)
        done.add_done_callback(lambda _: Client(address).close())  # nothing more is asked
        with suppress(EOFError):
            while True:
                with listener.accept() as asked:
                    answer(asked, spark)
    done.result()


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.parametrize("name", WITHOUT_JAVA)
def test_the_first_commands_need_no_java(name, tmp_path, tmp_path_factory):
    """The first commands that anybody runs, and notebooks, in processes of their own that find no Java."""
    # Rejects a notebook without ensure_java() too.
    outputs, programs = (tmp_path_factory.mktemp(folder) for folder in ("outputs", "bin"))
    run(name, tmp_path, outputs, environment(programs, {"java": "#!/bin/sh\nexit 127"}))


def pattern_of(shown):
    """What matches output that is shown: ``...`` is any text of a line, or any lines by itself."""
    # At the end of a line in columns it is also what does not fit and goes on below, behind spaces.
    lines = [".*?".join(map(re.escape, line.split("..."))) + "\n" for line in shown.splitlines()]
    wrapped = [re.sub(r"(?<=\\ )\.\*\?\n$", r".*\n(?: +.*\n)*?", line) for line in lines]
    return "".join(r"(?:.*\n)*?" if line == ".*?\n" else line for line in wrapped)


def test_shown_output_may_be_shortened():
    matched = re.compile(pattern_of("a 1\n...\nc ...\n")).fullmatch
    assert matched("a 1\nc 3\n") and matched("a 1\nb\nc long\n  words\n")
    assert not any(map(matched, ("a 1\nc long\nd\n", "a 2\nc 3\n", "a 1\n")))


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


def test_every_page_is_in_the_navigation_of_the_site():
    """Rejects a page that nobody finds, and one that is gone."""
    configuration = (ROOT / "docs/site/mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"^ +- (?:[^:\n]+: )?([\w/-]+\.md)$", configuration, re.MULTILINE)
    pages = {name.removeprefix("docs/") for name in DOCUMENTS if name != "README.md"}
    assert sorted(named) == sorted({"index.md", *pages})


def test_every_public_name_is_in_the_reference():
    """Rejects a name that is new, and one that is gone; a contract of another module is one of its names."""
    named = re.findall(r"^::: ([\w.]+)\.(\w+)$", DOCUMENTS["docs/reference.md"], re.MULTILINE)
    assert [name for module, name in named if not hasattr(import_module(module), name)] == []
    own = {name for module, name in named if module == "dptext_spark"}
    assert own == {*dptext_spark.__all__} - {"__version__"}


@document
def test_python_compiles_and_gives_arguments_that_exist(name):
    """Rejects a renamed argument in blocks that are only read."""
    options = {option.replace("-", "_").strip("_") for option in OWN_OPTIONS}
    known = {"privatize": {*inspect.signature(privatize).parameters}, "privatize_table": options}
    for kind, block in BLOCK.findall(DOCUMENTS[name]):
        for node in ast.walk(ast.parse(block)) if kind in ("python", "py") else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
                given = {each.arg for each in node.keywords if each.arg}
                assert given - known[node.func.id] == set(), block


OWN_OPTIONS = {option for each in main.commands["privatize"].params for option in each.opts}

OF_PLATFORMS = {
    *("--archives", "--conf", "--deploy-mode", "--master", "--py-files"),  # spark-submit
    *("--additional-python-modules", "--command", "--default-arguments", "--extra-files"),  # Glue
    *("--glue-version", "--number-of-workers", "--role", "--worker-type"),
    *("--application-id", "--execution-role-arn", "--job-driver"),  # EMR
    *("--cluster", "--image-version", "--initialization-actions", "--properties", "--region", "--secret"),
}
"""Options that are not ours; the last ones are of gcloud."""


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if re.match("docs/recipes/[a-z]", name)])
def test_a_recipe_gives_options_that_exist_and_says_what_was_run(name):
    """Rejects a renamed option in blocks that are only read, and a page that says nothing of trials."""
    blocks = "\n".join(block for kind, block in BLOCK.findall(DOCUMENTS[name]) if kind != "sh")
    given = {*re.findall(r"(?<![\w-])--[a-z][\w-]+", blocks)}
    assert given - OWN_OPTIONS - OF_PLATFORMS == set()
    assert re.search(r"^\*\*Run:\*\* (?!RUN)", DOCUMENTS[name], re.MULTILINE)


OFFERED = {
    "--mechanism": {*MECHANISMS},
    "select": {*get_args(Laplace.model_fields["select"].annotation)},
    "--search": {*SEARCHES},
    "--protect": {*Protection.policies},
    "--oov": {*OovPolicy.policies},
    "--layout": {*Layout.policies},
    "--tokenizer": {*Segmentation.policies},
    "--identifiers": {*Identifiers.policies},
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
    table = DOCUMENTS["docs/guide/choosing.md"].partition("| parameter | of |")[2].partition("\n\n")[0]
    first = "".join(line.split("|")[1] for line in table.splitlines()[2:])
    names = {field.alias or name for kind in MECHANISMS.values() for name, field in kind.model_fields.items()}
    assert {*re.findall(r"[a-z]+", first)} - {"vickrey"} == names - {"epsilon"}


def test_the_plan_of_the_house_is_whole():
    """Rejects a module or folder that is new, and one that is gone."""
    start, end = "| in `dptext_spark/` |", "`import dptext_spark` works"
    table = DOCUMENTS["docs/development.md"].partition(start)[2].partition(end)[0]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`([\w/.]+)`", row[: row.find("|", 1)])
    ]
    package = ROOT / "dptext_spark"
    there = {path.name for path in package.glob("*.py")} | {
        f"{path.parent.name}/" for path in package.glob("*/*.py")
    }
    assert {name for name in named if name.count("/") + name.endswith(".py") == 1} == there - {"__init__.py"}
    assert all((package / name).exists() for name in named)
