"""Words that are never output, since the policy of the run would mark them in a text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry import Ints
from dptext_spark.text.identifiers import Marker
from dptext_spark.text.policies import TextPolicy


@dataclass(frozen=True)
class Withheld:
    """Words of a bundle that are neither output nor words of a text: small, hashable."""

    bits: bytes = b""  # one for each word of the bundle; none where no word is withheld

    @classmethod
    def of(cls, flags: NDArray[np.bool_]) -> Self:
        """Return the words with a flag, of all words of a bundle (V,)."""
        if not flags.any():
            return cls()
        return cls(np.packbits(flags).tobytes())

    def __bool__(self) -> bool:
        return bool(self.bits)

    def among(self, words: int) -> NDArray[np.bool_]:
        """Return which of a bundle's first words are withheld, bool (words,)."""
        if not self.bits:
            return np.zeros(words, dtype=np.bool_)
        packed = np.frombuffer(self.bits, dtype=np.uint8)
        return np.unpackbits(packed, count=words).astype(np.bool_)

    def others(self, words: int) -> Ints:
        """Return the ids, ascending, of those of a bundle's first words that are not withheld."""
        return np.flatnonzero(~self.among(words))

    @property
    def identity(self) -> str:
        """What names these words; empty where there are none."""
        if not self.bits:
            return ""
        return hashlib.sha256(self.bits).hexdigest()[:12]


NONE: Final = Withheld()


def withheld_by(policy: TextPolicy, embedding: Embedding) -> Withheld:
    """Return the words of a bundle that a policy would mark, by policy and bundle alone."""
    return _marked(Marker(policy.tokenizer, policy.types, "", policy.patterns), embedding)


@lru_cache(maxsize=4)  # a run asks several times
def _marked(marker: Marker, embedding: Embedding) -> Withheld:
    if not marker.types and marker.user is None:
        return NONE
    flags = [marker.kind(word) is not None for word in embedding.words.to_pylist()]
    return Withheld.of(np.array(flags, dtype=np.bool_))
