"""What each row may lose at most, and the epsilon that follows from its number of words.

Each epsilon rests on the law of words as far apart as the budget says: nothing in it looks at a
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from numbers import Real
from typing import Any, Final, TypeAlias

import numpy as np

from dptext_spark.accounting.laws import LossLaw, loss_beyond
from dptext_spark.arguments import must_be
from dptext_spark.errors import ConfigError, parsed
from dptext_spark.geometry import Floats, Ints

LEAST_EPSILON: Final = 1e-12
"""For mechanisms and rows: below it noise outgrows what single precision can hold."""

LEAST_ROW_DELTA: Final = 1e-10
"""Far above what adding up the losses of the longest composed row errs by."""

# Of losses and distances that losses can be computed for; all that people mean lies far inside.
_SMALLEST: Final = 1e-12
_LARGEST: Final = 1e18
# Up to so many words each length has an epsilon of its own; then so many lengths per doubling.
_EACH: Final = 16
_PER_DOUBLING: Final = 4
# Up to here losses are composed. Longer rows, up to the longest that an array holds, have the pure
# bound.
_COMPOSED: Final = 1 << 14
# An epsilon is good enough if it uses this share of the budget; the search has so many steps.
_ENOUGH: Final = 0.98
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class RowBudget:
    """The largest privacy loss of a row, if each of its words moves at most a given distance.

    Two rows with the same number of words, each at most ``within`` from the word in the same place
    of the other row, are (loss, delta)-indistinguishable, over all sanitized columns together.
    """

    loss: float  # nats, above 0
    within: float  # how far each word moves at most, in the mechanism's metric, above 0
    delta: float = 0.0  # additional probability; 0 is a pure budget

    def __post_init__(self) -> None:
        values = {"loss": self.loss, "within": self.within, "delta": self.delta}
        for name, value in values.items():
            if not isinstance(value, Real):
                raise must_be(f"{name} of a row budget", "a number", value)
            if name == "delta":
                continue
            if not _SMALLEST <= value <= _LARGEST:
                raise ConfigError(
                    f"The {name} of a row budget must be {_SMALLEST:g} to {_LARGEST:g}; "
                    f"got {value!r}"
                )
        if self.delta != 0.0 and not LEAST_ROW_DELTA <= self.delta < 1.0:
            raise ConfigError(
                f"The delta of a row budget must be 0, or {LEAST_ROW_DELTA:g} to below 1; "
                f"got {self.delta!r}"
            )

    @classmethod
    def of(cls, value: object, within: float = 1.0) -> RowBudget:
        """Return a budget, read if this is text, ``LOSS:within=DISTANCE,delta=PROBABILITY``.

        By default each word moves as far as ``within``.
        """
        if isinstance(value, RowBudget):
            return value
        if not isinstance(value, str | Real):
            raise must_be(
                "--row-budget", "a RowBudget, such as RowBudget(loss=50, within=3)", value
            )
        try:
            loss, listed = parsed(str(value))
            parameters = {"within": within}
            for name, parameter in listed.items():
                parameters[name] = float(parameter)
            return cls(loss=float(loss), **parameters)
        except (ConfigError, TypeError, ValueError):
            raise ConfigError(
                "Option --row-budget has a wrong value",
                allowed="LOSS or LOSS:within=DISTANCE,delta=PROBABILITY, PROBABILITY "
                f"{LEAST_ROW_DELTA:g} or more, the others 1e-12 to 1e+18",
                got=repr(value),
            ) from None


LawAt: TypeAlias = Callable[[float], LossLaw]
"""The law of a mechanism's losses at any epsilon; a ConfigError where the mechanism has none."""


