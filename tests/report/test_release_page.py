"""The page of a release that can be signed: public facts alone, in sentences, as HTML and as text."""

import re

from dptext_spark.report.facts import describe, rows_named
from dptext_spark.report.release_page import release_page, release_text, sections
from tests.helpers.release_facts import facts_of, options_of

SCRIPT = "<script>alert(1)</script>"


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
