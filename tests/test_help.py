"""The help: the example first, every option once in one line; examples that run; completion."""

import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from dptext_spark.cli import REQUIRED, help_of, main
from dptext_spark.errors import JobError
from dptext_spark.options import COMMANDS

ROOT = Path(__file__).parents[1]
command = pytest.mark.parametrize("name", COMMANDS)


def sections(job, asked="--help-all"):
    """The options under each heading of a help, as they stand there, a wrapped line as one of its own."""
    result = CliRunner().invoke(job, [asked], terminal_width=110)
    blocks = re.findall(r"^(\w[^\n]*):\n((?:  +[^\n]*\n?)+)", result.output, re.MULTILINE)
    return {
        heading: [*map(str.strip, lines.splitlines())] for heading, lines in blocks if heading != "Example"
    }


def name_of(line):
    return re.sub(r"^(-\w, )", "", line).split(" ")[0].strip("[]").removeprefix("--").lower()


@command
def test_every_option_is_in_one_group_and_one_line(name):
    """Rejects a central list that lacks a new option, a group "Options", and a description of two lines."""
    model, found = COMMANDS[name], sections(main.commands[name])
    names = Counter(name_of(line) for lines in found.values() for line in lines)
    options = {max(p.opts, key=len).removeprefix("--") for p in main.commands[name].params}
    assert {*names} == options | {*model.fields(), "help"} and {*names.values()} == {1}
    assert "Options" not in found and [*found][-1] == "Running"
    required = {option for option, field in model.fields().items() if field.is_required()}
    assert {name_of(line) for line in found.get(REQUIRED, [])} == required


@command
def test_the_first_help_is_short(name):
    """What must be given and what most need: rejects a wall of 40 options, and one left out."""
    found = sections(main.commands[name], "--help")
    names = [name_of(line) for lines in found.values() for line in lines]
    assert len(names) <= 16 and {"config", "help-all", "help"} <= {*names}
    assert {o for o, field in COMMANDS[name].fields().items() if field.is_required()} <= {*names}
    lines = [line for lines in found.values() for line in lines]
    assert all(line.startswith(("-", "[")) or line.split(" ")[0].isupper() for line in lines)


def test_commands_are_listed_whole_and_in_the_order_of_use():
    """Rejects a description that is cut off, and the alphabet."""
    shown = CliRunner().invoke(main, ["--help"], env={"COLUMNS": "80"}).output.partition("Commands:\n")[2]
    names, said = zip(*(line.split(maxsplit=1) for line in shown.splitlines()), strict=True)
    assert {*names} == {*main.commands} and names[:2] == ("demo", "embedding")
    assert names.index("calibrate") < names.index("privatize") < names.index("poincare")
    assert all(len(text) <= 45 and text.endswith(".") and "..." not in text for text in said)


@pytest.mark.parametrize(
    ("name", "heading", "shown"),
    [
        (
            "poincare",
            "Training",
            "--dimension INTEGER .*; default: 10 [2 to 1000]",
        ),
        ("poincare", "Training", "--learning-rate NUMBER hyperbolic .*; default: 0.3 [above 0, at most 10]"),
        ("poincare", "Training", "--seed INTEGER .*; default: 0 [0 or more]"),
        ("evaluate", "Measuring", "--confidence NUMBER .*; default: 0.95 [between 0.5 and 1]"),
        ("evaluate", "Table", "--where SQL only .*"),
        ("account", "Measuring", "--words INTEGER .*; default: 1 10 100 .*"),
        ("privatize", "Words", "--numbers [mask|words] runs .*; default: mask"),
        ("privatize", "Output", "--dry-run check .*"),
        ("privatize", REQUIRED, "--mechanism NAME as .*"),
    ],
)
def test_an_option_stands_under_its_heading_with_values_default_and_bounds(name, heading, shown):
    lines = [" ".join(line.split()) for line in sections(main.commands[name])[heading]]
    pattern = ".*".join(map(re.escape, shown.split(".*")))
    assert [line for line in lines if re.fullmatch(pattern, line)], lines


@command
def test_the_example_of_the_help_is_right(name, monkeypatch):
    """It comes first; rejects an example with an option that is gone, or without one that must be given."""
    reached = []

    def keep(options):
        reached.append(options)
        raise JobError("Not run")

    model = COMMANDS[name]
    monkeypatch.setattr(f"{model.runner.format(command=name)}.run", keep)
    shown = CliRunner().invoke(main, [name, "-h"], env={"COLUMNS": "120"}).output
    assert f"Example:\n  dptext {name} {model.usage}\n\n" in shown.partition(REQUIRED)[0]
    result = CliRunner().invoke(main, [name, *shlex.split(model.usage.replace("\\\n", ""))])
    assert (result.exit_code, len(reached)) == (1, 1), result.output


@command
def test_the_file_of_options_has_each_under_its_help(name):
    """Rejects an option without an example, one that is gone, and a description of old."""
    first, *blocks = (ROOT / "conf" / f"{name}.toml").read_text(encoding="utf-8").split("\n\n")
    assert first.startswith(f"# dptext {name} ")
    described = {}
    for description, *lines in map(str.splitlines, blocks):
        keys = {found[1] for line in lines if (found := re.match(r"(?:# )?([a-z][a-z-]*) = ", line))}
        described |= dict.fromkeys(keys, description)
    assert described == {option: f"# {help_of(field)}" for option, field in COMMANDS[name].fields().items()}


@pytest.mark.parametrize("line", ["dptext privatize --input glo", "dptext embedding glo"])
def test_shells_complete_paths(line):
    variables = {"_DPTEXT_COMPLETE": "bash_complete", "COMP_WORDS": line}
    variables["COMP_CWORD"] = str(len(line.split()) - 1)
    result = CliRunner().invoke(main, [], prog_name="dptext", env=variables)
    assert result.output.splitlines() == ["file,glo"]
