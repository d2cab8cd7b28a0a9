"""Words of a text, and the policies for unknown and unprotected ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dptext_spark.errors import ConfigError
from dptext_spark.text.tokens import match_form, tokenize

PLACEHOLDER: Final = "[MASK]"


class Oov(StrEnum):
    """What becomes of a word outside the vocabulary."""

    MASK = "mask"
    DROP = "drop"
    RANDOM = "random"
    FAIL = "fail"
    KEEP_UNPROTECTED = "keep-unprotected"


@dataclass(frozen=True, kw_only=True)
class TextPolicy:
    """Which words are perturbed and what becomes of unknown ones.

    Args:
        oov: Treatment of words outside the vocabulary.
        protect: ``all``, ``content`` (stop words pass) or ``slots:COLUMN`` (all but slots passes).

    Raises:
        ConfigError: ``oov`` or ``protect`` is none of these.
    """

    oov: Oov | str = Oov.MASK
    protect: str = "all"

    def __post_init__(self) -> None:
        if self.oov not in list(Oov):
            raise ConfigError(
                "The out-of-vocabulary policy (--oov) is unknown",
                allowed=", ".join(Oov),
                got=repr(self.oov),
            )
        if self.protect not in ("all", "content") and not self.slots_column:
            raise ConfigError(
                "The protection policy (--protect) is unknown",
                allowed="all, content, slots:COLUMN",
                got=repr(self.protect),
            )

    @property
    def slots_column(self) -> str | None:
        """The column that names the slots, if only slots are protected."""
        kind, _, column = self.protect.partition(":")
        return column if kind == "slots" and column else None

    def describe(self) -> list[str]:
        """Say what the guarantee does not cover under this policy."""
        covered = {
            "all": "Every word of the sanitized columns that the vocabulary has is covered.",
            "content": "Stop words are released as they are; the other words of the vocabulary are covered.",
        }.get(
            self.protect,
            f"Only words inside the slots of column {self.slots_column} that the vocabulary has are covered; "
            "all others are released as they are.",
        )
        unknown = {
            Oov.MASK: f"become {PLACEHOLDER}: their positions are visible.",
            Oov.DROP: "are left out.",
            Oov.RANDOM: "become a uniformly random word.",
            Oov.FAIL: "fail the run: there are none.",
            Oov.KEEP_UNPROTECTED: "ARE RELEASED AS THEY ARE, WITHOUT ANY PROTECTION.",
        }[Oov(self.oov)]
        return [
            covered,
            f"Words outside the vocabulary {unknown}",
            "The number of words in each row and which rows are null or empty are released as they are.",
            "Capitals, punctuation, emoji and spacing of the covered words are not in the output.",
        ]


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


def protected_by_slots(words: Sequence[str | None], slots: object) -> list[bool]:
    """Mark the words that lie inside a slot.

    Every occurrence of a slot's words is protected. A row whose slots are null, malformed or not
    found in its words is protected whole: in doubt nothing passes.

    Args:
        words: The row's words.
        slots: The row's slots, as :func:`slot_values` reads them.
    """
    forms = [None if word is None else match_form(word, lower=True) for word in words]
    values = slot_values(slots)
    if values is None:
        return [True] * len(forms)
    protected = [False] * len(forms)
    for value in values:
        wanted = [match_form(word, lower=True) for word in tokenize(value)]
        starts = _occurrences(forms, wanted) if wanted else []
        if value.strip() and not starts:
            return [True] * len(forms)
        for start in starts:
            protected[start : start + len(wanted)] = [True] * len(wanted)
    return protected


def _occurrences(words: Sequence[str | None], wanted: Sequence[str]) -> list[int]:
    size = len(wanted)
    return [i for i in range(len(words) - size + 1) if list(words[i : i + size]) == list(wanted)]
