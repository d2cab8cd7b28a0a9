"""Upper bounds on what outputs reveal: ``dptext account``, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import WEAK_LOSS, Guarantee, rounded_up
from dptext_spark.options import AccountOptions
from dptext_spark.report.facts import embedding_json, written

_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Account:
    """The account of one run of ``dptext account``.

    Attributes:
        embedding: The embedding bundle.
        notes: What the numbers are, in sentences.
        losses: For each mechanism, distance and number of words the losses in nats: ``pure`` for the worst
            output, and ``beyond``, by delta, the t for which the inputs are (t, delta)-indistinguishable.
    """

    embedding: Embedding
    notes: Sequence[str]
    losses: Sequence[Mapping[str, Any]]

    def to_json(self) -> str:
        """Write the account as JSON text."""
        return written(
            {"embedding": embedding_json(self.embedding), "notes": self.notes, "losses": self.losses}
        )

    def describe(self) -> str:
        """Show a table, what its numbers are, and a verdict."""
        deltas = list(self.losses[0]["beyond"])
        rows = [("mechanism", "from", "distance", "words", "pure", *deltas)]
        for loss in self.losses:
            numbers = (loss["distance"], loss["pure"], *loss["beyond"].values())
            far, *bounds = (rounded_up(number, _DIGITS) for number in numbers)
            rows.append((loss["mechanism"], loss["from"], far, f"{loss['words']}", *bounds))
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, sizes)).rstrip() for row in rows)
        return "\n".join([*lines, "", *self.notes, self._verdict(deltas[0])])

    def _verdict(self, delta: str) -> str:
        """Say which settings keep what the first line of each is about below a factor of a million."""
        first = {loss["mechanism"]: loss for loss in reversed(self.losses)}
        strong = [name for name, loss in reversed(first.items()) if loss["beyond"][delta] < WEAK_LOSS]
        about = self.losses[0]
        words = "1 word" if about["words"] == 1 else f"{about['words']} words"
        inputs = (
            f"{words} at distance {rounded_up(about['distance'], _DIGITS)}, except with probability {delta}"
        )
        if not strong:
            return f"Verdict: no setting keeps the odds below a factor of 10^6 ({inputs}). Lower epsilon."
        return f"Verdict: the odds change by less than a factor of 10^6 ({inputs}) with {', '.join(strong)}."


def run(options: AccountOptions) -> Account:
    """Run ``dptext account``: bound the loss at the worst output, and the loss except with each delta.

    Raises:
        DptextError: Options and bundle do not go together.
    """
    embedding = Embedding.open(options.embedding)
    all_of(*(lambda m=each: m.prepare(embedding) for each in options.mechanism))
    notes = [
        "Upper bounds in nats, for inputs that differ in so many words, each of them that far apart. Smaller "
        "is safer.",
        "pure: no output reveals more. The other columns: no set of outputs reveals more, except with that "
        "probability.",
    ]
    losses = []
    for each in options.mechanism:
        guarantee = each.guarantee(embedding)
        notes.append(f"{each}: distance is the {guarantee.metric}.")
        losses += [
            {
                "mechanism": str(each),
                "from": away,
                "distance": distance,
                "words": words,
                "pure": words * guarantee.law.bound(distance),
                "beyond": {
                    f"{delta:g}": guarantee.loss_beyond(delta, distance, words) for delta in options.deltas
                },
            }
            for (away, distance), words in product(_distances(options, guarantee), options.words)
        ]
    return Account(embedding=embedding, notes=tuple(dict.fromkeys(notes)), losses=tuple(losses))


def _distances(options: AccountOptions, guarantee: Guarantee) -> list[tuple[str, float]]:
    """Give the distances that losses are bounded for, each with what lies there."""
    far = guarantee.distances
    if options.distance or far is None:
        return [("another", distance) for distance in options.distance]
    return [
        ("its nearest", far.nearest),
        ("its 10th nearest", far.tenth),
        ("its 100th nearest", far.hundredth),
        ("the farthest", far.largest),
    ]
