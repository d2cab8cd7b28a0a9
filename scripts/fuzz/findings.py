"""What is wrong with a case: it is read right, refused by an error of the package, or a finding."""

from __future__ import annotations

import faulthandler
import signal
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from dptext_spark.errors import DptextError
from scripts.fuzz.targets import CANARY

PATIENCE: Final = 20
"""Seconds of processor time that a case may take."""


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

    def judge(self, number: int, read: Callable[[], object], *, show: bool = False) -> str:
        """Read a case and count it; return what is wrong, empty where nothing is."""
        fault = self._fault_of(read, show=show)
        if fault:
            self.counts[fault] += 1
            self.first_cases.setdefault(fault, number)
        return fault

    def _fault_of(self, read: Callable[[], object], *, show: bool) -> str:
        try:
            with _limited(), warnings.catch_warnings():
                warnings.simplefilter("error")
                read()
        except DptextError as error:
            if show:
                print(f"refused: {error}")
            if CANARY in str(error) or CANARY in repr(error.args):
                return f"a word in the message of {_place(error)}"
            self.refused += 1
        except (Exception, Hang) as error:  # noqa: BLE001 - this is what is looked for
            if show:
                traceback.print_exc()
            return f"{type(error).__name__} at {_place(error)}"
        else:
            self.read += 1
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
