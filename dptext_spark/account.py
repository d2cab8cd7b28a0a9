"""Upper bounds on what outputs reveal: ``dptext account``, without Spark."""

from __future__ import annotations

from itertools import product

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import all_of
from dptext_spark.guarantee import WEAK_LOSS, rounded_up
from dptext_spark.options import AccountOptions
from dptext_spark.report.facts import Facts, Report, embedding_json
from dptext_spark.report.text import table

_DIGITS = 4


def run(options: AccountOptions) -> Report:
    """Run ``dptext account``: bound the loss at the worst output, and the loss except with each delta."""
    embedding = Embedding.open(options.embedding)
    all_of(*(lambda m=each: m.prepare(embedding) for each in options.mechanism))
    notes = [
        "Upper bounds in nats for inputs that differ in this number of words, each at this distance. Smaller "
        "is safer.",
        "pure: no output reveals more. The other columns: no set of outputs reveals more, except with that "
        "probability.",
    ]
    losses: list[Facts] = []
    rows = [
        (
            "mechanism",
            "from",
            "distance",
            "words",
            "pure",
            *(f"{delta:g}" for delta in options.deltas),
        )
    ]
    for each in options.mechanism:
        guarantee = each.guarantee(embedding)
        notes.append(f"{each}: distance is the {guarantee.metric}.")
        if options.distance or (far := guarantee.distances) is None:
            distances = [("another", distance) for distance in options.distance]
        else:
            names = ("its nearest", "its 10th nearest", "its 100th nearest", "the farthest")
            distances = [
                *zip(names, (far.nearest, far.tenth, far.hundredth, far.largest), strict=True)
            ]
        for (name, distance), words in product(distances, options.words):
            beyond = {f"{d:g}": guarantee.loss_beyond(d, distance, words) for d in options.deltas}
            away = {"mechanism": str(each), "from": name, "distance": distance, "words": words}
            losses.append({**away, "pure": words * guarantee.law.bound(distance), "beyond": beyond})
            numbers = (distance, losses[-1]["pure"], *beyond.values())
            shown, *bounds = (rounded_up(number, _DIGITS) for number in numbers)
            rows.append((str(each), name, shown, str(words), *bounds))
    notes = [*dict.fromkeys(notes)]
    lines = [*table(rows, numbers=False), "", *notes, _verdict(losses)]
    facts = {"embedding": embedding_json(embedding), "notes": notes, "losses": losses}
    return Report(facts=facts, text="\n".join(lines))


def _verdict(losses: list[Facts]) -> str:
    """Say which settings keep what the first line of each is about below a factor of a million."""
    about, delta = losses[0], next(iter(losses[0]["beyond"]))
    first = {loss["mechanism"]: loss for loss in reversed(losses)}
    strong = [name for name, loss in reversed(first.items()) if loss["beyond"][delta] < WEAK_LOSS]
    words = "1 word" if about["words"] == 1 else f"{about['words']} words"
    inputs = f"{words} at distance {rounded_up(about['distance'], _DIGITS)}, except with probability {delta}"
    if not strong:
        return (
            f"Verdict: no setting keeps the odds below a factor of 10^6 ({inputs}). Lower epsilon."
        )
    return f"Verdict: the odds change by less than a factor of 10^6 ({inputs}) with {', '.join(strong)}."
