"""Upper bounds on what outputs reveal: ``dptext account``, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Final

import numpy as np

from dptext_spark.display import table
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.geometry import Floats
from dptext_spark.guarantee import (
    RANKS,
    WEAK_LOSS,
    Guarantee,
    TypicalDistances,
    neighbour_distances,
    rounded_up,
)
from dptext_spark.options import AccountOptions
from dptext_spark.report.facts import Facts, Report, embedding_json

_DIGITS: Final = 4
_PERCENTILES: Final = (5, 25, 50, 75, 95)

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
    measured: dict[str, TypicalDistances] = {}
    spreads: list[Facts] = []
    for mechanism in options.mechanism:
        metric = mechanism.metric(embedding)
        name = metric.description
        if name not in measured:
            distances, farthest = neighbour_distances(metric)
            measured[name] = TypicalDistances.of(metric, distances, farthest)
            spreads += _spreads(name, distances)
        guarantee = mechanism.guarantee(embedding, distances=measured[name])
        notes.append(f"{mechanism}: distance is the {guarantee.metric}.")
        losses += _losses(str(mechanism), guarantee, options)
    notes = [*dict.fromkeys(notes)]
    lines = [*_table(losses, options.deltas), "", *notes, ""]
    for name in measured:
        lines += [f"Distances to other words, the {name}", *_spread_table(spreads, name), ""]
    lines.append(_verdict(losses))
    facts = {
        "embedding": embedding_json(embedding),
        "notes": notes,
        "losses": losses,
        "distances": spreads,
    }
    return Report(facts=facts, text="\n".join(lines))


def _spreads(metric: str, distances: Floats) -> Iterator[Facts]:
    """Yield the percentiles, over words, of the distance to the neighbour of each rank."""
    for rank, of_rank in zip(RANKS, distances.T, strict=True):
        numbers = np.percentile(of_rank, _PERCENTILES).tolist()
        percentiles = dict(zip(map(str, _PERCENTILES), numbers, strict=True))
        yield {"metric": metric, "neighbour": rank, "percentiles": percentiles}


def _spread_table(spreads: Sequence[Facts], metric: str) -> list[str]:
    """Return the table of percentiles in one metric."""
    rows = [("neighbour", *(f"{percent}%" for percent in _PERCENTILES))]
    for spread in spreads:
        if spread["metric"] == metric:
            numbers = [f"{number:.4g}" for number in spread["percentiles"].values()]
            rows.append((f"{spread['neighbour']}.", *numbers))
    return table(rows)


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