@dataclass(frozen=True, kw_only=True)
class RowEpsilons:
    """The epsilon of each row, by its number of words."""

    budget: RowBudget
    # Ascending; a row has the epsilon of the first that is not below its own.
    lengths: tuple[int, ...]
    epsilons: tuple[float, ...]  # of the lengths, descending

    @classmethod
    def of(cls, budget: RowBudget, law: LawAt, largest: float) -> RowEpsilons:
        """Compute, in seconds, the epsilons of a mechanism whose rows get ``largest`` at most."""
        composed_lengths = _composed_lengths()
        longer = [1 << k for k in range(_COMPOSED.bit_length(), 32)]
        lengths = [*composed_lengths, *longer]
        epsilons = _pure_epsilons(budget, law, lengths)
        if budget.delta > 0.0:
            epsilons[: len(composed_lengths)] = _composed_epsilons(
                budget, law, composed_lengths, epsilons
            )
        falling = np.minimum.accumulate(np.minimum(epsilons, largest)).tolist()
        law(falling[-1])  # a mechanism may not have what the longest rows need
        epsilon = falling[len(composed_lengths) - 1]
        if not epsilon >= LEAST_EPSILON:
            raise ConfigError(
                f"The row budget is too small: rows of {composed_lengths[-1]:,} words would get "
                f"epsilon {epsilon:.3g}, below the least one, {LEAST_EPSILON:g}",
                do="Raise the budget, or lower within=",
            )
        return cls(budget=budget, lengths=tuple(lengths), epsilons=tuple(falling))

    @property
    def longest(self) -> int:
        """How many words a row may have: longer ones need an epsilon too small for noise."""
        lengths = zip(self.lengths, self.epsilons, strict=True)
        return max((words for words, epsilon in lengths if epsilon >= LEAST_EPSILON), default=0)

    def of_rows(self, words: Ints) -> Floats:
        """Return float64 (rows,): the epsilons of rows of so many words (rows,)."""
        if words.max(initial=0) > self.longest:
            raise ConfigError(
                "A row has more words than a row budget allows",
                allowed=f"{self.longest:,} under this budget",
                do="Cut the longest rows, or raise the budget",
            )
        epsilons: Floats = np.array(self.epsilons)[np.searchsorted(self.lengths, words)]
        return epsilons

    def epsilon(self, words: int) -> float:
        """Return the epsilon of a row of so many words."""
        return float(self.of_rows(np.array([words]))[0])

    @property
    def identity(self) -> str:
        """All of it, for the noise's context: two budgets never share noise at two epsilons."""
        budget = self.budget
        parts = [repr(budget.loss), repr(budget.within), repr(budget.delta)]
        for words, epsilon in zip(self.lengths, self.epsilons, strict=True):
            parts.append(f"{words}:{epsilon!r}")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return budget and epsilons as JSON-ready values."""
        pairs = zip(self.lengths, self.epsilons, strict=True)
        return {**vars(self.budget), "epsilons": [{"words": n, "epsilon": e} for n, e in pairs]}


def _composed_lengths() -> list[int]:
    """Return the numbers of words for which losses are composed."""
    lengths = [*range(1, _EACH + 1)]
    for k in count(1):
        words = math.floor(_EACH * 2.0 ** (k / _PER_DOUBLING))
        if words > _COMPOSED:
            break
        lengths.append(words)
    return lengths


def _pure_epsilons(budget: RowBudget, law: LawAt, lengths: Iterable[int]) -> list[float]:
    """Compute the epsilons of a pure budget: the bound is a line, or from 1 on below it."""
    half = law(0.5).bound(budget.within)
    one = law(1.0).bound(budget.within)
    slope = 2.0 * (one - half)
    if one - slope > 1e-9 * slope:
        raise ConfigError(
            "This mechanism cannot be used with a row budget: even at the smallest epsilon each "
            f"word costs {one - slope:.3g} nats",
            do="Use exponential, which works in every geometry",
        )
    epsilons = []
    for words in lengths:
        epsilon = budget.loss / words / slope
        while words * law(epsilon).bound(budget.within) > budget.loss:
            epsilon = math.nextafter(epsilon, 0.0)
        epsilons.append(epsilon)
    return epsilons


def _composed_epsilons(
    budget: RowBudget, law: LawAt, lengths: Iterable[int], pure: Iterable[float]
) -> Iterator[float]:
    """Compute the epsilons of ascending lengths by the composed loss; each one is proven."""
    aim = (1.0 + _ENOUGH) / 2.0 * budget.loss
    power = -0.7  # of epsilon in the number of words
    growth = 1.3  # power of the loss in epsilon
    shorter = 0
    shorter_epsilon = 0.0
    for words, proven in zip(lengths, pure, strict=False):
        epsilon = proven
        if shorter:
            epsilon = max(proven, shorter_epsilon * (words / shorter) ** power)
        last_epsilon = 0.0
        last_loss = 0.0
        for _ in range(_STEPS):
            loss = loss_beyond(
                law(epsilon), budget.within, words=words, delta=budget.delta, coarse=True
            )
            if loss <= budget.loss:
                proven = max(proven, epsilon)
                if loss >= _ENOUGH * budget.loss:
                    break
            if loss > 0.0 and last_loss > 0.0 and last_epsilon != epsilon:
                slope = math.log(loss / last_loss) / math.log(epsilon / last_epsilon)
                growth = min(max(slope, 0.5), 3.0)
            last_epsilon = epsilon
            last_loss = loss
            step = 4.0
            if loss > 0.0:
                step = (aim / loss) ** (1.0 / growth)
            epsilon *= min(max(step, 0.25), 4.0)
        if shorter:
            slope = math.log(proven / shorter_epsilon) / math.log(words / shorter)
            power = min(max(slope, -1.0), -0.4)
        shorter = words
        shorter_epsilon = proven
        yield proven
