"""Fuzz by coverage: ``python -m scripts.fuzz.guided [TARGET ...] [--seconds N] [--inputs FOLDER]``.

The targets are those of :mod:`scripts.fuzz`, but libFuzzer makes the choices of a case: it keeps
choices that reach another branch of the package, and changes them further. Needs Python 3.11 and
``pip install --require-hashes -r requirements/fuzz.txt``. ``--inputs`` keeps the choices, those of
a finding too: ``--again FILE`` runs one again.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import os
import shutil
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import atheris
import numpy as np

if TYPE_CHECKING:
    from scripts.fuzz.targets import Target

_LONGEST: Final = 1024
"""Bytes of choices; a case takes some dozens, and the lowest choice where there are no more."""
_FIRST: Final = 200
"""Random choices to begin with."""


class Choices:
    """The choices of a case, as libFuzzer has them: stands for a generator of random numbers."""

    def __init__(self, data: bytes) -> None:
        self._provider = atheris.FuzzedDataProvider(data)

    def integers(self, low: int, high: int, size: int | None = None) -> Any:
        """Return an integer from ``low`` to below ``high``, or ``size`` of them."""
        if size is not None:
            return [self.integers(low, high) for _ in range(size)]
        return self._provider.ConsumeIntInRange(low, max(low, high - 1))

    def random(self) -> float:
        """Return a number from 0 to below 1."""
        return float(self.integers(0, 256) / 256)

    def bytes(self, length: int) -> bytes:
        """Return so many bytes."""
        return bytes(self._provider.ConsumeBytes(length)).ljust(length, b"\0")


def _guide(kind: type[Target], seconds: float, inputs: Path) -> None:
    """Fuzz one target until its time is over; ends the process, with 1 where there is a finding."""
    from scripts.fuzz.findings import Findings  # after the package is instrumented

    findings = Findings(kind.name)
    folder = TemporaryDirectory(prefix="dptext-fuzz-")
    seeds = Path(folder.name, "seeds")
    seeds.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = kind(seeds)
    end = time.process_time() + seconds

    def run(data: bytes) -> None:
        place = Path(folder.name, "case")
        place.mkdir()
        fault = findings.judge(findings.cases, subject.case(Choices(data), place))
        shutil.rmtree(place)
        if fault and findings.counts[fault] == 1:
            file = inputs / f"{kind.name}-{hashlib.sha256(data).hexdigest()[:8]}.finding"
            file.write_bytes(data)
            print(f"  {fault}: {file}", flush=True)
        if time.process_time() >= end:
            counts = (findings.cases, findings.read, findings.refused, len(findings.counts))
            kept = len(list(corpus.iterdir()))
            print(
                f"{kind.name:<12} {' '.join(f'{count:>8,}' for count in (*counts, kept))}",
                flush=True,
            )
            folder.cleanup()
            os._exit(1 if findings.counts else 0)  # libFuzzer has no other end

    corpus = inputs / kind.name
    corpus.mkdir(parents=True, exist_ok=True)
    if not any(corpus.iterdir()):
        rng = np.random.default_rng(0)
        for number in range(_FIRST):
            (corpus / f"first-{number}").write_bytes(rng.bytes(_LONGEST // 4))
    options = [
        f"-max_len={_LONGEST}",
        f"-artifact_prefix={inputs}/",
        "-rss_limit_mb=0",
        "-timeout=600",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], run)
    atheris.Fuzz()


def main() -> int:
    """Run the targets that are named, or all, each in a process; return 1 for a finding."""
    with atheris.instrument_imports(include=["dptext_spark"]):
        from scripts.fuzz.findings import Findings
        from scripts.fuzz.targets import targets
    parser = argparse.ArgumentParser(prog="scripts.fuzz.guided", description=__doc__)
    parser.add_argument("target", nargs="*", choices=[*targets(), []], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor time of each target")
    parser.add_argument("--inputs", type=Path, help="keep choices here, and begin with them")
    parser.add_argument("--again", type=Path, help="run the choices of this file, with traceback")
    options = parser.parse_args()
    faulthandler.enable()
    if options.again:
        (name,) = options.target
        with TemporaryDirectory() as seeds, TemporaryDirectory() as place:
            case = targets()[name](Path(seeds)).case(
                Choices(options.again.read_bytes()), Path(place)
            )
            print(Findings(name).judge(0, case, show=True) or "right")
        return 0
    columns = ("cases", "read", "refused", "findings", "inputs")
    print(f"{'target':<12} {' '.join(f'{column:>8}' for column in columns)}", flush=True)
    has_findings = False
    with TemporaryDirectory() as scratch:
        inputs = options.inputs or Path(scratch)
        for name in options.target or targets():
            process = os.fork()
            if not process:
                _guide(targets()[name], options.seconds, inputs)
            _, status = os.waitpid(process, 0)
            has_findings |= status != 0
    return 1 if has_findings else 0


if __name__ == "__main__":
    sys.exit(main())
