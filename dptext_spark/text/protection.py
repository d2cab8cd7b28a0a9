"""Which tokens are protected: a policy is one class, which its name makes an option."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.errors import InputError
from dptext_spark.text.named_policy import NamedPolicy
from dptext_spark.text.slots import protected_by_slots
from dptext_spark.text.stop_words import stop_words
from dptext_spark.text.token_columns import Tokens
from dptext_spark.text.tokens import match_form


class Protection(NamedPolicy, ABC):
    """A policy for which tokens are protected; the others are released as they are."""

    kind = "protection policy"
    option = "--protect"
    policies: ClassVar[dict[str, type[Protection]]] = {}

    @property
    def slots_column(self) -> str | None:
        """The column that names each row's slots, where the policy needs them."""
        return None

    @abstractmethod
    def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
        """Mark the tokens of some rows that are protected, bool (tokens,).

        Raises:
            InputError: The policy needs the slots of each row and there are none.
        """


class AllWords(Protection):
    """Every token."""

    name = "all"
    scope = "Every word of the sanitized columns that the vocabulary has is covered."

    def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
        """See :meth:`Protection.protected`."""
        return np.ones(len(tokens), dtype=np.bool_)


class ContentWords(Protection):
    """All but stop words."""

    name = "content"
    note = "stop words pass"
    scope = "Stop words are released as they are; the other words of the vocabulary are covered."

    def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
        """See :meth:`Protection.protected`."""
        return ~tokens.flag(lambda token: match_form(token, lower=True) in stop_words())


@dataclass(frozen=True)
class Slots(Protection):
    """The tokens inside the slots that a column names; see :func:`protected_by_slots`."""

    name = "slots"
    note = "all else passes"
    scope = (
        "Only words inside the slots of column {column} that the vocabulary has are covered; "
        "all others are released as they are."
    )

    column: str

    @property
    def slots_column(self) -> str:
        """See :attr:`Protection.slots_column`."""
        return self.column

    def protected(self, tokens: Tokens, slots: pa.Array | None) -> NDArray[np.bool_]:
        """See :meth:`Protection.protected`."""
        if slots is None:
            raise InputError(
                f"The policy {self} needs the slots of each row",
                do=f"Give the values of column {self.column}",
            )
        rows = zip(tokens.row_tokens(), slots.to_pylist(), strict=True)
        flags = [flag for row, row_slots in rows for flag in protected_by_slots(row, row_slots)]
        return np.array(flags, dtype=np.bool_)
