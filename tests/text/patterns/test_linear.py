"""The built-in patterns take work in proportion to a text's length: counted, not timed."""

import re
from itertools import product
from re import _constants as kinds
from re import _parser as parser

import pytest

from dptext_spark.text.patterns.find import PATTERNS
from dptext_spark.text.patterns.pattern import Pattern
from dptext_spark.text.patterns.view import View

REPEATS = (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT)
PARTS = ("1", "12", "123", "a1", "+4", "(0)", "00", "1a", "x@y.", "c:\\a", "/home/a", "12:34")
ENDS = ("", " ", ".", "-", "\u2014", "/", "_", "\u00b7", ":", ",", "'", "@")


def unbounded(tree):
    """The repeats without a largest number, and what they repeat."""
    for kind, value in tree:
        if kind in REPEATS:
            _, most, inner = value
            if most is kinds.MAXREPEAT:
                yield kind, inner
            yield from unbounded(inner)
        elif kind is kinds.SUBPATTERN:
            yield from unbounded(value[3])
        elif kind is kinds.BRANCH:
            for branch in value[1]:
                yield from unbounded(branch)
        elif kind in (kinds.ASSERT, kinds.ASSERT_NOT):
            yield from unbounded(value[1])
        elif kind is kinds.ATOMIC_GROUP:
            yield from unbounded(value)


def is_linear(pattern):
    """Whether all that a pattern repeats without end can be matched in one way alone.

    These are figures, possessively, and groups whose every round has a separator and such figures.
    """
    for kind, inner in unbounded(parser.parse(pattern.regex.pattern, pattern.regex.flags)):
        is_set = len(inner) == 1 and inner[0][0] in (kinds.IN, kinds.LITERAL)
        ends_with_figures = inner[-1][0] is kinds.POSSESSIVE_REPEAT
        if not (is_set and kind is kinds.POSSESSIVE_REPEAT) and not ends_with_figures:
            return False
    return True


def matched(pattern, text):
    """How many signs the matches of a search have together, those that are no spans included."""
    signs = 0
    match = pattern.regex.search(text)
    while match is not None:
        signs += match.end("all") - match.start("all")
        place = match.start() + 1
        span = pattern.span(match)
        if span is not None:
            place = span[1]
        match = pattern.regex.search(text, place)
    return signs


def is_in_proportion(pattern, part):
    short, long = (matched(pattern, View(part * count + "!").text) for count in (50, 200))
    return long <= 4 * short + 8 * 2000  # a path or an address of the web has 2,000 signs at most


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.type)
def test_each_sign_is_matched_a_bounded_number_of_times(pattern):
    """Rejects a search that goes through a run of numbers again from each of them."""
    assert is_linear(pattern)
    for part, end in product(PARTS, ENDS):
        assert is_in_proportion(pattern, part + end), part + end


def test_wrong_patterns_are_found():
    """Rejects a gauge that finds nothing: a repeat in a repeat, and a match that is looked at again."""
    assert not is_linear(Pattern.of("x", "(?:[0-9]+)+a"))
    assert not is_linear(Pattern.of("x", "[0-9]*1"))
    again = Pattern.of("x", "[0-9]++(?: [0-9]++)*", lambda match: None)
    assert is_linear(again) and not matched(again, "1 " * 200) <= 4 * matched(again, "1 " * 50)
    assert isinstance(again.regex, re.Pattern)
