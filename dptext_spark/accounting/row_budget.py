"""What each row may lose at most, and the epsilon that follows from its number of words.

Each epsilon rests on the law of words as far apart as the budget says: nothing in it looks at a
table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias

import numpy as np

from dptext_spark.accounting.laws import LossLaw, loss_beyond
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints

LEAST_EPSILON: Final = 1e-12
"""Of a mechanism and of a row: below it noise outgrows what single precision can hold."""

LEAST_ROW_DELTA: Final = 1e-10
"""Far above what adding up the losses of the longest composed row errs by."""

# Of losses and distances that losses can be computed for; all that people mean lies far inside.
_SMALLEST: Final = 1e-12
_LARGEST: Final = 1e18
# Rows of so many words have an epsilon of their own; of longer ones so many lengths per doubling
# do.
_EACH: Final = 16
_PER_DOUBLING: Final = 4
# Up to here losses are composed; longer rows, up to the longest that an array can hold, have the
# pure bound.
_COMPOSED: Final = 1 << 14
# An epsilon is good enough if it uses so much of the budget, and is looked for in so many steps.
_ENOUGH: Final = 0.98
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class RowBudget:
    """What a row may lose when each of its words moves by so much.

    Two rows of equally many words, of which each is at most ``within`` from the other's in its
    place, are (loss, delta)-indistinguishable: all columns that are sanitized together.
    """

    loss: float  # nats, above 0
    within: float  # how far each word moves at most, in the mechanism's metric, above 0
    delta: float = 0.0  # additional probability; 0 is a pure budget

    def __post_init__(self) -> None:
        positive, delta = f"{_SMALLEST:g} to {_LARGEST:g}", f"0, or {LEAST_ROW_DELTA:g} to below 1"
        for name, value, right, allowed in (
            ("loss", self.loss, _SMALLEST <= self.loss <= _LARGEST, positive),
            ("within", self.within, _SMALLEST <= self.within <= _LARGEST, positive),
            ("delta", self.delta, self.delta == 0.0 or LEAST_ROW_DELTA <= self.delta < 1.0, delta),
        ):
            if not right:
                raise ConfigError(
                    f"The {name} of a row budget is wrong", allowed=allowed, got=repr(value)
                )


LawAt: TypeAlias = Callable[[float], LossLaw]
"""The law of a mechanism's losses at any epsilon; a ConfigError where the mechanism has none."""


@dataclass(frozen=True, kw_only=True)
class RowEpsilons:
    """The epsilon of each row, by its number of words."""

    budget: RowBudget
    lengths: tuple[
        int, ...
    ]  # ascending; a row has the epsilon of the first that is no less than its own
    epsilons: tuple[float, ...]  # of the lengths, descending

    @classmethod
    def of(cls, budget: RowBudget, law: LawAt, largest: float) -> RowEpsilons:
        """Compute, in seconds, the epsilons of a mechanism whose rows get ``largest`` at most."""
        rungs = (
            math.floor(_EACH * 2.0 ** (k / _PER_DOUBLING)) for k in range(1, _PER_DOUBLING * 64)
        )
        short = [*range(1, _EACH + 1), *takewhile(lambda words: words <= _COMPOSED, rungs)]
        lengths = [*short, *(1 << k for k in range(_COMPOSED.bit_length(), 32))]
        epsilons = _pure_epsilons(budget, law, lengths)
        if budget.delta > 0.0:
            epsilons[: len(short)] = _composed_epsilons(budget, law, short, epsilons)
        least = np.minimum.accumulate([min(epsilon, largest) for epsilon in epsilons]).tolist()
        law(least[-1])  # a mechanism may not have what the longest rows need
        row_epsilons = cls(budget=budget, lengths=tuple(lengths), epsilons=tuple(least))
        epsilon = row_epsilons.epsilons[len(short) - 1]
        if not epsilon >= LEAST_EPSILON:
            raise ConfigError(
                "The row budget is too small for noise that can be computed",
                allowed=f"a budget that leaves rows of {short[-1]:,} words an epsilon of "
                f"{LEAST_EPSILON:g}",
                got=f"epsilon {epsilon:.3g} for such rows",
                do="Raise the budget, or lower within=",
            )
        return row_epsilons

    @property
    def longest(self) -> int:
        """How many words a row may have: longer ones need a smaller epsilon than there is noise for."""
        lengths = zip(self.lengths, self.epsilons, strict=True)
        return max((words for words, epsilon in lengths if epsilon >= LEAST_EPSILON), default=0)

    def of_rows(self, words: Ints) -> Floats:
        """float64 (rows,): the epsilons of rows of so many words (rows,)."""
        if words.max(initial=0) > self.longest:
            raise ConfigError(
                "A row has more words than a row budget allows",
                allowed=f"{self.longest:,} under this budget",
                do="Cut the longest rows, or raise the budget",
            )
        epsilons: Floats = np.array(self.epsilons)[np.searchsorted(self.lengths, words)]
        return epsilons

    def epsilon(self, words: int) -> float:
        """Give the epsilon of a row of so many words."""
        return float(self.of_rows(np.array([words]))[0])

    @property
    def identity(self) -> str:
        """All of it, for the noise's context: no two budgets share noise at two epsilons."""
        pairs = (
            f"{words}:{epsilon!r}"
            for words, epsilon in zip(self.lengths, self.epsilons, strict=True)
        )
        return " ".join(
            [repr(self.budget.loss), repr(self.budget.within), repr(self.budget.delta), *pairs]
        )

    def to_json(self) -> dict[str, Any]:
        """Give budget and epsilons as JSON-ready values."""
        pairs = zip(self.lengths, self.epsilons, strict=True)
        return {**vars(self.budget), "epsilons": [{"words": n, "epsilon": e} for n, e in pairs]}


def _pure_epsilons(budget: RowBudget, law: LawAt, lengths: Iterable[int]) -> list[float]:
    """Give the epsilons of a pure budget: the bound is a straight line in epsilon."""
    one, two = (law(epsilon).bound(budget.within) for epsilon in (1.0, 2.0))
    slope = two - one
    if one - slope > 1e-9 * slope:
        raise ConfigError(
            "The mechanism cannot keep to a row budget: at any epsilon a word loses more than "
            "nothing",
            got=f"{one - slope:.3g} nats a word at epsilon 0",
            do="Take exponential, which serves every geometry",
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
    """Give the epsilons of ascending lengths by the composed loss; each is proven before it is given."""
    before, found = 0, 0.0
    power, growth = -0.7, 1.3  # of epsilon in the number of words, and of the loss in epsilon
    for words, proven in zip(lengths, pure, strict=False):
        epsilon = max(proven, found * (words / before) ** power) if before else proven
        tried, lost = 0.0, 0.0
        for _ in range(_STEPS):
            loss = loss_beyond(
                law(epsilon), budget.within, words=words, delta=budget.delta, coarse=True
            )
            if loss <= budget.loss:
                proven = max(proven, epsilon)
                if loss >= _ENOUGH * budget.loss:
                    break
            if loss > 0.0 < lost and tried != epsilon:
                growth = min(max(math.log(loss / lost) / math.log(epsilon / tried), 0.5), 3.0)
            tried, lost = epsilon, loss
            aim = (1.0 + _ENOUGH) / 2.0 * budget.loss
            step = (aim / loss) ** (1.0 / growth) if loss > 0.0 else 4.0
            epsilon *= min(max(step, 0.25), 4.0)
        if before:
            power = min(max(math.log(proven / found) / math.log(words / before), -1.0), -0.4)
        before, found = words, proven
        yield proven
