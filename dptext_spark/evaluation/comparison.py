"""Settings beside each other, on a user's own rows: what attackers get back, and what is left of use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.estimators import estimator
from dptext_spark.calibration.record import option_line, setting
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.pareto import Point, front, recommended
from dptext_spark.evaluation.recovery import (
    CANDIDATES,
    RANKS,
    STRONGER,
    TOP,
    Attacker,
    AttackerName,
    Successes,
)
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.row_sums import RowSums
from dptext_spark.evaluation.tally import Tally, Use
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.python_columns import PythonColumn, as_arrow

CONFIDENCE: Final = 0.95

ATTRIBUTION: Final = "attribution"
"""The attacker who names the author of a row."""

RELEASE_WORDS: Final = "release-words"
"""The option for how many words may be output, which settings may differ in beside their mechanisms."""

_IDEAL: Final = {"kept": 1.0, "distance": 0.0, "similarity": 1.0}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Outcome:
    """What one setting gives away and keeps.

    Attributes:
        mechanism, search: The setting; of the search above all how many words may be output.
        recovered: By the number of versions that attackers have.
        use: What is kept.
        random: What random words of the same number keep, of those that may be output: the floor of use.
        classified: Rows whose class a model gets right, where labels or authors were given.
        chance: The same of models that learn from random words.
        error: About how far the laws that attackers reckon with are at most from the mechanism's, in total
            variation, on average over the corpus's words.
    """

    mechanism: Mechanism
    search: Search
    recovered: Mapping[int, Successes]
    use: Use
    random: Use
    error: float
    classified: Mapping[str, RowSums] = field(default_factory=dict)
    chance: Mapping[str, RowSums] = field(default_factory=dict)

    @classmethod
    def of(cls, mechanism: Mechanism, search: Search, tally: Tally, floor: Tally, error: float) -> Outcome:
        """Say what a setting came to, and what nothing but random words does."""
        return cls(
            mechanism=mechanism,
            search=search,
            recovered=tally.recovered,
            use=tally.use,
            random=floor.use,
            classified=tally.classified,
            chance=floor.classified,
            error=error,
        )

    def __repr__(self) -> str:
        return f"Outcome({self.mechanism!r}, release_words={self.search.release_words})"

    def measures(self, before: PairCounts, confidence: float) -> dict[str, tuple[float, float, float]]:
        """Give what is left of use, each measure with its interval, NaN where there is none.

        Args:
            before: The pairs of words before.
            confidence: Of each interval.
        """
        return self.use.measures(before, confidence) | _accuracies(self.classified, confidence)

    def floors(self, before: PairCounts, confidence: float) -> dict[str, tuple[float, float, float]]:
        """Give the same of random words."""
        return self.random.measures(before, confidence) | _accuracies(self.chance, confidence)


@dataclass(frozen=True, kw_only=True)
class Concern:
    """Which risk counts, and what is to be kept.

    Attributes:
        attacker, versions, guesses: Who recovers words, from how many versions, in how many guesses.
        keeping: ``similarity`` or ``kept``, see :func:`~dptext_spark.evaluation.similarity.similarity`; or
            ``accuracy``, where labels were given.
    """

    attacker: AttackerName = "in-context"
    versions: int = 1
    guesses: int = 1
    keeping: Literal["similarity", "kept", "accuracy"] = "similarity"

    def of(self, outcome: Outcome) -> RowSums:
        """Give what was recovered.

        Raises:
            ConfigError: It was not measured.
        """
        found = outcome.recovered.get(self.versions)
        if found is None or (self.attacker, self.guesses) not in found.recovered:
            raise ConfigError(
                "This risk was not measured",
                allowed=f"{' or '.join(get_args(AttackerName))}, {_or(TOP)} guesses, "
                f"{_or(outcome.recovered)} versions",
                got=f"{self.attacker}, {self.guesses} guesses, {self.versions} versions",
            )
        return found.recovered[self.attacker, self.guesses]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Comparison:
    """What several settings give away and keep, of the same rows.

    Attributes:
        outcomes: One for each setting.
        guessed: What attackers know without any output: the floor of every risk. Its ceiling is 1.
        before: The pairs of words before.
        ideal: What models get right that learn from texts as they were.
    """

    outcomes: tuple[Outcome, ...]
    guessed: Successes
    before: PairCounts
    ideal: Mapping[str, RowSums] = field(default_factory=dict)

    def option_line(self, outcome: Outcome) -> str:
        """Write the options of a setting for the command line, those that settings differ in among them."""
        more = f" --{RELEASE_WORDS} {outcome.search.release_words}" if self._several_sizes else ""
        return option_line(outcome.mechanism) + more

    def named(self, outcome: Outcome) -> dict[str, Any]:
        """Name a setting by its mechanism, its other parameters, and epsilon."""
        mechanism, size = outcome.mechanism, f"{RELEASE_WORDS}={outcome.search.release_words}"
        parts = filter(None, [setting(mechanism), size if self._several_sizes else ""])
        return {"mechanism": mechanism.name, "setting": ", ".join(parts), "epsilon": mechanism.epsilon}

    @property
    def _several_sizes(self) -> bool:
        return len({outcome.search.release_words for outcome in self.outcomes}) > 1

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover.

        Returns:
            A row for each setting (mechanism, setting, epsilon), attacker, number of versions, number of
            guesses, and band of words, ``all`` or ranks by frequency in the corpus: how many rows and words
            there are; recovered, a share with its interval low, high, each for itself; considered, the share
            of words that was among the attacker's candidates at all; floor, what is recovered without any
            output; error, see :class:`Outcome`. Of the attacker ``attribution`` it is rows, not words.
        """
        bands = ["all", *_band_names()]
        rows: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            for versions, successes in outcome.recovered.items():
                for (attacker, top), sums in successes.recovered.items():
                    low, high = sums.share_interval(confidence)
                    columns = {
                        "rows": sums.rows.astype(np.int64),
                        "tokens": sums.size.astype(np.int64),
                        "recovered": sums.ratio,
                        "low": low,
                        "high": high,
                        "considered": successes.considered.ratio,
                        "floor": self.guessed.recovered[attacker, top].ratio,
                    }
                    key = self.named(outcome) | {"attacker": attacker, "versions": versions}
                    rows += [
                        {**key, "guesses": top, "words": band}
                        | {name: column[i].item() for name, column in columns.items()}
                        | {"error": outcome.error}
                        for i, band in enumerate(bands)
                        if sums.size[i]
                    ]
            if (authors := outcome.classified.get(ATTRIBUTION)) is not None:
                right, least, most = shares(authors, confidence)
                key = {"attacker": ATTRIBUTION, "versions": 1, "guesses": 1, "words": "all"}
                number = int(authors.rows[0])
                numbers = {"rows": number, "tokens": number, "recovered": right, "low": least, "high": most}
                floor = shares(outcome.chance[ATTRIBUTION], confidence)[0]
                more = {"considered": 1.0, "floor": floor, "error": outcome.error}
                rows.append(self.named(outcome) | key | numbers | more)
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use.

        Returns:
            A row for each setting and measure: value, its interval low, high where there is one, floor, what
            random words keep, and ceiling, what the original keeps. Measures are those of
            :func:`~dptext_spark.evaluation.similarity.similarity`, and the overlap, agreement and leaders of
            :mod:`~dptext_spark.evaluation.frequencies`, of words and of pairs.
        """
        ideal = _accuracies(self.ideal, confidence)
        ceilings = _IDEAL | {name: value for name, (value, *_) in ideal.items()}
        rows: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            floor = outcome.floors(self.before, confidence)
            rows += [
                self.named(outcome)
                | {"measure": name, "value": value, "low": _number(low), "high": _number(high)}
                | {"floor": floor[name][0], "ceiling": ceilings.get(name, 1.0)}
                for name, (value, low, high) in outcome.measures(self.before, confidence).items()
            ]
        return pa.Table.from_pylist(rows)

    def front(self, concern: Concern | None = None) -> list[Outcome]:
        """Give the settings that no other one beats, by what was measured, the least risk first.

        Raises:
            ConfigError: That risk was not measured.
        """
        return [self.outcomes[int(point.setting)] for point in front(self._points(CONFIDENCE, concern))]

    def recommended(
        self, most_recovered: float, concern: Concern | None = None, *, confidence: float = CONFIDENCE
    ) -> Outcome | None:
        """Give the setting that keeps most of those within a limit of risk, against these attackers.

        Args:
            most_recovered: The share of words that these attackers may recover.
            concern: Whose risk it is, and what is to be kept.
            confidence: That the limit holds for the setting that is given, although it was looked for.

        Returns:
            None where no setting stays within the limit with that confidence.

        Raises:
            ConfigError: That risk was not measured.
        """
        each = 1.0 - (1.0 - confidence) / len(self.outcomes)
        best = recommended(self._points(each, concern), most_risk=most_recovered)
        return None if best is None else self.outcomes[int(best.setting)]

    def describe(self, concern: Concern | None = None, *, most_recovered: float | None = None) -> str:
        """Say in plain words what each setting gives away and keeps, and which to take for a limit.

        Raises:
            ConfigError: That risk was not measured.
        """
        best = self.front(concern)
        lines = [f"Facts about private rows, for those who may read them. {STRONGER}"]
        for outcome in self.outcomes:
            beaten = "Another setting beats it." if outcome not in best else "No other beats it."
            lines.append(f"{self.option_line(outcome)}: {self._told(outcome, concern)} {beaten}")
        if most_recovered is not None:
            chosen = self.recommended(most_recovered, concern)
            share = f"{most_recovered:.1%} of words recovered"
            lines.append(
                f"No setting here stays within {share} with {CONFIDENCE:.0%} confidence."
                if chosen is None
                else f"Take {self.option_line(chosen)}: it keeps most of what stays within {share} with "
                f"{CONFIDENCE:.0%} confidence."
            )
        return "\n".join(lines)

    def _told(self, outcome: Outcome, concern: Concern | None) -> str:
        concern = concern or Concern()
        sums = concern.of(outcome)
        low, high = sums.share_interval(CONFIDENCE)
        floor = self.guessed.recovered[concern.attacker, concern.guesses].ratio
        measures = outcome.use.measures(self.before, CONFIDENCE)
        chance = outcome.random.measures(self.before, CONFIDENCE)
        return (
            f"{sums.ratio[0]:.1%} of {sums.size[0]:,.0f} words are recovered ({low[0]:.1%} to {high[0]:.1%}; "
            f"{floor[0]:.1%} without any output). {measures['kept'][0]:.1%} are unchanged; similarity of "
            f"texts {measures['similarity'][0]:.3f}, of random words {chance['similarity'][0]:.3f}."
        )

    def _points(self, confidence: float, concern: Concern | None) -> list[Point]:
        concern = concern or Concern()
        points = []
        for number, outcome in enumerate(self.outcomes):
            sums = concern.of(outcome)
            value, low, _ = outcome.measures(self.before, confidence)[concern.keeping]
            points.append(
                Point(
                    setting=str(number),
                    risk=float(sums.ratio[0]),
                    risk_high=float(sums.share_interval(confidence)[1][0]),
                    utility=value,
                    utility_low=low,
                )
            )
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
    """Rehearse releases of a column under several settings, attack them, and measure what is kept.

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
        versions: In how many versions attackers have each row, beside one.
        runs: Draws of each word, from which attackers learn what a mechanism does where they cannot compute
            it.
        candidates: Words that attackers take into account at each place.
        seed: Public: the same seed gives the same numbers.

    Raises:
        ConfigError: A mechanism does not suit the embedding, or a number is out of range.
        InputError: Values, ids or slots cannot be used, or hold no word that is perturbed.
    """
    embedding = Embedding.of(embedding)
    _check(mechanisms, versions, candidates, seed)
    for mechanism in mechanisms:
        Mechanism.of(mechanism).prepare(embedding)
    rehearsal = Rehearsal(
        bundle=embedding,
        policy=policy or TextPolicy(),
        search=search or ExactSearch.over(embedding),
        seed=seed,
    )
    read, names = as_arrow(values, "The column"), as_arrow(ids, "The column of row ids")
    rows = rehearsal.unreleased(read, None if slots is None else as_arrow(slots, "The column of slots"))
    if not rows.perturbed.any():
        raise InputError(
            "There is nothing to evaluate: no word of these rows is perturbed",
            got=f"{len(rows.inputs)} words in {len(read)} rows",
            do="Take rows with words of the embedding that the policy protects",
        )
    before = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=len(embedding.words))
    known = before if corpus is None else rehearsal.pairs(as_arrow(corpus, "The corpus"))
    nothing = Emissions.uniform(len(embedding.words), rehearsal.search.release_words)
    without = Attacker.of(nothing, known, candidates=candidates)
    floor = Tally.of(rehearsal, rows, names, None, without, versions=1)
    return Comparison(
        outcomes=tuple(
            _outcome(rehearsal, rows, names, mechanism, known, floor, versions, runs, candidates)
            for mechanism in mechanisms
        ),
        guessed=floor.recovered[1],
        before=before,
    )


def _outcome(
    rehearsal: Rehearsal,
    rows: ReleasedRows,
    ids: pa.Array,
    mechanism: Mechanism,
    corpus: PairCounts,
    floor: Tally,
    versions: int,
    runs: int,
    candidates: int,
) -> Outcome:
    estimated = estimator(
        [mechanism], rehearsal.embedding, search=rehearsal.search, runs=runs, seed=rehearsal.seed
    )
    words = np.flatnonzero(corpus.words[:-1])
    emissions = Emissions.measured(estimated, words, vocabulary=corpus.vocabulary)
    attacker = Attacker.of(emissions, corpus, candidates=candidates)
    tally = Tally.of(rehearsal, rows, ids, mechanism, attacker, versions=versions)
    return Outcome.of(mechanism, rehearsal.search, tally, floor, emissions.mean_error(corpus))


def _check(mechanisms: Sequence[Mechanism], versions: int, candidates: int, seed: int) -> None:
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


def shares(sums: RowSums, confidence: float) -> tuple[float, float, float]:
    """A share of rows, with its interval."""
    low, high = sums.share_interval(confidence)
    return float(sums.ratio[0]), float(low[0]), float(high[0])


def _accuracies(
    classified: Mapping[str, RowSums], confidence: float
) -> dict[str, tuple[float, float, float]]:
    return {name: shares(sums, confidence) for name, sums in classified.items() if name != ATTRIBUTION}


def _band_names() -> list[str]:
    starts = (1, *(rank + 1 for rank in RANKS))
    return [*(f"{a:,}-{b:,}" for a, b in zip(starts, RANKS, strict=False)), f"{starts[-1]:,}-"]


def _or(values: Iterable[int]) -> str:
    return " or ".join(map(str, values))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
