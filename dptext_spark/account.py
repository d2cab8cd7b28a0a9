"""Upper bounds on what outputs reveal: ``dptext account``, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Final

from dptext_spark.display import table
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import WEAK_LOSS, Guarantee, rounded_up
from dptext_spark.options import AccountOptions
from dptext_spark.report.facts import Facts, Report, embedding_json

_DIGITS: Final = 4

_NOTES: Final = (
    "Upper bounds in nats for inputs that differ in this number of words, each at this distance. "
    "Smaller is safer.",
    "pure: no output reveals more. The other columns: no set of outputs reveals more, "
    "except with that probability.",
)


def run(options: AccountOptions) -> Report:
    """Run ``dptext account``: bound the loss at the worst output, and except with each delta."""
    embedding = Embedding.open(options.embedding)
    all_of(*(partial(mechanism.prepare, embedding) for mechanism in options.mechanism))
    notes = [*_NOTES]
    losses: list[Facts] = []
    for mechanism in options.mechanism:
        guarantee = mechanism.guarantee(embedding)
        notes.append(f"{mechanism}: distance is the {guarantee.metric}.")
        losses += _losses(str(mechanism), guarantee, options)
    notes = [*dict.fromkeys(notes)]
    lines = [*_table(losses, options.deltas), "", *notes, _verdict(losses)]
    facts = {"embedding": embedding_json(embedding), "notes": notes, "losses": losses}
    return Report(facts=facts, text="\n".join(lines))


def _losses(mechanism: str, guarantee: Guarantee, options: AccountOptions) -> Iterator[Facts]:
    """Yield the bounds at each distance, for each number of words."""
    typical = guarantee.distances
    if options.distance or typical is None:
        distances = [*product(["another"], options.distance)]
    else:
        distances = [
            ("its nearest", typical.nearest),
            ("its 10th nearest", typical.tenth),
            ("its 100th nearest", typical.hundredth),
            ("the farthest", typical.largest),
        ]
    for (name, distance), words in product(distances, options.words):
        beyond = {}
        for delta in options.deltas:
            beyond[f"{delta:g}"] = guarantee.loss_beyond(delta, distance, words)
        yield {
            "mechanism": mechanism,
            "from": name,
            "distance": distance,
            "words": words,
            "pure": words * guarantee.law.bound(distance),
            "beyond": beyond,
        }


def _table(losses: Sequence[Facts], deltas: Sequence[float]) -> list[str]:
    """Return the table of bounds, each rounded up."""
    rows = [("mechanism", "from", "distance", "words", "pure", *(f"{delta:g}" for delta in deltas))]
    for loss in losses:
        bounds = (loss["distance"], loss["pure"], *loss["beyond"].values())
        distance, *cells = map(_rounded_up, bounds)
        rows.append((loss["mechanism"], loss["from"], distance, str(loss["words"]), *cells))
    return table(rows, numbers=False)


def _rounded_up(number: float) -> str:
    return rounded_up(number, _DIGITS)


def _verdict(losses: Sequence[Facts]) -> str:
    """Return which settings keep what the first line is about below a factor of a million."""
    about = losses[0]
    delta = next(iter(about["beyond"]))
    first: dict[str, Facts] = {}
    for loss in losses:
        first.setdefault(loss["mechanism"], loss)
    strong = []
    for name, loss in first.items():
        if loss["beyond"][delta] < WEAK_LOSS:
            strong.append(name)
    words = "1 word"
    if about["words"] != 1:
        words = f"{about['words']} words"
    distance = _rounded_up(about["distance"])
    inputs = f"{words} at distance {distance}, except with probability {delta}"
    if not strong:
        return (
            f"Verdict: no setting keeps the odds below a factor of 10^6 ({inputs}). Lower epsilon."
        )
    return (
        f"Verdict: the odds change by less than a factor of 10^6 ({inputs}) "
        f"with {', '.join(strong)}."
    )
