"""Feed changed inputs to what reads them: ``python -m scripts.fuzz [TARGET ...] [--seconds N]``.

A case is right where it is read, or refused by one of the package's own errors without a word of
the input. Anything else is a finding: another exception, a hang, partial output, a warning. Cases
follow from ``--seed`` and their number, so ``--first N --cases 1`` runs one again.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import shutil
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from scripts.fuzz.findings import Findings
from scripts.fuzz.targets import Target, targets

_MEMORY: Final = 8 << 30


def fuzz(
    target: type[Target],
    *,
    seed: int = 0,
    first: int = 0,
    cases: int | None = None,
    seconds: float = 60.0,
    show: bool = False,
) -> Findings:
    """Run cases of a target, until so many are done or so many seconds of processor time are."""
    findings = Findings(target.name)
    with TemporaryDirectory(prefix="dptext-fuzz-") as folder:
        seeds = Path(folder, "seeds")
        seeds.mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            subject = target(seeds)
        end = time.process_time() + seconds
        number = first
        while time.process_time() < end and (cases is None or number < first + cases):
            place = Path(folder, "case")
            place.mkdir()
            rng = np.random.default_rng([seed, number])
            findings.judge(number, subject.case(rng, place), show=show)
            shutil.rmtree(place)
            number += 1
    return findings


def main() -> int:
    """Run the targets that are named, or all; return 1 where there is a finding."""
    parser = argparse.ArgumentParser(prog="scripts.fuzz", description=__doc__)
    parser.add_argument("target", nargs="*", choices=[*targets(), []], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, help="end after so many cases")
    parser.add_argument("--show", action="store_true", help="print tracebacks and messages")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, most))
    faulthandler.enable()
    has_findings = False
    print(f"{'target':<12} {'cases':>8} {'read':>8} {'refused':>8} {'findings':>8}")
    for name in options.target or targets():
        findings = fuzz(
            targets()[name],
            seed=options.seed,
            first=options.first,
            cases=options.cases,
            seconds=options.seconds,
            show=options.show,
        )
        counts = (findings.cases, findings.read, findings.refused, len(findings.counts))
        print(f"{name:<12} {' '.join(f'{count:>8,}' for count in counts)}", flush=True)
        for what, count in findings.counts.most_common():
            print(f"  {what}: {count:,}, first case {findings.first_cases[what]}")
            has_findings = True
    return 1 if has_findings else 0


if __name__ == "__main__":
    sys.exit(main())
