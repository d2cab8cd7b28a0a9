"""Slots, the spans of a row's text that its table names: how they are read, and where they are found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from dptext_spark.text.joined_words import parts_of
from dptext_spark.text.tokens import PLAIN, Tokenizer, match_form


def slot_values(slots: object) -> list[str] | None:
    """Read a row's slots: strings, structs with a ``text`` field, or either of these as JSON.

    Returns:
        The slots' texts; None when they are absent or not understood.
    """
    if isinstance(slots, str):
        try:
            slots = json.loads(slots)
        except (ValueError, RecursionError):
            return None
    if not isinstance(slots, Iterable) or isinstance(slots, str | bytes | dict):
        return None
    values = [slot.get("text") if isinstance(slot, dict) else slot for slot in slots]
    texts = [value for value in values if isinstance(value, str)]
    return texts if len(texts) == len(values) else None


def protected_by_slots(
    tokens: Sequence[str | None], slots: object, tokenizer: Tokenizer = PLAIN
) -> list[bool]:
    """Mark the tokens of a row that lie inside one of its slots, which :func:`slot_values` reads.

    Every occurrence of a slot's tokens is protected, and a joined word whole where a slot has a part of it. A
    row whose slots are null, malformed or not found in its tokens is protected whole: in doubt nothing
    passes.
    """
    parts = [[None] if token is None else parts_of(token, tokenizer) for token in tokens]
    flags = _found([_form(part) for token in parts for part in token], slots, tokenizer)
    ends = list(accumulate(map(len, parts), initial=0))
    return [any(flags[start:end]) for start, end in pairwise(ends)]


def _found(forms: list[str | None], slots: object, tokenizer: Tokenizer) -> list[bool]:
    values = slot_values(slots)
    if values is None:
        return [True] * len(forms)
    protected = [False] * len(forms)
    for value in values:
        wanted = [_form(part) for token in tokenizer(value) for part in parts_of(token, tokenizer)]
        size = len(wanted)
        starts = [i for i in range(len(forms) - size + 1) if size and forms[i : i + size] == wanted]
        if value.strip() and not starts:
            return [True] * len(forms)
        for start in starts:
            protected[start : start + size] = [True] * size
    return protected


def _form(token: str | None) -> str | None:
    return None if token is None else match_form(token, lower=True)
