"""What a calibration measured, JSON-ready, with what is proven."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dptext_spark.calibration.estimators import Grid
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import TypicalDistances
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search

FILE: Final = "calibration.json"


def facts_of(grids: Sequence[Grid], bundle: Embedding, **facts: Any) -> dict[str, Any]:
    """Return ``facts`` that were measured of a bundle, JSON-ready, with what is proven."""
    first = grids[0]
    mechanisms = [{"mechanism": grid.name, "estimator": grid.estimator} for grid in grids]
    configured: list[Mechanism] = []
    for grid in grids:
        configured += grid.mechanisms
    return {
        "format_version": 3,
        "release_words": first.search.release_words,
        "withheld_words": first.search.withheld_words,
        "search": first.search.label,
        "runs": first.runs,
        "sample": first.words,
        "confidence": first.confidence,
        "mechanisms": mechanisms,
        "guarantee": guarantees(configured, bundle, first.search),
        **facts,
    }


def guarantees(
    mechanisms: Iterable[Mechanism], bundle: Embedding, search: Search
) -> list[dict[str, Any]]:
    """Return what is proven of each mechanism; distances are measured once for each metric."""
    distances: dict[str, TypicalDistances] = {}
    rows = []
    for mechanism in mechanisms:
        metric = mechanism.metric(bundle)
        if metric.description not in distances:
            distances[metric.description] = TypicalDistances.measure(metric)
        guarantee = mechanism.guarantee(bundle, distances[metric.description], search)
        rows.append({"options": mechanism.options, **guarantee.to_json()})
    return rows
