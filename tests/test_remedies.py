"""What messages advise works: options exist and take the value, commands run, extras have their names."""

import ast
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.demo import GLOVE
from dptext_spark.errors import JobError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import COMMANDS
from tests.test_help import values_of

ROOT = Path(__file__).parents[1]

_OPTION = re.compile(r"""(?<![\w-])--([a-z][a-z-]*[a-z])(?:[ =]('[^']*'|"[^"]*"|[^\s'"]+))?""")
_VALUE = re.compile(r"[=:/*]|^[A-Z]{2}")  # what no word of a sentence has
OF_OTHERS = {"conf", "packages", "py-files", "add-modules"}
"""Options of spark-submit and Java."""


GO_ON = {"and", "counts", "has", "needs", "of", "or", "out", "policy", "than", "where"}
"""Words with which a sentence goes on after an option of named values."""


def sentences(source):
    """The texts of a module but for docstrings; what is computed in them is ``{}``."""
    tree = ast.parse(source)
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            left_out.add(node.body[0].value)
        if isinstance(node, ast.JoinedStr):
            left_out |= {*node.values}
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is str and node not in left_out:
            yield node.value


TEXTS = sorted({
    text for file in (ROOT / "dptext_spark").rglob("*.py") for text in sentences(file.read_text("utf-8"))
})  # fmt: skip


def advised():
    """The options that texts name, each with the values that they give it; an empty one for none."""
    found = {}
    for text in TEXTS:
        for option, word in _OPTION.findall(text):
            quoted = word[:1] in ("'", '"')
            value = word[1:-1] if quoted else word.rstrip(".,;:)'")
            known = {v for command in COMMANDS for v in known_values(command, option)}
            is_value = quoted or _VALUE.search(value) or (known and value not in GO_ON)
            if value not in known and (not is_value or "{}" in value):
                value = ""
            found.setdefault(option, set()).add(value)
    return found


def known_values(command, option):
    return values_of(command, option) if option in COMMANDS[command].fields() else ()


ADVISED = advised()

RIGHT = {
    "embedding": "source --output out",
    "try": "words --embedding b --mechanism laplace --epsilon 5",
    "calibrate": "--embedding b --mechanism laplace --epsilon 5 --output out",
    "evaluate": "--input in --text text --embedding b --mechanism laplace --epsilon 5 --output out",
    "account": "--embedding b --mechanism laplace --epsilon 5",
    "audit": "--embedding b --mechanism laplace --epsilon 5",
    "privatize": "--input in --text text --embedding b --mechanism laplace --epsilon 5 --output out",
    "vectors": "--input in --vector v --epsilon 5 --output out",
    "estimate": "--input in --release r --embedding b --text text --output out --words 5",
    "ledger": "show ledger",
    "poincare": "--pairs pairs --output out",
}
NEEDED = {
    "budget": "--ledger l",
    "changed-files": "--incremental c --key-file k --name n",
    "except": "--keep *",
    "identifiers": "--key-file k --name n",
    "incremental": "--key-file k --name n",
    "key-file": "--name n",
    "kgrams": "--text text",
    "new-text": "--ledger l",
    "name": "--key-file k",
    "tokens": "--layout words",
    "trust-id": "--id id",
    "target": "--label label --author author",
    "embedding": "--text text",
    "projection": "--text text --embedding b",
}
"""What must be given besides some options."""

IN_PLACE_OF = {"vectors": "mechanism", "kgrams": "vector"}
"""What must not be given besides some options."""

STAND_INS = {
    "attacker": "dptext_spark.evaluation.attackers:ContextFree",
    "beta": "0.5",
    "config": os.devnull,
    "delta": "0.5",
    "epsilon": "5",
    "identifier-patterns": os.devnull,
    "identifiers": "mask",
    "time": "day:week",
    "vectors": "main-axes",
    "budget": "9",
    "row-budget": "9",
    "spans-by": "json:loads",
    "target": "max(n_w)<=0.5",
    "spark-conf": "spark.a=b",
    "remote": "sc://host:1",
    "mechanism": "laplace",
    "new-text": "text",
    "read-option": "header=true",
    "write-option": "compression=none",
    "index": "ivf",
}
"""Values where texts give none."""


