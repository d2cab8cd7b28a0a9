"""Ctrl-C, SIGTERM and SIGHUP as one exception, raised once.

The first of them has the JVM end, by :func:`ends_first`, whose shutdown hook removes an unfinished
output, and only then raises: clean-up finds no JVM whose last answer nobody read. Later signals
change nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end; ``finished`` says that the run came to its end all the same."""

    def __init__(self, number: int, *, finished: bool = False) -> None:
        super().__init__(number, finished)
        self.number, self.finished = number, finished
        self.exit_code = 128 + number  # what shells and schedulers expect

    def __str__(self) -> str:
        return f"Interrupted by {signal.Signals(self.number).name}"


class _Run:
    received = 0
    waits = False
    end: Callable[[int], None] | None = None


def _handle(number: int, _: Any) -> None:
    if not _Run.received:
        _Run.received = number
        _stop()


def _stop() -> None:
    if _Run.received and not _Run.waits:
        logging.disable()  # that connections break now is no news
        if _Run.end is not None:
            _Run.end(_Run.received)
        raise Interrupted(_Run.received)


def _raise_again(unraisable: Any) -> None:
    """Raise once more what came up in a destructor, out of which Python lets no exception."""
    if not isinstance(unraisable.exc_value, Interrupted):
        sys.__unraisablehook__(unraisable)
        return
    _Run.received = 0
    threading.Timer(0.05, os.kill, (os.getpid(), unraisable.exc_value.number)).start()


@contextmanager
def handled() -> Iterator[None]:
    """Raise :class:`Interrupted` at the first signal, whatever the block then fails with; it may be nested.

    What nohup or a shell has made the process ignore stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        n: old for n in SIGNALS if (old := signal.getsignal(n)) not in (signal.SIG_IGN, _handle)
    }
    hook, sys.unraisablehook = sys.unraisablehook, _raise_again
    waits, _Run.waits = _Run.waits, False
    if before:
        _Run.end = None  # what an earlier block began is none of this one's
    for number in before:
        signal.signal(number, _handle)
    try:
        yield
        if _Run.received:
            raise Interrupted(_Run.received, finished=True)
    except BaseException as error:
        came = _Run.received or isinstance(error, KeyboardInterrupt) * signal.SIGINT
        if came and not isinstance(error, Interrupted):
            raise Interrupted(came) from None
        raise
    finally:
        _Run.waits, sys.unraisablehook = waits, hook
        for number, old in before.items():
            # All that is left of an interrupted run is to say so.
            signal.signal(number, signal.SIG_IGN if _Run.received else old)
        if before:
            _Run.received = 0


def ends_first(end: Callable[[int], None]) -> None:
    """Call a function with the signal's number before :class:`Interrupted` is raised."""
    _Run.end = end


def hold_to_the_end() -> None:
    """Let signals wait until the block of :func:`handled` ends: what is done from here on must be whole."""
    _Run.waits = True


@contextmanager
def held() -> Iterator[None]:
    """Let signals wait until Spark has started, and keep what handles Ctrl-C, which SparkContext replaces.

    Before that nobody can end its JVM, which would wait for this process for ever.
    """
    before, waits = signal.getsignal(signal.SIGINT), _Run.waits
    _Run.waits = True
    try:
        yield
    finally:
        _Run.waits = waits
        if (
            signal.getsignal(signal.SIGTERM) is _handle
        ):  # else it is for a notebook's user to choose
            signal.signal(signal.SIGINT, before)
        _stop()


def end_at_once() -> None:
    """Let signals end the process with one line, until :func:`handled` is entered; nothing is begun yet."""

    def end(number: int, _: Any) -> None:
        os.write(2, f"dptext: {Interrupted(number)}.\n".encode())
        os._exit(128 + number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
