"""The help: every option once, under one heading, with its values; examples that run; completion."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner
from pydantic import Field

from dptext_spark.cli import Job, main
from dptext_spark.errors import JobError
from dptext_spark.options import COMMANDS, Options, validation
from dptext_spark.options.validation import REQUIRED, OneOf, Under

command = pytest.mark.parametrize("name", COMMANDS)


def sections(job: click.Command) -> dict[str, list[str]]:
    """The options under each heading of a help, as they stand there."""
    # A command keeps its help option as it was first asked for.
    width: dict[str, Any] = {"max_content_width": 200, "terminal_width": 200}
    text = click.Context(job, help_option_names=["-h", "--help"], **width).get_help()
    blocks = re.findall(r"^(\w[^\n]*):\n((?:  +[^\n]*\n?)+)", text, re.MULTILINE)
    return {heading: re.findall(r"^  (\S.*)$", lines, re.MULTILINE) for heading, lines in blocks}


@command
def test_every_option_is_in_one_group(name: str) -> None:
    """Rejects a central list that lacks a new option, and a group that is no more than "Options"."""
    job = main.commands[name]
    found = sections(job)
    names = Counter(
        re.sub(r"^(-\w, )", "", line).split(" ")[0].strip("[]").removeprefix("--").lower()
        for lines in found.values()
        for line in lines
    )
    model = COMMANDS[name]
    expected = {*model.fields(), *(max(p.opts, key=len).removeprefix("--") for p in job.params), "help"}
    assert {*names} == expected and {*names.values()} == {1}
    assert "Options" not in found
    required = {line.split(" ")[0].removeprefix("--").lower() for line in found.get(REQUIRED, [])}
    own = {option for option, field in model.fields().items() if field.is_required()}
    assert own <= required <= own | {"epsilon"}  # that of every mechanism


def test_groups_of_the_release() -> None:
    found = sections(main.commands["privatize"])
    assert next(iter(found)) == REQUIRED
    assert [*found][-1] == "Running"
    for heading, option in {
        "Text": "--text COLUMN",
        "Table": "--id COLUMN",
        "Words": "--oov [mask|drop|random|fail|keep-unprotected]",
        "Noise and key": "--key-file PATH",
        "Output": "--dry-run",
        "Mechanism exponential": "--truncate NUMBER",
        "Mechanisms hyperbolic, hyperbolic-icdm, laplace, mahalanobis, projection": "--t NUMBER",
        "Running": "--spark-conf NAME=VALUE",
    }.items():
        assert [line for line in found[heading] if line.startswith(option)], heading
    (weight,) = found["Mechanism mahalanobis"]
    assert weight.startswith("--lambda NUMBER") and weight.endswith("[0<=x<=1] [required]")
    assert "[all|content|slots:COLUMN]" in "".join(found["Words"])


def test_commands_are_listed_whole_and_in_the_order_of_use() -> None:
    """Rejects a description that is cut off, and the alphabet."""
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output.partition("Commands:\n")[2]
    names, said = zip(*(line.split(maxsplit=1) for line in shown.splitlines()), strict=True)
    assert {*names} == {*main.commands} and names[:2] == ("demo", "embedding")
    assert names.index("calibrate") < names.index("privatize") < names.index("poincare")
    assert all(len(text) <= 45 and text.endswith(".") and "..." not in text for text in said)


@pytest.mark.parametrize(
    ("bounds", "shown"),
    [
        ({"ge": 1}, "[x>=1]"),
        ({"gt": 0}, "[x>0]"),
        ({"ge": 0, "le": 1}, "[0<=x<=1]"),
        ({"gt": 1, "lt": 9}, "[1<x<9]"),
        ({"lt": 3}, "[x<3]"),
        ({"ge": 0, "lt": 2**63}, "[x>=0]"),
    ],
)
def test_bounds_of_numbers_are_shown(
    bounds: dict[str, Any], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "COMMANDS", {})

    class Numbered(Options):
        """One number."""

        command = "numbered"
        heading = "Numbers"

        number: int = Field(2, description="how many", **bounds)

    found = sections(Job(Numbered))
    assert found["Numbers"] == [f"--number INTEGER  how many; default: 2 {shown}"]


def test_a_new_option_stands_under_the_heading_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "COMMANDS", {})

    class Base(Options):
        heading = "Base"

        below: bool = Field(False, description="from below")

    class Derived(Base):
        """Two classes."""

        command = "derived"
        heading = "Own"

        must: str = Field(description="be given")
        chosen: Annotated[str, OneOf(lambda: ["a", "b"])] = Field("a", description="of two")
        elsewhere: Annotated[bool, Under("Elsewhere")] = Field(False, description="under its own")

    found = sections(Job(Derived))
    assert [*found][:4] == [REQUIRED, "Own", "Elsewhere", "Base"]
    assert found["Own"] == ["--chosen [a|b]  of two; default: a"]
    assert found["Base"] == ["--below  from below"]


@command
def test_the_example_of_the_help_is_right(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an example with an option that is gone, or without one that must be given."""
    reached: list[Options] = []

    def keep(options: Options) -> None:
        reached.append(options)
        raise JobError("Not run")

    model = COMMANDS[name]
    monkeypatch.setattr(f"{model.runner.format(command=name)}.run", keep)
    shown = CliRunner().invoke(main, [name, "-h"], env={"COLUMNS": "120"}).output
    assert f"Example:\n    dptext {name} {model.usage}".splitlines()[:2] == [
        line.rstrip() for line in shown[shown.index("Example:") :].splitlines()[:2]
    ]
    result = CliRunner().invoke(main, [name, *shlex.split(model.usage.replace("\\\n", ""))])
    assert (result.exit_code, len(reached)) == (1, 1), result.output


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("dptext pri", ["plain,privatize"]),
        ("dptext privatize --sal", ["plain,--salt"]),
        ("dptext privatize --oov k", ["plain,keep-unprotected"]),
        ("dptext privatize --protect s", ["plain,slots:"]),
        ("dptext try --epsilon 5 10 --mechanism l", ["plain,laplace"]),
        ("dptext privatize --input da", ["file,da"]),
        ("dptext embedding glo", ["file,glo"]),
        ("dptext calibrate --words a", ["plain,all"]),
    ],
)
def test_shells_complete_options_and_their_values(line: str, completed: list[str]) -> None:
    variables = {
        "_DPTEXT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    result = CliRunner().invoke(main, [], prog_name="dptext", env=variables)
    assert result.output.splitlines() == completed
