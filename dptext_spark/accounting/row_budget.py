"""What each row may lose at most, and the epsilon that follows from its number of words.

Each epsilon rests on the law of words as far apart as the budget says: nothing in it looks at a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, Protocol

import numpy as np

from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.accounting.laws import LossLaw
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints

LEAST_ROW_DELTA: Final = 1e-10
"""Far above what adding up the losses of the longest composed row errs by."""

# Rows of so many words have an epsilon of their own; of longer ones so many lengths per doubling do.
_EACH: Final = 16
_PER_DOUBLING: Final = 4
# Up to here losses are composed; longer rows, up to the longest that an array can hold, have the pure bound.
_COMPOSED: Final = 1 << 14
_LONGEST: Final = 1 << 31
# An epsilon is good enough if it uses so much of the budget, and is looked for in so many steps.
_ENOUGH: Final = 0.98
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class RowBudget:
    """What a row may lose when each of its words moves by so much.

    Two rows of equally many words, of which each is at most ``within`` from the other's in its place, are
    (loss, delta)-indistinguishable: all columns that are sanitized together.

    Attributes:
        loss: Nats, above 0.
        within: How far each word moves at most, in the mechanism's metric, above 0.
        delta: Additional probability; 0 is a pure budget.

    Raises:
        ConfigError: A number is out of range.
    """

    loss: float
    within: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("loss", self.loss), ("within", self.within)):
            if not 0.0 < value < math.inf:
                raise ConfigError(
                    f"The {name} of a row budget is wrong", allowed="a finite number above 0", got=repr(value)
                )
        if self.delta != 0.0 and not LEAST_ROW_DELTA <= self.delta < 1.0:
            raise ConfigError(
                "The delta of a row budget is wrong",
                allowed=f"0, or {LEAST_ROW_DELTA:g} to below 1",
                got=repr(self.delta),
            )


class Scaled(Protocol):
    """A mechanism as a budget sees it: the law of its losses at any epsilon."""

    def __call__(self, epsilon: float) -> LossLaw:
        """Give the law at an epsilon; a ConfigError where the mechanism has none."""


@dataclass(frozen=True, kw_only=True)
class RowEpsilons:
    """The epsilon of each row, by its number of words.

    Attributes:
        budget: What no row exceeds.
        lengths: Numbers of words, ascending; a row has the epsilon of the first that is no less than its own.
        epsilons: Those of the lengths, descending.
    """

    budget: RowBudget
    lengths: tuple[int, ...]
    epsilons: tuple[float, ...]

    @classmethod
    def of(cls, budget: RowBudget, law: Scaled, largest: float) -> RowEpsilons:
        """Compute, in seconds, the epsilons of a mechanism whose rows get ``largest`` at most.

        Raises:
            ConfigError: The mechanism cannot keep to the budget in long rows.
        """
        pure = _Pure.of(budget, law)
        lengths = [*_lengths(_COMPOSED), *(1 << k for k in range(_COMPOSED.bit_length(), 32))]
        if budget.delta == 0.0:
            found = [pure(words) for words in lengths]
        else:
            composed = _Composed(budget=budget, law=law, pure=pure)
            found = [composed(words) if words <= _COMPOSED else pure(words) for words in lengths]
        least = np.minimum.accumulate([min(epsilon, largest) for epsilon in found]).tolist()
        law(least[-1])  # a mechanism may not have what the longest rows need
        return cls(budget=budget, lengths=tuple(lengths), epsilons=tuple(least))

    def of_rows(self, words: Ints) -> Floats:
        """float64 (rows,): the epsilons of rows of so many words (rows,).

        Raises:
            ConfigError: A row is longer than any array can be.
        """
        if words.max(initial=0) > self.lengths[-1]:
            raise ConfigError("A row has more words than a row budget allows", allowed=f"{_LONGEST:,}")
        epsilons: Floats = np.array(self.epsilons)[np.searchsorted(self.lengths, words)]
        return epsilons

    def epsilon(self, words: int) -> float:
        """Give the epsilon of a row of so many words."""
        return float(self.of_rows(np.array([words]))[0])

    @property
    def identity(self) -> str:
        """All of it, for the noise's context: no two budgets share noise at two epsilons."""
        pairs = (f"{words}:{epsilon!r}" for words, epsilon in zip(self.lengths, self.epsilons, strict=True))
        return " ".join([repr(self.budget.loss), repr(self.budget.within), repr(self.budget.delta), *pairs])

    def to_json(self) -> dict[str, Any]:
        """Give budget and epsilons as JSON-ready values."""
        pairs = zip(self.lengths, self.epsilons, strict=True)
        return {**vars(self.budget), "epsilons": [{"words": n, "epsilon": e} for n, e in pairs]}


