"""What an evaluation found, JSON-ready: settings, risks, uses, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Final

from dptext_spark.evaluation.attackers import ATTACKERS, STRONGER
from dptext_spark.evaluation.comparison import KEEPING, Comparison, plain
from dptext_spark.evaluation.measures import LABELS, MEASURES, Risk, SingledOut
from dptext_spark.evaluation.target import Target
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.word_reader import FEW

FILE: Final = "evaluation.json"
LEARNT: Final = ("accuracy", "balanced_accuracy", "auc")
"""What is reported of all classes of the label together."""

PRIVATE: Final = "Facts about private rows, for those who may read them."


def facts_of(
    thirds: Sequence[Comparison],
    search: Search,
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[Mechanism, Search], str],
    **facts: Any,
) -> dict[str, Any]:
    """Put together what was measured, and choose; ``facts`` are JSON-ready.

    Args:
        thirds: Of the third that a setting is chosen on, and of the one that it is checked on; with
            fewer, as of very few rows, nothing is chosen. Together they are all attacked rows.
        command: Writes the command of a release with a setting.
    """
    whole, risk, keeping = reduce(add, thirds), Risk(), KEEPING
    if target is not None:
        risk, keeping = target.risk, target.use
    front, chosen, settings = whole.front(risk, keeping=keeping), None, list[dict[str, Any]]()
    shown = {"recovered": risk, "attributed": MEASURES["attribution"]}
    shown |= {name: MEASURES[name] for name in ("linked", "similarity", "kept", *LEARNT)}
    shown |= {f"singled_out_{few}": SingledOut(few=few) for few in FEW}
    for own in whole.outcomes:
        row = {
            **own.key,
            "options": own.mechanism.options,
            "attacker": risk.by(own.sums),
            "channel": own.channel.method,
            "points": own.channel.size,
            "difference": own.channel.difference,
        }
        for key, measure in shown.items():
            if measure.is_in(own.sums):
                numbers = whole.numbers(own, measure, confidence)
                row |= {
                    key if n == "value" else f"{key}_{n}": number for n, number in numbers.items()
                }
                if isinstance(measure, SingledOut):
                    row[f"{key}_original"] = whole.ceiling(measure)
        row |= {"release_words": search.release_words, "search": search.label}
        settings.append(row | {"on_front": own in front, "recommended": False})
    if target is not None:
        chosen = _chosen(target, thirds, confidence)
        if (number := chosen["number"]) is not None:
            settings[number]["recommended"] = True
            mechanism = whole.outcomes[number].mechanism
            chosen |= {"options": mechanism.options, "command": command(mechanism, search)}
    return {
        "format_version": 4,
        "remark": f"{PRIVATE} {STRONGER}",
        "concern": {"attacker": risk.attacker, "guesses": risk.guesses, "versions": risk.versions},
        "confidence": confidence,
        "attackers": _attackers(whole),
        "labels": _labels(whole),
        **facts,
        "settings": settings,
        "risk": [plain(row) for row in whole.risk(confidence=confidence).to_pylist()],
        "utility": [plain(row) for row in whole.utility(confidence=confidence).to_pylist()],
        "rarity": whole.rarity(confidence=confidence).to_pylist(),
        "sightings": whole.sightings(confidence=confidence).to_pylist(),
        "linkage": _linkage(whole),
        "target": chosen,
    }


def _attackers(whole: Comparison) -> list[dict[str, str]]:
    """Return the attackers that were tried, and what each knows."""
    sums = whole.outcomes[0].sums
    tried = {
        name: attacker for name, attacker in ATTACKERS.items() if f"recovered/1/{name}/1" in sums
    }
    return [{"name": name, "knows": attacker.knows} for name, attacker in tried.items()]


def _labels(whole: Comparison) -> list[dict[str, Any]]:
    """Return the classes of the label, the most frequent known ones first, each with its attacked rows."""
    counts = whole.outcomes[0].sums.get(LABELS)
    if counts is None:
        return []
    return [{"class": name, "rows": counts.rows_of(name)} for name in counts.classes]


def _linkage(whole: Comparison) -> dict[str, float] | None:
    """Return how many originals a row was compared with, and how many have its length, means over rows."""
    sums = whole.floor
    if "linked/among" not in sums:
        return None
    return plain({name: float(sums[f"linked/{name}"].ratio[0]) for name in ("among", "alike")})


def _chosen(target: Target, thirds: Sequence[Comparison], confidence: float) -> dict[str, Any]:
    """Choose on the first of these thirds and check on the second."""
    verdict = target.verdict(thirds)
    names = ("number", "options", "command", "closest", "chosen_on", "checked_on")
    row: dict[str, Any] = {"target": str(target), **dict.fromkeys(names)}
    row |= {"remark": verdict.remark or None, "idle": verdict.is_idle}
    if len(thirds) < 2 or verdict.is_idle:
        return row
    outcomes = thirds[0].outcomes
    each = 1.0 - (1.0 - confidence) / len(outcomes)
    best = target.choose(thirds[0], confidence=confidence)
    if best is None:
        closest = max(outcomes, key=partial(target.margin, confidence=each))
        value, bound = target.of(closest, confidence=each)
        row["closest"] = plain(
            {"options": closest.mechanism.options, "measured": value, "bound": bound}
        )
        return row
    row["number"] = number = outcomes.index(best)
    for name, third, sure in zip(names[4:], thirds, (each, confidence), strict=True):
        value, bound = target.of(third.outcomes[number], confidence=sure)
        # Rows that have words which are perturbed.
        rows = int(Risk().own(third.floor).rows[0])
        row[name] = plain({"rows": rows, "measured": value, "bound": bound})
    row["checked_on"]["met"] = target.met(value)
    return row
