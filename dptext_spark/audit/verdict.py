"""The audit of all worlds, and what came of it."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dptext_spark.audit.joint_trial import JointOutcome, JointTrial
from dptext_spark.audit.power import DRAWS
from dptext_spark.audit.sampling import Sampler, sampled
from dptext_spark.audit.trial import Outcome, Trial, Witness
from dptext_spark.audit.worlds import World, worlds
from dptext_spark.bars import progress_bar
from dptext_spark.errors import ConfigError, JobError
from dptext_spark.options import BUNDLE_WORLD, JOINT_WORLD, AuditOptions

FORMAT_VERSION: Final = 1
RUNS: Final = 40_000
LEAST_RUNS: Final = 100
# Joint releases are made for every draw, of rows and not of words.
_JOINT_SHARE: Final = 25
# An audit should take a minute or so, and what a bundle shows does not grow with its runs.
BUNDLE_RUNS: Final = 10_000
# Each vector is a row of its own, which takes far longer than a word of a row.
_VECTOR_DRAWS: Final = 5
_FLOPS: Final = 1e12  # of the search, for all words of the bundle together


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """The account of one run of ``dptext audit``.

    Its options are JSON-ready values, its metric is the distance of the claim, in words.
    """

    options: dict[str, Any]
    metric: str
    outcomes: tuple[Outcome | JointOutcome, ...]

    @property
    def witnesses(self) -> tuple[Witness, ...]:
        """All that was found."""
        return tuple(witness for outcome in self.outcomes for witness in outcome.witnesses)

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "verdict": "VIOLATION" if self.witnesses else "PASS",
            "options": self.options,
            "metric": self.metric,
            "worlds": [asdict(outcome) for outcome in self.outcomes],
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say in plain words what was looked at, what was found and what would have been."""
        mechanism, epsilon = self.options["mechanism"], self.options["epsilon"]
        lines = [
            f"Audit of {mechanism}, epsilon {epsilon:g}, in the {self.metric}",
            *(outcome.describe() for outcome in self.outcomes),
        ]
        for outcome in self.outcomes:
            for witness in outcome.witnesses:
                where = f"{outcome.world} ({outcome.geometry})"
                lines += [f"VIOLATION in {where}: {witness.message}.", f"  Repeat it: {witness.command}"]
        if not self.witnesses:
            lines.append("PASS: nothing was found. That says no more than what would have been caught.")
        return "\n".join(lines)

    def finish(self, path: Path | None) -> None:
        """Write the report, if it is wanted, and refuse a mechanism against which something was found.

        Raises:
            ConfigError: The report cannot be written.
            JobError: Something was found.
        """
        if path is not None:
            try:
                path.write_text(self.to_json(), encoding="utf-8")
            except OSError as error:
                raise _unwritable(path, error.errno) from None
        if found := self.witnesses:
            raise JobError(
                "The running code breaks its guarantee",
                got=f"violations in {', '.join(dict.fromkeys(witness.world for witness in found))}",
                do="Release nothing with this mechanism",
            )


def run_audit(options: AuditOptions, *, bundle_sampler: Sampler = sampled) -> AuditReport:
    """Run ``dptext audit``: small worlds in this process, the bundle's words by ``bundle_sampler``.

    Raises:
        DptextError: Options, bundle and mechanism do not go together.
    """
    if options.report is not None:
        _check_report(options.report)
    with tempfile.TemporaryDirectory(prefix="dptext-audit-") as folder:
        found = list(worlds(options, Path(folder)))
        alpha = (1.0 - options.confidence) / len(found)
        trials = [_trial(world, options, alpha, bundle_sampler) for world in found]
        outcomes = tuple(trial.run() for trial in progress_bar(trials, leave=False, unit=" worlds"))
    return AuditReport(options=options.to_json(), metric=found[0].guarantee.metric, outcomes=outcomes)


def _trial(world: World, options: AuditOptions, alpha: float, bundle_sampler: Sampler) -> Trial | JointTrial:
    runs, draws = _runs(options, world), DRAWS
    if world.name == JOINT_WORLD:
        return JointTrial(world=world, options=options, runs=runs, alpha=alpha)
    sampler: Sampler = sampled
    if world.name == BUNDLE_WORLD:
        draws, sampler = 1, bundle_sampler
    elif options.mechanism.releases == "vectors":
        draws = _VECTOR_DRAWS
    return Trial(world=world, options=options, runs=runs, alpha=alpha, sampler=sampler, draws=draws)


def _check_report(path: Path) -> None:
    """Refuse, before the work, a report that could not be written after it."""
    if path.is_dir():
        raise _unwritable(path, errno.EISDIR)
    if not path.absolute().parent.is_dir():
        raise _unwritable(path, errno.ENOENT)


def _unwritable(path: Path, number: int | None) -> ConfigError:
    return ConfigError(f"The report {path} cannot be written", got=os.strerror(number or 0))


def _runs(options: AuditOptions, world: World) -> int:
    """Give the outputs of each word, an even number."""
    runs = options.runs
    if runs is None and world.name == BUNDLE_WORLD:
        flops = 2.0 * world.embedding.vectors.size * len(world.words)
        runs = int(min(BUNDLE_RUNS, max(1000.0, _FLOPS / flops)))
    if world.name == JOINT_WORLD:
        runs = max((runs or RUNS) // _JOINT_SHARE, LEAST_RUNS)
    return (runs or RUNS) // 2 * 2
