"""The page of a release that can be signed: public facts alone, in sentences, as HTML and as text."""

import json
import re

import pytest

from dptext_spark import Laplace, Release, TextPolicy
from dptext_spark.errors import ConfigError
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import Report, describe, release_facts, rows_named
from dptext_spark.report.measured_risk import measured_risk
from dptext_spark.report.release_page import release_page, release_text, sections
from tests.helpers.worlds import among

MECHANISM = Laplace(epsilon=2.0)
SCRIPT = "<script>alert(1)</script>"


def options_of(line, **changes):
    given = {"input": "in", "output": "out", "embedding": line.path, "mechanism": "laplace"}
    return PrivatizeOptions.of({**given, "epsilon": 2.0, "text": ["text"]} | changes)


def facts_of(line, options, **changes):
    """The public facts of a release."""
    release = Release(bundle=line, mechanism=MECHANISM, search=among(4), name="private name")
    facts = release_facts(
        release,
        MECHANISM.guarantee(line),
        options=options.to_json(),
        row_id="Rows are named by column id.",
        kept=options.keep,
        sanitized=options.text,
    )
    private = {"seconds": 98765.5, "run": "r" * 32, "columns": {}, "coverage": {}}
    facts |= {"rows": 1657, "started": "2026-03-01T04:05:06+00:00", **private, **changes}
    return Report(facts=facts, text="").public(options.published)


def test_the_page_has_what_a_signature_needs(line):
    """Rejects a page without date, bound, rows, policies or lines to sign, and one with counts."""
    facts = facts_of(line, options_of(line, keep=["opened"], oov="drop"))
    page = release_page(facts)
    for part in (
        "2026-03-01 04:05:06 UTC",
        "1,657",
        "opened",
        "drop",
        "epsilon 2, in nats per unit of distance",
        "For nearly all outputs, the odds between a word and its nearest neighbour change by a",
        "Worst case: a factor of ",
        "Unchanged columns: opened. They are quasi-identifiers",
        "identity disclosure",
        "What this release does not hide",
        *(f'<p class="sign">{label}</p>' for label in ("Name", "Date", "Signature")),
    ):
        assert part in page, part
    titles = [section.title for section in sections(facts)]
    assert re.findall("<h2>(.*?)</h2>", page) == [*titles, "Decision"]
    for private in ("rrrr", "private name", "98765", "Draft", str(line.path)):
        assert private not in page
    assert "http:" not in page and "https:" not in page and "<script" not in page


def test_a_dry_run_shows_the_same_and_says_that_it_is_a_draft(line):
    """Rejects a draft that could be taken for a release, and one that lacks who could learn what."""
    facts = facts_of(line, options_of(line), rows=None)
    assert "Draft of a dry run: nothing was released." in release_page(facts)
    text = release_text(facts)
    assert "none yet: this was a dry run" in text
    for section in sections(facts):
        said_above = section.title in ("The bound", "What is protected, and what is not")
        assert (f"{section.title}\n" in text) != said_above
    assert "Anyone with this table: each word up to the bound" in text


def test_what_a_table_is_called_breaks_no_page(line):
    """Rejects names of columns that are not escaped, and those that break a line."""
    options = options_of(line, text=[f"{SCRIPT}\n"], keep=[SCRIPT])
    page = release_page(facts_of(line, options))
    assert SCRIPT not in page and page.count("&lt;script&gt;") >= 3
    assert "&lt;/script&gt;\\n" in page


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


def test_rows_that_are_named_uniquely_are_a_line_of_the_private_report(line):
    """Rejects the count in the public report, and one whose estimate does not say so."""
    counts = {"rows": 4174, "together": 4174, "alone": {"opened": 4000, "plan": 0}, "share": 1.0}
    named = rows_named(counts, has_id=True)
    assert named["said"] == [
        "Unchanged columns name uniquely: together 4,174 of 4,174 rows; alone: opened 4,000, plan 0",
        "The unchanged ids name every row to those who know them.",
    ]
    estimated = rows_named(counts | {"share": 0.25}, has_id=False)
    assert "of 4,174 rows, estimated by 25.00% of the values" in estimated["said"][0]
    options = options_of(line)
    public = facts_of(line, options, rows_named=named)
    assert "4,174" not in release_page(public)
    whole = {**public, "private_scope": [], "rows_named": named, "columns": {}}
    assert "Unchanged columns name uniquely: together 4,174" in describe(whole)
