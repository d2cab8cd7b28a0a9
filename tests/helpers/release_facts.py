"""Public facts of a small release, as its page shows them."""

from __future__ import annotations

from typing import Any

from dptext_spark import Laplace, Release
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import Facts, Report, release_facts
from tests.helpers.worlds import among

MECHANISM = Laplace(epsilon=2.0)


def options_of(line: Embedding, **changes: Any) -> PrivatizeOptions:
    given = {"input": "in", "output": "out", "embedding": line.path, "mechanism": "laplace"}
    return PrivatizeOptions.of({**given, "epsilon": 2.0, "text": ["text"]} | changes)


def facts_of(line: Embedding, options: PrivatizeOptions, **changes: Any) -> Facts:
    """The public facts of a release."""
    release = Release(bundle=line, mechanism=MECHANISM, search=among(4), name="private name")
    facts = release_facts(
        release,
        MECHANISM.guarantee(line),
        options=options.to_json(),
        row_id="Rows are named by column id.",
        kept=options.keep,
        sanitized=options.text,
    )
    private = {"seconds": 98765.5, "run": "r" * 32, "columns": {}, "coverage": {}}
    facts |= {"rows": 1657, "started": "2026-03-01T04:05:06+00:00", **private, **changes}
    return Report(facts=facts, text="").public(options.published)
