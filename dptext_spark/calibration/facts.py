"""What a calibration found: its summary, its targets, and a dict of facts, said on a terminal and a page."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np
import scipy

from dptext_spark.calibration.estimators import PRIORS, Grid, Prior
from dptext_spark.calibration.statistics import LEVELS, mean_limits
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import TypicalDistances
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "calibration.json"

Facts = Mapping[str, Any]
Key: TypeAlias = tuple[str, float]
Moments: TypeAlias = Mapping[Key, Mapping[str, Facts]]
Rows: TypeAlias = list[dict[str, Any]]


def facts_of(grids: Sequence[Grid], bundle: Embedding, **facts: Any) -> dict[str, Any]:
    """Put together what was measured of a bundle, JSON-ready ``facts``, with what is proven."""
    first = grids[0]
    return {
        "format_version": 3,
        "release_words": first.search.release_words,
        "search": first.search.label,
        "runs": first.runs,
        "sample": first.words,
        "confidence": first.confidence,
        "mechanisms": [{"mechanism": grid.name, "estimator": grid.estimator} for grid in grids],
        "guarantee": guarantees(
            [m for grid in grids for m in grid.mechanisms], bundle, first.search
        ),
        **facts,
    }


def guarantees(
    mechanisms: Iterable[Mechanism], bundle: Embedding, search: Search
) -> list[dict[str, Any]]:
    """Give what is proven of each mechanism; distances are measured once for each metric."""
    by_mechanism = [(mechanism, mechanism.metric(bundle)) for mechanism in mechanisms]
    metrics = {metric.description: metric for _, metric in by_mechanism}
    measured = {name: TypicalDistances.measure(metric) for name, metric in metrics.items()}
    return [
        {
            "options": own.options,
            **own.guarantee(bundle, measured[metric.description], search).to_json(),
        }
        for own, metric in by_mechanism
    ]


def _rows(facts: Facts, mechanism: str, statistic: str) -> list[Facts]:
    """The summary of a statistic, the epsilons ascending."""
    return [
        r for r in facts["summary"] if (r["mechanism"], r["statistic"]) == (mechanism, statistic)
    ]


STATISTICS: Final = {
    "n_w": ("N_w: share of runs in which a word stays itself", "lower"),
    "s_w": ("S_w: different outputs of a word in these runs", "higher"),
    "unseen": ("Chance that one more run gives a new output (large: too few runs)", ""),
    "s_eta": ("S_eta: outputs that hold most of a word's runs", "higher"),
    "entropy": ("Entropy of the output, bits", "higher"),
    "h_0": ("H_0 = log2 S_w, bits", "higher"),
    "h_inf": ("H_inf: min-entropy of the output, bits", "higher"),
    "posterior": ("Probability of the input given its output, on average", "lower"),
    "k_w": ("K_w: measured words that gave an output in these runs", "higher"),
    "deniability": (
        "Deniability: how many words could equally well have produced this output",
        "higher",
    ),
    "bayes_risk_uniform": (
        "Chance that a guesser names the input, all words equally likely",
        "lower",
    ),
    "bayes_risk_zipf": (
        "Chance that a guesser names the input, the k-th word with weight 1/k",
        "lower",
    ),
}
"""What each statistic is, and which direction hides a word better: of words, of outputs from k_w on, and of
all words together from deniability on, which has a mean with limits and no other numbers."""

OF_WORDS: Final = (*STATISTICS,)[: [*STATISTICS].index("k_w")]
KEYS: Final = ("mechanism", "epsilon")
NUMBERS: Final = ("mean", "low", "high", "floor", "sd", *LEVELS)
"""The mean with its limits, what comes without any look at an output, and the distribution over words."""

_COLUMNS: Final = {
    "mean(n_w)": ("n_w", "mean"),
    "p95(n_w)": ("n_w", "p95"),
    "max(n_w)": ("n_w", "max"),
    "mean(s_w)": ("s_w", "mean"),
    "deniability": ("deniability", "mean"),
    "risk": ("bayes_risk_uniform", "high"),
    "risk_zipf": ("bayes_risk_zipf", "high"),
}


def said(facts: Facts) -> Iterator[Any]:
    """Say the main numbers: blocks of text, lists and tables, and the verdict last."""
    yield (
        f"{facts['sample']:,} of {facts['embedding']['words']:,} words were measured with "
        f"{facts['runs']:,} runs each. {facts['release_words']:,} words may be output."
    )
    for own in facts["mechanisms"]:
        name = own["mechanism"]
        table = [
            ["epsilon", "better:", *(f"{row['epsilon']:g}" for row in _rows(facts, name, "n_w"))]
        ]
        for title, (statistic, number) in _COLUMNS.items():
            cells = (f"{row[number]:.4g}" for row in _rows(facts, name, statistic))
            table.append([title, STATISTICS[statistic][1], *cells])
        columns = [list(row) for row in zip(*table, strict=True)]
        yield {"table": columns, "title": f"{name} ({own['estimator']} estimator)"}
    notes = [
        "n_w: share of runs in which a word stays itself. s_w: different outputs of a word in these runs.",
        "deniability: how many words could equally well have produced an output.",
        "risk: a guesser who sees one output names the word at most this often "
        f"({facts['confidence']:.0%} confidence).",
        world(facts),
        remark(facts),
    ]
    yield [*filter(None, notes)]
    # Table and column have to be filled in.
    release = [
        "dptext",
        "privatize",
        "--input",
        "TABLE",
        "--output",
        "sanitized",
        "--text",
        "COLUMN",
    ]
    command = shlex.join([*release, "--embedding", str(facts["options"]["embedding"])])
    if met := [row["options"] for row in facts["target"] if row["options"]]:
        yield [f"The release: {command} {options}" for options in met]
    yield list(verdict(facts))


def world(facts: Facts) -> str:
    """Say of which words risks are, and under which priors."""
    words = facts["sample"]
    which = f"all {words:,}" if words == facts["embedding"]["words"] else f"the {words:,} measured"
    return (
        f"The guesser knows that the word is one of {which} words. Uniform: all are equally likely. "
        "Zipf: the k-th word has weight 1/k."
    )


def remark(facts: Facts) -> str:
    """Say where one more run would often give a new output; empty where there is no such epsilon."""
    most = facts["options"]["eta"]
    few = {
        row["epsilon"]
        for row in facts["summary"]
        if row["statistic"] == "unseen" and row["mean"] > most
    }
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in sorted(few))
    return (
        f"Epsilon {epsilons}: Not enough runs for a reliable number; increase --runs."
        if few
        else ""
    )


def verdict(facts: Facts) -> Iterator[str]:
    """Say in one line for each mechanism which epsilon to take, or which epsilon would give what."""
    for row in facts["target"]:
        of, sure = f"{row['mechanism']}: ", f"{row['confidence']:.0%} confidence"
        if row["epsilon"] is None:
            least = f", down to {row['missed']:g}" if row["missed"] else ""
            yield f"{of}no epsilon tried{least}, meets {row['target']} ({sure})."
            continue
        missed = (
            f"; epsilon {row['missed']:g} misses it"
            if row["missed"]
            else "; no larger one was tried"
        )
        yield (
            f"{of}epsilon {row['epsilon']:g} meets {row['target']} ({sure}): measured {row['measured']:.4g}, "
            f"limit {row['bound']:.4g}{missed}."
        )
    if facts["target"]:
        return
    for name in (own["mechanism"] for own in facts["mechanisms"]):
        means = [
            f"{row['mean']:.3g} at epsilon {row['epsilon']:g}" for row in _rows(facts, name, "n_w")
        ]
        ends = " and ".join(dict.fromkeys((means[0], means[-1])))
        yield f"{name}: the average n_w is {ends}. Smaller epsilons change more words."


_FIGURES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("n_w", {"label": "$N_w$ (share of runs; lower is better)", "limits": (0.0, 1.0)}),
    ("s_w", {"label": "$S_w$ (outputs, log scale; higher is better)", "log": True}),
)


def page(facts: Facts) -> dict[str, Any]:
    """Give what the template of the page reads."""
    names, plots = [own["mechanism"] for own in facts["mechanisms"]], []
    ends = {"x": "epsilon", "low": "p5", "y": "p50", "high": "p95"}
    said = "over epsilon: the median of the words; bars reach from the 5th to the 95th percentile."
    for statistic, axis in _FIGURES:
        rows = {name: _rows(facts, name, statistic) for name in names}
        lines = {
            name: {end: [r[of] for r in own] for end, of in ends.items()}
            for name, own in rows.items()
        }
        shown = {
            "name": statistic,
            "caption": f"{statistic.capitalize()} {said}",
            "lines": lines,
            "y": axis,
        }
        plots.append({**shown, "x": {"label": "Epsilon (nats per unit of distance)"}, "bars": "y"})
    return {
        "template": "calibration.html",
        "title": f"Calibration of {', '.join(names)}",
        "facts": facts,
        "plots": plots,
        "verdict": [*verdict(facts)],
        "world": world(facts),
        "remark": remark(facts),
        "statistics": STATISTICS,
        "columns": NUMBERS,
    }


Meaning: TypeAlias = tuple[tuple[str, ...], str, float]
"""The arguments of a measure, written out, the sign of its limit, and the limit's ceiling."""