def attempts(option, value):
    """The commands that have an option, each with right arguments, and with the option as it is advised."""
    for name, command in main.commands.items():
        parameters = {max(each.opts, key=len).removeprefix("--"): each for each in command.params}
        if option not in parameters or name not in RIGHT:
            continue
        flag = getattr(parameters[option], "is_flag", False)
        given = (
            value
            or STAND_INS.get(option)
            or ("5" if "INTEGER" in str(parameters[option].metavar) else "")
        )
        given = given or next(iter(sorted(known_values(name, option))), "x")
        arguments = RIGHT[name].split()
        if option in IN_PLACE_OF:
            place = arguments.index(f"--{IN_PLACE_OF[option]}")
            del arguments[place : place + 2]
        if f"--{option}" in arguments and not parameters[option].multiple:
            place = arguments.index(f"--{option}")
            del arguments[place : place + 2]
        others = shlex.split(NEEDED.get(option, "").replace("*", "'*'"))
        needed = [n.removeprefix("--") for n in others[::2]]
        if all(each in parameters and f"--{each}" not in arguments for each in needed):
            arguments += others
        yield name, [*arguments, f"--{option}", *([] if flag else [given])]


@pytest.fixture
def reached(monkeypatch):
    """The commands whose options were right; none of them does its work."""
    done = []
    for name, model in COMMANDS.items():

        def run(_, name=name):
            done.append(name)
            raise JobError("Not run")

        monkeypatch.setattr(f"{model.runner.format(command=name)}.run", run)
    return done


def test_what_is_advised_is_found():
    """Rejects a search that finds nothing any more."""
    assert len(ADVISED) > 40 and sum(map(len, ADVISED.values())) > 60
    assert ADVISED["mode"] >= {"overwrite", "append"} and ADVISED["search"] >= {
        "exact",
        "ivf:recall=R",
    }
    assert ADVISED["read-option"] >= {"multiLine=true", "sep=;", "encoding=windows-1252"}


@pytest.mark.parametrize("option", sorted(ADVISED.keys() - OF_OTHERS))
def test_an_option_that_a_message_advises_is_taken(option, reached):
    """Rejects an option that no command has, and a value that each of them refuses."""
    if option in ("help", "help-all"):
        assert CliRunner().invoke(main, ["try", f"--{option}"]).exit_code == 0
        return
    for value in ADVISED[option]:
        filled = re.sub(r"\bR$", "0.9", value)  # ivf:recall=R
        filled = filled.replace("slots:COLUMN", "slots:spans").replace("LISTS", "64")
        filled = filled.replace("TYPE=ACTION", "email=mask")
        said = {}
        reached.clear()
        for name, arguments in attempts(option, filled):
            said[name] = CliRunner().invoke(main, [name, *arguments]).output
        assert said, f"no command has --{option}"
        assert reached, (option, value, said)


def test_extras_that_messages_name_exist():
    """Rejects an extra that is renamed."""
    named = {extra for text in TEXTS for extra in re.findall(r"dptext-spark\[([\w,-]+)\]", text)}
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert named and named - declared.keys() == set()


def test_a_key_file_is_made_as_messages_say(tmp_path):
    """Rejects a command whose file is refused: of another length or mode."""
    commands = {found for text in TEXTS for found in re.findall(r"\(umask 077; [^)]*\)", text)}
    assert commands
    for number, command in enumerate(sorted(commands)):
        made = re.sub("[A-Z]{3,}", str(tmp_path / f"{number}.key"), command)
        subprocess.run(["bash", "-c", made], check=True)
        NoiseKey.read(tmp_path / f"{number}.key")


def dptext(*arguments):
    result = CliRunner().invoke(main, [*map(str, arguments)])
    return result.exit_code, result.output


def test_an_index_is_made_as_the_message_says(tmp_path):
    """Rejects --index ivf:0, which the next command refuses, and an output that is in the way."""
    bundle = tmp_path / "bundle"
    assert dptext("embedding", GLOVE, "--output", bundle, "--limit", 300)[0] == 0
    attempt = ("try", "play jazz", "--embedding", bundle, "--mechanism", "laplace", "--epsilon", 5)
    code, said = dptext(*attempt, "--search", "ivf")
    assert code == 2 and "has no index ivf" in said
    (command,) = re.findall(r"Run dptext (embedding .*) with the bundle's other options", said)
    filled = command.replace("SOURCE", str(GLOVE)).replace("BUNDLE", str(bundle))
    assert dptext(*shlex.split(filled), "--limit", 300)[0] == 0
    assert dptext(*attempt, "--search", "ivf")[0] == 0
    assert "take --search exact" in said and dptext(*attempt, "--search", "exact")[0] == 0


def test_a_bundle_is_replaced_as_the_message_says(tmp_path):
    """Rejects "allow to overwrite" without the option's name."""
    attempt = ("embedding", GLOVE, "--output", tmp_path / "bundle", "--limit", 300)
    assert dptext(*attempt)[0] == 0
    code, said = dptext(*attempt)
    assert code == 2 and said.rstrip().endswith("replace the bundle with --overwrite.")
    assert dptext(*attempt, "--overwrite")[0] == 0
