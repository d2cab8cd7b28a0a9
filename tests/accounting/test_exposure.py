"""What goes out raw under policies, against the tokens that really pass."""

from collections import Counter
from functools import cache
from itertools import product

import pyarrow as pa
import pytest

from dptext_spark.accounting.exposure import (
    _NOTHING_RAW,
    _RAW,
    COVERS,
    raw_of,
    recorded_policy,
    widest,
)
from dptext_spark.text.columns import KEEP
from dptext_spark.text.layout import Layout
from dptext_spark.text.policies import Mask, OovPolicy, Protection, TextPolicy
from dptext_spark.text.tokens import WordRuns
from dptext_spark.word_reader import WordReader

TEXTS = [
    "call Bob 0170 1234567 the w01 w02",
    "mail a.b@example.com or not, 12345 and 3 May 2024 w07",
    "w03 the Unheardof 4111 1111 1111 1111",
]
SPANS = [[{"start": 5, "end": 8}], [{"start": 0, "end": 4}, {"start": 40, "end": 43}], None]
SPAN_TYPE = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))

IDENTIFIERS = ["off", "mask", "mask:email", "mask:card,phone"]
CHOICES = [
    {"oov": oov, "identifiers": identifiers, "numbers": numbers, **more}
    for oov, identifiers, numbers, more in product(
        ["mask", "random", "keep-unprotected"],
        IDENTIFIERS,
        ["mask", "words"],
        [{}, {"mask_spans": "s"}, {"protect": "content"}, {"protect": "slots:s"}],
    )
]


def passing(bundle, choices):
    """The tokens that go out raw, by text, in the code that a release runs."""
    policy = TextPolicy(**choices)
    spans = pa.array(SPANS, SPAN_TYPE) if policy.spans_column else None
    tokens = Counter()
    for run in WordReader(bundle=bundle, policy=policy).runs(pa.array(TEXTS), spans):
        raw = run.passing
        if policy.oov.stand_in == KEEP:
            raw = raw | run.unknown
        words = (word for row in run.tokens.row_tokens() for word in row)
        rows = run.tokens.rows.tolist()
        tokens.update(
            pair for pair, is_raw in zip(zip(rows, words, strict=True), raw, strict=True) if is_raw
        )
    return tokens


@cache
def policy_of(*choices):
    """The policy of some choices; there are few, and many pairs of them."""
    return TextPolicy(**dict(choices))


@cache
def what_is_raw(*choices):
    """What a policy lets out raw, as the ledger writes it down."""
    return [*raw_of(recorded_policy(policy_of(*choices)), key="key", in_elements=False)]


def cover(earlier, later):
    """How far an earlier release let out all that a later one does, by what the ledger writes down."""
    released = what_is_raw(*earlier.items())
    covers = [widest(out.covers(raw) for out in released) for raw in what_is_raw(*later.items())]
    return min(covers, key=COVERS.index, default="yes")


def is_stricter(later, earlier):
    """Whether each option of a release protects as much as that of an earlier one."""
    types = [policy_of(*choices.items()).types for choices in (earlier, later)]
    return (
        later.get("protect") in (None, earlier.get("protect"))
        and (later["oov"] != "keep-unprotected" or earlier["oov"] == "keep-unprotected")
        and types[0] <= types[1]
        and ("mask_spans" in later or "mask_spans" not in earlier)
    )


def test_what_is_covered_passes_nothing_new_and_what_is_stricter_is_covered(ring):
    """All pairs of 96 policies. Rejects a comparison by names, and one of all options for equality."""
    released = [(choices, passing(ring, choices)) for choices in CHOICES]
    assert sum(len(tokens) > 0 for _, tokens in released) > 40
    for (earlier, were_out), (later, are_out) in product(released, repeat=2):
        found = cover(earlier, later)
        if found in ("yes", "same spans"):
            assert not are_out - were_out, (earlier, later)
        if found == "no":
            assert not is_stricter(later, earlier), (earlier, later)


