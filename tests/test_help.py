"""The help: the example first, every option once in one line; examples that run; completion."""

import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from dptext_spark.cli import REQUIRED, help_of, main
from dptext_spark.embedding.readers import formats
from dptext_spark.errors import JobError, leaves
from dptext_spark.mechanisms import MECHANISMS
from dptext_spark.options import COMMANDS, several
from dptext_spark.search.nearest import SEARCHES
from dptext_spark.tables.formats.format import FORMATS
from dptext_spark.text.identifiers import Identifiers
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import OovPolicy, Protection
from dptext_spark.text.tokens import Segmentation

ROOT = Path(__file__).parents[1]
command = pytest.mark.parametrize("name", COMMANDS)


def sections(job, asked="--help-all"):
    """The options under each heading of a help, each with all lines of its description."""
    result = CliRunner().invoke(job, [asked], terminal_width=110)
    blocks = re.findall(r"^(\w[^\n]*):\n((?:  +[^\n]*\n?)+)", result.output, re.MULTILINE)
    return {
        heading: [line.strip() for line in re.split(r"\n(?=  \S)", lines)]
        for heading, lines in blocks
        if heading != "Example"
    }


def name_of(line):
    return re.sub(r"^(-\w, )", "", line).split(" ")[0].strip("[]").removeprefix("--").lower()


@command
def test_every_option_is_in_one_group(name):
    """Rejects a central list that lacks a new option, a group "Options", and a description of three lines."""
    model, found = COMMANDS[name], sections(main.commands[name])
    names = Counter(name_of(line) for lines in found.values() for line in lines)
    options = {max(p.opts, key=len).removeprefix("--") for p in main.commands[name].params}
    assert {*names} == options | {*model.fields(), "help"} and {*names.values()} == {1}
    assert all(line.count("\n") <= 1 for lines in found.values() for line in lines)
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
    shown = (
        CliRunner()
        .invoke(main, ["--help"], env={"COLUMNS": "80"})
        .output.partition("Commands:\n")[2]
    )
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
        (
            "poincare",
            "Training",
            "--learning-rate NUMBER hyperbolic .*; default: 0.3 [above 0, at most 10]",
        ),
        ("poincare", "Training", "--seed INTEGER .*; default: 0 [0 or more]"),
        ("evaluate", "Measuring", "--confidence NUMBER .*; default: 0.95 [between 0.5 and 1]"),
        ("evaluate", "Table", "--where SQL SQL condition.*"),
        ("account", "Measuring", "--words INTEGER .*; default: 1 10 100 .*"),
        ("privatize", "Words", "--numbers [mask|words] what .*; default: mask"),
        ("privatize", "Output", "--dry-run check .*"),
        ("privatize", REQUIRED, "--mechanism NAME mechanism: .*"),
    ],
)
def test_an_option_stands_under_its_heading_with_values_default_and_bounds(name, heading, shown):
    lines = [" ".join(line.split()) for line in sections(main.commands[name])[heading]]
    pattern = ".*".join(map(re.escape, shown.split(".*")))
    assert [line for line in lines if re.fullmatch(pattern, line)], lines


OFFERED = {
    "format": {*FORMATS},
    "output-format": {*FORMATS},
    "mechanism": {*MECHANISMS},
    "search": {*SEARCHES},
    "oov": {*OovPolicy.policies},
    "protect": {*Protection.policies},
    "layout": {*Layout.policies},
    "tokenizer": {*Segmentation.policies},
    "identifiers": {*Identifiers.policies},
    "index": {"ivf"},
}
"""Values that registries have; those of a literal type are the field's own."""


def values_of(command, option):
    """The values that an option takes, where they are a closed set."""
    if (command, option) == ("embedding", "format"):
        return {*formats()}
    literals = {
        leaf for leaf in leaves(COMMANDS[command].fields()[option].annotation) if type(leaf) is str
    }
    marked = {leaf for leaf in literals if leaf.isupper()}  # what a user writes
    return OFFERED.get(option, literals - marked)


def text_of(line):
    """A line of help in one line, without the option's own name."""
    return " ".join(line.split()).partition(" ")[2]


@command
def test_the_help_says_what_an_option_means_and_all_that_it_takes(name):
    """Rejects a positional argument without a word, and values that are cut off, hidden, or of old."""
    # And a description that needs the option's name before it to be a sentence.
    found = {
        name_of(line): text_of(line)
        for lines in sections(main.commands[name]).values()
        for line in lines
    }
    for option, field in COMMANDS[name].fields().items():
        said = found[option]
        assert str(field.description) in said and len(str(field.description)) > 15, option
        assert not re.match(r"(of|as|for|with|by|in) ", str(field.description)), option
        assert {
            v for v in values_of(name, option) if not re.search(rf"(?<![\w-]){v}(?![\w-])", said)
        } == set()
    assert all(found.values())


