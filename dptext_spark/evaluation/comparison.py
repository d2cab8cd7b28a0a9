"""Settings compared on a user's own rows: what attackers recover, and what is left of use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.calibration.facts import Limit, Meaning
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.attackers import ATTACKERS, CANDIDATES, RANKS, TOP, Knowledge
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.measures import (
    MEASURES,
    Interval,
    Measure,
    Risk,
    Sums,
    WordOverlap,
    added,
    clusters,
    measured,
    uses,
    versions_of,
)
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PythonColumn, as_arrow
from dptext_spark.text.policies import TextPolicy

CONFIDENCE: Final = 0.95
KEEPING: Final = "similarity"  # the use that is kept where no other is asked for

_BANDS: Final = ["all"] + [
    f"{first:,}-{f'{last:,}' if last else ''}"
    for first, last in zip([1, *(rank + 1 for rank in RANKS)], [*RANKS, None], strict=True)
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What one setting gives away and keeps."""

    mechanism: Mechanism
    sums: Sums
    # About how far the attackers' emissions are at most from the mechanism's, in total variation, on average
    # over the corpus's words.
    error: float

    @property
    def key(self) -> dict[str, Any]:
        """Name the setting by its mechanism, its other parameters, and epsilon."""
        mechanism = self.mechanism
        return {"mechanism": mechanism.name, "setting": mechanism.parameters, "epsilon": mechanism.epsilon}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """What several settings give away and keep, of the same rows."""

    outcomes: tuple[Outcome, ...]
    floor: Sums  # without any output, and of random words of those that may be output
    ideal: Sums = field(default_factory=dict)  # what models get right that learn from texts as they were

    def __add__(self, other: Comparison) -> Comparison:
        """Add what the same settings give away and keep of other rows."""
        return Comparison(
            outcomes=tuple(
                replace(own, sums=added(own.sums, its.sums))
                for own, its in zip(self.outcomes, other.outcomes, strict=True)
            ),
            floor=added(self.floor, other.floor),
            ideal=added(self.ideal, other.ideal),
        )

    def risked(self, outcome: Outcome, risk: Risk, confidence: float) -> tuple[Interval, float]:
        """Give the share of words that an attacker recovers, and what it guesses without any output."""
        floor = replace(risk, versions=1).own(self.floor)
        return risk.value(outcome.sums, confidence), float(floor.ratio[0])

    def measures(self, outcome: Outcome, confidence: float) -> dict[str, tuple[Interval, float]]:
        """Give what a setting keeps, each measure with its interval, and what random words keep."""
        floor = uses(self.floor, confidence)
        return {name: (own, floor[name][0]) for name, own in uses(outcome.sums, confidence).items()}

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover, for each setting and band of words.

        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words among the
        candidates at all, ``floor`` what is recovered without any output. ``attribution`` is of rows.
        """
        rows = []
        for outcome in self.outcomes:
            sums, floors = map(clusters, (outcome.sums, self.floor))
            tries = product(versions_of(outcome.sums), ATTACKERS, TOP)
            tried = {f"recovered/{v}/{attacker}/{top}": (attacker, v, top) for v, attacker, top in tries}
            tried |= {n: (n, 1, 1) for n, own in MEASURES.items() if own.kind == "risk" and n in sums}
            for key, (attacker, versions, top) in tried.items():
                found, floor = sums[key], floors[key.replace(f"/{versions}/", "/1/", 1)]
                among = sums.get(f"recovered/{versions}/considered") if key != attacker else None
                columns = {"rows": found.rows.astype(int), "tokens": found.size.astype(int)}
                columns |= {"recovered": found.ratio}
                columns |= dict(zip(("low", "high"), found.share_interval(confidence), strict=True))
                columns |= {"considered": np.ones(1) if among is None else among.ratio, "floor": floor.ratio}
                named = outcome.key | {"attacker": attacker, "versions": versions, "guesses": top}
                for i, band in enumerate(_BANDS[: len(found.size)]):
                    if found.size[i]:
                        own = {name: numbers[i].item() for name, numbers in columns.items()}
                        rows.append({**named, "words": band, **own, "error": outcome.error})
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use, what random words keep (floor), and what the original keeps (ceiling)."""
        rows = []
        for outcome in self.outcomes:
            for name, ((value, *ends), floor) in self.measures(outcome, confidence).items():
                low, high = (None if math.isnan(end) else end for end in ends)
                ceiling = MEASURES[name].value(self.ideal, confidence)[0] if name in self.ideal else 1.0
                own = {"measure": name, "value": value, "low": low, "high": high, "floor": floor}
                rows.append({**outcome.key, **own, "ceiling": ceiling})
        return pa.Table.from_pylist(rows)

    def front(self, risk: Risk | None = None, *, keeping: str = KEEPING) -> list[Outcome]:
        """Give the settings that no other one beats, by what was measured, the least risk first."""
        risk, use = risk or Risk(), MEASURES[keeping]
        points = {
            own: (risk.value(own.sums, CONFIDENCE)[0], -use.value(own.sums, CONFIDENCE)[0])
            for own in self.outcomes
        }
        best = [
            own
            for own, (lost, less) in points.items()
            if not any(x <= lost and y <= less and (x, y) != (lost, less) for x, y in points.values())
        ]
        return sorted(best, key=points.__getitem__)