STRICTER = [
    ({"oov": "keep-unprotected", "identifiers": "off"}, {"oov": "keep-unprotected"}),
    ({"oov": "keep-unprotected", "identifiers": "mask:email"}, {"oov": "keep-unprotected"}),
    ({"oov": "keep-unprotected", "numbers": "words"}, {"oov": "keep-unprotected"}),
    ({"oov": "keep-unprotected"}, {"oov": "keep-unprotected", "mask_spans": "s"}),
    ({"oov": "keep-unprotected"}, {"oov": "random"}),
    ({"oov": "keep-unprotected", "protect": "content"}, {"oov": "keep-unprotected"}),
    ({"oov": "keep-unprotected", "protect": "slots:a"}, {"oov": "keep-unprotected"}),
    ({"oov": "keep-unprotected", "protect": "slots:a"}, {"protect": "slots:a"}),
    ({"layout": "keep"}, {"layout": "keep", "oov": "drop"}),
    ({"layout": "keep"}, {"tokenizer": "icu"}),
    ({"identifiers": "surrogate:A"}, {"identifiers": "mask"}),
    ({"identifiers": "surrogate:A"}, {"identifiers": "surrogate:A:email"}),
    ({"identifiers": "mask"}, {"identifiers": "off", "numbers": "words"}),  # nothing passes at all
    ({"identifiers": "off"}, {"identifiers": "mask"}),
]
WEAKER = [
    *((weaker, stricter) for stricter, weaker in STRICTER[:-2]),
    ({"protect": "slots:a", "identifiers": "mask"}, {"protect": "slots:a", "identifiers": "off"}),
    ({"layout": "keep"}, {"layout": "keep", "identifiers": "off"}),
    ({"oov": "keep-unprotected"}, {"oov": "keep-unprotected", "tokenizer": "icu"}),
    ({"oov": "keep-unprotected"}, {"oov": "keep-unprotected", "protect": "slots:a"}),
    (
        {"oov": "keep-unprotected", "mask_spans": "a"},
        {"oov": "keep-unprotected", "protect": "slots:a"},
    ),
    ({"identifiers": "surrogate:A"}, {"identifiers": "surrogate:B"}),
    ({"identifiers": "mask:email"}, {"identifiers": "surrogate:A:email"}),
]


@pytest.mark.parametrize(
    ("earlier", "later", "is_covered"),
    [*((*pair, True) for pair in STRICTER), *((*pair, False) for pair in WEAKER)],
    ids=str,
)
def test_a_stricter_policy_is_covered_and_a_weaker_one_is_not(earlier, later, is_covered):
    """Rejects a watch that refuses stricter releases, and one that knows no marks, spans or tags."""
    assert (cover(earlier, later) != "no") == is_covered
    assert {cover(earlier, earlier), cover(later, later)} <= {"yes", "same spans"}


@pytest.mark.parametrize("name", ["slots:a", "mask"])
def test_other_spans_are_compared_row_by_row(name):
    """Rejects slots that are compared by the name of their column."""
    given = {"protect": name} if name != "mask" else {"oov": "keep-unprotected", "mask_spans": "a"}
    (raw,) = raw_of(recorded_policy(TextPolicy(**given)), key="key", in_elements=False)
    assert raw.covers(raw) == "same spans"


def test_other_lists_patterns_and_keys_are_others(monkeypatch):
    """Rejects a comparison without the versions of what decides which tokens pass."""
    policy = recorded_policy(
        TextPolicy(protect="content", layout="keep", identifiers="surrogate:A")
    )
    items = [*raw_of(policy, key="key", in_elements=False)]
    for option in ("protect", "layout", "tokenizer", "patterns", "reveals"):
        others = [
            *raw_of({**policy, option: f"{policy[option]}, new"}, key="key", in_elements=False)
        ]
        assert "no" in [widest(out.covers(raw) for out in items) for raw in others], option
    other_key = raw_of(policy, key="another", in_elements=False)
    assert "no" in [widest(out.covers(raw) for out in items) for raw in other_key]
    elements = [raw.what for raw in raw_of(policy, key="key", in_elements=True)]
    assert "punctuation, spacing and capitals of" not in elements  # token lists have no layout
    assert "list " in policy["protect"] and "Unicode" in policy["layout"]


def test_each_policy_is_known_to_let_pass_nothing_or_something():
    """A policy that is added must be judged: what lets words pass has its words in ``_RAW``."""
    for option, kind in (("oov", OovPolicy), ("protect", Protection), ("layout", Layout)):
        assert {*kind.policies} - _NOTHING_RAW[option] <= {*_RAW}
        assert _NOTHING_RAW[option] <= {*kind.policies} and not _NOTHING_RAW[option] & {*_RAW}


def test_a_class_from_elsewhere_lets_words_out(monkeypatch):
    """Rejects a policy that is taken for the one whose name it has."""
    for kind, base, option, what in (
        (OovPolicy, Mask, "oov", "what passes of"),
        (Protection, Protection.policies["all"], "protect", "what passes of"),
        (
            type(TextPolicy().identifiers),
            type(TextPolicy().identifiers),
            "identifiers",
            "what stands for",
        ),
    ):
        monkeypatch.setattr(kind, "policies", dict(kind.policies))
        custom = type("Custom", (base,), {"__module__": "elsewhere"})
        items = [
            *raw_of(recorded_policy(TextPolicy(**{option: custom()})), key="", in_elements=False)
        ]
        assert items[0].what.startswith(what)
        safe = [*raw_of(recorded_policy(TextPolicy()), key="", in_elements=False)]
        assert widest(out.covers(items[0]) for out in safe) == "no"
        assert items[0].covers(items[0]) == "yes"
    monkeypatch.setattr(WordRuns, "__module__", "elsewhere")
    assert recorded_policy(TextPolicy())["tokenizer"] == "class elsewhere.WordRuns: words"
