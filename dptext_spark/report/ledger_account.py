"""What ``dptext ledger show`` says: the releases of a ledger, and what they add up to in each unit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dptext_spark.accounting.composition import joint_loss_beyond
from dptext_spark.accounting.ledger import Ledger, Release, RowCounts, Unit, law_of, plainly
from dptext_spark.guarantee import DELTAS, factor, rounded_up


@dataclass(frozen=True, kw_only=True)
class LedgerAccount:
    """A ledger for people and programs; its counts of rows are for those who run the jobs."""

    path: str
    ledger: Ledger

    def describe(self) -> str:
        """Say releases and totals in plain words."""
        if not self.ledger.releases:
            return f"Ledger {self.path}: no releases"
        rows: list[tuple[str, ...]] = [
            ("", "time", "name", "unit", "epsilon", "new", "equal", "changed", "state")
        ]
        rows += [self._line(release) for release in self.ledger.releases]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
        if any(release.state == "unfinished" for release in self.ledger.releases):
            lines.append("unfinished: was killed, or is at work; it counts as spent.")
        for unit in self.ledger.units:
            lines += ["", *self._describe_unit(unit)]
        return "\n".join(line.rstrip() for line in lines)

    def _line(self, release: Release) -> tuple[str, ...]:
        terms, found = release.terms, release.assessed
        counts = found.rows if found else None
        return (
            str(release.reserved.number),
            release.reserved.time,
            terms.label,
            self._number(terms.unit),
            plainly(Decimal(repr(terms.epsilon))),
            *(_counts(counts) if counts else ("-", "-", "-")),
            release.state,
        )

    def _number(self, unit: Unit) -> str:
        units = [*dict.fromkeys(release.terms.unit for release in self.ledger.releases)]
        return str(1 + units.index(unit))

    def _describe_unit(self, unit: Unit) -> Iterator[str]:
        worst = self.ledger.worst(unit)
        yield f"Unit {self._number(unit)}: {unit}"
        total = plainly(self.ledger.total(worst))
        numbers = ", ".join(str(release.reserved.number) for release in worst)
        several = "s" if len(worst) > 1 else ""
        yield f"  Largest sum of epsilon of a row: {total}, in {len(worst)} release{several} ({numbers})"
        deltas = {release.id: release.terms.delta for release in self.ledger.releases}
        if delta := max(sum(deltas[name] for name in each) for each in self.ledger.combined(unit)):
            yield f"  except with probability {rounded_up(delta)}"
        for told in self.losses(unit):
            beyond = " or ".join(factor(told[f"{delta:g}"]) for delta in DELTAS)
            yield (
                f"  a word and {told['from']}, {told['distance']:.3g} away: {beyond}; "
                f"worst case {factor(told['pure'])}"
            )

    def losses(self, unit: Unit) -> Iterator[dict[str, Any]]:
        """Give what all releases tell of a word, at most over rows, as guarantees give losses.

        Yields:
            What the word is told from, the distance, ``pure``, and a loss for each of ``DELTAS``; nothing
            where the laws of losses are not all known.
        """
        terms = {release.id: release.terms for release in self.ledger.releases}
        histories = self.ledger.combined(unit)
        names = frozenset[str]().union(*histories)
        laws = {name: law for name in names if (law := law_of(terms[name])) is not None}
        apart = next((far for name in names if (far := terms[name].apart) is not None), None)
        if apart is None or len(laws) < len(names):
            return
        rows = {frozenset(Counter(laws[name] for name in each).items()) for each in histories}
        for name, distance in (
            ("its nearest word", apart.nearest),
            ("its 10th nearest word", apart.tenth),
            ("its 100th nearest word", apart.hundredth),
        ):
            pure = max(sum(times * law.bound(distance) for law, times in row) for row in rows)
            beyond = {
                f"{delta:g}": max(joint_loss_beyond(dict(row), distance, delta=delta) for row in rows)
                for delta in DELTAS
            }
            yield {"from": name, "distance": distance, "pure": pure, **beyond}

    def to_json(self) -> str:
        """Write it as JSON."""
        releases = []
        for release in self.ledger.releases:
            counts = release.assessed.rows if release.assessed else None
            found = counts.model_dump() if counts else None
            entry = release.reserved.model_dump(mode="json", exclude={"rows", "event"})
            releases.append({**entry, "rows": found, "state": release.state})
        units = [
            {
                **unit.model_dump(),
                "worst": float(self.ledger.total(self.ledger.worst(unit))),
                "releases": [release.reserved.number for release in self.ledger.worst(unit)],
                "losses": list(self.losses(unit)),
            }
            for unit in self.ledger.units
        ]
        value = {"ledger": self.path, "releases": releases, "units": units}
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _counts(rows: RowCounts) -> tuple[str, str, str]:
    return f"{rows.new:,}", f"{rows.equal:,}", f"{rows.changed:,}"
