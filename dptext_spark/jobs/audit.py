"""The job of ``dptext audit``: worlds in, a searched violation out; it needs no Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dptext_spark.audit.trial import FACTORS, trial, worlds
from dptext_spark.bars import progress_bar
from dptext_spark.display import table
from dptext_spark.errors import JobError
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.report.facts import Facts, Report

FORMAT_VERSION: Final = 3
RUNS: Final = 40_000
# What a bundle shows hardly grows with its runs.
BUNDLE_RUNS: Final = 4_000


def run(options: AuditOptions) -> Report:
    """Run ``dptext audit``; its report ends with an error where there is a violation."""
    trials: list[Facts] = []
    with tempfile.TemporaryDirectory(prefix="dptext-audit-") as folder:
        audited = [*worlds(options, Path(folder))]
        alpha = (1.0 - options.confidence) / len(audited)
        for world in progress_bar(audited, leave=False, unit=" worlds"):
            default_runs = BUNDLE_RUNS if world.name == BUNDLE_WORLD else RUNS
            runs = options.runs or default_runs
            trials.append(trial(world, options, runs=runs // 2 * 2, alpha=alpha))
    broken_worlds = dict.fromkeys(facts["world"] for facts in trials if facts["violations"])
    facts = {
        "format_version": FORMAT_VERSION,
        "verdict": "VIOLATION" if broken_worlds else "PASS",
        "options": options.to_json(),
        "metric": audited[0].guarantee.metric,
        "worlds": trials,
    }
    failure = None
    if broken_worlds:
        failure = JobError(
            "The running code breaks its guarantee",
            got=f"violations in {', '.join(broken_worlds)}",
            do="Release nothing with this mechanism",
        )
    lines = [
        f"Audit of {options.mechanism.spec}, epsilon {options.epsilon:g}, in the {facts['metric']}",
        "Losses in nats: the outputs show this much or more; the guarantee claims this",
        "much or less. Smaller is better for privacy.",
        *_table(trials),
    ]
    for world in trials:
        name = _name(world)
        lines += [f"VIOLATION in {name}: {violation}." for violation in world["violations"]]
    if not broken_worlds:
        lines += [
            "PASS: no violation was found. That does not prove the guarantee: what costs less",
            "than the epsilon in the last column (tried once each) goes unnoticed, and so may",
            "noise that two words or rows share.",
        ]
    return Report(facts=facts, text="\n".join(lines), failure=failure)


def _name(world: Facts) -> str:
    return f"{world['world']} ({world['geometry']})"


def _table(trials: Sequence[Facts]) -> list[str]:
    """Return a table of what each world showed, and what it would have caught."""
    rows = [("world", "runs", "words compared", "shown", "claimed", "would catch")]
    for world in trials:
        would_catch = f"nothing up to x {max(FACTORS):g}"
        if world["violations"]:
            would_catch = "VIOLATION"
        elif world["caught"]:
            would_catch = f"epsilon x {world['caught']:g}"
        row = (
            _name(world),
            f"{world['runs']:,}",
            " ".join(world["pair"]),
            f"{world['nats']:.3g}",
            f"{world['claim']:.3g}",
            would_catch,
        )
        rows.append(row)
    return table(rows, numbers=False)
