"""The report: guarantee, scope and counts, in JSON and in words."""

from __future__ import annotations

import dataclasses
import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.report import facts
from dptext_spark.report.released_vectors import VectorReport
from dptext_spark.report.sanitized_table import Report
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.text.policies import TextPolicy
from tests.helpers.worlds import among

COUNTS = TokenCounts(
    tokens=1100, replaced=600, unchanged=300, unprotected=50, out_of_vocabulary=110, blank=40, dropped=7,
    kept_characters=0, kept_capitals=0,
)  # fmt: skip


@pytest.fixture
def report(line: Embedding) -> Report:
    given = {"input": "in", "output": "out", "embedding": line.path, "mechanism": "laplace", "epsilon": 3.0}
    options = PrivatizeOptions.of({**given, "text": ["naïve text"], "keep": ["id"]})
    return Report(
        options=options.to_json(),
        guarantee=options.mechanism.guarantee(line),
        release=Release(bundle=line, mechanism=options.mechanism, search=among(4)),
        row_id="Rows are named by column id.",
        kept=options.keep,
        sanitized=options.text,
        published=options.to_publish(),
        rows=1234,
        columns={"naïve text": COUNTS},
    )


def test_the_json_is_complete(report: Report, line: Embedding) -> None:
    value = json.loads(report.to_json())
    assert list(value) == [
        "format_version", "guarantee", "scope", "options", "row_id", "kept", "embedding", "search", "rows",
        "columns", "versions",
    ]  # fmt: skip
    assert value["rows"] == 1234
    assert value["guarantee"] == json.loads(json.dumps(report.guarantee.to_json()))
    assert value["embedding"] == {
        "fingerprint": line.fingerprint,
        "source": "source.txt",
        "words": 5,
        "release_words": 4,
        "dimension": 1,
        "geometry": "euclidean",
        "normalization": "none",
    }
    assert value["search"] == "exact"
    unknown = {"policy": "mask", "tokens": 110}
    assert value["columns"] == {"naïve text": {**dataclasses.asdict(COUNTS), "out_of_vocabulary": unknown}}
    assert "naïve text" in report.to_json()  # readable, not escaped


def test_what_may_be_handed_on_has_no_count_but_that_of_rows(report: Report) -> None:
    """Rejects counters of any kind, and options that say where things are."""
    told = dataclasses.replace(report, added_rows=4321, private_remarks=("The input is partitioned by h.",))
    public, whole = json.loads(told.to_publish()), json.loads(told.to_json())
    assert public.keys() == whole.keys() - {"added_rows", "columns"}
    assert {*public["options"]} <= {*whole["options"]} - {"input", "output", "embedding", "name", "where"}
    assert public["options"]["epsilon"] == 3.0 and public["rows"] == 1234
    assert public["scope"] == report.scope() and whole["scope"][-2] == "The input is partitioned by h."
    assert all(name not in told.to_publish() for name in ("600", "300", "110", "4321", "partitioned"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "Assumed: neither epsilon nor any other option was chosen by a look at these rows."),
        ({"epsilon-from-private-rows": True}, "Epsilon was chosen by what was measured on private rows."),
        ({"evaluation": "a folder"}, "Epsilon was chosen by what was measured on private rows."),
    ],
)
def test_public_reports_say_where_epsilon_comes_from(
    report: Report, given: dict[str, Any], said: str
) -> None:
    """Rejects an epsilon without a word on it: one that follows from rows reveals something of them."""
    vectors = VectorReport(options={}, embedding=None, row_id="", kept=(), columns={})
    for each in (report, vectors):
        told = dataclasses.replace(each, options={**each.options, **given})
        (found,) = [line for line in json.loads(told.to_publish())["scope"] if "psilon" in line]
        assert found.startswith(said)


