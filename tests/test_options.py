"""Options: all faults at once, the file and the command line, what a report keeps of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
    AuditOptions,
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

GOOD: dict[str, Any] = {
    "input": "in",
    "output": "out/",
    "embedding": "bundle",
    "mechanism": "laplace",
    "epsilon": 5.0,
    "text": ("text",),
}


def test_good_options() -> None:
    options = PrivatizeOptions.of({**GOOD, "salt": None, "release-words": 7})
    assert options.mechanism == Laplace(epsilon=5.0)
    assert (options.input, options.embedding, options.text) == ("in", Path("bundle"), ("text",))
    assert (options.id, options.keep, options.oov, options.release_words) == (None, (), "mask", 7)
    assert options.report_path == "out.private/report.json"
    assert options.public_report_path == "out.release.json"
    filed = VectorsOptions.of({**VECTORS, "reports": "r/"})
    assert [path for _, path in filed.files] == [
        *("r/projection.json", "r/release.json", "r/private/report.json")
    ]
    with pytest.raises(ValueError, match="frozen"):
        options.input = "other"


def test_parameters_reach_their_mechanism() -> None:
    options = PrivatizeOptions.of({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25})
    assert options.mechanism == Mahalanobis(epsilon=5.0, lambda_=0.25)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        PrivatizeOptions.of(
            {"epsilon": -1.0, "mechanism": "laplace", "lambda": 0.5, "oov": "lose", "input": ""}
        )
    message = str(caught.value)
    for fault in (
        "--epsilon has a wrong value. .* Got: -1.0",
        "--lambda is not an option of this command or mechanism",
        "No column is to be sanitized. Name at least one with --text or --tokens",
        "--input has a wrong value.* Got: ''",
        "--output is missing",
        "--embedding is missing",
        "--oov has a wrong value.*mask, drop, random, fail or keep-unprotected.* Got: 'lose'",
    ):
        assert len(re.findall(fault, message)) == 1, fault
    assert len(message.splitlines()) == 8


@pytest.mark.parametrize("name", [*GOOD])
def test_each_option_that_must_be_given_is_asked_for(name: str) -> None:
    given = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(ConfigError, match=f"--{name}"):
        PrivatizeOptions.of(given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": ("a", "b", "a")}, "named twice in --text and --tokens. Got: a\\.$"),
        ({"text": ("a",), "tokens": ("a",)}, "named twice in --text and --tokens. Got: a\\.$"),
        ({"keep": ("id", "text")}, "both sanitized and passed raw with --keep. Got: text\\.$"),
        ({"id": "text"}, "--id column cannot be sanitized itself. Got: text\\.$"),
        ({"text": ()}, "No column is to be sanitized"),
        ({"except": ("b", "a")}, "--except is for --keep '\\*'. Got: a, b\\.$"),
        ({"except": "a", "keep": "b"}, "--except is for --keep '\\*'. Got: a\\.$"),
        ({"mechanism": "gauss"}, "mechanism is unknown. Allowed: .*laplace, mahalanobis.* Got: 'gauss'"),
        ({"bogus": 1}, "--bogus is not an option"),
        ({"epsilon": "5"}, "--epsilon has a wrong value.* number.* Got: '5'"),
        ({"epsilon": True}, "--epsilon has a wrong value.* number.* Got: True"),
    ],
)
def test_wrong_combinations(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrivatizeOptions.of({**GOOD, **change})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"incremental": "c"}, "--incremental needs --key-file"),
        ({"incremental": "c", "key-file": "k"}, "needs a label .*, --salt LABEL.*Got: none"),
        ({"incremental": "c", "key-file": "k", "mode": "append"}, "--mode append do not go together"),
        ({"incremental": "c", "key-file": "k", "id": "id"}, "cannot check that --id.*--trust-id"),
        ({"ledger": "l", "ledger-allow": "new-unit"}, "--ledger-allow is for --budget"),
        (
            {"ledger": "l", "budget": 1.0, "ledger-allow": "all"},
            "--ledger-allow has a wrong value.*new-unit.*weaker-policy.*Got: 'all'",
        ),
    ],
)
def test_options_of_incremental_runs(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PrivatizeOptions.of({**GOOD, **given})
    good = {"incremental": "c", "key-file": "k", "salt": "s", "id": "id", "trust-id": True}
    assert PrivatizeOptions.of({**GOOD, **good}).incremental == "c"


EVALUATE: dict[str, Any] = {
    "input": "in",
    "output": "out",
    "text": "text",
    "embedding": "bundle",
    "mechanism": ["laplace", "exponential"],
    "epsilon": [5.0, 10.0],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
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
        ({"sample": 1}, "--sample has a wrong value"),
        ({"hold-out": True}, "--hold-out needs --id and a --sample.*Got: --sample 5000, no --id"),
        ({"hold-out": True, "id": "id", "sample": "all"}, "--hold-out needs.*Got: --sample all, --id id"),
        ({"sample": "some"}, "--sample has a wrong value"),
        ({"candidates": 4}, "--candidates has a wrong value"),
        ({"versions": 0}, "--versions has a wrong value"),
        ({"read-option": "x"}, "--read-option has a wrong value"),
        ({"truncate": -1.0}, "--truncate has a wrong value. Allowed: a number above 0, or none. Got: -1.0"),
        ({"truncate": ["none", "far"]}, "--truncate has a wrong value.*Got: 'far'"),
        ({"truncate": "none", "mechanism": "laplace"}, "--truncate is not an option"),
        ({"release-words": [5.5]}, "--release-words has a wrong value.*Got: 5.5"),
        ({"t": 0.5}, "--select vickrey and --t go together"),
        ({"lambda": 0.5}, "--lambda is not an option"),
    ],
)
def test_what_cannot_be_evaluated(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EvaluateOptions.of({**EVALUATE, **change})


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
    options = EvaluateOptions.of({**EVALUATE, **given})
    assert [(m.name, m.epsilon) for m in options.mechanism] == [
        *(("laplace", 5.0), ("laplace", 10.0), ("exponential", 5.0), ("exponential", 10.0))
    ]
    assert options.release_command(options.mechanism[-1], ExactSearch(release_words=500)) == (
        "dptext privatize --input in --output sanitized --embedding bundle --text text --id 'row id' "
        "--oov drop --release-words 500 --trust-id --where '<as for evaluate>' --epsilon-from-private-rows "
        "--read-option 'password=<as for evaluate>' --mechanism exponential --truncate 4 --epsilon 10"
    )
    assert "Zebulon" not in str(options.to_json())
    assert options.to_json()["mechanism"] == ["laplace", "exponential"]
    lists = IvfSearch(release_words=300, lists=16, probes=4)
    assert options.release_command(options.mechanism[0], lists).partition("--oov drop ")[2] == (
        "--release-words 300 --search ivf --probes 4 --trust-id --where '<as for evaluate>' "
        "--epsilon-from-private-rows --read-option 'password=<as for evaluate>' --mechanism laplace "
        "--epsilon 5"
    )
    others = options.release_command(options.mechanism[0], lists, others="x > 5")
    assert "--trust-id --where '(<as for evaluate>) AND x > 5' --read-option" in others
    all_words = EvaluateOptions.of(EVALUATE)
    assert " --where 'x > 5' --mechanism" in all_words.release_command(
        options.mechanism[0], ExactSearch(release_words=900), others="x > 5"
    )
    assert "words" not in all_words.release_command(options.mechanism[0], ExactSearch(release_words=900))


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
    assert options.truncate == (4.0, 6.0, "none")
    assert options.release_words == (200, 500)
    nearest_too = EvaluateOptions.of({**EVALUATE, "select": "vickrey", "t": [0.5, 0.0], "epsilon": 5.0})
    assert [getattr(m, "t", None) for m in nearest_too.mechanism] == [0.0, 0.5, None]


def test_what_a_report_keeps_of_the_options() -> None:
    kept = PrivatizeOptions.of({**GOOD, "key-file": "/secret/place", "salt": "s", "id": "id"}).to_json()
    assert (kept["mechanism"], kept["epsilon"], kept["key"], kept["id"]) == ("laplace", 5.0, "file", "id")
    assert "/secret/place" not in str(kept)
    assert PrivatizeOptions.of(GOOD).to_json()["key"] == "fresh, not kept"
    filtered = PrivatizeOptions.of({**GOOD, "where": "name = 'Zebulon'"}).to_json()
    assert filtered["where"] == "given, not kept"
    assert "Zebulon" not in str(filtered)
    assert kept["where"] is None
    mahalanobis = PrivatizeOptions.of({**GOOD, "mechanism": "mahalanobis", "lambda": 0.25}).to_json()
    assert (mahalanobis["mechanism"], mahalanobis["lambda"]) == ("mahalanobis", 0.25)
    chosen = PrivatizeOptions.of({**GOOD, "epsilon-from-private-rows": True}).to_publish()
    assert chosen["epsilon-from-private-rows"] is True


def test_embedding_options() -> None:
    options = EmbeddingOptions.of({"source": "glove.txt", "output": "bundle", "limit": 5})
    assert (options.source, options.limit, options.normalize) == (Path("glove.txt"), 5, "none")
    with pytest.raises(ConfigError, match=r"(?s)--limit.*2 or more.*Got: 1.*--colour"):
        EmbeddingOptions.of({"source": "a", "output": "b", "limit": 1, "colour": 3})


# Kinds of value


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        ({"release-words": 5.5}, "a valid integer"),
        ({"release-words": True}, "a valid integer"),
        ({"release-words": "5"}, "a valid integer"),
        ({"salt": 5}, "a valid string"),
        ({"dry-run": 1}, "a valid boolean"),
        ({"keep": ["a", 5]}, "a valid string"),
        ({"embedding": 5}, "a path. Got: 5"),
        ({"mode": "replace"}, "error, overwrite or append"),
        ({"search": "fast"}, "exact or ivf\\. Got: 'fast'"),
    ],
)
def test_a_value_of_another_kind(change: dict[str, Any], allowed: str) -> None:
    (name,) = change
    with pytest.raises(ConfigError, match=rf"(?s)^[^\n]*\n  Option --{name} has .*Allowed: (?! ).*{allowed}"):
        PrivatizeOptions.of({**GOOD, **change})


@pytest.mark.parametrize("name", ["key-file", "where"])
def test_what_may_be_private_is_not_quoted(name: str) -> None:
    """Rejects an error that quotes a key which TOML reads as a number, or a condition in a list."""
    for given in (5550100, ["5550100"], b"\xff5550100\x00"):
        with pytest.raises(ConfigError, match=f"--{name} has a wrong value.*that is not shown") as caught:
            PrivatizeOptions.of({**GOOD, name: given})
        assert "5550100" not in str(caught.value)
    assert "5550100" not in repr(PrivatizeOptions.of({**GOOD, name: "5550100", "salt": "s"}))


def test_one_value_will_do_for_a_list_and_nothing_is_not_given() -> None:
    options = PrivatizeOptions.of({**GOOD, "text": "t", "tokens": [], "keep": ["a", "b"], "id": None})
    assert (options.text, options.tokens, options.keep, options.id) == (("t",), (), ("a", "b"), None)


# One path


def test_python_cannot_pass_by_the_checks() -> None:
    """By field names too, and by a mechanism that was made already."""
    given = {
        "input": "in",
        "output": "out",
        "embedding": "b",
        "mechanism": Laplace(epsilon=5.0),
        "text": ("t",),
    }
    assert PrivatizeOptions(**given, release_words=3).release_words == 3
    with pytest.raises(ConfigError) as caught:
        PrivatizeOptions(**given, keep=("t",), within=0.0)
    assert str(caught.value).splitlines() == [
        "Options of privatize are wrong:",
        "  Option --within has a wrong value. Allowed: a number above 0. Got: 0.0.",
        "  Columns are both sanitized and passed raw with --keep. Got: t.",
        "  Option --within is for --row-budget or --person.",
    ]
    with pytest.raises(ConfigError, match="--epsilon is not an option of this command or mechanism"):
        PrivatizeOptions(**given, epsilon=3.0)


AUDIT = {"mechanism": "laplace", "epsilon": 1.0}
CALIBRATE = {"embedding": "b", "mechanism": "laplace", "epsilon": [5.0], "output": "o"}
VECTORS = {"input": "in", "output": "out", "epsilon": 5.0, "vector": "v"}


@pytest.mark.parametrize(
    ("kind", "given", "faults"),
    [
        (PrivatizeOptions, {**GOOD, "salt": 5, "id": "text"}, ["--salt has", "--id column cannot be"]),
        (PrivatizeOptions, {**GOOD, "salt": 5, "incremental": "c"}, ["--salt has", "needs --key-file"]),
        (PrivatizeOptions, {**GOOD, "mechanism": "gauss", "keep": "text"}, ["unknown", "raw with --keep"]),
        (PrivatizeOptions, {**GOOD, "text": [5, 5]}, ["--text has", "twice in --text"]),
        (VectorsOptions, {**VECTORS, "seed": -1, "text": "t"}, ["--seed has", "--embedding go together"]),
        (AuditOptions, {**AUDIT, "runs": 1}, ["--runs has", "--embedding is missing"]),
        (
            AuditOptions,
            {**AUDIT, "world": "moon"},
            ["--world has .*line, star, clusters, edge, joint or bundle"],
        ),
        (
            CalibrateOptions,
            {**CALIBRATE, "epsilon": [5.0, -1.0], "words": 1, "target": "p95(n_w) >= 2", "runs": 0},
            [
                "--epsilon has .*Got: -1.0",
                "--words has .*Allowed: a number, 2 or more, or all. Got: 1",
                "--runs has",
                "--target has",
            ],
        ),
        (
            CalibrateOptions,
            {**CALIBRATE, "epsilon": ["x"], "lambda": 2},
            ["--epsilon has", "--lambda is not"],
        ),
        (
            CalibrateOptions,
            {"mechanism": "laplace", "runs": 0},
            ["--embedding", "--epsilon", "--output", "--runs"],
        ),
    ],
)
def test_what_does_not_go_together_is_said_with_all_else(
    kind: type[Options], given: dict[str, Any], faults: list[str]
) -> None:
    """Each fault once: rejects checks that wait for right fields, or that a wrong field misleads."""
    with pytest.raises(ConfigError) as caught:
        kind.of(given)
    said = str(caught.value).splitlines()[1:]
    assert len(said) == len(faults), said
    for fault in {*faults}:
        assert len([line for line in said if re.search(fault, line)]) == faults.count(fault), (fault, said)


def test_calibration_takes_each_epsilon_and_lambda_once() -> None:
    given = {**CALIBRATE, "mechanism": "mahalanobis", "epsilon": [9, 5.0, 9.0], "lambda": [0.5, 0.25]}
    options = CalibrateOptions.of(given)
    assert (options.epsilon, options.lambda_) == ((5.0, 9.0), (0.25, 0.5))
    assert options.mechanism == tuple(
        Mahalanobis(epsilon=epsilon, lambda_=weight) for weight in (0.25, 0.5) for epsilon in (5.0, 9.0)
    )
    assert CalibrateOptions.of({**CALIBRATE, "epsilon": 3}).mechanism == (Laplace(epsilon=3.0),)


# Mechanisms that come later


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
    assert (
        "--width NUMBER broad: from three [x>=3] [required]; narrow: below one; default: 0.5 [x<1]"
        in help_of("privatize")
    )
    assert "--epsilon NUMBER privacy parameter, in nats" in help_of("privatize")
    assert "Mechanism exponential: --truncate NUMBER distance" in help_of("privatize")


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
    given = {"privatize": GOOD, "audit": AUDIT, "calibrate": CALIBRATE}[command]
    with pytest.raises(TypeError, match=f"--{name} of greedy"):
        COMMANDS[command].of(given)


# Commands that come later


def test_a_new_command_is_its_options_and_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "COMMANDS", {})

    class CountOptions(Options):
        """Count to a number."""

        command = "count"

        number: int = Field(ge=1, description="where to end")

    assert {"count": CountOptions} == validation.COMMANDS
    job = ModuleType("dptext_spark.spark.jobs.count")
    vars(job)["run"] = lambda options: SimpleNamespace(describe=lambda: f"counted to {options.number}")
    monkeypatch.setitem(sys.modules, job.__name__, job)
    command = Job(CountOptions)
    assert (command.name, command.help) == ("count", "Count to a number.")
    done = CliRunner().invoke(command, ["--number", "3"])
    assert (done.exit_code, done.output) == (0, "counted to 3\n")
    refused = CliRunner().invoke(command, ["--number", "0"], prog_name="count")
    assert (refused.exit_code, refused.output.splitlines()[0]) == (
        2,
        "dptext count: Options of count are wrong:",
    )


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
    allowed = r"--search has a wrong value. Allowed: exact, ivf or slow. Got: 'fast'"
    with pytest.raises(ConfigError, match=allowed):
        PrivatizeOptions.of({**given, "search": "fast"})


def test_lists_are_looked_at_in_one_way() -> None:
    """Rejects options of the search in lists where they do nothing, and two that may disagree."""
    for wrong, message in (
        ({"probes": 3}, "--probes is for --search ivf"),
        ({"recall": 0.9}, "--recall is for --search ivf"),
        ({"search": "ivf", "probes": 3, "recall": 0.9}, "--probes and --recall say the same"),
        ({"search": "ivf", "recall": 1.5}, "--recall has a wrong value"),
        ({"search": "ivf", "probes": 0}, "--probes has a wrong value"),
    ):
        with pytest.raises(ConfigError, match=message):
            PrivatizeOptions.of({**GOOD, **wrong})


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


def test_the_layout_of_texts() -> None:
    """Rejects a layout that is accepted where it does nothing."""
    kept = PrivatizeOptions.of({**GOOD, "layout": "keep"})
    assert kept.policy.layout.name == kept.to_json()["layout"] == "keep"
    assert PrivatizeOptions.of(GOOD).policy.layout.name == "words"
    with pytest.raises(ConfigError, match=r"--layout has a wrong value\. Allowed: words or keep\. Got: 'k'"):
        PrivatizeOptions.of({**GOOD, "layout": "k"})
    with pytest.raises(ConfigError, match="--layout is for texts"):
        PrivatizeOptions.of({**GOOD, "text": (), "tokens": ("words",), "layout": "keep"})


def test_what_becomes_of_an_output_that_exists() -> None:
    given = [PrivatizeOptions.of(GOOD | {"mode": mode}) for mode in ("error", "overwrite", "append")]
    assert [(options.overwrite, options.append) for options in given] == [
        *((False, False), (True, False), (False, True))
    ]
