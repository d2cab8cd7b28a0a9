"""Settings compared on a user's own rows: what attackers recover, and what is left of use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.calibration.record import option_line, setting
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.attackers import ATTACKERS, CANDIDATES, RANKS, STRONGER, TOP, Knowledge
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import ATTRIBUTION, CEILINGS, Interval, Totals, accuracies
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.python_columns import PythonColumn, as_arrow

CONFIDENCE: Final = 0.95

RELEASE_WORDS: Final = "release-words"
"""The option for how many words may be output, which settings may differ in besides their mechanisms."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Outcome:
    """What one setting gives away and keeps.

    Attributes:
        mechanism, search: The setting; of the search above all how many words may be output.
        totals: What is recovered and kept.
        floor: The same without any output, and of random words of those that may be output.
        error: About how far the attackers' emissions are at most from the mechanism's, in total variation,
            on average over the corpus's words.
    """

    mechanism: Mechanism
    search: Search
    totals: Totals
    floor: Totals
    error: float

    def __repr__(self) -> str:
        return f"Outcome({self.mechanism!r}, release_words={self.search.release_words})"


@dataclass(frozen=True, kw_only=True)
class Risk:
    """Which risk counts, and what is to be kept.

    Attributes:
        attacker, versions, guesses: Who recovers words, from how many versions, in how many guesses.
        keeping: ``similarity`` or ``kept``, see :func:`~dptext_spark.evaluation.measures.kept`; or
            ``accuracy``, where labels were given.
    """

    attacker: str = "in-context"
    versions: int = 1
    guesses: int = 1
    keeping: Literal["similarity", "kept", "accuracy"] = "similarity"

    def of(self, outcome: Outcome) -> ClusterSums:
        """Give the words recovered.

        Raises:
            ConfigError: That was not measured.
        """
        sums = outcome.totals.recovered(self.attacker, self.guesses, self.versions)
        if sums is None:
            versions = " or ".join(map(str, outcome.totals.versions))
            raise ConfigError(
                "This risk was not measured",
                allowed=f"{' or '.join(ATTACKERS)}, {' or '.join(map(str, TOP))} guesses, "
                f"{versions} versions",
                got=f"{self.attacker}, {self.guesses} guesses, {self.versions} versions",
            )
        return sums

    def floor(self, outcome: Outcome) -> float:
        """Give the share of words that such an attacker guesses without any output."""
        return float(outcome.floor.sums[f"recovered/1/{self.attacker}/{self.guesses}"].ratio[0])


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Comparison:
    """What several settings give away and keep, of the same rows.

    Attributes:
        outcomes: One for each setting.
        before: The pairs of words before.
        ideal: What models get right that learn from texts as they were.
    """

    outcomes: tuple[Outcome, ...]
    before: PairCounts
    ideal: Mapping[str, ClusterSums] = field(default_factory=dict)

    @property
    def _varies_size(self) -> bool:
        return len({outcome.search.release_words for outcome in self.outcomes}) > 1

    def option_line(self, outcome: Outcome) -> str:
        """Write the options of a setting for the command line, those in which settings differ."""
        more = f" --{RELEASE_WORDS} {outcome.search.release_words}" if self._varies_size else ""
        return option_line(outcome.mechanism) + more

    def named(self, outcome: Outcome) -> dict[str, Any]:
        """Name a setting by its mechanism, its other parameters, and epsilon."""
        mechanism, size = outcome.mechanism, f"{RELEASE_WORDS}={outcome.search.release_words}"
        parts = filter(None, [setting(mechanism), size if self._varies_size else ""])
        return {"mechanism": mechanism.name, "setting": ", ".join(parts), "epsilon": mechanism.epsilon}

    def measures(self, outcome: Outcome, confidence: float) -> dict[str, tuple[Interval, Interval]]:
        """Give what a setting keeps, each measure with its interval, and what random words keep."""
        own, floor = (totals.measures(self.before, confidence) for totals in (outcome.totals, outcome.floor))
        return {name: (value, floor[name]) for name, value in own.items()}

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover.

        Returns:
            A row for each setting (mechanism, setting, epsilon), attacker, number of versions, number of
            guesses, and band of words, ``all`` or ranks by frequency in the corpus: the number of rows and of
            words; recovered, a share with its interval low, high, each for itself; considered, the share of
            words that was among the attacker's candidates at all; floor, what is recovered without any
            output; error, see :class:`Outcome`. For the attacker ``attribution`` it is rows, not words.
        """
        starts = (1, *(rank + 1 for rank in RANKS))
        ranks = zip(starts, RANKS, strict=False)
        bands = ["all", *(f"{first:,}-{last:,}" for first, last in ranks), f"{starts[-1]:,}-"]
        rows: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            totals, floor, name = outcome.totals, outcome.floor, self.named(outcome)
            measured = [
                (attacker, versions, top, f"recovered/{versions}/{attacker}/{top}")
                for versions in totals.versions
                for attacker in ATTACKERS
                for top in TOP
            ]
            if ATTRIBUTION in totals.sums:
                measured.append((ATTRIBUTION, 1, 1, ATTRIBUTION))
            for attacker, versions, top, key in measured:
                sums, least = totals.sums[key], floor.sums[key.replace(f"/{versions}/", "/1/", 1)]
                considered = totals.sums[f"recovered/{versions}/considered"].ratio
                if key == ATTRIBUTION:
                    considered = np.ones(1)
                low, high = sums.share_interval(confidence)
                rows += [
                    {**name, "attacker": attacker, "versions": versions, "guesses": top, "words": band}
                    | {"rows": int(sums.rows[i]), "tokens": int(sums.size[i])}
                    | {"recovered": sums.ratio[i].item(), "low": low[i].item(), "high": high[i].item()}
                    | {"considered": considered[i].item(), "floor": least.ratio[i].item()}
                    | {"error": outcome.error}
                    for i, band in enumerate(bands[: len(sums.size)])
                    if sums.size[i]
                ]
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use.

        Returns:
            A row for each setting and measure: value, its interval low, high where there is one, floor, what
            random words keep, and ceiling, what the original keeps. Measures are those of
            :func:`~dptext_spark.evaluation.measures.kept`, the overlap, agreement and leaders of words and of
            pairs, and the share of labels right where there are labels.
        """
        ideal = {name: value for name, (value, *_) in accuracies(self.ideal, confidence).items()}
        ceilings = CEILINGS | ideal
        return pa.Table.from_pylist(
            [
                self.named(outcome)
                | {"measure": name, "value": value}
                | {"low": None if math.isnan(low) else low, "high": None if math.isnan(high) else high}
                | {"floor": floor[0], "ceiling": ceilings.get(name, 1.0)}
                for outcome in self.outcomes
                for name, ((value, low, high), floor) in self.measures(outcome, confidence).items()
            ]
        )

    def front(self, risk: Risk | None = None) -> list[Outcome]:
        """Give the settings that no other one beats, by what was measured, the least risk first.

        Raises:
            ConfigError: That risk was not measured.
        """
        points = [(lost, -use) for lost, _, use, _ in self._points(CONFIDENCE, risk)]
        best = [
            i
            for i, (lost, less) in enumerate(points)
            if not any(x <= lost and y <= less and (x, y) != (lost, less) for x, y in points)
        ]
        return [self.outcomes[i] for i in sorted(best, key=points.__getitem__)]

    def recommended(
        self, most_recovered: float, risk: Risk | None = None, *, confidence: float = CONFIDENCE
    ) -> Outcome | None:
        """Give the setting that keeps most of those within a limit of risk, against these attackers.

        Args:
            most_recovered: The share of words that these attackers may recover.
            risk: Whose risk it is, and what is to be kept.
            confidence: That the limit holds for the chosen setting, although the choice looked at all: each
                has an equal share of the chance of error (Bonferroni).

        Returns:
            None where no setting stays within the limit with that confidence.

        Raises:
            ConfigError: That risk was not measured.
        """
        each = 1.0 - (1.0 - confidence) / len(self.outcomes)
        points = zip(self._points(each, risk), self.outcomes, strict=True)
        safe = [(low, -high, own) for (_, high, _, low), own in points if high <= most_recovered]
        return max(safe, key=lambda point: point[:2], default=(0.0, 0.0, None))[2]

    def describe(self, risk: Risk | None = None, *, most_recovered: float | None = None) -> str:
        """Say in plain words what each setting gives away and keeps, and which to take for a limit.

        Raises:
            ConfigError: That risk was not measured.
        """
        risk = risk or Risk()
        best = self.front(risk)
        lines = [f"Facts about private rows, for those who may read them. {STRONGER}"]
        for outcome in self.outcomes:
            sums = risk.of(outcome)
            value, low, high = sums.share(CONFIDENCE)
            measures = self.measures(outcome, CONFIDENCE)
            (unchanged, _), (similarity, random) = measures["kept"], measures["similarity"]
            beaten = "Another setting beats it." if outcome not in best else "No other beats it."
            lines.append(
                f"{self.option_line(outcome)}: {value:.1%} of {sums.size[0]:,.0f} words are recovered "
                f"({low:.1%} to {high:.1%}; {risk.floor(outcome):.1%} without any output). "
                f"{unchanged[0]:.1%} are unchanged; similarity of texts {similarity[0]:.3f}, of random words "
                f"{random[0]:.3f}. {beaten}"
            )
        if most_recovered is not None:
            chosen = self.recommended(most_recovered, risk)
            share = f"{most_recovered:.1%} of words recovered"
            lines.append(
                f"No setting here stays within {share} with {CONFIDENCE:.0%} confidence."
                if chosen is None
                else f"Take {self.option_line(chosen)}: it keeps most of what stays within {share} with "
                f"{CONFIDENCE:.0%} confidence."
            )
        return "\n".join(lines)

    def _points(self, confidence: float, risk: Risk | None) -> list[tuple[float, float, float, float]]:
        """Give the risk of each setting and its upper end, and the use that is kept and its lower end."""
        risk = risk or Risk()
        points = []
        for outcome in self.outcomes:
            recovered, _, high = risk.of(outcome).share(confidence)
            value, low, _ = outcome.totals.measures(self.before, confidence)[risk.keeping]
            points.append((recovered, high, value, low))
        return points


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
        values: Texts or token lists, as for :meth:`Sanitizer.sanitize`: a table, or a sample of its rows.
        ids: Row ids.
        embedding: A bundle or its folder.
        mechanisms: The settings.
        corpus: Public texts, from which attackers learn which words there are and which follow which; by
            default these very rows: attackers then know the language of what they attack. They guess no word
            that it does not have.
        policy: Which words are perturbed, and how texts are cut; all words by default.
        slots: Slots of each row, for the policy ``slots:COLUMN``.
        search: How released words are searched, and how many there are; by default exactly, and all.
        versions: In how many versions attackers have each row, besides one.
        runs: Draws of each word, from which attackers learn what a mechanism does where they cannot compute
            it.
        candidates: Words that attackers take into account at each place.
        seed: Public: the same seed gives the same numbers.

    Raises:
        ConfigError: A mechanism does not suit the embedding, or a number is out of range.
        InputError: Values, ids or slots cannot be used, or hold no word that is perturbed.
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
    simulation = Simulation(
        bundle=embedding,
        policy=policy or TextPolicy(),
        search=search or ExactSearch.over(embedding),
        seed=seed,
    )
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

    vocabulary, words = len(embedding.words), np.flatnonzero(known.words[:-1])
    floor = totals(None, Emissions.uniform(vocabulary, simulation.search.release_words))
    outcomes = []
    for mechanism in mechanisms:
        estimated = estimator([mechanism], embedding, search=simulation.search, runs=runs, seed=seed)
        emissions = Emissions.measured(estimated, words, vocabulary=vocabulary)
        outcomes.append(
            Outcome(
                mechanism=mechanism,
                search=simulation.search,
                totals=totals(mechanism, emissions),
                floor=floor,
                error=emissions.mean_error(known),
            )
        )
    return Comparison(outcomes=tuple(outcomes), before=before)
