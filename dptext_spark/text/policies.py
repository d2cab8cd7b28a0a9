"""The policies of a release: which tokens are protected, and what becomes of unknown ones."""

from __future__ import annotations

from dataclasses import dataclass

from dptext_spark.text.out_of_vocabulary import OovPolicy
from dptext_spark.text.protection import Protection


@dataclass(frozen=True, init=False)
class TextPolicy:
    """Which tokens are perturbed and what becomes of unknown ones.

    Args:
        oov: Treatment of tokens outside the vocabulary: a policy or its name.
        protect: ``all``, ``content`` (stop words pass), ``slots:COLUMN`` (all but slots passes), or a policy.

    Raises:
        ConfigError: ``oov`` or ``protect`` is none of these.
    """

    oov: OovPolicy
    protect: Protection

    def __init__(self, *, oov: OovPolicy | str = "mask", protect: Protection | str = "all") -> None:
        object.__setattr__(self, "oov", OovPolicy.of(oov))
        object.__setattr__(self, "protect", Protection.of(protect))

    def describe(self) -> list[str]:
        """Say what the guarantee does not cover under this policy."""
        return [
            self.protect.describe(),
            self.oov.describe(),
            "The number of words in each row and which rows are null or empty are released as they are.",
            "Capitals, punctuation, emoji and spacing of the covered words are not in the output.",
        ]
