"""What an evaluation measured, quoted on the page of a release; another evaluation is refused."""

import json

import pytest

from dptext_spark import Laplace, Release, TextPolicy
from dptext_spark.errors import ConfigError
from dptext_spark.report.measured_risk import measured_risk
from dptext_spark.report.release_page import release_page
from tests.helpers.release_facts import MECHANISM, facts_of, options_of
from tests.helpers.worlds import among

EVALUATED = {
    "started": "2026-02-28T10:00:00+00:00",
    "confidence": 0.95,
    "attackers": [{"name": "context-free"}, {"name": "adaptive"}],
    "concern": {"attacker": "strongest", "guesses": 1, "versions": 1},
    "sample": {"attacked": 662},
    "settings": [
        {
            "options": MECHANISM.options,
            "search": "exact",
            "release_words": 4,
            "attacker": "adaptive",
            "recovered": 0.38,
            "recovered_high": 0.4015,
            "recovered_floor": 0.1,
            "linked": 0.95,
            "linked_high": 0.97,
            "linked_floor": 0.06,
        }
    ],
}


def evaluated(line, *, fingerprint=None, **options):
    """An evaluation's facts, as text."""
    theirs = {"input": "in", "where": None, "text": "text", "tokens": None}
    theirs |= {**TextPolicy().to_json()}
    theirs = {name.replace("_", "-"): value for name, value in theirs.items()} | options
    embedding = {"fingerprint": fingerprint or line.fingerprint}
    return json.dumps({**EVALUATED, "options": theirs, "embedding": embedding})


def risk_of(line, text, *, where=None, mechanism=MECHANISM):
    release = Release(bundle=line, mechanism=mechanism, search=among(4))
    return measured_risk(text, release, options_of(line, where=where).to_json())


def test_the_measured_risk_is_quoted_with_its_upper_limit(line):
    """Rejects the measured share as the risk, and a quote without attackers, rows and date."""
    risk = risk_of(line, evaluated(line))
    facts = facts_of(line, options_of(line), evaluation=risk)
    assert facts["evaluation"] == risk
    page = release_page(facts)
    for part in (
        "at most 40.2% of the words of column text (measured 38.0%, upper limit at 95% confidence); "
        "without any output 10.0%",
        "The strongest of context-free, adaptive was adaptive, with 1 guess for each word; ",
        "at most 97.0% of the rows to their own (measured 95.0%); by length alone 6.0%",
        "Measured on 662 rows, 2026-02-28.",
        "a stronger attacker gets more",
    ):
        assert part in page, part


WHICH = [
    ({}, None, "It was measured on rows that are released"),
    ({}, "x = 1", "the whole table, with the rows that are released among them"),
    ({"where": "given, not kept"}, None, "some rows of the table, which are released, too"),
    (
        {"where": "given, not kept"},
        "x = 1",
        "Only those who ran both know whether they share rows.",
    ),
    ({"input": "other"}, None, "It was measured on another table"),
]


@pytest.mark.parametrize(("options", "where", "sentence"), WHICH)
def test_it_says_whether_the_risk_was_measured_on_released_rows(line, options, where, sentence):
    """Rejects silence about rows that were looked at, and a claim that filters do not support."""
    (line_of_rows,) = [
        said for said in risk_of(line, evaluated(line, **options), where=where)["said"]
        if sentence in said
    ]  # fmt: skip
    assert line_of_rows.startswith("Measured on 662 rows")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fingerprint": "f" * 64}, "The --evaluation is of another embedding"),
        ({"text": "note"}, "is of another column. Allowed: text. Got: note"),
        ({"oov": "drop"}, "is of another --oov. Allowed: mask. Got: drop"),
    ],
)
def test_an_evaluation_of_something_else_is_refused(line, changes, message):
    """Rejects the risk of another setting under a signature."""
    with pytest.raises(ConfigError, match=message):
        risk_of(line, evaluated(line, **changes))
    with pytest.raises(ConfigError, match=r"another setting\. Allowed: .*epsilon 3 .*epsilon 2 "):
        risk_of(line, evaluated(line), mechanism=Laplace(epsilon=3))


OF_VECTORS = {"options": "--vectors main-axes", "recovered_words": 0.3}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"settings": [OF_VECTORS]}, id="vectors"),
        pytest.param({"options": {}}, id="options of another version"),
        pytest.param({"attackers": None}, id="damaged"),
        pytest.param({"settings": 3}, id="no list"),
    ],
)
def test_an_evaluation_that_cannot_be_quoted_is_one_error(line, change):
    """Rejects a traceback, which would also quote the file."""
    for text in ("{}", "[]", "{", json.dumps({**json.loads(evaluated(line)), **change})):
        with pytest.raises(ConfigError, match="--evaluation cannot be read") as caught:
            risk_of(line, text)
        assert caught.value.__suppress_context__
