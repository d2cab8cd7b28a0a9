"""The page of a release that can be signed: its public facts in sentences, as HTML and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final, NamedTuple

from dptext_spark.display import html, rendered
from dptext_spark.errors import printable

Facts = Mapping[str, Any]

TITLE: Final = "Release of a sanitized table"

_POLICIES: Final = {
    "oov": "Unknown words",
    "protect": "Words that get noise",
    "layout": "Layout",
    "numbers": "Numbers",
    "tokenizer": "Tokenizer",
    "release-words": "Words that may be output",
    "row-budget": "Budget of a row",
}
"""Published options that the page names, where they are given."""

_NOT_HIDDEN: Final = (
    "The bound is for one word at a time: the unit of privacy is a word, not a person or a row.",
    "Rows are not hidden among rows. One rare unchanged word may single out a row. For anyone who "
    "has the original texts, all words of a row together may do so, although most of them changed.",
    "Topic and length of a text remain recognizable: replacements are near in meaning.",
    "Names and other personal data that no pattern and no detector marked are words like all "
    "others: they get noise, and nothing more.",
)
_UNCHANGED: Final = (
    "Unchanged columns: {columns}. They are quasi-identifiers: data intruders who know "
    "these values of a person from elsewhere can find the rows."
)

_LEARNERS: Final = (
    (
        "Anyone with this table",
        "each word up to the bound; a text up to the sum of the bounds of its words",
        "epsilon",
    ),
    (
        "A reader who knows the language, or similar texts",
        "more than from each word alone (inferential disclosure)",
        "epsilon; what attackers get is measured by dptext evaluate",
    ),
    (
        "Somebody with the original texts",
        "which row is whose (identity disclosure), at an epsilon that keeps texts useful",
        "access to the originals; contracts",
    ),
    (
        "Somebody with other data on the same persons",
        "what columns that are unchanged, and ids, join to (linkage attack)",
        "fewer unchanged columns",
    ),
    (
        "Somebody with other releases of these rows",
        "the sum of what each release reveals; which rows changed",
        "a ledger with a budget",
    ),
    (
        "Those who hold the key, or the private report",
        "whether a guess of a text is right; exact counts",
        "only those who run the job have them",
    ),
)
"""Who could learn what, and what limits it."""


_RECIPIENTS: Final = (
    "Any single word may be noise: decide nothing about a person from one row, and do not look for "
    "persons.",
    "What may be counted, and what a word or a mark means: docs/analyst.md, "
    '"You were given a sanitized table".',
)
"""What those who get the table should know."""

_SIGNED: Final = ("Released to", "Purpose", "Name", "Date", "Signature")


class Section(NamedTuple):
    """A part of the page: its title, and blocks as ``display`` writes them."""

    title: str
    blocks: list[Any]


def sections(facts: Facts) -> Iterator[Section]:
    """Yield the parts of the page, from the facts that may be shared with the table."""
    yield Section("What is released", [{"table": [*_rows(facts)], "numbers": False}])
    bound: list[str] = []
    for guarantee in (facts.get("guarantee"), *facts.get("guarantees", ())):
        if guarantee:
            bound += guarantee["summary"].split("\n")
    if "row_budget" in facts:
        bound.append(facts["row_budget"]["said"])
    yield Section("The bound", [bound])
    yield Section("What is protected, and what is not", [[*facts["scope"], facts["row_id"]]])
    not_hidden = [*_NOT_HIDDEN]
    if facts["kept"]:
        not_hidden.append(_UNCHANGED.format(columns=", ".join(facts["kept"])))
    yield Section("What this release does not hide", [not_hidden])
    head = ("", "could learn", "what limits it")
    yield Section("Who could learn what", [{"table": [head, *_LEARNERS], "numbers": False}])
    yield Section("For those who get the table", [[*_RECIPIENTS]])
    if "evaluation" in facts:
        yield Section("Measured risk", [facts["evaluation"]["said"]])


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table of what is released."""
    options = facts["options"]
    rows = facts["rows"]
    yield "Date and time", facts["started"].replace("T", " ").replace("+00:00", " UTC")
    yield "Sanitized columns", ", ".join(facts["sanitized"])
    yield "Unchanged columns", ", ".join(facts["kept"]) or "none"
    yield "Rows", "none yet: this was a dry run" if rows is None else f"{rows:,}"
    if "mechanism" in options:
        yield "Mechanism", options["mechanism"]
    yield "Privacy parameter", f"epsilon {options['epsilon']:g}, in nats per unit of distance"
    yield "Key", options["key"]
    for name, title in _POLICIES.items():
        if options.get(name) is not None:
            yield title, str(options[name])
    embedding = facts.get("embedding")
    if embedding:
        words = f"{embedding['words']:,} words, {embedding['dimension']} dimensions"
        yield "Embedding", f"{embedding['source']}: {words}, {embedding['fingerprint'][:16]}"
    yield "Version", f"dptext-spark {facts['versions']['dptext-spark']}"


def release_text(facts: Facts) -> str:
    """Write the page for a terminal, without what the report above it has already."""
    parts = []
    for section in sections(facts):
        if section.title in ("The bound", "What is protected, and what is not"):
            continue
        blocks = section.blocks
        if section.title == "Who could learn what":
            blocks = [[f"{who}: {what}. Limit: {limit}." for who, what, limit in _LEARNERS]]
        parts.append(f"{section.title}\n{rendered(blocks)}")
    return "\n\n".join(parts)


def release_page(facts: Facts) -> str:
    """Write the page as HTML, one file that needs no other."""
    style = files("dptext_spark.report").joinpath("page.css").read_text(encoding="utf-8")
    lines = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">",
        f"<title>{TITLE}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<h1>{TITLE}</h1>",
    ]
    if facts["rows"] is None:
        lines.append('<div class="box"><p>Draft of a dry run: nothing was released.</p></div>')
    for section in sections(facts):
        lines.append(f"<h2>{escape(section.title)}</h2>")
        lines += map(_block, section.blocks)
    lines.append("<h2>Decision</h2>")
    lines += map('<p class="sign">{}</p>'.format, _SIGNED)
    return "\n".join([*lines, "</body>\n</html>\n"])


def _block(block: Any) -> str:
    if isinstance(block, Mapping):
        return html([block])
    return _list(block)


def _list(sentences: list[str]) -> str:
    items = "".join(f"<li>{escape(printable(sentence))}</li>" for sentence in sentences)
    return f"<ul>{items}</ul>"