WORDS_TO_AVOID = {
    "a fragment": r"^(?:of|as|for|with|by|in|from|if|where|whether) ",
    "no verb or noun of the field": r"\b(?:stands?|comes? out|stays?|so many|law)\b",
    "a sentence": r"\.$|^[A-Z][a-z]",
    "an example without e.g.": r"\b(?:for example|such as|like this)\b",
    "a default said twice": r"default.*default",
    "one a line": r"\bone a line\b",
}
"""What a description must not have, as a pattern."""


def faults_of(description, *, repeatable):
    """What is wrong with the English of an option's description."""
    faults = [what for what, pattern in WORDS_TO_AVOID.items() if re.search(pattern, description)]
    if repeatable and not re.search(r"repeatable|several may follow|e\.g\. \d+ \d+", description):
        faults.append("does not say that it may be repeated")
    return faults


@command
def test_descriptions_are_in_one_form(name):
    """Rejects a fragment, a sentence, an example without "e.g.", and a list that seems one value."""
    assert {
        option: faults
        for option, field in COMMANDS[name].fields().items()
        if (faults := faults_of(help_of(field), repeatable=several(field)))
    } == {}


@pytest.mark.parametrize(
    ("description", "fault"),
    [
        ("of the vectors; default: euclidean", "a fragment"),
        ("for --world bundle: bundle to audit", "a fragment"),
        ("words that stay as they stand", "no verb or noun of the field"),
        ("Folder of the bundle.", "a sentence"),
        ("mechanism, such as laplace", "an example without e.g."),
        ("folder; default: here; default: there", "a default said twice"),
        ("file of words, one a line", "one a line"),
        ("string column to sanitize", "does not say that it may be repeated"),
    ],
)
def test_a_wrong_description_is_noticed(description, fault):
    """Rejects a rule that nothing breaks."""
    assert faults_of(description, repeatable=True)[0] == fault


def test_the_site_has_a_page_of_all_options():
    """Rejects a command or an option that only the terminal shows, and a table that a | cuts."""
    page = subprocess.run(
        [sys.executable, ROOT / "docs/site/options.py"], capture_output=True, text=True, check=True
    ).stdout
    sections_of_page = r"^## dptext (\w+)\n(.*?)(?=^## |\Z)"
    parts = dict(re.findall(sections_of_page, page, re.MULTILINE | re.DOTALL))
    assert parts.keys() == main.commands.keys()
    for name, part in parts.items():
        rows = re.findall(r"^\| `(.+)` \| (.+) \|$", part, re.MULTILINE)
        shown = sections(main.commands[name])
        assert {name_of(option) for option, _ in rows} == {
            name_of(line) for lines in shown.values() for line in lines
        }
        assert not [row for row in rows if "|" in "".join(row).replace("\\|", "")]


def test_values_are_in_one_piece():
    """Rejects keep- and unprotected in two lines, in a narrow terminal."""
    for width in range(60, 110):
        assert (
            "keep-unprotected"
            in CliRunner().invoke(main, ["try", "--help"], terminal_width=width).output
        )


def test_the_demo_has_all_of_its_help():
    """Rejects a command that refuses what README says of every command."""
    short, whole = (CliRunner().invoke(main, ["demo", asked]) for asked in ("--help", "--help-all"))
    assert (whole.exit_code, whole.output) == (0, short.output)
    assert "--output PATH" in short.output and "--help-all" in short.output


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
        keys = {
            found[1] for line in lines if (found := re.match(r"(?:# )?([a-z][a-z-]*) = ", line))
        }
        described |= dict.fromkeys(keys, description)
    assert described == {
        option: f"# {help_of(field)}" for option, field in COMMANDS[name].fields().items()
    }


@pytest.mark.parametrize("line", ["dptext privatize --input glo", "dptext embedding glo"])
def test_shells_complete_paths(line):
    variables = {"_DPTEXT_COMPLETE": "bash_complete", "COMP_WORDS": line}
    variables["COMP_CWORD"] = str(len(line.split()) - 1)
    result = CliRunner().invoke(main, [], prog_name="dptext", env=variables)
    assert result.output.splitlines() == ["file,glo"]
