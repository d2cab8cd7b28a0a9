"""Settings compared on a user's own rows: what attackers recover, and what is left of use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.calibration.summary import Limit, Meaning
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.attackers import ATTACKERS, CANDIDATES, RANKS, TOP, Knowledge
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import MEASURES, Interval, Measure, Risk, Totals
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PythonColumn, as_arrow
from dptext_spark.text.policies import TextPolicy

CONFIDENCE: Final = 0.95

_BANDS: Final = ["all"] + [
    f"{first:,}-{f'{last:,}' if last else ''}"
    for first, last in zip([1, *(rank + 1 for rank in RANKS)], [*RANKS, None], strict=True)
]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Outcome:
    """What one setting gives away and keeps."""

    mechanism: Mechanism
    search: Search
    totals: Totals
    floor: Totals  # without any output, and of random words of those that may be output
    # About how far the attackers' emissions are at most from the mechanism's, in total variation, on average
    # over the corpus's words.
    error: float

    def __repr__(self) -> str:
        return f"Outcome({self.mechanism!r}, release_words={self.search.release_words})"

    @property
    def key(self) -> dict[str, Any]:
        """Name the setting by its mechanism, its other parameters, and epsilon."""
        mechanism = self.mechanism
        return {"mechanism": mechanism.name, "setting": mechanism.parameters, "epsilon": mechanism.epsilon}

    def risked(self, risk: Risk, confidence: float) -> tuple[Interval, float]:
        """Give the share of words that an attacker recovers, and what it guesses without any output."""
        floor = replace(risk, versions=1).sums(self.floor)
        return risk.sums(self.totals).share(confidence), float(floor.ratio[0])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Comparison:
    """What several settings give away and keep, of the same rows."""

    outcomes: tuple[Outcome, ...]
    before: PairCounts  # the pairs of words before
    # What models get right that learn from texts as they were.
    ideal: Mapping[str, ClusterSums] = field(default_factory=dict)

    def __add__(self, other: Comparison) -> Comparison:
        """Add what the same settings give away and keep of other rows."""
        return Comparison(
            outcomes=tuple(
                replace(own, totals=own.totals + its.totals, floor=own.floor + its.floor)
                for own, its in zip(self.outcomes, other.outcomes, strict=True)
            ),
            before=self.before + other.before,
            ideal={name: sums + other.ideal[name] for name, sums in self.ideal.items()},
        )

    def measures(self, outcome: Outcome, confidence: float) -> dict[str, tuple[Interval, float]]:
        """Give what a setting keeps, each measure with its interval, and what random words keep."""
        own, floor = (totals.measures(self.before, confidence) for totals in (outcome.totals, outcome.floor))
        return {name: (value, floor[name][0]) for name, value in own.items()}

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover, for each setting and band of words.

        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words among the
        candidates at all, ``floor`` what is recovered without any output. ``attribution`` is of rows.
        """
        rows = []
        for outcome in self.outcomes:
            sums = outcome.totals.sums
            tried = [
                (attacker, versions, top, f"recovered/{versions}/{attacker}/{top}")
                for versions in outcome.totals.versions
                for attacker in ATTACKERS
                for top in TOP
            ]
            tried += [(n, 1, 1, n) for n, own in MEASURES.items() if own.kind == "risk" and n in sums]
            for attacker, versions, top, key in tried:
                found, floor = sums[key], outcome.floor.sums[key.replace(f"/{versions}/", "/1/", 1)]
                among = sums.get(f"recovered/{versions}/considered") if key != attacker else None
                named = {"attacker": attacker, "versions": versions, "guesses": top}
                columns = {"rows": found.rows.astype(int), "tokens": found.size.astype(int)}
                columns |= {"recovered": found.ratio}
                columns |= dict(zip(("low", "high"), found.share_interval(confidence), strict=True))
                columns |= {"considered": np.ones(1) if among is None else among.ratio, "floor": floor.ratio}
                for i, band in enumerate(_BANDS[: len(found.size)]):
                    if found.size[i]:
                        own = {name: numbers[i].item() for name, numbers in columns.items()}
                        rows.append(outcome.key | named | {"words": band, **own})
                        rows[-1]["error"] = outcome.error
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use, what random words keep (floor), and what the original keeps (ceiling)."""
        ceilings = {name: 1.0 if own.ceiling is None else own.ceiling for name, own in MEASURES.items()}
        ceilings |= {name: sums.share(confidence)[0] for name, sums in self.ideal.items()}
        rows = []
        for outcome in self.outcomes:
            for name, (value, floor) in self.measures(outcome, confidence).items():
                low, high = (None if math.isnan(end) else end for end in value[1:])
                own = {"measure": name, "value": value[0], "low": low, "high": high, "floor": floor}
                rows.append(outcome.key | own | {"ceiling": ceilings[name]})
        return pa.Table.from_pylist(rows)

    def front(self, risk: Risk | None = None) -> list[Outcome]:
        """Give the settings that no other one beats, by what was measured, the least risk first."""
        risk = risk or Risk()
        use = MEASURES[risk.keeping]
        points = [
            (risk.sums(own.totals).ratio[0], -use.value(own.totals, self.before, CONFIDENCE)[0])
            for own in self.outcomes
        ]
        best = [
            i
            for i, (lost, less) in enumerate(points)
            if not any(x <= lost and y <= less and (x, y) != (lost, less) for x, y in points)
        ]
        return [self.outcomes[i] for i in sorted(best, key=points.__getitem__)]


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
    wrong = [m.name for m in map(Mechanism.of, mechanisms) if m.releases != "words"]
    if wrong:
        raise ConfigError("Settings do not release words", got=", ".join(wrong))
    if versions < 1 or candidates < max(TOP) or not 0 <= seed < 2**63:
        raise ConfigError(
            "The number of versions, the number of candidates or the seed is impossible",
            allowed=f"1 version or more, {max(TOP)} candidates or more, a seed from 0 to 2^63 - 1",
            got=f"{versions} versions, {candidates} candidates, seed {seed}",
        )
    for mechanism in mechanisms:
        Mechanism.of(mechanism).prepare(embedding)
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
    before = simulation.pairs(rows)
    known = before if corpus is None else simulation.corpus(as_arrow(corpus, "The corpus"))

    def totals(mechanism: Mechanism | None, emissions: Emissions) -> Totals:
        knowledge = Knowledge.learn(known, emissions, candidates=candidates)
        number = 1 if mechanism is None else versions
        return Totals.simulate(simulation, rows, names, mechanism, knowledge, versions=number)

    vocabulary = len(embedding.words)
    floor, outcomes = totals(None, Emissions.uniform(vocabulary, search.release_words)), []
    for mechanism in mechanisms:
        estimated = estimator([mechanism], embedding, search=search, runs=runs, seed=seed)
        emissions = Emissions.measured(estimated, known.distinct, vocabulary=vocabulary)
        own, error = totals(mechanism, emissions), emissions.mean_error(known)
        outcomes.append(Outcome(mechanism=mechanism, search=search, totals=own, floor=floor, error=error))
    return Comparison(outcomes=tuple(outcomes), before=before)


_GUESSES: Final = {f"top{number}": number for number in TOP}
_UPPER: Final = [
    name for name, own in MEASURES.items() if own.better == "lower" and not isinstance(own, Risk)
]


@dataclass(frozen=True, kw_only=True)
class Target(Limit):
    """A limit, such as ``recovery(top1) <= 0.2`` or ``similarity >= 0.9``.

    Of settings that keep to the limit of a risk the one is taken that keeps most of ``keeping``; of those
    that keep to the limit of a use the one that risks least.
    """

    allowed = (
        "recovery(topK) <= NUMBER, recovery(topK, ATTACKER, VERSIONS) <= NUMBER, "
        f"{', '.join(f'{name} <= NUMBER' for name in _UPPER)} or MEASURE >= NUMBER; "
        f"K {' or '.join(map(str, TOP))}; ATTACKER {' or '.join(ATTACKERS)}; "
        f"MEASURE {', '.join(name for name, own in MEASURES.items() if own.better == 'higher')}; "
        "NUMBER between 0 and 1, of a distance above 0"
    )

    keeping: str = "similarity"

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
        distance = own.kind == "use" and own.better == "lower"
        return (), "<=" if own.better == "lower" else ">=", math.inf if distance else 1.0

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
        return replace(own if isinstance(own, Risk) else Risk(), keeping=self.keeping)

    def of(self, comparison: Comparison, outcome: Outcome, *, confidence: float) -> tuple[float, float]:
        """Give what a setting was measured to have, and the end of its interval on the side that matters."""
        value, low, high = self.limited.value(outcome.totals, comparison.before, confidence)
        bound = high if self.upper else low
        return value, value if math.isnan(bound) else bound

    def choose(self, comparison: Comparison, *, confidence: float = CONFIDENCE) -> Outcome | None:
        """Take the best setting whose limit of confidence keeps to the limit; None where there is none.

        It holds although the choice looked at all: each has a share of the chance of error (Bonferroni).
        """
        each, limited = 1.0 - (1.0 - confidence) / len(comparison.outcomes), self.limited
        is_risk = limited.kind == "risk"

        def worth(outcome: Outcome) -> tuple[float, float]:
            measures = limited if is_risk else self.risk, MEASURES[self.keeping]
            risked, kept = (own.value(outcome.totals, comparison.before, each) for own in measures)
            least = -math.inf if math.isnan(kept[1]) else kept[1]
            return (least, -risked[2]) if is_risk else (-risked[2], least)

        safe = [o for o in comparison.outcomes if self.met(self.of(comparison, o, confidence=each)[1])]
        return max(safe, key=worth, default=None)
