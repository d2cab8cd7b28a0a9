"""Options: all faults at once, from a file or the command line; what a report keeps of them."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from dptext_spark import RowBudget, TextPolicy
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace, Mahalanobis
from dptext_spark.options import (
    COMMANDS,
    EstimateOptions,
    EvaluateOptions,
    PrivatizeOptions,
    VectorsOptions,
)
from dptext_spark.search import nearest
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch

TABLE = {"input": "in", "output": "out/"}
LAPLACE = {"mechanism": "laplace", "epsilon": 5.0}
GOOD = TABLE | LAPLACE | {"embedding": "bundle", "text": ("text",)}
EVALUATE = GOOD | {"text": "text", "mechanism": ["laplace", "exponential"], "epsilon": [5.0, 10.0]}
VECTORS = {"mechanism": (), "vectors": ["main-axes"]}
BAGS = {"vector": (), "text": "t", "kgrams": 2}
RIGHT = {
    "privatize": GOOD,
    "vectors": TABLE | {"epsilon": 5.0, "vector": "v"},
    "evaluate": EVALUATE,
    "calibrate": {"embedding": "b", "mechanism": "laplace", "epsilon": [5.0], "output": "o"},
    "audit": LAPLACE | {"embedding": "b"},
    "estimate": TABLE | {"release": "r", "embedding": "b", "text": "t", "words": "5"},
    "embedding": {"source": "a", "output": "b"},
}
GROWS = {"incremental": "c", "key-file": "k", "name": "s"}
RANGES = r"select \(nearest or vickrey\), t \(0 to 1\), lambda \(0 to 1, must be given\)"
LAMBDA = f"Parameters of mahalanobis: {RANGES}"
UNREADABLE = rf"cannot be read\. Allowed: NAME:.*{LAMBDA}"
SEARCHES = r"--search\).*ivf:probes= \(1 or more\), .*Got: "

WRONG = {
    "privatize": [
        ({"embedding": None}, "--embedding is missing"),
        # Columns
        ({"id": "text"}, r"--id column cannot be sanitized\. Got: text\.$"),
        (
            {"text": ()},
            "No column to sanitize was given. Name at least one with --text or --tokens",
        ),
        ({"except": ("b", "a"), "keep": "c"}, r"--except needs --keep '\*'\. Got: a, b\.$"),
        # Kinds of value
        *(({"epsilon": x}, f"--epsilon has a wrong.*Got: {x}") for x in (0.0, math.nan, math.inf)),
        *(
            ({"epsilon": x}, f"--epsilon has a wrong value.* number.* Got: {x!r}")
            for x in ("5", True)
        ),
        ({"dry-run": 1}, "--dry-run has.*a valid boolean"),
        ({"keep": ["a", 5]}, "--keep has.*a valid string. Got: 5"),
        ({"embedding": 5}, "--embedding has.*a path. Got: 5"),
        *(({each: ""}, f"--{each} has a wrong value.* Got: ''") for each in ("input", "reports")),
        ({"read-option": "x"}, "--read-option has a wrong value. Allowed: NAME=VALUE"),
        *(
            (
                {f"{way}-option": ["Sep=;", "x=1", "sep=;"]},
                rf"--{way}-option has a name more than once.*Got: sep\.",
            )
            for way in ("read", "write")
        ),
        # Names, with the nearest one
        ({"bogus": 1}, r"--bogus is not an option of this command\.$"),
        ({"kep": "a"}, "--kep is not an option.*Perhaps you meant keep"),
        # Mechanisms and searches with their parameters
        (
            {"mechanism": "Laplac"},
            r"mechanism is unknown.* Got: 'Laplac'\. Perhaps you meant laplace",
        ),
        (
            {"mechanism": "mahalanobis"},
            rf"Parameter lambda of mechanism mahalanobis is missing\. {LAMBDA}",
        ),
        ({"mechanism": "mahalanobis:lamda=1"}, rf"lamda .*Perhaps you meant lambda\. {LAMBDA}"),
        ({"mechanism": "mahalanobis:lambda=1.01"}, rf"lambda .*1 or less\. Got: 1\.01\. {LAMBDA}"),
        *(({"mechanism": f"mahalanobis:{x}"}, UNREADABLE) for x in ("lambda", "lambda=1,lambda=0")),
        (
            {"mechanism": "laplace:epsilon=5"},
            "epsilon is an option of its own.*laplace:epsilon=5.*Parameters of laplace: select",
        ),
        (
            {"mechanism": "laplace:select=vickrey"},
            "select=vickrey and t go together: give both or neither",
        ),
        ({"mechanism": "laplace:select=best"}, "select .*nearest or vickrey. Got: 'best'"),
        *(
            ({"search": each}, f"{SEARCHES}'{each}'")
            for each in ("ivv", "exact:probes=1", "ivf:probes=1.5")
        ),
        ({"search": "ivf:probes=3,recall=0.9"}, "--search"),
        ({"search": "ivf:recal=0.9"}, "Perhaps you meant recall"),
        ({"mode": "replace"}, r"--mode has.*error, overwrite or append\. Got: 'replace'\.$"),
        ({"layout": "kep"}, r"--layout.*words, keep.* Got: 'kep'\. Perhaps you meant keep"),
        ({"oov": "lose"}, "--oov.*mask, .*keep-unprotected.* Got: 'lose'"),
        ({"protect": "slots:"}, "--protect.*all, content, slots, slots:COLUMN.*Got: 'slots:'"),
        # Budgets with their parameters
        *(
            ({"row-budget": each}, f"--row-budget has a wrong value.*LOSS:within=.* Got: '{each}'")
            for each in (
                *("0", "much", "", "5:within=0", "5:within=far", "5:delta=1e-12", "5:epsilon=1"),
                "5:within",
            )
        ),
        ({"row-budget": True}, "--row-budget has"),
        *(({"ledger": "l", "budget": each}, "--budget has") for each in (0.0, "inf", "1:", "x")),
        # What does not go together
        ({"budget": 1.0}, "--budget needs --ledger"),
        ({"name": "s"}, r"\(--name\) does nothing without a key that is kept \(--key-file\)"),
        ({"key-file": "k"}, r"needs the name of this release \(--name\)"),
        ({"new-text": "text"}, "--new-text needs --ledger"),
        ({"text": (), "tokens": "words", "layout": "keep"}, "--layout is for texts"),
        ({"person": "p", **GROWS}, "--person and --incremental cannot be combined"),
        ({"count-unique": True, **GROWS}, "--count-unique and --incremental cannot be combined"),
        ({"incremental": "c"}, "--incremental needs --key-file"),
        (
            {"incremental": "c", "key-file": "k"},
            r"needs the name of this release \(--name\).*Got: none",
        ),
        *(
            ({**GROWS, "mode": m}, f"--incremental and --mode {m} cannot")
            for m in ("append", "overwrite")
        ),
        (GROWS | {"id": "id"}, "cannot check that ids are unique.*--trust-id"),
    ],
    "evaluate": [
        ({"text": None}, "Give either --text or --tokens"),
        ({"tokens": "words"}, "Give either --text or --tokens"),
        ({"text": "turns[].text"}, "inside arrays cannot be evaluated.*explode"),
        ({"target": "n_w <= 0.5"}, "--target has a wrong value"),
        (
            {"target": "recovery(top1, 3) <= 0.5", "versions": 2},
            "must count 1 version, or 2 as --versions",
        ),
        ({"target": "accuracy >= 0.5"}, "needs --label"),
        ({"target": "attribution <= 0.5", "label": "class"}, "needs --author"),
        ({"label": "text"}, "must be different columns. Got: text"),
        ({"label": "a", "author": "a"}, "must be different columns. Got: a"),
        ({"author": "person.name"}, "not fields inside them"),
        ({"vectors": ["main-axes"]}, "--mechanism or --vectors, one of them"),
        ({"mechanism": ()}, "--mechanism or --vectors, one of them"),
        (VECTORS | {"vectors": ["axes"]}, "main-axes or bags. Got: 'axes'"),
        (VECTORS | {"vectors": ["random:t=1"]}, "t of random is unknown. Allowed: beta, delta"),
        (VECTORS | {"oov": "drop", "versions": 2}, "do nothing for --vectors. Got: --oov, --versi"),
        (VECTORS | {"sample": "all"}, "--sample 20000 or less"),
        (VECTORS | {"target": "similarity >= 0.5"}, "is of released words"),
        (VECTORS | {"target": "recovery(top1) <= 0.5"}, "is of released words"),
        (VECTORS | {"target": "recovered_words(far) <= 0.5"}, "--target has a wrong value"),
        ({"target": "distances >= 0.5"}, "is of --vectors"),
        (
            VECTORS | {"vectors": ["bags"], "text": None, "tokens": "t"},
            "Bags of K-grams are of --t",
        ),
        (
            VECTORS | {"text": None, "tokens": "t", "target": "membership <= 0.6"},
            "membership <= 0.6 is of --text",
        ),
        *(({"sample": each}, "--sample has a wrong value") for each in (1, "some")),
        ({"candidates": 4}, "--candidates has a wrong value"),
        (
            {"mechanism": ["laplace", "exponential:truncate=-1"]},
            "truncate .*above 0. Got: -1.*Parameters of exponential: truncate",
        ),
    ],
    "vectors": [
        ({"text": "t"}, "main-axes need --embedding"),
        ({"tokens": "t"}, "main-axes need --embedding"),
        ({"projection": "main-axes"}, "main-axes need --embedding"),
        ({"projection": "axes"}, "--projection has.*random or main-axes"),
        ({"kgrams": 2}, "--kgrams is for --text alone.*Got: --vector"),
        (BAGS | {"tokens": "w"}, "--kgrams is for --text alone.*Got: --tokens"),
        (BAGS | {"embedding": "b"}, "--kgrams is for --text alone.*Got: --embedding"),
        (BAGS | {"projection": "main-axes"}, "no main axes"),
        (BAGS | {"sensitivity": "paper"}, "after a random projection alone"),
        (BAGS | {"kgrams": 11}, "--kgrams has a wrong value"),
        ({"name": "s"}, r"\(--name\) does nothing without"),
        ({"tokenizer": "icu"}, "--tokenizer is for texts"),
        (
            {"vector": ()},
            "No column to sanitize was given. Name at least one with --vector or --text",
        ),
    ],
    "audit": [
        ({"embedding": None}, "World bundle needs --embedding"),
        ({"runs": 1}, "--runs has a wrong value"),
    ],
    "calibrate": [
        *(({"confidence": each}, "--confidence has") for each in (0.5, 1.0)),
        ({"words": 1}, "--words has.*Allowed: a number, 2 or more, or all. Got: 1"),
        ({"target": "p95(n_w) >= 2"}, "--target has a wrong value"),
        ({"epsilon": [5.0, -1.0]}, "--epsilon has.*Got: -1.0"),
    ],
    "embedding": [
        ({"limit": 1}, "--limit has.*2 or more. Got: 1"),
        ({"index": "hnsw"}, "hnsw"),
        ({"geometry": "flat"}, "--geometry has.*euclidean or poincare. Got: 'flat'"),
    ],
}


@pytest.mark.parametrize("command", WRONG)
def test_what_is_wrong_is_said(command):
    COMMANDS[command].of(RIGHT[command])  # so that no refusal stands for something else
    for change, message in WRONG[command]:
        with pytest.raises(ConfigError, match=message):
            COMMANDS[command].of(RIGHT[command] | change)


@pytest.mark.parametrize(
    ("command", "change", "faults"),
    [
        ("privatize", {"text": [5, 5], "name": 5}, ["--text has", "--name has"]),
        (
            "privatize",
            {
                "epsilon": -1.0,
                "lambda": 0.5,
                "oov": "lose",
                "input": "",
                "output": None,
                "text": None,
            },
            [
                "--epsilon has",
                "--lambda is not",
                "--oov",
                "--input has",
                "--output is",
                "No column",
            ],
        ),
        (
            "calibrate",
            {"epsilon": ["x"], "mechanism": "laplace:l=2"},
            ["--epsilon has", "Parameter l "],
        ),
        (
            "calibrate",
            {"words": 1, "runs": 0, "target": "x"},
            ["--words has", "--runs has", "--target has"],
        ),
    ],
)
def test_all_faults_are_said_at_once(command, change, faults):
    """Each fault once: rejects checks that wait for right fields, or that a wrong field misleads."""
    with pytest.raises(ConfigError) as caught:
        COMMANDS[command].of(RIGHT[command] | change)
    first, *said = str(caught.value).splitlines()
    assert first == f"Options of {command} are wrong:" and len(said) == len(faults), said
    for fault in {*faults}:
        assert len([line for line in said if re.search(fault, line)]) == faults.count(fault), (
            fault,
            said,
        )


@pytest.mark.parametrize("name", ["key-file", "where"])
def test_what_may_be_private_is_not_quoted(name):
    """Rejects an error that quotes a key which TOML reads as a number, or a condition in a list."""
    for given in (5550100, ["5550100"], b"\xff5550100\x00"):
        with pytest.raises(
            ConfigError, match=f"--{name} has a wrong value.*that is not shown"
        ) as caught:
            PrivatizeOptions.of({**GOOD, name: given})
        assert "5550100" not in str(caught.value)
    kept = PrivatizeOptions.of({**GOOD, "key-file": "k", "name": "s", name: "5550100"})
    assert "5550100" not in repr(kept) and "5550100" not in str(kept.to_json())


def test_good_options():
    """One value will do for a list, nothing is not given, and parameters reach what they are of."""

    def made(**changes):
        return PrivatizeOptions.of(
            GOOD | {n.replace("_", "-"): value for n, value in changes.items()}
        )

    options = made(text="t", tokens=[], keep=["a", "b"], name=None)
    assert (options.text, options.tokens, options.keep, options.id) == (
        ("t",),
        (),
        ("a", "b"),
        None,
    )
    assert (options.mechanism, options.embedding, options.policy) == (
        Laplace(epsilon=5),
        Path("bundle"),
        TextPolicy(),
    )
    assert options.policy is options.policy  # read once in a run
    assert [path for _, path in options.files] == [
        *("out.release.json", "out.private/report.json", "out.release.html")
    ]
    filed = VectorsOptions.of({**RIGHT["vectors"], "reports": "r/"})
    places = ["r/projection.json", "r/release.json", "r/private/report.json", "r/release.html"]
    assert [path for _, path in filed.files] == places
    assert options.noise_key() != options.noise_key()  # fresh
    assert made(**GROWS, id="id", trust_id=True).incremental == "c"
    weighted = made(mechanism="mahalanobis:t=0.50,select=vickrey,lambda=.25")
    assert weighted.mechanism == Mahalanobis(epsilon=5.0, lambda_=0.25, select="vickrey", t=0.5)
    assert weighted.to_json()["mechanism"] == "mahalanobis:select=vickrey,t=0.5,lambda=0.25"
    for spec, within, delta in (
        (5, 2, 0),
        ("5:within=3", 3, 0),
        ("5:delta=1e-6,within=3", 3, 1e-6),
    ):
        budget = made(row_budget=spec).row_budget
        assert RowBudget.of(budget, 2.0) == RowBudget(loss=5, within=within, delta=delta)
    written = [made(row_budget=each).row_budget for each in (5, "5.0", "5:within=3.0,delta=.5")]
    assert written == ["5", "5", "5:delta=0.5,within=3"]  # as a checkpoint compares them
    assert (options.budget, options.row_budget) == (None, None)
    with pytest.raises(ValueError, match="frozen"):
        options.input = "other"


def test_a_name_without_a_key_is_for_a_ledger():
    """Rejects the refusal of a name that `dptext ledger show` lists."""
    assert PrivatizeOptions.of({**GOOD, "name": "s", "ledger": "l"}).name == "s"


@pytest.mark.parametrize(("first", "second"), [("key-file", "key_file"), ("mechanism", "spec")])
def test_two_names_of_one_option_are_not_both_taken(first, second):
    """Rejects a file of options whose second key_file wins over its key-file; also with equal values."""
    given = {**GOOD, "key-file": "laplace", "name": "s"}
    value = given.pop(first)
    with pytest.raises(
        ConfigError, match=f"--{first} must be given once. Got: {first} and {second}"
    ):
        PrivatizeOptions.of({**given, first: value, second: value})
    by_one, by_other = ({**given, first: value, second: None}, {**given, second: value})
    assert PrivatizeOptions.of(by_one) == PrivatizeOptions.of(by_other)


def test_an_evaluation_writes_the_command_of_the_release():
    """The options that both commands have, quoted for a shell."""
    # Rejects one that lacks a policy, quotes a filter or a password, or would release what a filter left out.
    given = {
        "id": "row id",
        "oov": "drop",
        "mechanism": ["laplace", "exponential:truncate=4"],
        "release-words": 500,
        "where": "name = 'Zebulon'",
        "read-option": ["password=Zebulon"],
        "trust-id": True,
    }
    options = EvaluateOptions.of({**EVALUATE, **given, "output": "out"})
    assert options.release_command(options.mechanism[-1], ExactSearch(release_words=500)) == (
        "dptext privatize --input in --output sanitized --embedding bundle --text text --id 'row id' "
        "--oov drop --release-words 500 --trust-id --where '<as for evaluate>' --epsilon-from-private-rows "
        "--read-option 'password=<as for evaluate>' --mechanism exponential:truncate=4 --epsilon 10"
    )
    assert "Zebulon" not in str(options.to_json())
    assert options.to_json()["mechanism"] == ["laplace", "exponential:truncate=4"]
    in_lists = IvfSearch(release_words=300, lists=16, probes=4)
    said = options.release_command(options.mechanism[0], in_lists)
    assert "--oov drop --search ivf:probes=4 --release-words 300 --trust-id" in said
    found = EvaluateOptions.of(EVALUATE).release_command(
        options.mechanism[0], ExactSearch(release_words=900)
    )
    assert "where" not in found and "words" not in found


def test_what_a_report_keeps_of_the_options():
    kept = PrivatizeOptions.of(
        {**GOOD, "key-file": "/secret", "name": "s", "layout": "keep"}
    ).to_json()
    assert (kept["mechanism"], kept["epsilon"], kept["key"]) == ("laplace", 5.0, "file")
    assert kept["where"] is None and "key-file" not in kept
    filtered = PrivatizeOptions.of({**GOOD, "where": "name = 'Zebulon'"}).to_json()
    assert (filtered["where"], filtered["key"]) == ("given, not kept", "fresh, not kept")
    assert PrivatizeOptions.published >= {"epsilon-from-private-rows", "row-budget"}


@pytest.mark.parametrize("command", ["privatize", "evaluate", "calibrate", "estimate"])
def test_own_patterns_are_named_by_their_hash(command, tmp_path):
    """Rejects reports and results with the words of the file, which may be names of persons."""
    values = []
    for word in ("xanthippe", "ophelia"):
        file = tmp_path / f"{word}.toml"
        file.write_text(f'[[types]]\nname = "client"\nwords = ["{word}"]\n')
        options = COMMANDS[command].of(RIGHT[command] | {"identifier-patterns": str(file)})
        values.append(options.to_json()["identifier-patterns"])
        assert word not in str(options.to_json())
    assert len({*values}) == 2


def test_a_new_search_is_one_class(line, monkeypatch):
    """Rejects a release that is searched otherwise than its report says, or without its parameter."""
    monkeypatch.setattr(nearest, "SEARCHES", dict(nearest.SEARCHES))

    @dataclass(frozen=True, kw_only=True)
    class Slow(ExactSearch):
        name = "slow"
        parameters = MappingProxyType({"steps": ("1 or more", lambda value: value >= 1)})
        steps: int = 1

    given = {**GOOD, "search": "slow:steps=3", "embedding": str(line.path), "release-words": 3}
    options = PrivatizeOptions.of(given)
    assert options.search_over(line, options.release_words) == Slow(release_words=3, steps=3)
    assert "search" not in options.to_json()  # it has a place of its own in the report
    with pytest.raises(ConfigError, match=r"--search.*exact.*, slow, slow:steps=.* Got: 'fast'"):
        PrivatizeOptions.of({**given, "search": "fast"})


def test_a_path_in_the_home_folder(monkeypatch, tmp_path):
    """Own trial: in a file of options, or behind ``=``, no shell writes ``~`` out."""
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = {"input": "~/in", "output": "~/a~b", "embedding": "~/e", "key-file": "~/k", "name": "n"}
    options = PrivatizeOptions.of({**paths, "mechanism": "laplace", "epsilon": 1.0, "text": "text"})
    assert (options.input, options.output) == (f"{tmp_path}/in", f"{tmp_path}/a~b")
    assert (options.embedding, options.key_file) == (tmp_path / "e", tmp_path / "k")


def test_conflicts_of_options_that_are_missing_are_no_errors_of_their_own():
    """Rejects a trace where what a check looks at was refused already, or is missing."""
    with pytest.raises(ConfigError, match="Option --text is missing") as caught:
        EstimateOptions.of({"by": [1], "topics": "t"})
    assert "AttributeError" not in str(caught.value)
