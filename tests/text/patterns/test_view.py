"""Views of texts: places in them are places of the text, whatever was cut or folded."""

import pytest

from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import NUMBER, TYPES

ALL = frozenset([*TYPES, NUMBER])


def test_spans_are_found_in_parts_of_long_texts():
    """Rejects a part that ends inside of a span, or a place that is counted from the part's start."""
    span = "john.smith%40example.com"
    text = " ".join(
        ["word " * 40, span, "word " * 40, "x" * 60 + "@" + "y" * 60 + ".com", "word " * 40]
    )
    spans = find(text, ALL)
    assert [text[start:end] for start, end, _ in spans] == [span, text.split()[81]]


@pytest.mark.parametrize("join", ["", " ", "  "])
def test_places_are_those_of_the_text(join):
    """Rejects places of the view: each escape, space and accent before a span moves them."""
    text = f"a&nbsp;e\u0301  1%40 {join}" + "caf\u00e9 " * 3 + "+33 6\u00a0\u00a012 34 56 78"
    ((start, end, name),) = find(text, frozenset(["phone"]))
    assert (text[start:end], name) == ("+33 6\u00a0\u00a012 34 56 78", "phone")
