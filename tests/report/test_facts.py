"""The facts of a report, and the sentences beside them."""

import json
import sys
from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest

from dptext_spark import Exponential, Laplace, Release, RowBudget, TextPolicy
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report import facts
from dptext_spark.report.facts import Report, describe, describe_counts, release_facts, token_counts
from dptext_spark.sanitizer import TokenCounts
from dptext_spark.search import code_files, kernel
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.pieces import PIECES
from tests.helpers.worlds import among

MECHANISM = Laplace(epsilon=2.0)
COUNTS = TokenCounts(
    tokens=1100, replaced=600, unchanged=300, unprotected=50, out_of_vocabulary=110, blank=40, dropped=7,
    **dict.fromkeys(MARKS, 0), left_figures=3, left_signs=0, left_codes=1200,
)  # fmt: skip


def report_of(line, policy=None, **changes):
    given = {
        "input": "in",
        "output": "out",
        "embedding": line.path,
        "mechanism": "laplace",
        "epsilon": 2.0,
    }
    options = PrivatizeOptions.of({**given, "text": ["naïve text"], "keep": ["id"]})
    release = Release(
        bundle=line,
        mechanism=MECHANISM,
        search=among(4),
        policy=policy or TextPolicy(),
        name="zebra",
    )
    table = {
        "options": options.to_json(),
        "kept": options.keep,
        "sanitized": options.text,
        **changes,
    }
    found = release_facts(
        release, MECHANISM.guarantee(line), row_id="Rows are named by column id.", **table
    )
    columns = {"naïve text": token_counts(COUNTS, str(release.policy.oov))}
    whole = {**found, "rows": 1234, "columns": columns}
    return Report(facts=whole, text=describe(whole))


@pytest.mark.parametrize(("bits", "said"), [(8, "codes of 8 bits"), (0, "single precision")])
def test_the_private_report_says_what_the_search_multiplies_with(line, bits, said, monkeypatch):
    """Rejects the line in the public report, and that of a search or mechanism without such products."""
    monkeypatch.setattr(kernel, "trusted_bits", lambda width: bits)
    monkeypatch.setattr(code_files, "_NARROW", 0)
    for few in (4, 3):  # coordinates; the four words have one each
        monkeypatch.setattr(code_files, "_FEW", few)
        report = report_of(line)
        assert (f"on this machine: by {said}" in str(report.facts["private_scope"])) == (few == 3)
        assert "on this machine" not in report.to_publish(
            ()
        ) and "products" not in report.to_publish(())
    lists = IvfSearch(release_words=4, lists=1, probes=1)
    for mechanism, search in ((MECHANISM, lists), (Exponential(epsilon=2.0), among(4))):
        given = {"release": Release(bundle=line, mechanism=mechanism, search=search), "row_id": ""}
        found = release_facts(
            guarantee=MECHANISM.guarantee(line), options={}, kept=[], sanitized=[], **given
        )
        assert "products" not in found


def test_the_json_is_complete_and_what_may_be_shared_has_no_count_but_that_of_rows(line):
    """Rejects counters of any kind, options that say where things are, and what is lacking in the output."""
    report = report_of(line, private_remarks=["The input is partitioned by h."])
    value = json.loads(report.to_json())
    assert list(value) == [
        "format_version", "guarantee", "scope", "private_scope", "options", "row_id", "kept", "sanitized",
        "embedding", "search", "identifier_patterns", "rows", "columns", "versions",
    ]  # fmt: skip
    assert value["guarantee"] == json.loads(json.dumps(MECHANISM.guarantee(line).to_json()))
    assert (
        value["embedding"]["fingerprint"] == line.fingerprint
        and value["embedding"]["release_words"] == 4
    )
    counts = COUNTS._asdict()
    counts["left"] = {kind: counts.pop(f"left_{kind}") for kind in PIECES}
    counts = {name: n for name, n in counts.items() if name not in MARKS}
    counts |= {
        "out_of_vocabulary": {"policy": "mask", "tokens": 110},
        "marks": dict.fromkeys(MARKS, 0),
    }
    assert value["columns"] == {"naïve text": counts}
    assert (value["rows"], value["search"]) == (1234, "exact")
    assert "naïve text" in report.to_json()  # readable, not escaped
    private = ("persons", "coverage", "row_lengths", "singled_out", "rows_named", "ledger")
    private += ("columns", "seconds", "run")
    report.facts.update(dict.fromkeys(private, "hidden"), added_rows=4321)
    text = report.to_publish(PrivatizeOptions.published)
    public, whole = json.loads(text), json.loads(report.to_json())
    assert public.keys() == whole.keys() - {"added_rows", "private_scope", *private}
    assert {*public["options"]} <= {*whole["options"]} - {
        "input",
        "output",
        "embedding",
        "name",
        "where",
    }
    assert public["options"]["epsilon"] == 2.0 and public["rows"] == 1234
    assert whole["private_scope"][0] == "The input is partitioned by h."
    assert all(name not in text for name in ("600", "300", "110", "4321", "partitioned", "zebra"))
    with pytest.raises(ValueError, match="JSON"):
        report_of(line, options={"epsilon": float("nan")}).to_json()


