"""How many words rows have, and what that comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dptext_spark.accounting.row_budget import RowEpsilons
from dptext_spark.guarantee import DELTAS, Guarantee, factor, rounded_up


@dataclass(frozen=True, kw_only=True)
class RowLengths:
    """The words of a table's rows, as their outputs tell them, all sanitized columns together.

    Attributes:
        median: Of the rows, as near as Spark's approximate percentiles come; None where it is not known.
        longest: Of the longest row.
        sample: How many rows were looked at; None for all.
    """

    median: int | None
    longest: int
    sample: int | None = None

    def losses(self, guarantee: Guarantee) -> list[dict[str, Any]]:
        """Give what rows so long lose, each word told from a nearest one, as a guarantee's losses are."""
        if guarantee.distances is None:
            return []
        distance = guarantee.distances.nearest
        return [
            {
                "row": name,
                "words": words,
                "distance": distance,
                "pure": words * guarantee.loss(distance),
                **{f"{delta:g}": guarantee.loss_beyond(delta, distance, words) for delta in DELTAS},
            }
            for name, words in self._rows()
        ]

    def to_json(self, guarantee: Guarantee, epsilons: RowEpsilons | None) -> dict[str, Any]:
        """Give lengths and losses as JSON-ready values; under a budget the epsilons in place of losses."""
        if epsilons is None:
            return {**vars(self), "losses": self.losses(guarantee)}
        return {**vars(self), "epsilons": {name: epsilons.epsilon(words) for name, words in self._rows()}}

    def describe(self, guarantee: Guarantee, epsilons: RowEpsilons | None) -> list[str]:
        """Say it in plain words, a sentence for each length."""
        seen = "" if self.sample is None else f", in a sample of {self.sample:,} rows"
        if epsilons is not None:
            return [
                f"A row of the table's {name} length ({_words(words)}{seen}) has epsilon "
                f"{rounded_up(epsilons.epsilon(words))}."
                for name, words in self._rows()
            ]
        return [
            f"A row of the table's {loss['row']} length ({_words(loss['words'])}{seen}), each word told from "
            f"a nearest one: {' or '.join(factor(loss[f'{delta:g}']) for delta in DELTAS)}, at worst "
            f"{factor(loss['pure'])}."
            for loss in self.losses(guarantee)
        ]

    def _rows(self) -> list[tuple[str, int]]:
        median = [] if self.median is None else [("median", self.median)]
        return [(name, words) for name, words in (*median, ("longest", self.longest)) if words]


def _words(count: int) -> str:
    return f"{count:,} word{'s' * (count != 1)}"
