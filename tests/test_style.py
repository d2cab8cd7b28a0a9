"""How densely the code is written: rates per 1,000 statements, which unfolding a line does not raise."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from dptext_spark.cli import main

ROOT = Path(__file__).parents[1]
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
COMPOUND = (ast.FunctionDef, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
DATA = (
    *(ast.Constant, ast.Dict, ast.List, ast.Tuple, ast.Set, ast.JoinedStr, ast.FormattedValue),
    *(ast.Name, ast.Load, ast.BinOp, ast.Add, ast.Call, ast.keyword, ast.Attribute),
)
VAGUE = frozenset({
    *("asked", "chosen", "done", "each", "found", "given", "gone", "held", "its", "kept", "known"),
    *("left", "made", "meant", "mine", "more", "other", "others", "own", "put", "right", "said"),
    *("seen", "shown", "taken", "told", "wanted", "ways", "whole", "worth"),
})  # fmt: skip
"""Names that do not say what a variable holds."""

KINDS = (
    *("parallel", "conditional", "comprehensions", "nested", "walrus"),
    *("times", "long", "vague", "give", "wide"),
)
GOALS = (3.0, 16.0, 35.0, 1.0, 2.0, 0.0, 0.7, 0.5, 0.0, 0.0)
"""What is allowed per 1,000 statements, in the order of the kinds."""

ROOMS = sorted(path.parent.name for path in ROOT.glob("dptext_spark/*/__init__.py"))
PLACES = ("dptext_spark", "jobs", "scripts", *(f"dptext_spark/{room}" for room in ROOMS))


def gauge(paths):
    """Count statements, and what makes them dense."""
    counts = Counter()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        counts["wide"] += sum(len(line) > 100 for line in text.splitlines())
        for node in ast.walk(ast.parse(text)):
            counts.update(kinds_of(node))
    return counts


def kinds_of(node):
    """Name what a node is counted as."""
    return [kind for kind, is_one in IS_ONE.items() if is_one(node)]


def is_long(node):
    if not is_statement(node) or isinstance(node, COMPOUND) or is_table(node):
        return False
    return sum(1 for _ in ast.walk(node)) > 60


def is_statement(node):
    return isinstance(node, ast.stmt) and not is_text(node)


def is_parallel(node):
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def is_nested(node):
    if not isinstance(node, COMPREHENSIONS):
        return False
    return (
        len(node.generators) > 1
        or sum(isinstance(part, COMPREHENSIONS) for part in ast.walk(node)) > 1
    )


def is_times(node):
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return is_sequence(node.left) and is_condition(node.right)


def is_giving(node):
    if not isinstance(node, ast.FunctionDef):
        return False
    first = (ast.get_docstring(node) or "").split(" ")[0].strip(",.:")
    return first in ("Give", "Gives", "Say", "Says", "Tell", "Tells", "Let", "Lets")


def is_vague(node):
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_table(node):
    value = getattr(node, "value", None)
    return value is not None and all(isinstance(part, DATA) for part in ast.walk(value))


def is_sequence(node):
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.List | ast.Tuple | ast.JoinedStr)


def is_condition(node):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "bool" or node.func.id.startswith(("is_", "by_", "has_"))
    return isinstance(node, ast.Compare | ast.BoolOp)


IS_ONE = {
    "statements": is_statement,
    "parallel": is_parallel,
    "conditional": lambda node: isinstance(node, ast.IfExp),
    "comprehensions": lambda node: isinstance(node, COMPREHENSIONS),
    "nested": is_nested,
    "walrus": lambda node: isinstance(node, ast.NamedExpr),
    "times": is_times,
    "long": is_long,
    "give": is_giving,
    "vague": is_vague,
}


@pytest.mark.parametrize("place", PLACES)
def test_no_place_is_dense(place):
    """One of a kind may stand in any place."""
    counts = gauge((ROOT / place).rglob("*.py"))
    thousands = counts["statements"] / 1000.0
    too_many = {}
    for kind, rate in zip(KINDS, GOALS, strict=True):
        if counts[kind] > max(1, rate * thousands):
            too_many[kind] = counts[kind] / thousands
    assert too_many == {}


def test_every_kind_is_counted(tmp_path):
    """Rejects a gauge that finds nothing: each line is one of them."""
    lines = (
        "a, b = 1, 2",
        "a = 1 if b else 2",
        "a = [x for x in b]",
        "a = [y for x in b for y in x]",
        "if (a := b): pass",
        "a = [1] * (b > 1)",
        "a = f(" + ", ".join(f"b.c{i}(-1)" for i in range(12)) + ")",
        "found = 1",
        'def f():\n    """Give it."""',
        "# " + "x" * 100,
    )
    for kind, line in zip(KINDS, lines, strict=True):
        path = tmp_path / f"{kind}.py"
        path.write_text(f"{line}\n", encoding="utf-8")
        assert gauge([path])[kind] >= 1, kind


def test_options_are_few():
    """Whoever adds one says why in the commit."""
    assert len(main.commands["privatize"].params) <= 47
