"""Audits of a mechanism as ``dptext audit`` runs them."""

from __future__ import annotations

from typing import Any

from dptext_spark.jobs import audit as job
from dptext_spark.options import AuditOptions
from dptext_spark.report.facts import Report


def report(spec: str = "laplace", **given: Any) -> Report:
    """Audit a mechanism on a line, unless something else is given."""
    given = {"epsilon": 2.0, "world": ("line",), "runs": 1000, **given}
    return job.run(AuditOptions.of({"mechanism": spec, **given}))
