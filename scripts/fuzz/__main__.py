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
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from dptext_spark.errors import DptextError
from scripts.fuzz.targets import CANARY, Target, targets

PATIENCE: Final = 20
"""Seconds of processor time that a case may take."""
_MEMORY: Final = 8 << 30


class Hang(BaseException):
    """A case that does not end; no ``except Exception`` may take it for something else."""


@dataclass
class Findings:
    """What one target's cases came to."""

    name: str
    read: int = 0
    refused: int = 0
    first_cases: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def cases(self) -> int:
        """The number of cases."""
        return self.read + self.refused + self.counts.total()

    def add(self, number: int, what: str) -> None:
        """Note what is wrong with a case; the first one of a kind is named."""
        self.counts[what] += 1
        self.first_cases.setdefault(what, number)


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
            read = subject.case(rng, place)
            fault = _fault_of(read, findings, show=show)
            if fault:
                findings.add(number, fault)
            shutil.rmtree(place)
            number += 1
    return findings


def _fault_of(read: object, findings: Findings, *, show: bool) -> str:
    """Read a case; return what is wrong, empty where nothing is."""
    try:
        with _limited(), warnings.catch_warnings():
            warnings.simplefilter("error")
            read()  # type: ignore[operator]
    except DptextError as error:
        findings.refused += 1
        if show:
            print(f"refused: {error}")
        if CANARY in str(error) or CANARY in repr(error.args):
            findings.refused -= 1
            return f"a word in the message of {_place(error)}"
    except (Exception, Hang) as error:  # noqa: BLE001 - this is what is looked for
        if show:
            traceback.print_exc()
        return f"{type(error).__name__} at {_place(error)}"
    else:
        findings.read += 1
    return ""


def _place(error: BaseException) -> str:
    """Return the innermost line of the package that an error passed through."""
    places = [
        f"{frame.filename.rpartition('dptext_spark/')[2]}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if "/dptext_spark/" in frame.filename and "/site-packages/" not in frame.filename
    ]
    return places[-1] if places else "no line of the package"


@contextmanager
def _limited() -> Iterator[None]:
    """Raise :class:`Hang` where Python takes too long; end the process where C does."""

    def hang(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, hang)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    faulthandler.dump_traceback_later(20 * PATIENCE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


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
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
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
