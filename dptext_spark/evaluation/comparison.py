"""Settings compared on a user's own rows: what attackers recover, what is left of use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import STRONGEST, TOP
from dptext_spark.evaluation.measures import (
    MEASURES,
    Measure,
    Risk,
    Sums,
    added,
    attackers_in,
    measure_named,
    sighted,
    versions_of,
)
from dptext_spark.evaluation.rarity import RARITY_BANDS
from dptext_spark.geometry import Floats
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.vectors import VectorSetting
from dptext_spark.word_reader import FEW

KEEPING: Final = "similarity"  # the use that is kept where no other is asked for


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What one setting gives away and keeps."""

    mechanism: Mechanism | VectorSetting
    sums: Sums
    channel: Channel | None = None  # through which attackers saw words

    @property
    def key(self) -> dict[str, Any]:
        """Return the setting's mechanism, its other parameters, and epsilon."""
        mechanism = self.mechanism
        return {
            "mechanism": mechanism.name,
            "setting": mechanism.parameters,
            "epsilon": mechanism.epsilon,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison:
    """What several settings give away and keep, of the same rows."""

    outcomes: tuple[Outcome, ...]
    floor: Sums  # without any output, and of random words of those that may be output
    ideal: Sums = field(default_factory=dict)  # of models that learn from texts as they were

    def __add__(self, other: Comparison) -> Comparison:
        """Add what the same settings give away and keep of other rows."""
        outcomes = []
        for outcome, of_others in zip(self.outcomes, other.outcomes, strict=True):
            outcomes.append(replace(outcome, sums=added(outcome.sums, of_others.sums)))
        return Comparison(
            outcomes=tuple(outcomes),
            floor=added(self.floor, other.floor),
            ideal=added(self.ideal, other.ideal),
        )

    def numbers(
        self, outcome: Outcome, measure: Measure, confidence: float
    ) -> dict[str, float | None]:
        """Return a measure's value, the ends of its interval, and its floor; None for no number."""
        value, low, high = measure.value(outcome.sums, confidence)
        numbers = {"value": value, "low": low, "high": high, "floor": self.floor_of(measure)}
        return without_nan(numbers)

    def floor_of(self, measure: Measure) -> float:
        """Return the most that the same knowledge gives without any output, or random words."""
        value, _, _ = measure.at_floor(self.floor).value(self.floor, CONFIDENCE)
        return value

    def without_release(self, measure: Measure) -> float:
        """Return what a measure is without any output, or of random words.

        Of a risk it is what the same attacker recovers: at most the floor.
        """
        if isinstance(measure, Risk):
            measure = replace(measure, versions=1)
        value, _, _ = measure.value(self.floor, CONFIDENCE)
        return value

    def ceiling(self, measure: Measure) -> float:
        """Return what a measure is without noise, or what models learn from the originals."""
        if measure.needs and measure.is_in(self.ideal):
            value, _, _ = measure.value(self.ideal, CONFIDENCE)
            return value
        return measure.without_noise(self.floor)

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return the share of perturbed words that attackers recover, by setting and band of words.

        The attacker ``strongest`` is the one that recovers most; each has rows of its own, too.
        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words
        among the candidates at all, ``floor`` the most that the same knowledge recovers without any
        output, ``channel`` how attackers know the mechanism.

        ``attribution``, ``singled_out`` and ``linked`` are of rows;
        bands of ``linked`` are lengths of rows.
        """
        rows: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            names = (STRONGEST, *attackers_in(outcome.sums))
            for versions, attacker, top in product(versions_of(outcome.sums), names, TOP):
                risk = Risk(attacker=attacker, guesses=top, versions=versions)
                considered = outcome.sums[f"recovered/{versions}/considered"].ratio
                key = {"attacker": attacker, "versions": versions, "guesses": top}
                rows += self._bands(outcome, risk, key, considered, confidence)
            for measure in MEASURES.values():
                if measure.kind != "risk" or isinstance(measure, Risk):
                    continue
                for of_rows in measure.all_in(outcome.sums):
                    key = {"attacker": of_rows.written, "versions": 1, "guesses": 1}
                    considered = np.ones(1 + len(of_rows.bands))
                    rows += self._bands(outcome, of_rows, key, considered, confidence)
        return pa.Table.from_pylist(rows)

    def _bands(
        self,
        outcome: Outcome,
        measure: Measure,
        key: Mapping[str, Any],
        considered: Floats,
        confidence: float,
    ) -> Iterator[dict[str, Any]]:
        """Yield a row for each band of words that has any."""
        bands = ("all", *measure.bands)
        recovered = measure.totals(outcome.sums)
        floor = measure.at_floor(self.floor).totals(self.floor)
        low, high = recovered.share_interval(confidence)
        shares = {
            "recovered": recovered.ratio,
            "low": low,
            "high": high,
            "considered": considered,
            "floor": floor.ratio,
        }
        for band in np.flatnonzero(recovered.size).tolist():
            yield {
                **outcome.key,
                **key,
                "words": bands[band],
                "rows": int(recovered.rows[band]),
                "tokens": int(recovered.size[band]),
                **_at(band, shares),
                "channel": None if outcome.channel is None else outcome.channel.method,
            }

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return what is left of use, of random words (floor), and of the original (ceiling)."""
        rows = []
        uses = [measure for measure in MEASURES.values() if measure.kind == "use"]
        for outcome, measure in product(self.outcomes, uses):
            for use in measure.all_in(outcome.sums):
                numbers = self.numbers(outcome, use, confidence)
                ceiling = self.ceiling(use)
                rows.append({**outcome.key, "measure": use.written, **numbers, "ceiling": ceiling})
        return pa.Table.from_pylist(rows)

    def rarity(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return the share of perturbed words that stay, by how many evaluated rows have a word.

        ``rows_with_word`` is one of ``RARITY_BANDS``, ``words`` how many perturbed words are in it;
        ``floor`` is the share of random words that are equal by chance.
        """
        rows = []
        floor = self.floor["kept"].ratio
        for outcome in self.outcomes:
            sums = outcome.sums["kept"]
            low, high = sums.share_interval(confidence)
            shares = {"kept": sums.ratio, "low": low, "high": high, "floor": floor}
            for band in (np.flatnonzero(sums.size[1:]) + 1).tolist():
                row = {
                    **outcome.key,
                    "rows_with_word": RARITY_BANDS[band - 1],
                    "words": int(sums.size[band]),
                    **_at(band, shares),
                }
                rows.append(row)
        return pa.Table.from_pylist(rows)

    def sightings(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return how often a row that shows a rare word has it.

        Rare is a word that fewer than ``fewer_than`` of the evaluated rows have; ``sightings`` says
        how many such words rows show, ``floor`` how often the observer is right about random words.
        """
        rows = []
        for outcome, few in product(self.outcomes, FEW):
            if sighted(few) not in outcome.sums:
                continue
            sums = outcome.sums[sighted(few)]
            share, low, high = sums.share(confidence)
            row = {
                **outcome.key,
                "fewer_than": few,
                "sightings": int(sums.size[0]),
                "right": share,
                "low": low,
                "high": high,
                "floor": float(self.floor[sighted(few)].ratio[0]),
            }
            rows.append(without_nan(row))
        return pa.Table.from_pylist(rows)

    def front(self, risk: Measure | None = None, *, keeping: str = KEEPING) -> list[Outcome]:
        """Return the settings that no other one beats as measured, the least risk first."""
        risk = risk or Risk()
        use = measure_named(keeping)
        points = {}
        for outcome in self.outcomes:
            recovered, _, _ = risk.value(outcome.sums, CONFIDENCE)
            usefulness, _, _ = use.value(outcome.sums, CONFIDENCE)
            lack = -usefulness
            if math.isnan(usefulness):
                lack = math.inf
            points[outcome] = (recovered, lack)
        best = [outcome for outcome in points if not _is_beaten(points[outcome], points.values())]
        return sorted(best, key=points.__getitem__)


def _is_beaten(point: tuple[float, float], points: Iterable[tuple[float, float]]) -> bool:
    """Return whether one of the points is at most this one in both numbers, and not equal."""
    risk, lack = point
    for other_risk, other_lack in points:
        is_no_worse = other_risk <= risk and other_lack <= lack
        if is_no_worse and (other_risk, other_lack) != point:
            return True
    return False


def _at(band: int, shares: Mapping[str, Floats]) -> dict[str, float]:
    """Return the shares of one band."""
    return {name: float(values[band]) for name, values in shares.items()}


def without_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None where there is no number, as JSON has it."""
    numbers = dict(row)
    for name, value in row.items():
        if isinstance(value, float) and math.isnan(value):
            numbers[name] = None
    return numbers