_FORM: Final = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*(<=|>=)\s*(\S+)\s*")


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
        arguments = () if inside is None else cls.arguments_of(measure, inside)
        try:
            limit = float(number)
        except ValueError:
            limit = math.nan
        meaning = cls.meaning(measure, arguments)
        if meaning is None or sign != meaning[1] or not 0.0 < limit < meaning[2]:
            do = ""
            if meaning is not None and sign == meaning[1] and not math.isnan(limit):
                is_upper = sign == "<="
                is_idle = limit >= meaning[2] if is_upper else limit <= 0.0
                do = f"No setting can {'fail' if is_idle else 'meet'} this target: take another number"
            raise ConfigError(
                "The --target has a wrong value", allowed=cls.allowed, got=repr(text), do=do
            )
        return cls(measure=measure, arguments=meaning[0], upper=sign == "<=", limit=limit)

    @classmethod
    def arguments_of(cls, measure: str, inside: str) -> tuple[str, ...]:
        """Return the arguments that are written between parentheses."""
        return tuple(part.strip() for part in inside.split(","))

    @classmethod
    @abstractmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        """Give the meaning of a measure with these arguments; None where there is none."""

    def met(self, value: float) -> bool:
        """Say whether a number keeps to the limit; NaN does not."""
        return value <= self.limit if self.upper else value >= self.limit


