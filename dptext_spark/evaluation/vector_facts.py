"""What an evaluation of vectors found: facts as JSON, text for a terminal, and a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import Comparison, Outcome
from dptext_spark.evaluation.facts import LEARNT, PRIVATE, risk_and_use
from dptext_spark.evaluation.measures import LABELS, MEASURES, Measure
from dptext_spark.evaluation.target import Target, choice_of
from dptext_spark.evaluation.text import choice_lines
from dptext_spark.evaluation.vector_attackers import VECTOR_ATTACKERS
from dptext_spark.mechanisms.vectors import VectorNoise, VectorSetting

KEEPING: Final = "distances"
"""The use that is kept where no other is asked for."""

RISK: Final = "recovered_words"

_USES: Final = ("distances", "products", *LEARNT)
_RISKS: Final = (RISK, "linked", "membership", "attribution")

_LEGEND: Final = (
    "distances, products: correlation of those of pairs, before and after (a constant: 0).",
    "recovered_words: words of a text that are among as many guesses as it has words.",
    "linked: vectors that an observer with all originals assigns to their own.",
    "membership: rows of which an observer says rightly whether they are in the release.",
)

Facts = Mapping[str, Any]


def facts_of(
    thirds: Sequence[Comparison],
    settings: Sequence[VectorNoise],
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[VectorSetting], str],
    **facts: Any,
) -> dict[str, Any]:
    """Return what was measured, and the choice; for the arguments see ``facts.facts_of``."""
    comparison = reduce(add, thirds)
    keeping = KEEPING if target is None else target.use
    front = comparison.front(MEASURES[RISK], keeping=keeping)
    rows = []
    for noise, outcome in zip(settings, comparison.outcomes, strict=True):
        row = _setting(comparison, outcome, confidence)
        row["spread"] = None if noise.spread is None else noise.spread.to_json()
        row["on_front"] = outcome in front
        row["recommended"] = False
        rows.append(row)
    choice = None
    if target is not None:
        choice = choice_of(target, thirds, confidence)
        number = choice["number"]
        if number is not None:
            setting = VectorSetting(noise=settings[number])
            rows[number]["recommended"] = True
            choice["options"] = setting.options
            choice["command"] = command(setting)
    labels = comparison.outcomes[0].sums.get(LABELS)
    return {
        "format_version": 1,
        "remark": f"{PRIVATE} {STRONGER}",
        "confidence": confidence,
        "attackers": [
            {"name": name, "knows": VECTOR_ATTACKERS[name].knows} for name in VECTOR_ATTACKERS
        ],
        "labels": [] if labels is None else list(labels.classes),
        **facts,
        "settings": rows,
        **risk_and_use(comparison, confidence),
        "target": choice,
    }


def _setting(comparison: Comparison, outcome: Outcome, confidence: float) -> dict[str, Any]:
    """Return the main numbers of a setting."""
    row = {**outcome.key, "options": outcome.mechanism.options}
    for name in (*_USES, *_RISKS):
        measure = MEASURES[name]
        if not measure.is_in(outcome.sums):
            continue
        numbers = comparison.numbers(outcome, measure, confidence)
        row[name] = numbers.pop("value")
        for part, number in numbers.items():
            row[f"{name}_{part}"] = number
        row[f"{name}_ceiling"] = comparison.ceiling(measure)
    return row


def said(facts: Facts) -> Iterator[Any]:
    """Yield what each setting gives away and keeps: blocks of lines, tables, the verdict last."""
    sample = facts["sample"]
    yield [
        PRIVATE,
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked.",
        STRONGER,
    ]
    yield {"title": "What is kept (better: higher)", "table": _table(facts, _USES)}
    yield {"title": "What attackers get (better: lower)", "table": _table(facts, _RISKS)}
    yield [*_LEGEND, *noise_lines(facts)]
    lines = [*verdict(facts)]
    if facts["target"] and facts["target"]["command"]:
        lines.append(f"The release: {facts['target']['command']}")
    yield lines


def _table(facts: Facts, names: Sequence[str]) -> list[list[str]]:
    """Return a table of some measures: settings, then what comes without vectors, and without noise."""
    settings = facts["settings"]
    names = [name for name in names if name in settings[0]]
    rows = [["", *names], *(_cells(row, names) for row in settings)]
    for end, title in (("floor", "without any vector"), ("ceiling", "without noise")):
        cells = _cells(settings[0], [f"{name}_{end}" for name in names])
        rows.append([title, *cells[1:]])
    return rows


def _cells(row: Facts, names: Sequence[str]) -> list[str]:
    """Return a setting and some of its numbers; of a risk the ends of its interval, too."""
    cells = [row["options"]]
    for name in names:
        cell = "-"
        if row[name] is not None:
            cell = f"{row[name]:.3f}"
        if name in _RISKS:
            cell += f" ({row[f'{name}_low']:.3f} to {row[f'{name}_high']:.3f})"
        cells.append(cell)
    return cells


def noise_lines(facts: Facts) -> Iterator[str]:
    """Yield how long the noise of each setting is compared with the public prior."""
    for row in facts["settings"]:
        if row["spread"] is not None:
            yield f"{row['options']}: {row['spread']['said']}"


def verdict(facts: Facts) -> Iterator[str]:
    """Yield which setting to take for the target, and whether the last third confirms it."""
    if facts["target"]:
        yield from choice_lines(facts)
        return
    best = [row["options"] for row in facts["settings"] if row["on_front"]]
    yield f"No other setting beats these by {RISK} and {KEEPING}: {'; '.join(best)}."
    yield f"Choose one by --target on other rows, e.g. '{RISK} <= 0.35'."


def page(facts: Facts) -> dict[str, Any]:
    """Return what the template of the page reads."""
    settings = facts["settings"]
    measured = [MEASURES[name] for name in (*_USES, *_RISKS) if name in settings[0]]
    lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
    for row in sorted(settings, key=lambda row: float(row["epsilon"])):
        line = lines[row["mechanism"]]
        for end, name in {
            "x": RISK,
            "low": f"{RISK}_low",
            "high": f"{RISK}_high",
            "y": KEEPING,
        }.items():
            line[end].append(row[name])
        line["marks"].append(f"{row['epsilon']:g}")
    figure = {
        "name": KEEPING,
        "bars": "x",
        "caption": "Correlation of distances over the share of words found.",
        "x": {"label": "Share of words found"},
        "y": {"label": "Correlation of distances"},
        "floor": (settings[0][f"{RISK}_floor"], 0.0),
        "chosen": [(row[RISK], row[KEEPING]) for row in settings if row["recommended"]],
        "lines": lines,
    }
    return {
        "template": "evaluated_vectors.html",
        "title": "What released vectors keep, and what they reveal",
        "facts": facts,
        "plots": [figure],
        "settings": settings,
        "uses": _of_kind(measured, "use"),
        "risks": _of_kind(measured, "risk"),
        "verdict": list(verdict(facts)),
        "notes": [*_LEGEND, *noise_lines(facts)],
        "stronger": STRONGER,
    }


def _of_kind(measures: Sequence[Measure], kind: str) -> list[Measure]:
    return [measure for measure in measures if measure.kind == kind]
