"""The package as a whole: nothing that nobody uses."""

import ast
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import dptext_spark

PACKAGE = Path(dptext_spark.__file__).parent
ROOT = PACKAGE.parent
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
    for folder in ("dptext_spark", "jobs")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
MODULES = [name for name in TREES if name.startswith("dptext_spark/")]

UNUSED = {
    "demo_command": "click calls it",
    "MAMMALS": "data of a recipe in the documents, which name the file; for tests and scripts",
    "Metric.to_all": "for scripts, and what tests hold nearest() against",
}
"""Public names that the package itself need not mention."""


def loaded(name):
    return importlib.import_module(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )


def is_inherited(kind, name):
    """Whether a method overrides one of a library, which says what it does."""
    bases = (base for base in kind.__mro__ if not base.__module__.startswith("dptext_spark"))
    return any(name in vars(base) for base in bases)


def defined(body):
    """Names that a module or a class defines, but for the fields of a class."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield name, node
            case ast.ClassDef(name=name):
                yield name, node
                methods = [inner for inner in node.body if isinstance(inner, ast.FunctionDef)]
                yield from ((f"{name}.{inner.name}", inner) for inner in methods)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node


def mentioned(tree):
    """How often each name is loaded, or looked up as an attribute."""
    return Counter(
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
    )


def registers_itself(node):
    """Whether it is a class with a ``name``, by which options find mechanisms, policies and searches."""
    return isinstance(node, ast.ClassDef) and "name" in dict(defined(node.body))


def test_nothing_public_is_unused():
    """Rejects code that only tests or scripts use, or its own recursion."""
    uses = sum((mentioned(tree) for tree in TREES.values()), Counter[str]())
    for template in PACKAGE.rglob("*.html"):
        uses.update(re.findall(r"\w+", template.read_text(encoding="utf-8")))
    overrides = {
        f"{name}.{method}"
        for file in MODULES
        for name, kind in vars(loaded(file)).items()
        if inspect.isclass(kind)
        for method in vars(kind)
        if is_inherited(kind, method)
    }
    unused = {
        name
        for tree in TREES.values()
        for name, node in defined(tree.body)
        if not name.rpartition(".")[2].startswith("_")
        and name not in {*dptext_spark.__all__, *overrides}
        and not registers_itself(node)
        and uses[name.rpartition(".")[2]] == mentioned(node)[name.rpartition(".")[2]]
    }
    assert unused == UNUSED.keys()
