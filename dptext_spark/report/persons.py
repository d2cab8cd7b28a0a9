"""What the rows of one person add up to; for those who run the job, and never published."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dptext_spark.accounting.row_budget import RowEpsilons
from dptext_spark.guarantee import DELTAS, Guarantee, factor, rounded_up


@dataclass(frozen=True, kw_only=True)
class Persons:
    """Rows and words of persons, as percentiles over them.

    Attributes:
        column: What names the persons.
        persons: How many there are.
        nobody: Rows that name none; they are in no other number.
        rows, words: By percentile (``50%``, ``90%``, ``99%``, ``largest``), of the persons' sums.
        within: How far each of a person's words moves, in the mechanism's metric.
    """

    column: str
    persons: int
    nobody: int
    rows: dict[str, int]
    words: dict[str, int]
    within: float

    def losses(self, guarantee: Guarantee, epsilons: RowEpsilons | None) -> dict[str, dict[str, float]]:
        """Give what a person loses in nats, by percentile: ``pure``, and but for each delta.

        Under a budget of rows, the budgets of a person's rows add up, and their deltas.
        """
        if epsilons is not None:
            budget = epsilons.budget
            name = "pure" if budget.delta == 0.0 else "loss"
            added = {p: {name: rows * budget.loss} for p, rows in self.rows.items()}
            if budget.delta:
                added = {p: {**found, "delta": self.rows[p] * budget.delta} for p, found in added.items()}
            return added
        return {
            percentile: {
                "pure": words * guarantee.loss(self.within),
                **{f"{delta:g}": guarantee.loss_beyond(delta, self.within, words) for delta in DELTAS},
            }
            for percentile, words in self.words.items()
            if words
        }

    def to_json(self, guarantee: Guarantee, epsilons: RowEpsilons | None) -> dict[str, Any]:
        """Give all of it as JSON-ready values."""
        return {**asdict(self), "losses": self.losses(guarantee, epsilons)}

    def describe(self, guarantee: Guarantee, epsilons: RowEpsilons | None) -> list[str]:
        """Say it in plain words: a title, and a line for each percentile."""
        nobody = f"; {self.nobody:,} rows name none" if self.nobody else ""
        lines = [f"Persons, by column {self.column}: {self.persons:,}{nobody}"]
        losses = self.losses(guarantee, epsilons)
        for percentile, words in self.words.items():
            counted = f"{percentile}: {self.rows[percentile]:,} rows, {words:,} words"
            if found := losses.get(percentile):
                counted += f"; each word told from one {rounded_up(self.within)} away: {_said(found)}"
            lines.append(counted)
        return lines


def _said(loss: dict[str, float]) -> str:
    if "loss" in loss:
        return f"{factor(loss['loss'])}, up to an additional probability of {rounded_up(loss['delta'])}"
    beyond = [factor(loss[name]) for name in (f"{delta:g}" for delta in DELTAS) if name in loss]
    return ", at worst ".join([*([" or ".join(beyond)] if beyond else []), factor(loss["pure"])])
