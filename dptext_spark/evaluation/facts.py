"""What an evaluation found, JSON-ready: settings, risks, uses, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Final

import pyarrow as pa

from dptext_spark.evaluation.attackers import ATTACKERS, STRONGER
from dptext_spark.evaluation.comparison import KEEPING, Comparison, without_nan
from dptext_spark.evaluation.measures import (
    LABELS,
    Risk,
    attackers_in,
)
from dptext_spark.evaluation.target import Target, choice_of
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.vectors import VectorSetting
from dptext_spark.search.nearest import Search

FILE: Final = "evaluation.json"
PRIVATE: Final = "Facts about private rows, for those who may read them."


def release_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the command of the release that a target recommends, and how to spare those rows."""
    if facts["target"] and facts["target"]["command"]:
        yield f"The release: {facts['target']['command']}"
        if facts["options"].get("where"):
            yield (
                "If another --where releases only rows that were not evaluated, leave "
                "--epsilon-from-private-rows out."
            )


def facts_of(
    thirds: Sequence[Comparison],
    search: Search,
    *,
    target: Target | None,
    confidence: float,
    command: Callable[[Mechanism | VectorSetting, Search], str],
    **facts: Any,
) -> dict[str, Any]:
    """Return what was measured, and the choice; ``facts`` are JSON-ready.

    Args:
        thirds: Of the third that a setting is chosen on, and of the one that it is checked on; with
            fewer, as of very few rows, nothing is chosen. Together they are all attacked rows.
        command: Writes the command of a release with a setting.
    """
    comparison = reduce(add, thirds)
    risk = Risk()
    keeping = KEEPING
    if target is not None:
        risk = target.risk
        keeping = target.use
    settings = comparison.settings(risk, keeping=keeping, confidence=confidence)
    for row in settings:
        row["release_words"] = search.release_words
        row["withheld_words"] = search.withheld_words
        row["search"] = search.label
        row["recommended"] = False
    choice = None
    if target is not None:
        choice = choice_of(target, thirds, confidence)
        number = choice["number"]
        if number is not None:
            settings[number]["recommended"] = True
            mechanism = comparison.outcomes[number].mechanism
            choice["options"] = mechanism.options
            choice["command"] = command(mechanism, search)
    concern = {"attacker": risk.attacker, "guesses": risk.guesses, "versions": risk.versions}
    return {
        "format_version": 4,
        "remark": f"{PRIVATE} {STRONGER}",
        "concern": concern,
        "confidence": confidence,
        "attackers": _attackers(comparison),
        "labels": _labels(comparison),
        **facts,
        "settings": settings,
        **_tables(comparison, confidence),
        "linkage": _linkage(comparison),
        "target": choice,
    }


def risk_and_use(comparison: Comparison, confidence: float) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables of risks and uses."""
    return {
        "risk": _rows(comparison.risk(confidence=confidence)),
        "utility": _rows(comparison.utility(confidence=confidence)),
    }


def _tables(comparison: Comparison, confidence: float) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables of a comparison of words."""
    return {
        **risk_and_use(comparison, confidence),
        "rarity": _rows(comparison.rarity(confidence=confidence)),
        "sightings": _rows(comparison.sightings(confidence=confidence)),
    }


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a table, JSON-ready."""
    return [without_nan(row) for row in table.to_pylist()]


def _attackers(comparison: Comparison) -> list[dict[str, str]]:
    """Return the attackers that were tried, and what each knows."""
    names = attackers_in(comparison.outcomes[0].sums)
    return [{"name": name, "knows": ATTACKERS[name].knows} for name in names]


def _labels(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the classes of the label with their attacked rows, the most frequent known first."""
    counts = comparison.outcomes[0].sums.get(LABELS)
    if counts is None:
        return []
    return [{"class": name, "rows": counts.rows_of(name)} for name in counts.classes]


def _linkage(comparison: Comparison) -> dict[str, float] | None:
    """Return with how many originals a row was compared, and how many have its length: means."""
    sums = comparison.floor
    if "linked/among" not in sums:
        return None
    means = {name: float(sums[f"linked/{name}"].ratio[0]) for name in ("among", "alike")}
    return without_nan(means)
