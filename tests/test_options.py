"""Options: all faults at once, from Python, a file or the command line; what a report keeps of them."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import click
import pytest
from click.testing import CliRunner
from pydantic import Field, create_model

from dptext_spark.cli import Job
from dptext_spark.embedding import readers
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import MECHANISMS, Exponential, Laplace, Mahalanobis
from dptext_spark.options import (
    COMMANDS,
    CalibrateOptions,
    EmbeddingOptions,
    EvaluateOptions,
    Options,
    PrivatizeOptions,
    VectorsOptions,
    validation,
)
from dptext_spark.search import nearest
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch

TABLE: Final = {"input": "in", "output": "out/"}
LAPLACE: Final = {"mechanism": "laplace", "epsilon": 5.0}
GOOD: Final[dict[str, Any]] = TABLE | LAPLACE | {"embedding": "bundle", "text": ("text",)}
EVALUATE: Final[dict[str, Any]] = GOOD | {
    "text": "text",
    "mechanism": ["laplace", "exponential"],
    "epsilon": [5.0, 10.0],
}
RIGHT: Final[dict[str, dict[str, Any]]] = {
    "privatize": GOOD,
    "vectors": TABLE | {"epsilon": 5.0, "vector": "v"},
    "evaluate": EVALUATE,
    "calibrate": {"embedding": "b", "mechanism": "laplace", "epsilon": [5.0], "output": "o"},
    "audit": LAPLACE | {"embedding": "b"},
    "embedding": {"source": "a", "output": "b"},
}
GROWS: Final = {"incremental": "c", "key-file": "k", "salt": "s"}

WRONG: Final[dict[str, list[tuple[dict[str, Any], str]]]] = {
    "privatize": [
        *(({name: None}, f"--{name}") for name in GOOD),
        # Columns
        ({"text": ("a", "b", "a")}, r"named twice in --text and --tokens\. Got: a\.$"),
        ({"text": ("a",), "tokens": ("a",)}, r"named twice in --text and --tokens\. Got: a\.$"),
        ({"keep": ("id", "text")}, r"both sanitized and passed raw with --keep\. Got: text\.$"),
        ({"id": "text"}, r"--id column cannot be sanitized itself\. Got: text\.$"),
        ({"text": ()}, "No column is to be sanitized. Name at least one with --text or --tokens"),
        ({"except": ("b", "a")}, r"--except is for --keep '\*'\. Got: a, b\.$"),
        ({"except": "a", "keep": "b"}, r"--except is for --keep '\*'\. Got: a\.$"),
        # Kinds of value
        *(({"epsilon": each}, f"--epsilon has a wrong value.*Got: {each}") for each in (0.0, -3.0, math.nan)),
        ({"epsilon": math.inf}, "--epsilon has a wrong value.*Got: inf"),
        ({"epsilon": "5"}, "--epsilon has a wrong value.* number.* Got: '5'"),
        ({"epsilon": True}, "--epsilon has a wrong value.* number.* Got: True"),
        ({"epsilon": [1, 2]}, r"--epsilon has a wrong value.*Got: \[1, 2\]"),
        *(({"release-words": each}, "--release-words has.*a valid integer") for each in (5.5, True, "5")),
        ({"salt": 5}, "--salt has.*a valid string"),
        ({"dry-run": 1}, "--dry-run has.*a valid boolean"),
        ({"keep": ["a", 5]}, "--keep has.*a valid string. Got: 5"),
        ({"embedding": 5}, "--embedding has.*a path. Got: 5"),
        ({"input": ""}, "--input has a wrong value.* Got: ''"),
        ({"reports": ""}, "--reports has a wrong value.* Got: ''"),
        ({"read-option": "x"}, "--read-option has a wrong value. Allowed: NAME=VALUE"),
        # Names, with the nearest one
        ({"bogus": 1}, r"--bogus is not an option of this command or mechanism\.$"),
        ({"lamda": 0.5}, "--lamda is not an option.*Perhaps you meant lambda"),
        ({"lambda": 0.5}, r"--lambda is not an option of this command or mechanism\.$"),
        ({"mechanism": "gauss"}, r"mechanism is unknown\. Allowed: .*laplace, .* Got: 'gauss'\.$"),
        ({"mechanism": "Laplac"}, r"mechanism is unknown.* Got: 'Laplac'\. Perhaps you meant laplace"),
        ({"mechanism": ["laplace"]}, "The mechanism is unknown.*laplace"),
        ({"search": "ivv"}, r"--search has.*exact or ivf\. Got: 'ivv'\. Perhaps you meant ivf"),
        ({"mode": "replace"}, r"--mode has.*error, overwrite or append\. Got: 'replace'\.$"),
        ({"layout": "kep"}, r"--layout has.*words or keep\. Got: 'kep'\. Perhaps you meant keep"),
        ({"oov": "lose"}, "--oov has.*mask, drop, random, fail or keep-unprotected.* Got: 'lose'"),
        ({"select": "best"}, "--select has.*nearest or vickrey. Got: 'best'"),
        # What does not go together
        ({"select": "vickrey"}, r"--select vickrey and --t go together: give both or neither\.$"),
        ({"mechanism": "mahalanobis"}, "--lambda is missing"),
        ({"mechanism": "mahalanobis", "lambda": 1.01}, "--lambda has.*Got: 1.01"),
        ({"text": (), "tokens": "words", "layout": "keep"}, "--layout is for texts"),
        ({"probes": 3}, "--probes is for --search ivf"),
        ({"recall": 0.9}, "--recall is for --search ivf"),
        ({"search": "ivf", "probes": 3, "recall": 0.9}, "--probes and --recall say the same"),
        ({"search": "ivf", "recall": 1.5}, "--recall has a wrong value"),
        ({"search": "ivf", "probes": 0}, "--probes has a wrong value"),
        ({"within": 1.0}, "--within is for --row-budget or --person"),
        ({"row-delta": 0.1}, "--row-delta is for --row-budget"),
        ({"person": "p", **GROWS}, "--person and --incremental do not go together"),
        ({"incremental": "c"}, "--incremental needs --key-file"),
        ({"incremental": "c", "key-file": "k"}, "needs a label .*, --salt LABEL.*Got: none"),
        (GROWS | {"mode": "append"}, "--incremental and --mode append do not go together"),
        (GROWS | {"mode": "overwrite"}, "--incremental and --mode overwrite do not go together"),
        (GROWS | {"id": "id"}, "cannot check that --id.*--trust-id"),
        ({"budget": 1.0}, "--budget needs --ledger"),
        ({"ledger": "l", "ledger-allow": "new-unit"}, "--ledger-allow is for --budget"),
        (
            {"ledger": "l", "budget": 1.0, "ledger-allow": "all"},
            "--ledger-allow has a wrong value.*new-unit.*weaker-policy.*Got: 'all'",
        ),
    ],
    "evaluate": [
        ({"text": None}, "One column is evaluated. Allowed: --text or --tokens"),
        ({"tokens": "words"}, "One column is evaluated"),
        ({"text": "turns[].text"}, "inside arrays cannot be evaluated.*explode"),
        ({"target": "n_w <= 0.5"}, "--target has a wrong value"),
        ({"target": "recovery(top1, 3) <= 0.5", "versions": 2}, "not measured. Allowed: 1 or --versions 2"),
        ({"target": "accuracy >= 0.5"}, "needs --label"),
        ({"target": "attribution <= 0.5", "label": "class"}, "needs --author"),
        ({"label": "text"}, "The evaluated column has no classes"),
        ({"label": "a", "author": "a"}, "name one column"),
        ({"author": "person.name"}, "not fields inside them"),
        *(({"sample": each}, "--sample has a wrong value") for each in (1, "some")),
        ({"hold-out": True}, "--hold-out needs --id and a --sample.*Got: --sample 5000, no --id"),
        ({"hold-out": True, "id": "id", "sample": "all"}, "--hold-out needs.*Got: --sample all, --id id"),
        ({"candidates": 4}, "--candidates has a wrong value"),
        ({"versions": 0}, "--versions has a wrong value"),
        ({"truncate": -1.0}, "--truncate has a wrong value. Allowed: a number above 0, or none. Got: -1.0"),
        ({"truncate": ["none", "far"]}, "--truncate has a wrong value.*Got: 'far'"),
        ({"truncate": "none", "mechanism": "laplace"}, "--truncate is not an option"),
        ({"release-words": [5.5]}, "--release-words has a wrong value.*Got: 5.5"),
        ({"t": 0.5}, "--select vickrey and --t go together"),
        ({"lambda": 0.5}, "--lambda is not an option"),
    ],
    "vectors": [
        ({"text": "t"}, "--text and --embedding go together"),
        ({"tokenizer": "icu"}, "--tokenizer is for texts"),
        ({"vector": ()}, "No column is to be sanitized. Name at least one with --vector or --text"),
    ],
    "audit": [
        ({"embedding": None}, "--embedding is missing. Or name small worlds only"),
        ({"runs": 1}, "--runs has a wrong value"),
    ],
    "calibrate": [
        ({"words": 1}, "--words has.*Allowed: a number, 2 or more, or all. Got: 1"),
        ({"target": "p95(n_w) >= 2"}, "--target has a wrong value"),
        ({"epsilon": [5.0, -1.0]}, "--epsilon has.*Got: -1.0"),
    ],
    "embedding": [
        ({"limit": 1}, "--limit has.*2 or more. Got: 1"),
        ({"format": "txt"}, r"--format has.*npy.*Got: 'txt'\. Perhaps you meant text"),
        ({"geometry": "flat"}, "--geometry has.*euclidean or poincare. Got: 'flat'"),
    ],
}


@pytest.mark.parametrize(
    ("command", "change", "message"),
    [(command, *wrong) for command, group in WRONG.items() for wrong in group],
)
def test_what_is_wrong_is_said(command: str, change: dict[str, Any], message: str) -> None:
    COMMANDS[command].of(RIGHT[command])  # so that no refusal stands for something else
    with pytest.raises(ConfigError, match=message):
        COMMANDS[command].of(RIGHT[command] | change)


@pytest.mark.parametrize(
    ("command", "change", "faults"),
    [
        ("privatize", {"salt": 5, "id": "text"}, ["--salt has", "--id column cannot be"]),
        ("privatize", {"salt": 5, "incremental": "c"}, ["--salt has", "needs --key-file"]),
        ("privatize", {"mechanism": "gauss", "keep": "text"}, ["unknown", "raw with --keep"]),
        ("privatize", {"text": [5, 5]}, ["--text has", "twice in --text"]),
        (
            "privatize",
            {"epsilon": -1.0, "lambda": 0.5, "oov": "lose", "input": "", "output": None, "text": None},
            ["--epsilon has", "--lambda is not", "--oov has", "--input has", "--output is", "No column"],
        ),
        ("vectors", {"seed": -1, "text": "t"}, ["--seed has", "--embedding go together"]),
        ("audit", {"runs": 1, "embedding": None}, ["--runs has", "--embedding is missing"]),
        ("calibrate", {"epsilon": ["x"], "lambda": 2}, ["--epsilon has", "--lambda is not"]),
        ("calibrate", {"words": 1, "runs": 0, "target": "x"}, ["--words has", "--runs has", "--target has"]),
    ],
)
def test_all_faults_are_said_at_once(command: str, change: dict[str, Any], faults: list[str]) -> None:
    """Each fault once: rejects checks that wait for right fields, or that a wrong field misleads."""
    with pytest.raises(ConfigError) as caught:
        COMMANDS[command].of(RIGHT[command] | change)
    first, *said = str(caught.value).splitlines()
    assert first == f"Options of {command} are wrong:" and len(said) == len(faults), said
    for fault in {*faults}:
        assert len([line for line in said if re.search(fault, line)]) == faults.count(fault), (fault, said)


@pytest.mark.parametrize("name", ["key-file", "where"])
def test_what_may_be_private_is_not_quoted(name: str) -> None:
    """Rejects an error that quotes a key which TOML reads as a number, or a condition in a list."""
    for given in (5550100, ["5550100"], b"\xff5550100\x00"):
        with pytest.raises(ConfigError, match=f"--{name} has a wrong value.*that is not shown") as caught:
            PrivatizeOptions.of({**GOOD, name: given})
        assert "5550100" not in str(caught.value)
    assert "5550100" not in repr(PrivatizeOptions.of({**GOOD, name: "5550100", "salt": "s"}))


def test_good_options() -> None:
    """One value will do for a list, nothing is not given, and parameters reach their mechanism."""
    options = PrivatizeOptions.of({**GOOD, "text": "t", "tokens": [], "keep": ["a", "b"], "salt": None})
    assert (options.text, options.tokens, options.keep, options.id) == (("t",), (), ("a", "b"), None)
    assert (options.mechanism, options.embedding, options.oov) == (
        Laplace(epsilon=5.0),
        Path("bundle"),
        "mask",
    )
    assert [path for _, path in options.files] == ["out.release.json", "out.private/report.json"]
    filed = VectorsOptions.of({**RIGHT["vectors"], "reports": "r/"})
    assert [path for _, path in filed.files] == [
        *("r/projection.json", "r/release.json", "r/private/report.json")
    ]
    modes = [PrivatizeOptions.of(GOOD | {"mode": mode}) for mode in ("error", "overwrite", "append")]
    assert [(each.overwrite, each.append) for each in modes] == [
        *((False, False), (True, False), (False, True))
    ]
    assert PrivatizeOptions.of({**GOOD, **GROWS, "id": "id", "trust-id": True}).incremental == "c"
    weighted = PrivatizeOptions.of({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25})
    assert weighted.mechanism == Mahalanobis(epsilon=5.0, lambda_=0.25)
    with pytest.raises(ValueError, match="frozen"):
        options.input = "other"


def test_python_cannot_pass_by_the_checks() -> None:
    """By field names too, and by a mechanism that was made already."""
    given = {**TABLE, "embedding": "b", "mechanism": Laplace(epsilon=5.0), "text": ("t",)}
    assert PrivatizeOptions(**given, release_words=3).release_words == 3
    with pytest.raises(ConfigError) as caught:
        PrivatizeOptions(**given, keep=("t",), within=0.0)
    assert str(caught.value).splitlines()[1:] == [
        "  Option --within has a wrong value. Allowed: a number above 0. Got: 0.0.",
        "  Columns are both sanitized and passed raw with --keep. Got: t.",
        "  Option --within is for --row-budget or --person.",
    ]
    with pytest.raises(ConfigError, match="--epsilon is not an option of this command or mechanism"):
        PrivatizeOptions(**given, epsilon=3.0)


# Grids


def test_calibration_takes_each_epsilon_and_lambda_once() -> None:
    given = {"mechanism": "mahalanobis", "epsilon": [9, 5.0, 9.0], "lambda": [0.5, 0.25]}
    options = CalibrateOptions.of(RIGHT["calibrate"] | given)
    assert (options.epsilon, options.lambda_) == ((5.0, 9.0), (0.25, 0.5))
    assert options.mechanism == tuple(
        Mahalanobis(epsilon=epsilon, lambda_=weight) for weight in (0.25, 0.5) for epsilon in (5.0, 9.0)
    )
    assert CalibrateOptions.of(RIGHT["calibrate"] | {"epsilon": 3}).mechanism == (Laplace(epsilon=3.0),)


def test_an_evaluation_varies_parameters_and_words() -> None:
    """Each mechanism at all values of its own, none among them last; rejects values that others get, too."""
    given = {
        "mechanism": ["laplace", "mahalanobis", "exponential"],
        "epsilon": 5.0,
        "truncate": ["none", 4.0, 6.0, 4.0],
        "lambda": [0.5, 0.25],
        "release-words": [500, 200, 500],
    }
    options = EvaluateOptions.of({**EVALUATE, **given})
    assert options.mechanism == (
        Laplace(epsilon=5.0),
        *(Mahalanobis(epsilon=5.0, lambda_=weight) for weight in (0.25, 0.5)),
        *(Exponential(epsilon=5.0, truncate=distance) for distance in (4.0, 6.0, None)),
    )
    assert (options.truncate, options.release_words) == ((4.0, 6.0, "none"), (200, 500))
    nearest_too = EvaluateOptions.of({**EVALUATE, "select": "vickrey", "t": [0.5, 0.0], "epsilon": 5.0})
    assert [getattr(m, "t", None) for m in nearest_too.mechanism] == [0.0, 0.5, None]


def test_an_evaluation_writes_the_command_of_the_release() -> None:
    """The options that both commands have, quoted for a shell.

    Rejects one that lacks a policy, quotes a filter or a password, or would release what a filter left out.
    """
    given = {
        "id": "row id",
        "oov": "drop",
        "truncate": 4.0,
        "release-words": 500,
        "where": "name = 'Zebulon'",
        "read-option": ["password=Zebulon"],
        "trust-id": True,
    }
    options = EvaluateOptions.of({**EVALUATE, **given, "output": "out"})
    assert options.release_command(options.mechanism[-1], ExactSearch(release_words=500)) == (
        "dptext privatize --input in --output sanitized --embedding bundle --text text --id 'row id' "
        "--oov drop --release-words 500 --trust-id --where '<as for evaluate>' --epsilon-from-private-rows "
        "--read-option 'password=<as for evaluate>' --mechanism exponential --truncate 4 --epsilon 10"
    )
    assert "Zebulon" not in str(options.to_json())
    assert options.to_json()["mechanism"] == ["laplace", "exponential"]
    lists = IvfSearch(release_words=300, lists=16, probes=4)
    assert "--oov drop --release-words 300 --search ivf --probes 4 --trust-id" in options.release_command(
        options.mechanism[0], lists
    )
    others = options.release_command(options.mechanism[0], lists, others="x > 5")
    assert "--trust-id --where '(<as for evaluate>) AND x > 5' --read-option" in others
    all_words = EvaluateOptions.of(EVALUATE).release_command(
        options.mechanism[0], ExactSearch(release_words=900), others="x > 5"
    )
    assert " --where 'x > 5' --mechanism" in all_words and "words" not in all_words


def test_what_a_report_keeps_of_the_options() -> None:
    kept = PrivatizeOptions.of({**GOOD, "key-file": "/secret/place", "salt": "s", "id": "id"}).to_json()
    assert (kept["mechanism"], kept["epsilon"], kept["key"], kept["id"]) == ("laplace", 5.0, "file", "id")
    assert "/secret/place" not in str(kept) and kept["where"] is None
    assert PrivatizeOptions.of(GOOD).to_json()["key"] == "fresh, not kept"
    filtered = PrivatizeOptions.of({**GOOD, "where": "name = 'Zebulon'"}).to_json()
    assert filtered["where"] == "given, not kept" and "Zebulon" not in str(filtered)
    mahalanobis = PrivatizeOptions.of({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25}).to_json()
    assert (mahalanobis["mechanism"], mahalanobis["lambda"]) == ("mahalanobis", 0.25)
    chosen = PrivatizeOptions.of({**GOOD, "epsilon-from-private-rows": True}).to_publish()
    assert chosen["epsilon-from-private-rows"] is True
    laid = PrivatizeOptions.of({**GOOD, "layout": "keep"})
    assert laid.policy.layout.name == laid.to_json()["layout"] == "keep"


# Mechanisms, commands, searches and readers that come later


def registered(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> type[Any]:
    """Laplace under another name, with further options, while the test runs."""
    kind = create_model("Made", __base__=Laplace, **fields)
    kind.name = name
    monkeypatch.setitem(MECHANISMS, name, kind)
    return kind


def help_of(command: str) -> str:
    """The help of a command as it would be made now, in one line."""
    text = click.Context(Job(COMMANDS[command])).get_help()
    return " ".join(text.split())


def test_a_mechanism_that_is_replaced_is_the_one_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    made = registered(monkeypatch, "laplace")
    assert type(PrivatizeOptions.of(GOOD).mechanism) is made


def test_options_of_one_name_stay_those_of_their_mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects a table of options by name, in which the last mechanism wins."""
    registered(monkeypatch, "narrow", width=(float, Field(0.5, lt=1.0, description="below one")))
    registered(monkeypatch, "broad", width=(float, Field(ge=3.0, description="from three")))
    for name, right, wrong in (("narrow", 0.25, 4.0), ("broad", 4.0, 0.25)):
        given = {**GOOD, "mechanism": name}
        assert PrivatizeOptions.of({**given, "width": right}).mechanism.model_dump()["width"] == right
        with pytest.raises(ConfigError, match=f"--width has a wrong value.* Got: {wrong}"):
            PrivatizeOptions.of({**given, "width": wrong})
    assert PrivatizeOptions.of({**GOOD, "mechanism": "narrow"}).mechanism.model_dump()["width"] == 0.5
    with pytest.raises(ConfigError, match="--width is missing"):
        PrivatizeOptions.of({**GOOD, "mechanism": "broad"})
    with pytest.raises(ConfigError, match="--width is not an option of this command or mechanism"):
        PrivatizeOptions.of({**GOOD, "width": 4.0})
    shown = help_of("privatize")
    assert (
        "--width NUMBER broad: from three [x>=3] [required]; narrow: below one; default: 0.5 [x<1]" in shown
    )
    assert "--epsilon NUMBER privacy parameter, in nats" in shown
    assert "Mechanism exponential: --truncate NUMBER distance" in shown