ASSUMED = "Assumed: epsilon and all other options were chosen without a look at these rows."
LOOKED = {"epsilon-from-private-rows": True}
SCOPE = {
    # An epsilon without a word on it would not do: one that follows from rows reveals something of them.
    ASSUMED: ({}, {}),
    "Epsilon was chosen after a look at private rows.": ({"options": LOOKED}, {}),
    "Columns released as they are, without protection: id.": ({}, {}),
    "Privacy loss adds up across duplicate rows and rows about the same person.": ({}, {}),
    "across the 2 sanitized columns of a row, duplicate rows": ({"sanitized": ["a", "b"]}, {}),
    "across the elements of its arrays, duplicate rows": ({"sanitized": ["a[].x"]}, {}),
    "the 2 sanitized columns of a row, the elements of its arrays,": (
        {"sanitized": ["a[].x", "b"]},
        {},
    ),
    "Row order within an input file is preserved": ({}, {}),
    "Row order is random": ({"keeps_order": False}, {}),
    "ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION": ({}, {"oov": "keep-unprotected"}),
    "uniformly random word": ({}, {"oov": "random"}),
    "stop words are released as they are": ({}, {"protect": "content"}),
    "slots of column marks": ({}, {"protect": "slots:marks"}),
    "PUNCTUATION, SYMBOLS, EMOJI, SPACES AND LINE BREAKS BETWEEN WORDS ARE": (
        {},
        {"layout": "keep"},
    ),
}


@pytest.mark.parametrize("said", SCOPE)
def test_the_scope_says_what_is_not_covered(line, said):
    changes, policy = SCOPE[said]
    report = report_of(line, TextPolicy(**policy), **changes)
    public = json.loads(report.to_publish(["epsilon"]))["scope"]
    assert (
        len([sentence for sentence in public if said in sentence]) == 1
        and said in report.describe()
    )
    assert (said in report_of(line).describe()) == (not changes and not policy)


def test_the_scope_says_what_another_release_tells():
    """Rejects "nothing is released twice": it holds for rows that are equal to the byte alone."""
    options = {"what": "text", "arrays": True, "by_position": True, "grows": True}
    (fresh,) = facts.key_scope(kept=False, **options)
    assert "another release of these rows gets new noise" in fresh
    equal, changed, arrays, moved, again = facts.key_scope(kept=True, **options)
    assert "has an equal output if it and its row's id are byte-for-byte equal" in equal
    assert "sees which rows changed" in equal
    assert "all of it costs epsilon again, not the changed part alone" in changed
    assert "elements that shift count as changed" in arrays
    assert "another file or position count as changed" in moved
    assert "comes again under another name adds its rows again" in again
    plain = facts.key_scope(kept=True, what="text", arrays=False, by_position=False, grows=True)
    assert plain == [equal, changed]


def test_the_words_say_counts_and_shares(line):
    report, summary = report_of(line), MECHANISM.guarantee(line).summary()
    for part in (
        *(summary, "Rows: 1,234", "naïve text: 1,100 words", "600 replaced (54.5%)"),
        *("300 unchanged by the noise (27.3%)", "110 out of vocabulary (mask) (10.0%)"),
        *("50 unprotected (4.5%)", "40 blank (3.6%)", "Rows are named by column id."),
    ):
        assert part in report.describe()
    before = describe({**report.facts, "rows": None, "columns": {}})
    assert "Rows:" not in before and summary in before
    empty = TokenCounts(**dict.fromkeys(TokenCounts._fields, 0))
    assert (
        describe_counts(0, {"text": token_counts(empty, "mask")}) == "Rows: 0\ntext: 0 words: none"
    )
    grown = describe_counts(1, {"text": token_counts(COUNTS, "mask")}, added_rows=1)
    assert "1 of them added by this run" in grown


@pytest.mark.parametrize("found", ["not installed", "4.0.1"])
def test_versions_are_those_that_are_installed(monkeypatch, found):
    """A cluster's own pyspark has no metadata."""
    known = dict.fromkeys({*facts._LIBRARIES} - {"pyspark"}, "1.0")
    monkeypatch.setattr(
        facts, "version", lambda name: known.get(name) or metadata.version("absent")
    )
    own = SimpleNamespace() if found == "not installed" else SimpleNamespace(__version__=found)
    monkeypatch.setitem(sys.modules, "pyspark", own)
    versions = facts.versions()
    assert (versions["pyspark"], versions["numpy"]) == (found, "1.0") and "python" in versions


