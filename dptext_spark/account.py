"""What outputs tell, in numbers: ``dptext account``, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from itertools import product
from typing import Any

from dptext_spark.accounting.composition import loss_beyond
from dptext_spark.accounting.laws import LossLaw, SphericalLaplace
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import Guarantee, rounded_up
from dptext_spark.options import AccountOptions
from dptext_spark.report.facts import embedding_json, written

_DIGITS = 4
_GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Between:
    """Where the least loss t at a delta lies: nats, ``least`` and ``most`` included."""

    least: float
    most: float

    @classmethod
    def of(cls, law: LossLaw, distance: float, words: int, delta: float) -> Between:
        """Compute both ends for words that are so far apart each."""
        least, most = (
            loss_beyond(law, distance, words=words, delta=delta, least=low) for low in (True, False)
        )
        return cls(least=min(least, most), most=most)

    def __str__(self) -> str:
        return f"{_rounded_down(self.least)} to {rounded_up(self.most, _DIGITS)}"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What telling some words from others costs.

    Attributes:
        mechanism: How words are perturbed, in words.
        away: From which word one is told apart, in words.
        distance: How far apart they are; nothing where the pure loss alone is given.
        words: How many words are, each of them that far.
        pure: The loss at the worst output, in nats.
        beyond: By delta, the loss t such that the words are (t, delta)-indistinguishable.
    """

    mechanism: str
    away: str
    distance: float | None
    words: int
    pure: float
    beyond: dict[float, Between]

    def to_json(self) -> dict[str, Any]:
        """Give all of it as JSON-ready values."""
        beyond = {f"{delta:g}": vars(between) for delta, between in self.beyond.items()}
        names = ("mechanism", "away", "distance", "words", "pure")
        return {**{name: getattr(self, name) for name in names}, "beyond": beyond}

    def cells(self) -> tuple[str, ...]:
        """Write it as a line of a table."""
        far = "" if self.distance is None else rounded_up(self.distance, _DIGITS)
        losses = (rounded_up(self.pure, _DIGITS), *map(str, self.beyond.values()))
        return self.mechanism, self.away, far, f"{self.words}", *losses


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of one run of ``dptext account``."""

    embedding: Embedding | None
    deltas: tuple[float, ...]
    notes: tuple[str, ...]
    told: tuple[Told, ...]

    def to_json(self) -> str:
        """Write the account as JSON text."""
        value = {
            "embedding": self.embedding and embedding_json(self.embedding),
            "notes": list(self.notes),
            "losses": [told.to_json() for told in self.told],
        }
        return written(value)

    def describe(self) -> str:
        """Show a table, and what its numbers are."""
        header = ("mechanism", "from", "distance", "words", "pure", *(f"{delta:g}" for delta in self.deltas))
        rows = [header, *(told.cells() for told in self.told)]
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (_GAP.join(map(str.ljust, row, sizes)).rstrip() for row in rows)
        return "\n".join([*lines, "", *self.notes])


def run(options: AccountOptions) -> Account:
    """Run ``dptext account``: compute what is lost, at the worst output and but for each delta.

    Raises:
        DptextError: Options and bundle do not go together.
    """
    notes = [
        "Losses in nats, of inputs that differ in so many words, each at that distance: pure, at the worst "
        "of all outputs; and, for each additional probability delta, where the least t lies such that the "
        "inputs are (t, delta)-indistinguishable. The larger end is proven; the smaller one says what the "
        "arithmetic costs.",
    ]
    if options.embedding is None:
        laws = [SphericalLaplace(dimension=n, epsilon=1.0) for n in options.noise_dimension]
        told = [
            _told(options, law, f"noise in {law.dimension} dimensions", "another", pure, words, None)
            for law, pure, words in product(laws, options.pure, options.words)
        ]
        return Account(embedding=None, deltas=options.deltas, notes=tuple(notes), told=tuple(told))
    embedding = Embedding.open(options.embedding)
    all_of(*(lambda m=each: m.prepare(embedding) for each in options.mechanism))
    told = []
    for each in options.mechanism:
        guarantee = each.guarantee(embedding)
        told += [
            _told(options, guarantee.law, str(each), away, distance, words, distance)
            for (away, distance), words in product(_distances(options, guarantee), options.words)
        ]
        if (note := f"{each}: distance is the {guarantee.metric}.") not in notes:
            notes.append(note)
    return Account(embedding=embedding, deltas=options.deltas, notes=tuple(notes), told=tuple(told))


def _told(
    options: AccountOptions,
    law: LossLaw,
    mechanism: str,
    away: str,
    distance: float,
    words: int,
    shown: float | None,
) -> Told:
    return Told(
        mechanism=mechanism,
        away=away,
        distance=shown,
        words=words,
        pure=words * law.bound(distance),
        beyond={delta: Between.of(law, distance, words, delta) for delta in options.deltas},
    )


def _distances(options: AccountOptions, guarantee: Guarantee) -> Iterator[tuple[str, float]]:
    """Give the distances that losses are told for, each with what lies there."""
    if options.distance:
        yield from (("another", distance) for distance in options.distance)
    elif far := guarantee.distances:
        yield from (
            ("its nearest", far.nearest),
            ("its 10th nearest", far.tenth),
            ("its 100th nearest", far.hundredth),
            ("the farthest", far.largest),
        )


def _rounded_down(value: float) -> str:
    exact = Decimal(repr(value))
    if not exact:
        return "0"
    return f"{exact.quantize(Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1), ROUND_FLOOR).normalize():f}"
