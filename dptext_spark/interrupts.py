"""Ctrl-C, SIGTERM and SIGHUP as one exception, raised once, and not where something would stay half done."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to end.

    Args:
        number: Of the signal.
        finished: Whether the run could not be stopped any more and came to its end.
    """

    def __init__(self, number: int, *, finished: bool = False) -> None:
        super().__init__(number, finished)
        self.number, self.finished = number, finished

    @property
    def exit_code(self) -> int:
        """What shells and schedulers expect of a run that this signal ended."""
        return 128 + self.number

    def __str__(self) -> str:
        return f"Interrupted by {signal.Signals(self.number).name}"


class _Signals:
    """Whether a signal came; later ones change nothing. Its methods are for the main thread."""

    def __init__(self) -> None:
        self.received = 0
        self.raised = False
        self.holds = 0
        self.final = False
        self.stops: list[Callable[[], None]] = []

    def handle(self, number: int, _: Any) -> None:
        if not self.received:
            self.received = number
            # What libraries would say of connections that break now is no news.
            logging.disable()
            for stop in self.stops:
                threading.Thread(target=stop, daemon=True).start()
        self.check()

    def check(self) -> None:
        if self.received and not (self.raised or self.holds or self.final):
            self.raised = True
            raise Interrupted(self.received)

    def leave(self, before: Mapping[signal.Signals, Any]) -> None:
        """Put back what handled the signals before, unless one has come: all that is left is to say so."""
        if threading.current_thread() is threading.main_thread():
            for number, old in before.items():
                signal.signal(number, signal.SIG_IGN if self.received else old)
        self.received, self.raised = 0, False
        self.stops.clear()

    def again(self, unraisable: Any) -> None:
        """Raise once more what came up in a destructor, out of which Python lets no exception."""
        if isinstance(unraisable.exc_value, Interrupted):
            self.raised = False
            threading.Timer(0.05, os.kill, (os.getpid(), self.received)).start()
        else:
            sys.__unraisablehook__(unraisable)


_signals = _Signals()


@contextmanager
def handled() -> Iterator[None]:
    """Raise :class:`Interrupted` in the main thread at the first of the signals; it may be nested.

    Whatever the block then leaves with, Interrupted comes out.

    Raises:
        Interrupted: A signal came.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    outer = _signals.handle not in before.values()
    final, _signals.final = _signals.final, False
    hook = sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        # What nohup or a shell has made the process ignore stays ignored.
        _install(number for number, old in before.items() if old is not signal.SIG_IGN)
        sys.unraisablehook = _signals.again
    try:
        yield
    except Interrupted:
        raise
    except BaseException as error:
        if number := _signals.received or isinstance(error, KeyboardInterrupt) * signal.SIGINT:
            raise Interrupted(number) from None
        raise
    else:
        if _signals.received:
            raise Interrupted(_signals.received, finished=True)
    finally:
        _signals.final = final
        if outer:
            sys.unraisablehook = hook
            _signals.leave(before)


def end_at_once() -> None:
    """Let signals end the process with one line, until :func:`handled` is entered; nothing is begun yet."""

    def end(number: int, _: Any) -> None:
        os.write(2, f"dptext: {Interrupted(number)}.\n".encode())
        os._exit(Interrupted(number).exit_code)

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def handle_again() -> None:
    """Be the one that signals reach where a library has taken them over."""
    taken = signal.getsignal(signal.SIGTERM) == _signals.handle != signal.getsignal(signal.SIGINT)
    if taken and threading.current_thread() is threading.main_thread():
        _install([signal.SIGINT])


def _install(numbers: Iterable[int]) -> None:
    for number in numbers:
        signal.signal(number, _signals.handle)


@contextmanager
def held() -> Iterator[None]:
    """Let signals wait until the block has ended; in other threads, which none reaches, without effect."""
    main = threading.current_thread() is threading.main_thread()
    _signals.holds += main
    try:
        yield
    finally:
        _signals.holds -= main
        if main:
            _signals.check()


def hold_to_the_end() -> None:
    """Let signals wait until the work has ended: what is done from here on must be whole."""
    _signals.final = True


def pending() -> bool:
    """Say whether a signal came to a block that :func:`handled` has not left yet."""
    return bool(_signals.received)


def on_interrupt(stop: Callable[[], None]) -> None:
    """Call a function in a thread of its own, at once, when a signal comes."""
    if stop not in _signals.stops:
        _signals.stops.append(stop)
        if _signals.received:
            threading.Thread(target=stop, daemon=True).start()
