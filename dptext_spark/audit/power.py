"""How often something is found, of many independent draws of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dptext_spark.binomial import lower_limit, upper_limit

DRAWS: Final = 20
"""How often an audit is drawn again, under keys of their own, to see how often it finds something."""

_TAIL: Final = 0.025


@dataclass(frozen=True, kw_only=True)
class Share:
    """In how many draws something was found.

    Attributes:
        found: Draws in which it was.
        draws: All of them.
        low: The probability of finding it is this at least, at 97.5 % confidence (Clopper and Pearson 1934).
        high: It is this at most, likewise.
    """

    found: int
    draws: int
    low: float
    high: float

    @classmethod
    def of(cls, found: int, draws: int) -> Share:
        """Bound the probability by what was found."""
        low, high = lower_limit(found, draws, _TAIL), upper_limit(found, draws, _TAIL)
        return cls(found=found, draws=draws, low=float(low), high=float(high))

    def describe(self) -> str:
        """Say it in plain words."""
        return f"in {self.found} of {self.draws} draws ({100 * self.low:.0f} to {100 * self.high:.0f} %)"
