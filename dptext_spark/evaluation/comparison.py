"""Settings compared on a user's own rows: what attackers recover, what is left of use."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dptext_spark.calibration.statistics import CONFIDENCE
from dptext_spark.channel.channel import Channel
from dptext_spark.display import Displayed
from dptext_spark.evaluation.attackers import STRONGEST, TOP
from dptext_spark.evaluation.measures import (
    MEASURES,
    Measure,
    Pieces,
    Risk,
    SingledOut,
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

LEARNT: Final = ("accuracy", "balanced_accuracy", "auc")
"""What is reported of all classes of the label together."""

ANALYSED: Final = {
    "words": ("word_overlap", "word_overlap_estimated"),
    "topics": ("topic_shares", "topic_shares_estimated"),
    "labels": ("accuracy", "accuracy_from_features"),
}
"""Uses by what they are of: as counted in the outputs, and as an analyst estimates them."""

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
class Comparison(Displayed):
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

    def settings(
        self, risk: Risk | None = None, *, keeping: str = KEEPING, confidence: float = CONFIDENCE
    ) -> list[dict[str, Any]]:
        """Return the main numbers of each setting, and whether another one beats it."""
        risk = risk or Risk()
        front = self.front(risk, keeping=keeping)
        rows = []
        for outcome in self.outcomes:
            row = self._setting(outcome, risk, confidence)
            row["on_front"] = outcome in front
            rows.append(row)
        return rows

    def _setting(self, outcome: Outcome, risk: Risk, confidence: float) -> dict[str, Any]:
        """Return the main numbers of a setting."""
        measures: dict[str, Measure] = {"recovered": risk, "attributed": MEASURES["attribution"]}
        for name in ("linked", "similarity", "kept", *LEARNT, *chain(*ANALYSED.values())):
            measures[name] = MEASURES[name]
        for few in FEW:
            measures[f"singled_out_{few}"] = SingledOut(few=few)
        for variant in Pieces().variants:
            measures[f"pieces_{variant.of}"] = variant
        row = {
            **outcome.key,
            "options": outcome.mechanism.options,
            "attacker": risk.attacker_in(outcome.sums),
        }
        if outcome.channel is not None:
            row["channel"] = outcome.channel.method
            row["points"] = outcome.channel.size
            row["difference"] = outcome.channel.difference
        for name, measure in measures.items():
            if measure.is_in(outcome.sums):
                row |= self._named_numbers(outcome, name, measure, confidence)
        return row

    def _named_numbers(
        self, outcome: Outcome, name: str, measure: Measure, confidence: float
    ) -> dict[str, float | None]:
        """Return a measure's value under its name, and its other numbers under longer names."""
        numbers = self.numbers(outcome, measure, confidence)
        row = {name: numbers.pop("value")}
        for part, number in numbers.items():
            row[f"{name}_{part}"] = number
        if isinstance(measure, SingledOut | Pieces):
            row[f"{name}_original"] = self.ceiling(measure)
        return row

    def blocks(self) -> Iterator[Any]:
        """Yield the table of settings, where words were released."""
        if any(outcome.channel is None for outcome in self.outcomes):
            yield f"{len(self.outcomes)} settings, compared on vectors"
        else:
            yield settings_table(self.settings())

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


def settings_table(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the table of all settings: what each gives away and keeps."""
    forms = {"recovered": ".1%", "similarity": ".3f", "kept": ".1%"}
    if "attributed" in settings[0]:
        forms["attributed"] = ".1%"
    head = [""]
    for name in forms:
        if name == "kept":
            head.append("unchanged")
        else:
            head += [name, "floor"]
    table = [[*head, "no other beats it"]]
    for row in settings:
        cells = [row["options"]]
        for name, form in forms.items():
            cells.append(shown_number(row[name], form))
            if name != "kept":
                cells.append(shown_number(row[f"{name}_floor"], form))
        cells[1] += f" ({row['recovered_low']:.1%} to {row['recovered_high']:.1%})"
        table.append([*cells, "yes" if row["on_front"] else ""])
    return {"table": table}


def shown_number(value: float | None, form: str = ".3f") -> str:
    """Return a number as tables have it."""
    return "-" if value is None else format(value, form)
