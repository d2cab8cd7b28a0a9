"""The audit of all worlds, and its report."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dptext_spark.audit.sampling import Sampler, sampled
from dptext_spark.audit.trial import FACTORS, Trial
from dptext_spark.audit.worlds import worlds
from dptext_spark.bars import progress_bar
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.options import BUNDLE_WORLD, AuditOptions

FORMAT_VERSION: Final = 2
RUNS: Final = 40_000
# What a bundle shows hardly grows with its runs.
BUNDLE_RUNS: Final = 4_000
_HEADINGS: Final = ("world", "runs", "words compared", "shown", "claimed", "would catch")


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The report of one run of ``dptext audit``.

    Its options and the facts of its worlds are JSON-ready values; its metric is the distance of the claim.
    """

    options: dict[str, Any]
    metric: str
    worlds: tuple[dict[str, Any], ...]

    @property
    def broken(self) -> list[str]:
        """The worlds in which there is a violation, each once."""
        return list(dict.fromkeys(facts["world"] for facts in self.worlds if facts["violations"]))

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "verdict": "VIOLATION" if self.broken else "PASS",
            "options": self.options,
            "metric": self.metric,
            "worlds": self.worlds,
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say in plain words what was shown, what was found, and what could not be caught."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        options = self.options
        yield f"Audit of {options['mechanism']}, epsilon {options['epsilon']:g}, in the {self.metric}"
        yield "Losses in nats: the outputs show this much or more; the guarantee claims this"
        yield "much or less. Smaller is better for privacy."
        rows = [_HEADINGS, *map(_cells, self.worlds)]
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            yield "  ".join(cell.ljust(size) for cell, size in zip(row, sizes, strict=True)).rstrip()
        for facts in self.worlds:
            for violation in facts["violations"]:
                yield f"VIOLATION in {facts['world']} ({facts['geometry']}): {violation}."
            if facts["violations"]:
                yield f"  Repeat it: {facts['command']}"
        if not self.broken:
            yield "PASS: no violation was found. That does not prove the guarantee: what costs less"
            yield "than the epsilon in the last column (tried once each) goes unnoticed, and so may"
            yield "noise that two words or rows share."

    def finish(self, path: Path | None) -> None:
        """Write the report, if it is wanted, and refuse a mechanism that breaks its guarantee.

        Raises:
            ConfigError: The report cannot be written.
            JobError: A violation was found.
        """
        if path is not None:
            try:
                path.write_text(self.to_json(), encoding="utf-8")
            except OSError as error:
                raise _unwritable(path, error.errno) from None
        if self.broken:
            raise JobError(
                "The running code breaks its guarantee",
                got=f"violations in {', '.join(self.broken)}",
                do="Release nothing with this mechanism",
            )


def _cells(facts: dict[str, Any]) -> tuple[str, ...]:
    caught = facts["caught"]
    would = f"epsilon x {caught:g}" if caught else f"nothing up to x {max(FACTORS):g}"
    return (
        f"{facts['world']} ({facts['geometry']})",
        f"{facts['runs']:,}",
        " ".join(facts["pair"]),
        f"{facts['nats']:.3g}",
        f"{facts['claim']:.3g}",
        "VIOLATION" if facts["violations"] else would,
    )


def run_audit(options: AuditOptions, *, bundle_sampler: Sampler = sampled) -> AuditReport:
    """Run ``dptext audit``: small worlds in this process, the bundle's words by ``bundle_sampler``.

    Raises:
        DptextError: Options, bundle and mechanism do not go together.
    """
    if (report := options.report) is not None:
        # Before the work.
        if report.is_dir():
            raise _unwritable(report, errno.EISDIR)
        if not report.absolute().parent.is_dir():
            raise _unwritable(report, errno.ENOENT)
    with tempfile.TemporaryDirectory(prefix="dptext-audit-") as folder:
        audited = list(worlds(options, Path(folder)))
        alpha = (1.0 - options.confidence) / len(audited)
        trials = []
        for world in audited:
            bundle = world.name == BUNDLE_WORLD
            runs = (options.runs or (BUNDLE_RUNS if bundle else RUNS)) // 2 * 2
            sampler = bundle_sampler if bundle else sampled
            trials.append(Trial(world=world, options=options, runs=runs, alpha=alpha, sampler=sampler))
        facts = tuple(trial.run() for trial in progress_bar(trials, leave=False, unit=" worlds"))
    return AuditReport(options=options.to_json(), metric=audited[0].guarantee.metric, worlds=facts)


def _unwritable(path: Path, number: int | None) -> ConfigError:
    return ConfigError(f"The report {path} cannot be written", got=os.strerror(number or 0))
