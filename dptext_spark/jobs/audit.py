"""The job of ``dptext audit``: worlds in, a searched violation out; it needs no Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from dptext_spark.audit.trial import FACTORS, trial, worlds
from dptext_spark.bars import progress_bar
from dptext_spark.errors import JobError
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.report.facts import Report
from dptext_spark.report.text import table

FORMAT_VERSION: Final = 3
RUNS: Final = 40_000
# What a bundle shows hardly grows with its runs.
BUNDLE_RUNS: Final = 4_000


def run(options: AuditOptions) -> Report:
    """Run ``dptext audit``; its report ends with an error where there is a violation."""
    with tempfile.TemporaryDirectory(prefix="dptext-audit-") as folder:
        audited = [*worlds(options, Path(folder))]
        alpha, trials = (1.0 - options.confidence) / len(audited), []
        for world in progress_bar(audited, leave=False, unit=" worlds"):
            runs = options.runs or (BUNDLE_RUNS if world.name == BUNDLE_WORLD else RUNS)
            trials.append(trial(world, options, runs=runs // 2 * 2, alpha=alpha))
    broken = ", ".join(dict.fromkeys(facts["world"] for facts in trials if facts["violations"]))
    facts = {
        "format_version": FORMAT_VERSION,
        "verdict": "VIOLATION" if broken else "PASS",
        "options": options.to_json(),
        "metric": audited[0].guarantee.metric,
        "worlds": trials,
    }
    failure = JobError(
        "The running code breaks its guarantee",
        got=f"violations in {broken}",
        do="Release nothing with this mechanism",
    )
    rows, violations = [("world", "runs", "words compared", "shown", "claimed", "would catch")], []
    for found in trials:
        world, caught = f"{found['world']} ({found['geometry']})", found["caught"]
        would = f"epsilon x {caught:g}" if caught else f"nothing up to x {max(FACTORS):g}"
        if found["violations"]:
            would = "VIOLATION"
            violations += [
                f"VIOLATION in {world}: {violation}." for violation in found["violations"]
            ]
        losses = f"{found['nats']:.3g}", f"{found['claim']:.3g}"
        rows.append((world, f"{found['runs']:,}", " ".join(found["pair"]), *losses, would))
    lines = [
        f"Audit of {options.mechanism.spec}, epsilon {options.epsilon:g}, in the {facts['metric']}",
        "Losses in nats: the outputs show this much or more; the guarantee claims this",
        "much or less. Smaller is better for privacy.",
        *table(rows, numbers=False),
    ]
    passed = [
        "PASS: no violation was found. That does not prove the guarantee: what costs less",
        "than the epsilon in the last column (tried once each) goes unnoticed, and so may",
        "noise that two words or rows share.",
    ]
    text = "\n".join([*lines, *(violations or passed)])
    return Report(facts=facts, text=text, failure=failure if broken else None)
