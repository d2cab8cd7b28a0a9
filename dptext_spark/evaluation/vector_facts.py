"""What an evaluation of vectors found: facts as JSON, text for a terminal, and a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final, TypeAlias

from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import LEARNT, Comparison, Outcome
from dptext_spark.evaluation.facts import PRIVATE, release_lines, risk_and_use
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

_SHORT: Final = {"recovered_words": "words", "balanced_accuracy": "balanced"}
"""Names of measures that tables shorten."""

LEGEND: Final = (
    "distances, products: correlation of those of pairs, before and after.",
    "accuracy, balanced, auc: of a model that learns the label from released vectors.",
    "words (recovered_words): words of a text among as many guesses as it has words.",
    "linked: vectors that an observer of all originals assigns to their own.",
    "membership: rows of which an observer says rightly if they are in the release.",
    "noise, vectors apart: mean length; distance of texts, words or bags.",
    "no noise: vectors of words, or their means. Bags are compared with exact bags.",
)

Facts: TypeAlias = Mapping[str, Any]


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
    keeping = KEEPING
    if target is not None:
        keeping = target.use
    front = comparison.front(MEASURES[RISK], keeping=keeping)
    rows = []
    for noise, outcome in zip(settings, comparison.outcomes, strict=True):
        row = _setting(comparison, outcome, confidence)
        row["dimension"] = noise.dimension
        if noise.spread is not None:
            row["spread"] = noise.spread.to_json()
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
    labels: list[str] = []
    if LABELS in comparison.floor:
        labels = list(comparison.floor[LABELS].classes)
    attackers = [{"name": name, "knows": kind.knows} for name, kind in VECTOR_ATTACKERS.items()]
    return {
        "format_version": 1,
        "remark": f"{PRIVATE} {STRONGER}",
        "confidence": confidence,
        "attackers": attackers,
        "labels": labels,
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
    rows = (
        f"{sample['rows']:,} of {sample['of']:,} rows: {sample['known']:,} are known, the other "
        f"{sample['attacked']:,} are attacked."
    )
    yield [PRIVATE, rows, STRONGER]
    yield {"title": "What is kept (better: higher)", "table": _table(facts, _USES)}
    title = "What attackers get, and upper limits (better: lower)"
    yield {"title": title, "table": _table(facts, _RISKS)}
    yield {"title": "Noise and vectors", "table": _noise_table(facts)}
    yield [*LEGEND, *warnings(facts)]
    yield [*verdict(facts), *release_lines(facts)]


def _table(facts: Facts, names: Sequence[str]) -> list[list[str]]:
    """Return a table of some measures: settings, what comes without vectors, and without noise."""
    settings = facts["settings"]
    names = [name for name in names if name in settings[0]]
    head = [_SHORT.get(name, name) for name in names]
    rows = [["", "epsilon", *head], *(_cells(row, _key(row), names) for row in settings)]
    for end, title in (("floor", "no vector"), ("ceiling", "no noise")):
        ends = [f"{name}_{end}" for name in names]
        rows.append(_cells(settings[0], [title, ""], ends))
    return rows


def _cells(row: Facts, head: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a row of a table."""
    return [*head, *(_cell(row, name) for name in names)]


def _key(row: Facts) -> list[str]:
    """Return a setting as tables name it."""
    return [f"{row['mechanism']}, {row['dimension']} numbers", f"{row['epsilon']:g}"]


def _cell(row: Facts, name: str) -> str:
    """Return a number of a setting; of a risk the end of its interval, too."""
    if row[name] is None:
        return "-"
    if name in _RISKS:
        return f"{row[name]:.3f} ({row[f'{name}_high']:.3f})"
    return f"{row[name]:.3f}"


def _noise_table(facts: Facts) -> list[list[str]]:
    """Return how long the noise of each setting is compared with vectors of the public prior."""
    rows = [["", "epsilon", "noise", "vectors apart", "variance kept"]]
    for row in facts["settings"]:
        spread = row["spread"]
        lengths = [
            f"{spread['noise']:.3g}",
            f"{spread['distance']:.3g}",
            f"{spread['variance']:.0%}",
        ]
        rows.append([*_key(row), *lengths])
    return rows


def warnings(facts: Facts) -> Iterator[str]:
    """Yield which settings release hardly more than a constant."""
    for row in facts["settings"]:
        if row["spread"]["is_useless"]:
            yield f"WARNING: {row['options']} keeps hardly more than a constant would."


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
    answer = {"verdict": [*verdict(facts)], "stronger": STRONGER}
    return {
        **answer,
        "template": "evaluated_vectors.html",
        "title": "What released vectors keep, and what they reveal",
        "facts": facts,
        "plots": [_plot(settings)],
        "settings": settings,
        "uses": _of_kind(measured, "use"),
        "risks": _of_kind(measured, "risk"),
        "notes": [*LEGEND, *warnings(facts)],
    }


def _plot(settings: Sequence[Facts]) -> dict[str, Any]:
    """Return a figure of distances over the words found, a line for each projection."""
    ends = {"x": RISK, "low": f"{RISK}_low", "high": f"{RISK}_high", "y": KEEPING}
    lines = defaultdict[str, dict[str, list[Any]]](lambda: defaultdict(list))
    for row in sorted(settings, key=lambda row: float(row["epsilon"])):
        line = lines[row["mechanism"]]
        for end, name in ends.items():
            line[end].append(row[name])
        line["marks"].append(f"{row['epsilon']:g}")
    figure: dict[str, Any] = {"name": KEEPING, "bars": "x", "lines": lines}
    figure["caption"] = "Correlation of distances over the share of words found."
    figure["x"] = {"label": "Share of words found"}
    figure["y"] = {"label": "Correlation of distances"}
    figure["floor"] = (settings[0][f"{RISK}_floor"], 0.0)
    figure["chosen"] = [(row[RISK], row[KEEPING]) for row in settings if row["recommended"]]
    return figure


def _of_kind(measures: Sequence[Measure], kind: str) -> list[Measure]:
    return [measure for measure in measures if measure.kind == kind]
