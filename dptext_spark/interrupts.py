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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end; it is ``finished`` if it came to its end all the same."""

    def __init__(self, number: int, *, finished: bool = False) -> None:
        super().__init__(number, finished)
        self.number = number
        self.finished = finished
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


def _other_handlers() -> dict[signal.Signals, Any]:
    """Return what handles each signal that is not ignored, and not handled here already."""
    handlers: dict[signal.Signals, Any] = {}
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_IGN, _handle):
            handlers[number] = handler
    return handlers


@contextmanager
def handled() -> Iterator[None]:
    """Raise :class:`Interrupted` at the first signal, whatever the block then fails with.

    It may be nested. What nohup or a shell has made the process ignore stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = _other_handlers()
    hook = sys.unraisablehook
    waits = _Run.waits
    sys.unraisablehook = _raise_again
    _Run.waits = False
    if handlers:
        _Run.end = None  # what an earlier block began is none of this one's
    for number in handlers:
        signal.signal(number, _handle)
    try:
        yield
        if _Run.received:
            raise Interrupted(_Run.received, finished=True)
    except Interrupted:
        raise
    except BaseException as error:
        if _Run.received:
            raise Interrupted(_Run.received) from None
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(signal.SIGINT) from None
        raise
    finally:
        _Run.waits = waits
        sys.unraisablehook = hook
        _restore(handlers)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    """Restore what handled signals; after a signal all that is left is to report it."""
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_IGN if _Run.received else handler)
    if handlers:
        _Run.received = 0


def ends_first(end: Callable[[int], None]) -> None:
    """Call a function with the signal's number before :class:`Interrupted` is raised."""
    _Run.end = end


def hold_to_the_end() -> None:
    """Delay signals to the end of the block of :func:`handled`: what is done must be whole."""
    _Run.waits = True


@contextmanager
def held() -> Iterator[None]:
    """Delay signals until Spark has started, and keep the handler that SparkContext replaces.

    Before that nobody can end its JVM, which would wait for this process for ever.
    """
    handler = signal.getsignal(signal.SIGINT)
    waits = _Run.waits
    _Run.waits = True
    try:
        yield
    finally:
        _Run.waits = waits
        # Without our handlers it is for a notebook's user to choose.
        if signal.getsignal(signal.SIGTERM) is _handle:
            signal.signal(signal.SIGINT, handler)
        _stop()


def end_at_once() -> None:
    """End the process with one line at a signal, until :func:`handled` is entered."""

    def end(number: int, _: Any) -> None:
        os.write(2, f"dptext: {Interrupted(number)}.\n".encode())
        os._exit(128 + number)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)