def summary(grids: Iterable[Grid], words: Moments, outputs: Moments) -> Rows:
    """Give the rows of the summary, in the order of mechanisms, epsilons and statistics.

    All limits are of the measured words' mean, at the grid's confidence. Moments are those of
    :mod:`~dptext_spark.calibration.measure`, of words, and of outputs with what guessers win at them.
    """
    rows = []
    for grid, epsilon in ((own, epsilon) for own in grids for epsilon in own.epsilons):
        found: dict[str, dict[str, float]] = {}
        of_outputs = outputs[grid.name, epsilon]
        for name, row in {**words[grid.name, epsilon], "k_w": of_outputs["k_w"]}.items():
            n = int(row["n"])
            variance = Fraction(row["squares"]) / n - (Fraction(row["short_sum"]) / n) ** 2
            mean, sd = float(Fraction(row["sum"]) / n), float(max(variance, Fraction(0))) ** 0.5
            found[name] = {"mean": mean, "sd": sd} | {n: float(row[n]) for n in LEVELS}
        tail, mean = (1.0 - grid.confidence) / 2.0, found["n_w"]["mean"]
        limits = mean_limits(min(mean, 1.0), grid.runs, float(grid.units("uniform").max()), tail)
        found["n_w"] |= dict(
            zip(("low", "high"), (mean, mean) if grid.exact else limits, strict=True)
        )
        # The mean posterior is at least the prior, by Cauchy's inequality.
        found["posterior"]["floor"] = least = 1.0 / grid.words
        mean = max(found["posterior"]["mean"], least)
        found["deniability"] = {"mean": 1.0 / mean, "floor": float(grid.words)}
        found |= {f"bayes_risk_{prior}": _risk(grid, of_outputs, prior) for prior in PRIORS}
        empty = {
            "mechanism": grid.name,
            "epsilon": epsilon,
            "statistic": "",
            **dict.fromkeys(NUMBERS),
        }
        rows += [empty | {"statistic": name} | found[name] for name in STATISTICS]
    return rows


def _risk(grid: Grid, won: Mapping[str, Facts], prior: Prior) -> dict[str, float]:
    """How often the best guesser names the input, of the measured words by their prior.

    The mean is what a guesser wins in one half of the runs that learns from the other, so that no guesser
    of whom it is the success does better; and at least what the likeliest word beforehand wins. The upper
    limit is from what the counts of all runs say of themselves, which is too much in expectation, by
    Jensen's inequality.
    """
    units, tail = grid.units(prior), (1.0 - grid.confidence) / 2.0
    floor = float(grid.weights(prior)[0])  # a word of rank 1 has weight 1 in the sums
    learned = float(won[prior]["sum"]) * floor / grid.runs
    if grid.exact:
        return dict.fromkeys(("mean", "low", "high"), min(learned, 1.0)) | {"floor": floor}
    runs = grid.runs // 2
    share = min(float(won[f"{prior}_judged"]["sum"]) * floor / runs, 1.0) if runs else 0.0
    low, _ = mean_limits(share, runs, float(units.max()), tail)
    # How far the gain falls below its expectation: McDiarmid 1989, "On the method of bounded differences".
    high = learned + math.sqrt(
        math.log(1.0 / tail) * float(np.square(units).sum()) / (2.0 * grid.runs)
    )
    return {
        "mean": max(share, floor),
        "low": max(low, floor),
        "high": min(high, 1.0),
        "floor": floor,
    }


# The sign of a meaningful target: n_w grows with epsilon, the others fall.
_SIGNS: Final = {
    "n_w": "<=",
    "s_w": ">=",
    "s_eta": ">=",
    "entropy": ">=",
    "h_0": ">=",
    "h_inf": ">=",
}

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


def searched(target: Target, grid: Grid) -> Grid:
    """Give the grid with the confidence that a look at one epsilon takes, so that the search has the grid's.

    The grid's own where a quantile of n_w and its bound only grow with epsilon, as words and noise are the
    same at all: if an epsilon that misses the target seems to meet it, then so do all smaller ones that miss
    it. Likewise where nothing is left to chance. Elsewhere each look has its share (Bonferroni).
    """
    certain = grid.exact and grid.words == grid.vocabulary
    if certain or (grid.monotone and target.arguments == ("n_w",)):
        return grid
    return replace(
        grid, confidence=1.0 - (1.0 - grid.confidence) / (len(grid.mechanisms) + 2 * _STEPS)
    )


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
    target: Target,
    grid: Grid,
    measure: Callable[[float], tuple[float, float]],
    *,
    release_words: int | None,
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
            between = (
                2.0 * low if math.isinf(high) else math.sqrt(low * high) if low else high / 2.0
            )
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
