"""What a statistic comes to over all words, how sure its mean is, and the epsilon that meets a target."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import scipy

from dptext_spark.calibration.estimators import PRIORS, Grid, Prior
from dptext_spark.calibration.statistics import LEVELS, mean_limits, most_below
from dptext_spark.errors import ConfigError

Meaning: TypeAlias = tuple[tuple[str, ...], str, float]
"""The arguments of a measure, written out, the sign of its limit, and the limit's ceiling."""

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True, kw_only=True)
class Limit(ABC):
    """A limit for a measured number, such as ``p95(n_w) <= 0.5`` or ``similarity >= 0.9``."""

    allowed: ClassVar[str]  # what a target may be, in words

    measure: str  # what is measured, such as ``p95``
    arguments: tuple[str, ...] = ()  # such as ``("n_w",)``
    upper: bool  # whether the limit is the most that is allowed; else it is the least
    limit: float  # above 0

    def __str__(self) -> str:
        inside = f"({', '.join(self.arguments)})" if self.arguments else ""
        return f"{self.measure}{inside} {'<=' if self.upper else '>='} {self.limit:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes, and its short forms."""
        form = _FORM.fullmatch(text)
        measure, inside, sign, number = form.groups() if form else ("", None, "", "")
        arguments = () if inside is None else tuple(part.strip() for part in inside.split(","))
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        meaning = cls.meaning(measure, arguments)
        if meaning is None or sign != meaning[1] or not 0.0 < limit < meaning[2]:
            raise ConfigError("The --target has a wrong value", allowed=cls.allowed, got=repr(text))
        return cls(measure=measure, arguments=meaning[0], upper=sign == "<=", limit=limit)

    @classmethod
    @abstractmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        """Give the meaning of a measure with these arguments; None where there is none."""

    def met(self, value: float) -> bool:
        """Say whether a number keeps to the limit; NaN does not."""
        return value <= self.limit if self.upper else value >= self.limit