def test_options_of_one_name_and_two_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line cannot tell whether 5 is a number or a word."""
    registered(monkeypatch, "numbered", width=(float, Field(0.5, description="a number")))
    registered(monkeypatch, "named", width=(str, Field("", description="a name")))
    with pytest.raises(TypeError, match=r"named and numbered .*--width"):
        help_of("privatize")


@pytest.mark.parametrize(
    ("name", "command"), [("keep", "privatize"), ("runs", "audit"), ("words", "calibrate")]
)
def test_a_mechanism_cannot_have_an_option_of_the_command(
    name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, "greedy", **{name: (int, Field(3, description="mine"))})
    with pytest.raises(TypeError, match=f"names of options of {command}: --{name} of greedy"):
        help_of(command)
    with pytest.raises(TypeError, match=f"--{name} of greedy"):
        COMMANDS[command].of(RIGHT[command])


def test_a_new_command_is_its_options_and_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "COMMANDS", {})

    class CountOptions(Options):
        """Count to a number."""

        command = "count"

        number: int = Field(ge=1, description="where to end")

    assert {"count": CountOptions} == validation.COMMANDS
    job = ModuleType("dptext_spark.jobs.count")
    vars(job)["run"] = lambda options: SimpleNamespace(describe=lambda: f"counted to {options.number}")
    monkeypatch.setitem(sys.modules, job.__name__, job)
    command = Job(CountOptions)
    assert (command.name, command.help) == ("count", "Count to a number.")
    done = CliRunner().invoke(command, ["--number", "3"])
    assert (done.exit_code, done.output) == (0, "counted to 3\n")
    refused = CliRunner().invoke(command, ["--number", "0"], prog_name="count")
    assert refused.exit_code == 2
    assert refused.output.startswith("dptext count: Options of count are wrong:\n")


def test_a_new_search_is_one_class(line: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects a release that is searched in another way than its report says."""
    monkeypatch.setattr(nearest, "SEARCHES", dict(nearest.SEARCHES))
    monkeypatch.setattr("dptext_spark.options.configured.SEARCHES", nearest.SEARCHES)

    class Slow(ExactSearch):
        name = "slow"

    given = {**GOOD, "search": "slow", "embedding": str(line.path), "release-words": 3}
    options = PrivatizeOptions.of(given)
    assert options.search_over(line, options.release_words) == Slow(release_words=3)
    assert "--search [exact|ivf|slow]" in help_of("privatize")
    assert "search" not in options.to_json()  # it has a place of its own in the report
    with pytest.raises(ConfigError, match=r"--search has .* Allowed: exact, ivf or slow\. Got: 'fast'"):
        PrivatizeOptions.of({**given, "search": "fast"})


def test_a_new_reader_is_one_class(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rejects a list of formats beside the readers."""
    monkeypatch.setattr(readers, "READERS", dict(readers.READERS))

    class Spaced(readers._TextSource):
        format = "spaced"

        @classmethod
        def takes(cls, source: Path) -> bool:
            return source.suffix == ".spaced"

    (tmp_path / "v.spaced").write_text("a 1 2\nb 2 1\n")
    assert isinstance(readers.open_source(tmp_path / "v.spaced"), Spaced)
    given = {"source": "v", "output": "b"}
    assert EmbeddingOptions.of({**given, "format": "spaced"}).format == "spaced"
    with pytest.raises(ConfigError, match=r"--format .* word2vec-binary, npy or spaced. Got: 'x'"):
        EmbeddingOptions.of({**given, "format": "x"})