def evaluate(
    values: PythonColumn,
    ids: PythonColumn,
    *,
    embedding: Embedding | Path | str,
    mechanisms: Sequence[Mechanism],
    corpus: PythonColumn | None = None,
    policy: TextPolicy | None = None,
    slots: PythonColumn | None = None,
    search: Search | None = None,
    versions: int = 1,
    runs: int = 1000,
    candidates: int = CANDIDATES,
    seed: int = 0,
) -> Comparison:
    """Simulate releases of a column under several settings, attack them, and measure what is kept.

    Nothing is released. The result has facts about private rows: it is for those who may read them.

    Args:
        values: Texts or token lists, as for :meth:`Sanitizer.sanitize`.
        corpus: Public texts, from which attackers learn the language; by default these very rows. They guess
            no word that it does not have.
        slots: Of rows, for a policy ``slots:COLUMN``.
        versions: In how many versions attackers have each row, besides one.
        runs: Draws of each word, from which attackers learn a mechanism that they cannot compute.
        candidates: Words that attackers take into account at each place.
        seed: Public: the same seed gives the same numbers.
    """
    embedding = Embedding.of(embedding)
    if not mechanisms:
        raise ConfigError("There is no setting to evaluate", allowed="one mechanism or more", got="none")
    if min(versions, runs) < 1 or candidates < max(TOP) or not 0 <= seed < 2**63:
        raise ConfigError(
            "A number is impossible",
            allowed=f"1 version and run or more, {max(TOP)} candidates or more, a seed from 0 to 2^63 - 1",
            got=f"{versions} versions, {runs} runs, {candidates} candidates, seed {seed}",
        )
    for mechanism in map(Mechanism.of, mechanisms):
        mechanism.prepare(embedding)
    search = search or ExactSearch.over(embedding)
    simulation = Simulation(bundle=embedding, policy=policy or TextPolicy(), search=search, seed=seed)
    column, names = as_arrow(values, "The column"), as_arrow(ids, "The column of row ids")
    rows = simulation.read(column, None if slots is None else as_arrow(slots, "The column of slots"))
    if not rows.perturbed.any():
        raise InputError(
            "There is nothing to evaluate: no word of these rows is perturbed",
            got=f"{len(rows.inputs)} words in {len(column)} rows",
            do="Take rows with words of the embedding that the policy protects",
        )
    read = rows if corpus is None else simulation.public.read(as_arrow(corpus, "The corpus"))
    known = simulation.pairs(read)

    def sums(mechanism: Mechanism | None, emissions: Emissions) -> Sums:
        knowledge = Knowledge.learn(known, emissions, candidates=candidates)
        number = 1 if mechanism is None else versions
        return measured(simulation, rows, names, mechanism, knowledge, versions=number)

    vocabulary = len(embedding.words)
    floor, outcomes = sums(None, Emissions.uniform(vocabulary, search.release_words)), []
    for mechanism in mechanisms:
        estimated = estimator([mechanism], embedding, search=search, runs=runs, seed=seed)
        emissions = Emissions.measured(estimated, known.distinct, vocabulary=vocabulary)
        own, error = sums(mechanism, emissions), emissions.mean_error(known)
        outcomes.append(Outcome(mechanism=mechanism, sums=own, error=error))
    return Comparison(outcomes=tuple(outcomes), floor=floor)


_GUESSES: Final = {f"top{number}": number for number in TOP}


def _named(kind: str) -> list[str]:
    return [name for name, own in MEASURES.items() if own.kind == kind and not isinstance(own, Risk)]


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, RISK <= NUMBER or "
        f"USE >= NUMBER; K {' or '.join(map(str, TOP))}; ATTACKER {' or '.join(ATTACKERS)}; "
        f"RISK {', '.join(_named('risk'))}; USE {', '.join(_named('use'))}; NUMBER between 0 and 1"
    )

    keeping: str = KEEPING

    @classmethod
    def meaning(cls, measure: str, arguments: tuple[str, ...]) -> Meaning | None:
        own = MEASURES.get(measure)
        if isinstance(own, Risk) and arguments and arguments[0] in _GUESSES:
            guesses, *others = arguments
            attacker = others.pop(0) if others and others[0] in ATTACKERS else own.attacker
            versions = others.pop(0) if others else "1"
            counted = versions.isdecimal() and not versions.startswith("0") and not others
            return ((guesses, attacker, versions), "<=", 1.0) if counted else None
        if own is None or arguments or isinstance(own, Risk):
            return None
        return (), "<=" if own.kind == "risk" else ">=", 1.0

    @property
    def limited(self) -> Measure:
        """What the limit is of."""
        own = MEASURES[self.measure]
        if not isinstance(own, Risk):
            return own
        guesses, attacker, versions = self.arguments
        return replace(own, attacker=attacker, guesses=_GUESSES[guesses], versions=int(versions))

    @property
    def risk(self) -> Risk:
        """Whose recovery it is; where another measure is asked for, which one is to be small."""
        own = self.limited
        return own if isinstance(own, Risk) else Risk()

    def of(self, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters."""
        value, low, high = self.limited.value(outcome.sums, confidence)
        return value, high if self.upper else low

    def margin(self, outcome: Outcome, *, confidence: float) -> float:
        """Give how far a setting keeps to the limit, below 0 where it misses it; an overlap as measured."""
        value, bound = self.of(outcome, confidence=confidence)
        judged = value if isinstance(self.limited, WordOverlap) else bound
        return self.limit - judged if self.upper else judged - self.limit

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        It holds although the choice looked at all: each has a share of the chance of error (Bonferroni).
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, MEASURES[self.keeping]
            risked, kept = (own.value(outcome.sums, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [own for own in comparison.outcomes if self.margin(own, confidence=each) >= 0.0]
        return max(safe, key=worth, default=None)