KEYS: Final = ("mechanism", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, what comes without any look at an output, and the distribution over words."""

OF_WORDS: Final = ("n_w", "s_w", "unseen", "s_eta", "entropy", "h_0", "h_inf", "posterior")
OF_OUTPUTS: Final = ("k_w",)
SINGLE: Final = ("deniability", *(f"bayes_risk_{prior}" for prior in PRIORS))
"""Statistics of all words together: they have a mean with limits and no other numbers."""

Key: TypeAlias = tuple[str, float]
Rows: TypeAlias = list[dict[str, Any]]


def summary(
    grids: Iterable[Grid], moments: Mapping[Key, Rows], guesses: Mapping[Key, Mapping[str, Any]]
) -> Rows:
    """Give the rows of the summary, in the order of mechanisms, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence. Moments and guesses are those of
    :mod:`~dptext_spark.calibration.measure`.
    """
    rows = []
    for grid in grids:
        for key in ((grid.name, epsilon) for epsilon in grid.epsilons):
            found = _numbers(grid, moments[key])
            found |= {f"bayes_risk_{prior}": _risk(grid, guesses[key], prior) for prior in PRIORS}
            named = dict(zip(KEYS, key, strict=True))
            rows += [
                {**named, "statistic": name, **dict.fromkeys(NUMBERS), **found[name]}
                for name in (*OF_WORDS, *OF_OUTPUTS, *SINGLE)
            ]
    return rows


def _numbers(grid: Grid, moments: Rows) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in moments:
        n = int(row["n"])
        variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
        numbers = {"mean": float(Fraction(row["sum"]) / n), "sd": float(max(variance, Fraction(0))) ** 0.5}
        found[row["statistic"]] = numbers | {level: float(row[level]) for level in LEVELS}
    tail, least = (1.0 - grid.confidence) / 2.0, 1.0 / grid.words
    mean = low = high = found["n_w"]["mean"]
    if not grid.exact:
        low, high = mean_limits(min(mean, 1.0), grid.runs, float(grid.units("uniform").max()), tail)
    found["n_w"] |= {"low": low, "high": high}
    # The mean posterior is at least the prior, by Cauchy's inequality.
    found["posterior"]["floor"] = least
    mean = max(found["posterior"]["mean"], least)
    found["deniability"] = {"mean": 1.0 / mean, "floor": float(grid.words)}
    return found


def _risk(grid: Grid, sums: Mapping[str, Any], prior: Prior) -> dict[str, float]:
    """How often the best guesser names the input, of the measured words by their prior.

    The mean is what a guesser wins in one half of the runs that learns from the other, so that no guesser
    of whom it is the success does better; and at least what the likeliest word beforehand wins. The upper
    limit is from what the counts of all runs say of themselves, which is too much in expectation, by
    Jensen's inequality.
    """
    units, tail = grid.units(prior), (1.0 - grid.confidence) / 2.0
    floor = float(grid.weights(prior)[0])  # a word of rank 1 has weight 1 in the sums
    learned = float(sums[prior]) * floor / grid.runs
    if grid.exact:
        return dict.fromkeys(("mean", "low", "high"), min(learned, 1.0)) | {"floor": floor}
    runs = grid.runs // 2
    won = min(float(sums[f"{prior}_judged"]) * floor / runs, 1.0) if runs else 0.0
    low, _ = mean_limits(won, runs, float(units.max()), tail)
    high = learned + most_below(grid.runs, float(np.square(units).sum()), tail)
    return {"mean": max(won, floor), "low": max(low, floor), "high": min(high, 1.0), "floor": floor}


# The sign of a meaningful target: n_w grows with epsilon, the others fall.
_SIGNS: Final = {"n_w": "<=", "s_w": ">=", "s_eta": ">=", "entropy": ">=", "h_0": ">=", "h_inf": ">="}

# Half the epsilons that are tried at most, besides those to begin with.
_STEPS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit for a statistic over words, such as ``p95(n_w) <= 0.5``."""

    allowed = (
        "STATISTIC(n_w) <= NUMBER between 0 and 1, or STATISTIC(COLUMN) >= NUMBER above 0, "
        f"COLUMN {', '.join([*_SIGNS][1:])}; STATISTIC {', '.join(LEVELS)}"
    )

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        if measure not in LEVELS or len(arguments) != 1 or arguments[0] not in _SIGNS:
            return None
        return arguments, _SIGNS[arguments[0]], 1.0 if arguments[0] == "n_w" else math.inf

    @property
    def bounding(self) -> str:
        """The column that bounds the statistic: each word's limit, which n_w alone has."""
        return "n_w_high" if self.upper else self.arguments[0]


def searched(target: Target, grid: Grid) -> Grid:
    """Give the grid with the confidence that a look at one epsilon takes, so that the search has the grid's.

    The grid's own where a quantile of n_w and its bound only grow with epsilon, as words and noise are the
    same at all: if an epsilon that misses the target seems to meet it, then so do all smaller ones that miss
    it. Likewise where nothing is left to chance. Elsewhere each look has its share (Bonferroni).
    """
    certain = grid.exact and grid.words == grid.vocabulary
    if certain or (grid.monotone and target.arguments == ("n_w",)):
        return grid
    return replace(grid, confidence=1.0 - (1.0 - grid.confidence) / (len(grid.mechanisms) + 2 * _STEPS))


def bounding_rank(target: Target, grid: Grid) -> int:
    """Say which of the words' values, in ascending order from 1, bounds the quantile.

    A sample's words count as drawn at random, and the runs of different words as independent. The values of
    n_w are upper limits, at a tail of (1 - confidence) / 2 each: some lie on the wrong side.

    Source: David and Nagaraja 2003, "Order Statistics", section 7.1.
    """
    words, level, alpha = grid.words, LEVELS[target.measure], 1.0 - grid.confidence
    missed = alpha / 2.0 if target.upper and not grid.exact else 0.0
    if grid.words == grid.vocabulary:
        rank = max(1, math.ceil(level * words))
        # Of these and the words above, so many may be on the wrong side.
        rank += int(scipy.stats.binom.isf(alpha, words - rank + 1, missed)) if missed else 0
    elif target.upper:
        rank = 1 + int(scipy.stats.binom.isf(alpha, words, level + (1.0 - level) * missed))
    else:
        # The largest rank such that, with chance alpha at most, fewer words are at or below the quantile.
        rank = int(scipy.stats.binom.ppf(alpha, words, level))
    if not 1 <= rank <= words:
        raise ConfigError(
            f"{words} words are too few for --target {target} with confidence {grid.confidence:g}",
            do="Give --words all, or more of them",
        )
    return rank


def tuned(
    target: Target, grid: Grid, measure: Callable[[float], tuple[float, float]], *, release_words: int | None
) -> dict[str, Any]:
    """Find the largest epsilon that meets a target, whose statistic and its bound ``measure`` gives."""
    tried: dict[float, tuple[float, float]] = {}

    def meets(epsilon: float) -> bool:
        tried[epsilon] = measure(epsilon)
        return target.met(tried[epsilon][1])

    epsilon, missed = largest_epsilon(meets, grid.epsilons)
    measured = bound = options = None
    if epsilon is not None:
        measured, bound = tried[epsilon]
        more: dict[str, Any] = {} if release_words is None else {"release-words": release_words}
        more |= grid.search.options
        options = grid.mechanisms[0].at(epsilon).options
        options += "".join(f" --{name} {value}" for name, value in more.items())
    return {
        "target": str(target),
        "confidence": grid.confidence,
        "mechanism": grid.name,
        "epsilon": epsilon,
        "missed": missed,
        "measured": measured,
        "bound": bound,
        "options": options,
    }


def largest_epsilon(
    meets: Callable[[float], bool], epsilons: Sequence[float]
) -> tuple[float | None, float | None]:
    """Find the largest epsilon that meets a target, to three significant digits, by doubling and bisection.

    Gives the largest epsilon tried that does, None where none did; and the smallest tried above it that does
    not, None where all did. It begins with ``epsilons``.
    """
    low, met, high = 0.0, None, math.inf
    begin = iter(sorted(epsilons))
    for _ in range(len(epsilons) + 2 * _STEPS):
        epsilon = next(begin, None) if math.isinf(high) else None
        if epsilon is None:
            between = 2.0 * low if math.isinf(high) else math.sqrt(low * high) if low else high / 2.0
            epsilon = float(f"{between:.3g}")
        if not low < epsilon < high:
            break
        try:
            if meets(epsilon):
                low = met = epsilon
            else:
                high = epsilon
        except ConfigError:  # too low for this mechanism
            low = epsilon
    return met, None if math.isinf(high) else high
