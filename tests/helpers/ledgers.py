"""Entries of ledgers, and totals of rows as one would count them by hand."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from dptext_spark.accounting.exposure import recorded_policy
from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.accounting.ledger import Entry, Terms, Unit, recorded
from dptext_spark.text.policies import TextPolicy

UNITS = [
    Unit(metric="Euclidean distance", fingerprint="a" * 64),
    Unit(metric="another", fingerprint="a" * 64),
]
SAFE = recorded_policy(TextPolicy())


def terms(**changes: Any) -> Terms:
    law = SphericalLaplace(dimension=50, epsilon=changes.get("epsilon", 10.0))
    return Terms(
        **{
            "version": "0.1.0",
            "label": "label",
            "key": "key",
            "naming": "id",
            "known_as": "id",
            "input": "in",
            "output": "file:/out",
            "columns": ("text",),
            "tokens": (),
            "new_texts": (),
            "exact_names": False,
            "kept": (),
            "policy": SAFE,
            "law": {"law": "elliptical-laplace", "epsilon": 10.0},
            "unit": UNITS[0],
            "epsilon": 10.0,
            "delta": 0.0,
            "loss": recorded(law),
            "distances": {"hundredth": 3.0, "nearest": 1.0, "tenth": 2.0},
            **changes,
        }
    )


def name(number: int) -> str:
    return f"{number:032x}"


def entry(
    number: int,
    *,
    total: float | Decimal | None = None,
    counts: Iterable[int] = (),
    state: str = "committed",
    **changes: Any,
) -> Entry:
    """A release; without a total it was never assessed."""
    return Entry.model_validate(
        {
            "release": name(number),
            "number": number,
            "time": "2026-01-01T00:00:00+00:00",
            "terms": terms(**changes),
            "fingerprints": {"lines": 3, "checksum": -5},
            "total": None if total is None else Decimal(str(total)),
            "counts": tuple(map(name, counts)),
            "state": state,
        }
    )