@pytest.mark.parametrize(
    ("sanitized", "over"),
    [
        (["a"], "all rows that repeat one another or tell of one person"),
        (["a", "b"], "the 2 sanitized columns of a row and all rows that"),
        (["a[].x"], "the elements of its arrays and all rows that"),
        (["a[].x", "b", "c"], "the 3 sanitized columns of a row, the elements of its arrays and all rows"),
    ],
)
def test_the_scope_says_what_adds_up(report: Report, sanitized: list[str], over: str) -> None:
    said = dataclasses.replace(report, sanitized=tuple(sanitized)).scope()
    assert any(line.startswith(f"What is lost adds up over {over}") for line in said)
    assert (
        "Rows of one input file keep their order, which may itself reveal something; files may follow one "
        "another in any order."
    ) in said


def test_the_scope_says_what_another_release_tells() -> None:
    """Rejects "nothing is released twice": it holds for rows that are equal to the byte alone."""
    options = {"what": "text", "arrays": True, "by_position": True, "grows": True}
    (fresh,) = facts.key_scope(kept=False, **options)
    assert "another release of these rows has noise of its own" in fresh
    equal, changed, arrays, moved, again = facts.key_scope(kept=True, **options)
    assert "comes out equal where it and its row's id are equal byte for byte" in equal
    assert "sees which rows changed" in equal
    assert "all of it, not the changed part alone, spends epsilon again" in changed
    assert "those that shift count as changed" in arrays
    assert "another file, or to another place in it, count as changed" in moved
    assert "comes again under another name adds its rows again" in again
    plain = facts.key_scope(kept=True, what="text", arrays=False, by_position=False, grows=True)
    assert plain == [equal, changed]


def test_the_words_say_counts_and_shares(report: Report) -> None:
    text = report.describe()
    for part in (
        report.guarantee.describe(),
        "Rows: 1,234",
        "naïve text: 1,100 words",
        "600 replaced (54.5%)",
        "300 unchanged by the noise (27.3%)",
        "110 out of vocabulary (mask) (10.0%)",
        "50 unprotected (4.5%)",
        "40 blank (3.6%)",
        "Rows are named by column id.",
        "without protection: id",
    ):
        assert part in text
    empty = TokenCounts(**dict.fromkeys(TokenCounts.names(), 0))
    text = dataclasses.replace(report, rows=0, columns={"text": empty}).describe()
    assert "Rows: 0" in text and "text: 0 words" in text and "%" not in text.rpartition("text: ")[2]
    before = dataclasses.replace(report, rows=None, columns={}).describe()  # before the run
    assert "Rows:" not in before and report.guarantee.describe() in before
    counts = dataclasses.replace(COUNTS, kept_characters=1234, kept_capitals=56)
    kept = dataclasses.replace(report, columns={"text": counts}).describe_counts()
    passed = "1,234 characters between words, 56 words with the capitals that they found"
    assert kept.endswith(f"; as they stood: {passed}") and "as they stood" not in report.describe_counts()


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"oov": "keep-unprotected"}, "ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION"),
        ({"oov": "random"}, "uniformly random word"),
        ({"protect": "content"}, "Stop words are released as they are"),
        ({"protect": "slots:marks"}, "slots of column marks"),
        (
            {"layout": "keep"},
            "PUNCTUATION, SYMBOLS, EMOJI, SPACES AND LINE BREAKS OF TEXTS ARE RELEASED AS THEY ARE",
        ),
    ],
)
def test_the_scope_says_what_is_not_covered(report: Report, policy: dict[str, str], words: str) -> None:
    release = dataclasses.replace(report.release, policy=TextPolicy(**policy))
    changed = dataclasses.replace(report, release=release)
    assert words in changed.describe()
    assert any(words in line for line in json.loads(changed.to_json())["scope"])
    assert words not in report.describe()


def test_versions_are_those_that_are_installed(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "pyspark":
            raise facts.PackageNotFoundError(name)
        return f"{name} 1.0"

    monkeypatch.setattr(facts, "version", version)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    versions: dict[str, Any] = json.loads(report.to_json())["versions"]
    assert versions["pyspark"] == "not installed"
    assert versions["numpy"] == "numpy 1.0"
    assert "python" in versions
    # A cluster's own pyspark.
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__="4.0.1"))
    assert json.loads(report.to_json())["versions"]["pyspark"] == "4.0.1"


def test_numbers_that_json_does_not_have_are_refused(report: Report) -> None:
    wrong = dataclasses.replace(report, options={"epsilon": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        wrong.to_json()
