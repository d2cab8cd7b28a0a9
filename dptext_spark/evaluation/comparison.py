"""Settings compared on a user's own rows: what attackers recover, what is left of use; in words, too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.attackers import ATTACKERS, TOP
from dptext_spark.evaluation.measures import (
    MEASURES,
    Measure,
    Risk,
    Sums,
    added,
    sighted,
    versions_of,
)
from dptext_spark.evaluation.rarity import RARITY_BANDS
from dptext_spark.lookup import FEW
from dptext_spark.mechanisms import Mechanism

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

    def numbers(self, outcome: Outcome, measure: Measure, confidence: float) -> dict[str, float | None]:
        """Give a measure's value, the ends of its interval, and what comes without any output, or None."""
        value, low, high = measure.value(outcome.sums, confidence)
        without = replace(measure, versions=1) if isinstance(measure, Risk) else measure
        row = {"value": value, "low": low, "high": high, "floor": without.value(self.floor, confidence)[0]}
        return plain(row)

    def risk(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that attackers recover, for each setting and band of words.

        Bands are ``all``, or ranks by frequency in the corpus. ``considered`` is the share of words among the
        candidates at all, ``floor`` what is recovered without any output, ``channel`` how attackers know
        the mechanism. ``attribution``, ``singled_out`` and ``linked`` are of rows; bands of ``linked`` are
        lengths of rows.
        """
        rows = []
        others = [risk for own in MEASURES.values() for risk in own.variants if own.kind == "risk"]
        bands = {risk.label: risk.bands for risk in others}
        for outcome in self.outcomes:
            sums = outcome.sums
            tries = product(versions_of(sums), ATTACKERS, TOP)
            tried = {f"recovered/{v}/{attacker}/{top}": (attacker, v, top) for v, attacker, top in tries}
            tried |= {name: (name, 1, 1) for name in bands if name in sums}
            for key, (attacker, versions, top) in tried.items():
                found, floor = sums[key], self.floor[key.replace(f"/{versions}/", "/1/", 1)]
                among = sums.get(f"recovered/{versions}/considered") if key != attacker else None
                columns = {"rows": found.rows.astype(int), "tokens": found.size.astype(int)}
                columns |= {"recovered": found.ratio}
                columns |= dict(zip(("low", "high"), found.share_interval(confidence), strict=True))
                columns |= {
                    "considered": np.ones(len(found.size)) if among is None else among.ratio,
                    "floor": floor.ratio,
                }
                named = outcome.key | {"attacker": attacker, "versions": versions, "guesses": top}
                for i, band in enumerate(["all", *bands.get(key, MEASURES["recovery"].bands)]):
                    if found.size[i]:
                        own = {name: numbers[i].item() for name, numbers in columns.items()}
                        rows.append({**named, "words": band, **own, "channel": outcome.channel.method})
        return pa.Table.from_pylist(rows)

    def utility(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give what is left of use, what random words keep (floor), and what the original keeps (ceiling)."""
        rows = []
        for outcome, (name, use) in product(self.outcomes, MEASURES.items()):
            if use.kind == "use" and use.is_in(outcome.sums):
                ceiling = use.value(self.ideal, confidence)[0] if name in self.ideal else 1.0
                numbers = self.numbers(outcome, use, confidence)
                rows.append({**outcome.key, "measure": name, **numbers, "ceiling": ceiling})
        return pa.Table.from_pylist(rows)

    def rarity(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give the share of perturbed words that stay, by how many of the evaluated rows have a word.

        ``rows_with_word`` is one of ``RARITY_BANDS``, ``words`` how many perturbed words are in it; ``floor``
        is the share of random words that are equal by chance.
        """
        rows = []
        for outcome in self.outcomes:
            kept = outcome.sums["kept"]
            floor = self.floor["kept"]
            low, high = kept.share_interval(confidence)
            for i, band in enumerate(RARITY_BANDS, 1):
                if len(kept.size) > i and kept.size[i]:
                    shares = {"kept": kept.ratio[i], "low": low[i], "high": high[i], "floor": floor.ratio[i]}
                    numbers = {name: share.item() for name, share in shares.items()}
                    words = int(kept.size[i])
                    rows.append({**outcome.key, "rows_with_word": band, "words": words, **numbers})
        return pa.Table.from_pylist(rows)

    def sightings(self, *, confidence: float = CONFIDENCE) -> pa.Table:
        """Give how often an observer is right who takes a row that shows a rare word for one that has it.

        Rare is a word that fewer than ``fewer_than`` of the evaluated rows have; ``sightings`` says how many
        such words rows show, ``floor`` how often the observer is right about random words.
        """
        rows = []
        for outcome, few in product(self.outcomes, FEW):
            sums = outcome.sums.get(sighted(few))
            if sums is not None:
                right, low, high = sums.share(confidence)
                numbers = {"right": right, "low": low, "high": high}
                numbers["floor"] = self.floor[sighted(few)].share(confidence)[0]
                counts = {"fewer_than": few, "sightings": int(sums.size[0])}
                rows.append({**outcome.key, **counts, **plain(numbers)})
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


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with None where there is no number, as JSON has it."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
