"""Settings compared on a user's own rows: what attackers recover, what is left of use; in words, too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import (
    ATTACKERS,
    STRONGEST,
    TOP,
)
from dptext_spark.evaluation.measures import (
    MEASURES,
    Measure,
    Risk,
    Sums,
    added,
    measure_named,
    sighted,
    versions_of,
)
from dptext_spark.evaluation.rarity import RARITY_BANDS
from dptext_spark.geometry import Floats
from dptext_spark.mechanisms import Mechanism
from dptext_spark.word_reader import FEW

KEEPING: Final = "similarity"  # the use that is kept where no other is asked for


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Outcome:
    """What one setting gives away and keeps."""

    mechanism: Mechanism
    sums: Sums
    channel: Channel  # through which attackers saw it

    @property
    def key(self) -> dict[str, Any]:
        """Name the setting by its mechanism, its other parameters, and epsilon."""
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
    ideal: Sums = field(
        default_factory=dict
    )  # what models get right that learn from texts as they were

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

    def numbers(
        self, outcome: Outcome, measure: Measure, confidence: float
    ) -> dict[str, float | None]:
        """Give a measure's value, the ends of its interval, and what comes without any output, or None."""
        value, low, high = measure.value(outcome.sums, confidence)
        return plain({"value": value, "low": low, "high": high, "floor": self.floor_of(measure)})

    def floor_of(self, measure: Measure) -> float:
        """Return what a measure is without any output, or of random words."""
        without = replace(measure, versions=1) if isinstance(measure, Risk) else measure
        return without.value(self.floor, CONFIDENCE)[0]

    def ceiling(self, measure: Measure) -> float:
        """Return what a measure is without noise, or what models learn from the originals."""
        if measure.needs and measure.is_in(self.ideal):
            return measure.value(self.ideal, CONFIDENCE)[0]
        return measure.without_noise(self.floor)

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return the share of perturbed words that attackers recover, for each setting and band of words.

        The attacker ``strongest`` is the one that recovers most; each has rows of its own, too.
        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words
        among the candidates at all, ``floor`` what is recovered without any output, ``channel`` how
        attackers know the mechanism. ``attribution``, ``singled_out`` and ``linked`` are of rows;
        bands of ``linked`` are lengths of rows.
        """
        rows: list[dict[str, Any]] = []
        for outcome in self.outcomes:
            # Without an attacker that somebody wrote since then.
            tried = [name for name in ATTACKERS if f"recovered/1/{name}/1" in outcome.sums]
            names = (STRONGEST, *tried)
            for versions, attacker, top in product(versions_of(outcome.sums), names, TOP):
                risk = Risk(attacker=attacker, guesses=top, versions=versions)
                considered = outcome.sums[f"recovered/{versions}/considered"].ratio
                named = {"attacker": attacker, "versions": versions, "guesses": top}
                rows += self._bands(outcome, risk, named, considered, confidence)
            for measure in MEASURES.values():
                if measure.kind != "risk" or isinstance(measure, Risk):
                    continue
                for of_rows in measure.all_in(outcome.sums):
                    named = {"attacker": of_rows.written, "versions": 1, "guesses": 1}
                    considered = np.ones(1 + len(of_rows.bands))
                    rows += self._bands(outcome, of_rows, named, considered, confidence)
        return pa.Table.from_pylist(rows)

    def _bands(
        self,
        outcome: Outcome,
        measure: Measure,
        named: Mapping[str, Any],
        considered: Floats,
        confidence: float,
    ) -> Iterator[dict[str, Any]]:
        """Return a row for each band of words that has any."""
        recovered = measure.own(outcome.sums)
        floor = (replace(measure, versions=1) if isinstance(measure, Risk) else measure).own(
            self.floor
        )
        low, high = recovered.share_interval(confidence)
        for band in np.flatnonzero(recovered.size):
            yield {
                **outcome.key,
                **named,
                "words": ("all", *measure.bands)[band],
                "rows": int(recovered.rows[band]),
                "tokens": int(recovered.size[band]),
                "recovered": float(recovered.ratio[band]),
                "low": float(low[band]),
                "high": float(high[band]),
                "considered": float(considered[band]),
                "floor": float(floor.ratio[band]),
                "channel": outcome.channel.method,
            }

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use, what random words keep (floor), and what the original keeps (ceiling)."""
        rows = []
        uses = [measure for measure in MEASURES.values() if measure.kind == "use"]
        for outcome, measure in product(self.outcomes, uses):
            for use in measure.all_in(outcome.sums):
                numbers = self.numbers(outcome, use, confidence)
                ceiling = self.ceiling(use)
                rows.append({**outcome.key, "measure": use.written, **numbers, "ceiling": ceiling})
        return pa.Table.from_pylist(rows)

    def rarity(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return the share of perturbed words that stay, by how many of the evaluated rows have a word.

        ``rows_with_word`` is one of ``RARITY_BANDS``, ``words`` how many perturbed words are in it;
        ``floor`` is the share of random words that are equal by chance.
        """
        rows = []
        for outcome in self.outcomes:
            kept = outcome.sums["kept"]
            floor = self.floor["kept"]
            low, high = kept.share_interval(confidence)
            for band in np.flatnonzero(kept.size[1:]) + 1:
                row = {
                    **outcome.key,
                    "rows_with_word": RARITY_BANDS[band - 1],
                    "words": int(kept.size[band]),
                    "kept": float(kept.ratio[band]),
                    "low": float(low[band]),
                    "high": float(high[band]),
                    "floor": float(floor.ratio[band]),
                }
                rows.append(row)
        return pa.Table.from_pylist(rows)

    def sightings(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Return how often an observer is right who takes a row that shows a rare word for one that has it.

        Rare is a word that fewer than ``fewer_than`` of the evaluated rows have; ``sightings`` says
        how many such words rows show, ``floor`` how often the observer is right about random words.
        """
        rows = []
        for outcome, few in product(self.outcomes, FEW):
            if sighted(few) not in outcome.sums:
                continue
            sums = outcome.sums[sighted(few)]
            right, low, high = sums.share(confidence)
            row = {
                **outcome.key,
                "fewer_than": few,
                "sightings": int(sums.size[0]),
                "right": right,
                "low": low,
                "high": high,
                "floor": float(self.floor[sighted(few)].ratio[0]),
            }
            rows.append(plain(row))
        return pa.Table.from_pylist(rows)

    def front(self, risk: Risk | None = None, *, keeping: str = KEEPING) -> list[Outcome]:
        """Return the settings that no other one beats, by what was measured, the least risk first."""
        risk = risk or Risk()
        use = measure_named(keeping)
        points = {}
        for outcome in self.outcomes:
            recovered = risk.value(outcome.sums, CONFIDENCE)[0]
            kept = use.value(outcome.sums, CONFIDENCE)[0]
            points[outcome] = (recovered, math.inf if math.isnan(kept) else -kept)
        best = [
            own
            for own, (lost, less) in points.items()
            if not any(
                x <= lost and y <= less and (x, y) != (lost, less) for x, y in points.values()
            )
        ]
        return sorted(best, key=points.__getitem__)


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None where there is no number, as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