BUDGET = RowBudget(loss=3.0, within=0.5)


def test_rows(line):
    """Rejects numbers of one word, and those of the other length."""
    lengths = {"median": 2, "longest": 31, "sample": None}
    guarantee, epsilons = MECHANISM.guarantee(line), MECHANISM.row_epsilons(BUDGET, line)
    near, found = guarantee.distances.nearest, facts.row_lengths(lengths, guarantee, None)
    for loss, name, words in zip(found["losses"], ("median", "longest"), (2, 31), strict=True):
        assert (loss["row"], loss["words"], loss["pure"]) == (
            name,
            words,
            pytest.approx(2 * words * near),
        )
        assert loss["1e-09"] == guarantee.loss_beyond(1e-9, near, words)
    assert found["said"] == ["Words of a row: median 2, longest 31"]

    sampled = {"median": None, "longest": 1, "sample": 1200}
    for given, said in (
        # 3 / (32 * 0.5): rows of 31 and 32 words have one epsilon.
        (
            lengths,
            [
                "median length (2 words) has epsilon 2.",
                "longest length (31 words) has epsilon 0.188.",
            ],
        ),
        (sampled, ["longest length (1 word, in a sample of 1,200 rows) has epsilon 2."]),
        ({"median": 0, "longest": 0, "sample": None}, []),
    ):
        rows = facts.row_lengths(given, guarantee, epsilons)["said"]
        assert rows == [f"A row of the table's {row}" for row in said]
    plain = facts.row_lengths({**sampled, "longest": 7}, guarantee, None)["said"]
    assert plain == ["Words of a row: longest 7, in a sample of 1,200 rows"]
    assert facts.row_budget(epsilons, guarantee)["loss"] == 3.0


def test_persons(line):
    """Rejects losses of rows in place of persons; budgets of rows add up, and so do their deltas."""
    counted = {
        "column": "author", "persons": 7, "nobody": 0, "within": 0.5,
        "rows": {"50%": 1, "largest": 4}, "words": {"50%": 0, "largest": 30},
    }  # fmt: skip
    guarantee, epsilons = MECHANISM.guarantee(line), MECHANISM.row_epsilons(BUDGET, line)
    found = facts.persons(counted, guarantee, None)
    losses = found["losses"]
    assert losses.keys() == {"largest"} and losses["largest"]["pure"] == 30.0
    assert losses["largest"]["1e-06"] == guarantee.loss_beyond(1e-6, 0.5, 30)
    title, half, largest = found["said"]
    assert (title, half) == ("Persons, by column author: 7", "50%: 1 rows, 0 words")
    assert largest.startswith("largest: 4 rows, 30 words; each word moved by 0.5: ")
    budgeted = facts.persons(counted, guarantee, epsilons)["losses"]
    assert budgeted == {"50%": {"pure": 3.0}, "largest": {"pure": 12.0}}
    epsilons = replace(epsilons, budget=replace(BUDGET, delta=0.01))
    with_delta = facts.persons(counted, guarantee, epsilons)
    assert with_delta["losses"]["largest"] == {"loss": 12.0, "delta": 0.04}
    assert "except with probability 0.04" in with_delta["said"][-1]


@pytest.mark.parametrize(
    ("words", "cores", "said"),
    [
        (1e5, 2, "under a core-minute, under a minute on 2 cores"),
        (9e6, 4, "about 15 core-minutes, about 3.7 minutes on 4 cores"),
        (6.4e7, 1, "about 1.8 core-hours, about 1.8 hours on 1 core"),
        (1e10, 200, "about 280 core-hours, about 83 minutes on 200 cores"),
        (1e13, 2, "about 280,000 core-hours, about 140,000 hours on 2 cores"),
    ],
)
def test_the_work_of_a_run_is_said_before_it(words, cores, said):
    """Rejects hours of one core for those of all, and more digits than a sample has."""
    ahead = facts.forecast(
        rows=70, words=words, words_per_second=10_049.0, cores=cores, files=3, folders=["dt"]
    )
    first, second = ahead["said"]
    assert first.startswith(f"Work, by a sample: {said}; one core sanitizes about 10,000 of about ")
    assert second == "Files of the output: 3, or more: at least one for each folder by dt"
    assert "Work, by a sample" in describe(
        {"scope": [], "private_scope": [], "row_id": "", "rows": None, "forecast": ahead}
    )
    nothing = facts.forecast(rows=0, words=0.0, words_per_second=None, cores=1, files=0, folders=())
    assert nothing["said"] == ["Files of the output: 0"]
    assert "forecast" not in facts._PUBLIC
