"""Scripts that no other test runs: what they name exists; what they import is mypy's to find."""

import importlib
import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from dptext_spark.cli import main

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted(
    file
    for file in [
        *(ROOT / "scripts").rglob("*"),
        *(ROOT / "tests" / "helpers").glob("*.py"),
        ROOT / ".ci/run",
    ]
    if file.is_file() and file.suffix in ("", ".py")
)
ENTRIES = ("chaos", "leaks", "soak", "test-airflow", "test-cluster")
BUILT = {"dist", "dist/cluster"}
"""What scripts/package makes."""

OTHERS = {
    *("--archives", "--conf", "--master", "--properties-file", "--py-files"),  # spark-submit
    *("--cores", "--host", "--memory", "--port", "--webui-port", "--work-dir"),  # Spark's daemons
    *("--map-root-user", "--mount"),  # unshare
    "--output",  # of airflow as well
    *("--folder", "--scale"),  # soak
}

_PATH = re.compile(
    r"(?<![\w./{}-])((?:scripts|jobs|conf|docs|tests|requirements|dptext_spark)/[\w./-]*\w)"
)
_JOINED = re.compile(r"ROOT((?: / \"[\w./-]+\")+)")
_NAME = re.compile(r"(?<![\w./-])((?:dptext_spark|scripts|tests)(?:\.[A-Za-z_]\w*)+)(?![\w/])")


def paths(source):
    """The paths below the root that a script names: whole, or put together by ``ROOT / "a" / "b"``."""
    yield from (path for path in _PATH.findall(source) if not re.search(r"[A-Z]{3}", path))
    yield from ("/".join(re.findall(r"[\w.-]+", parts)) for parts in _JOINED.findall(source))


def exists(name):
    """Whether a dotted name is a module's, or that of something in a module."""
    module, _, member = name.rpartition(".")
    with suppress(ModuleNotFoundError):  # what it lies in is no package, or there is none
        if find_spec(name):
            return True
    with suppress(ModuleNotFoundError):
        return hasattr(importlib.import_module(module), member)
    return False


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(ROOT)))
def test_what_a_script_names_exists(script):
    source = script.read_text(encoding="utf-8")
    assert {path for path in paths(source) if not (ROOT / path).exists()} - BUILT == set()
    names = {name for name in _NAME.findall(source) if not re.search(r"[A-Z]{3}|\.(py|zip)$", name)}
    assert {name for name in names if not exists(name)} == set()


def test_what_entries_start_and_jobs_and_options_that_scripts_give_exist():
    for name in ENTRIES:
        (module,) = re.findall(r"-m (scripts[\w.]+)", (ROOT / "scripts" / name).read_text())
        assert callable(importlib.import_module(module).main), name
    dag = (ROOT / "scripts/airflow/dag.py").read_text()
    jobs = importlib.import_module("scripts.cluster.every_job").JOBS
    for job in (*jobs, *re.findall(r"params\.jobs }}/(\w+)\.py", dag)):
        assert (ROOT / "jobs" / f"{job}.py").exists() and (
            ROOT / "conf" / f"{job}.toml"
        ).exists(), job
    known = {
        name for command in main.commands.values() for each in command.params for name in each.opts
    }
    for file in [
        *(ROOT / "scripts/cluster").glob("*.py"),
        *(ROOT / "scripts/airflow").glob("*.py"),
    ]:
        given = {*re.findall(r"(?<![\w-])--[a-z][\w-]+", file.read_text())}
        assert given - known - OTHERS == set(), file.name
