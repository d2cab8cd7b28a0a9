"""Slots: how they are read, and which tokens they protect."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from dptext_spark.text.joined_words import JoinedWords
from dptext_spark.text.slots import protected_by_slots, slot_values


@pytest.mark.parametrize(
    ("slots", "values"),
    [
        (["Paris", "two days"], ["Paris", "two days"]),
        ([{"text": "Paris", "kind": "city"}], ["Paris"]),
        ([{"text": "Paris"}, "Rome"], ["Paris", "Rome"]),
        ('["Paris"]', ["Paris"]),
        ('[{"text": "Paris", "start": 3}]', ["Paris"]),
        ([], []),
        ("[]", []),
        (None, None),
        ("", None),
        ("Paris", None),
        ('"Paris"', None),
        ('{"text": "Paris"}', None),
        ({"text": "Paris"}, None),
        ("[1]", None),
        ([None], None),
        (["Paris", None], None),
        ([{"value": "Paris"}], None),
        ([{"text": None}], None),
        ([["Paris"]], None),
        (b"Paris", None),
        (7, None),
    ],
)
def test_slots_are_read_or_not_understood(slots: object, values: list[str] | None) -> None:
    assert slot_values(slots) == values


TOKENS = ["fly", "me", "To", "New", "York", None, "new", "york", "Paris", "new"]


@pytest.mark.parametrize(
    ("slots", "protected"),
    [
        (["Paris"], [8]),
        (["new york"], [3, 4, 6, 7]),
        (["new"], [3, 6, 9]),
        ([{"text": "NEW YORK"}, {"text": "paris"}], [3, 4, 6, 7, 8]),
        (json.dumps([{"text": "new york"}]), [3, 4, 6, 7]),
        (["York new"], "all"),  # a null lies between
        (["york paris new"], [7, 8, 9]),
        ([], []),
    ],
)
def test_every_occurrence_of_a_slot_is_protected(slots: object, protected: list[int] | str) -> None:
    expected = [protected == "all" or row in protected for row in range(len(TOKENS))]
    assert protected_by_slots(TOKENS, slots) == expected


@pytest.mark.parametrize(
    "slots", [None, "no JSON", "[1]", [None], ["London"], ["Paris", "Londo"], ["Pari"], ["paris new york"], 5]
)
def test_in_doubt_the_whole_row_is_protected(slots: object) -> None:
    """Rejects the tempting default, that a slot which is not found protects nothing."""
    assert protected_by_slots(TOKENS, slots) == [True] * len(TOKENS)


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(
            lambda: protected_by_slots(["😀", "hi"], ["😀"]),
            id="token without letters",
        ),
        pytest.param(
            lambda: protected_by_slots(["a", "b"], "[" * 200_000),
            id="deep JSON",
        ),
    ],
)
def test_slots_that_tokens_cannot_match_protect_the_whole_row(read: Callable[[], list[bool]]) -> None:
    assert read() == [True, True]


def test_a_joined_word_is_protected_whole_where_a_slot_has_a_part_of_it() -> None:
    """Rejects slots that are looked for by whole tokens: the seal of "harbor seal" would pass as it is."""
    tokenizer = JoinedWords.of(pa.array(["harbor_seal", "seal"]))
    tokens = tokenizer("a seal, a Harbor  Seal and a harbor")
    assert tokens == ["a", "seal", "a", "Harbor  Seal", "and", "a", "harbor"]
    for slot, expected in {"seal": [1, 3], "harbor seal": [3], "harbor": [3, 6], "seal and": [3, 4]}.items():
        flags = protected_by_slots(tokens, [slot], tokenizer)
        assert [place for place, flag in enumerate(flags) if flag] == expected
    assert protected_by_slots(["e-mail", "it"], ["e-mail"]) == [True, False]