def _lengths(longest: int) -> Iterator[int]:
    yield from range(1, _EACH + 1)
    doublings = range(1, _PER_DOUBLING * 64)
    steps = (math.floor(_EACH * 2.0 ** (k / _PER_DOUBLING)) for k in doublings)
    yield from takewhile(lambda words: words <= longest, steps)


@dataclass(frozen=True, kw_only=True)
class _Pure:
    """The epsilon of a pure budget: the bound is a straight line in epsilon."""

    budget: RowBudget
    law: Scaled
    slope: float
    offset: float

    @classmethod
    def of(cls, budget: RowBudget, law: Scaled) -> _Pure:
        one, two = (law(epsilon).bound(budget.within) for epsilon in (1.0, 2.0))
        slope = two - one
        # A line through 0 but for roundings.
        offset = one - slope if abs(one - slope) > 1e-9 * slope else 0.0
        return cls(budget=budget, law=law, slope=slope, offset=offset)

    def __call__(self, words: int) -> float:
        epsilon = (self.budget.loss / words - self.offset) / self.slope
        if epsilon <= 0.0:
            longest = math.floor(self.budget.loss / self.offset)
            raise ConfigError(
                "The mechanism cannot keep to a row budget: at any epsilon a word loses more than nothing",
                allowed="mechanisms whose loss goes to 0 with epsilon",
                got=f"{self.offset:.3g} nats a word at epsilon 0, enough for rows of {longest} words",
                do="Take exponential, which serves every geometry",
            )
        while words * self.law(epsilon).bound(self.budget.within) > self.budget.loss:
            epsilon = math.nextafter(epsilon, 0.0)
        return epsilon


@dataclass(kw_only=True)
class _Composed:
    """Finds epsilons of ascending lengths by the composed loss; each is proven before it is given."""

    budget: RowBudget
    law: Scaled
    pure: _Pure
    last: tuple[int, float] | None = None
    power: float = -0.7  # of epsilon in the number of words, as the last two lengths had it
    growth: float = 1.3  # of the loss in epsilon

    def __call__(self, words: int) -> float:
        proven = self.pure(words)
        epsilon = proven
        if self.last is not None:
            before, its = self.last
            epsilon = max(proven, its * (words / before) ** self.power)
        tried: tuple[float, float] | None = None
        for _ in range(_STEPS):
            loss = self._loss(epsilon, words)
            if loss <= self.budget.loss:
                proven = max(proven, epsilon)
                if loss >= _ENOUGH * self.budget.loss:
                    break
            if tried is not None and tried[0] != epsilon and loss > 0.0 < tried[1]:
                growth = math.log(loss / tried[1]) / math.log(epsilon / tried[0])
                self.growth = min(max(growth, 0.5), 3.0)
            tried = epsilon, loss
            aim = (1.0 + _ENOUGH) / 2.0 * self.budget.loss
            step = (aim / loss) ** (1.0 / self.growth) if loss > 0.0 else 4.0
            epsilon *= min(max(step, 0.25), 4.0)
        if self.last is not None and words > self.last[0]:
            fall = math.log(proven / self.last[1]) / math.log(words / self.last[0])
            self.power = min(max(fall, -1.0), -0.4)
        self.last = words, proven
        return proven

    def _loss(self, epsilon: float, words: int) -> float:
        law, budget = self.law(epsilon), self.budget
        return loss_beyond(law, budget.within, words=words, delta=budget.delta, coarse=True)
