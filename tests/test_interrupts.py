"""Signals as one exception: raised once, where nothing stays half done, and not lost."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dptext_spark import interrupts
from dptext_spark.interrupts import Interrupted, handled, held, hold_to_the_end

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.disable(logging.NOTSET)


def interrupted(work: Callable[[], object]) -> Interrupted:
    """What comes out of work to which a signal comes."""
    with pytest.raises(Interrupted) as caught, handled():
        work()
    return caught.value


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """What nohup made this process ignore is heard here."""
    before = {number: signal.getsignal(number) for number in interrupts.SIGNALS}
    for number, old in before.items():
        signal.signal(number, signal.SIG_DFL if old is signal.SIG_IGN else old)
    yield
    for number, old in before.items():
        signal.signal(number, old)


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until() and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_ends_the_work(number: signal.Signals) -> None:
    found = interrupted(lambda: (signal.raise_signal(number), pytest.fail("the work went on")))
    assert (found.exit_code, found.finished) == (128 + number, False)
    assert str(found) == f"Interrupted by {number.name}"


def test_a_second_signal_disturbs_neither_the_clean_up_nor_the_message() -> None:
    steps = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            with held():
                steps.append("cleaned")
            signal.raise_signal(signal.SIGTERM)
            steps.append("all of it")

    assert "SIGTERM" in str(interrupted(work))
    signal.raise_signal(signal.SIGINT)  # while the message is printed
    assert steps == ["cleaned", "all of it"]


def test_without_a_signal_all_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="of the work"), handled():
        raise ValueError("of the work")
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_the_work_fails_with_as_it_is_stopped_is_no_news() -> None:
    """Rejects a message on a cancelled Spark job in place of the one on the signal."""

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise RuntimeError("the job was cancelled")

    interrupted(work)


def test_a_held_signal_waits() -> None:
    steps = []

    def work() -> None:
        with held():
            with held():
                signal.raise_signal(signal.SIGINT)
            steps.append("answered")
        steps.append("went on")

    interrupted(work)
    assert steps == ["answered"]


def test_work_that_cannot_be_undone_comes_to_its_end() -> None:
    steps = []

    def work() -> None:
        with handled():
            hold_to_the_end()
            signal.raise_signal(signal.SIGTERM)
            steps.append("renamed")
        steps.append("the next was begun")

    assert interrupted(work).finished
    assert steps == ["renamed"]


def test_what_is_ignored_stays_ignored() -> None:
    """Rejects a run under nohup that ends with the terminal."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with handled():
        signal.raise_signal(signal.SIGHUP)


def test_the_handler_of_a_library_is_replaced() -> None:
    def of_a_library(*_: object) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        signal.signal(signal.SIGINT, of_a_library)
        interrupts.handle_again()
        with held():
            signal.raise_signal(signal.SIGINT)
            steps.append("answered")

    steps: list[str] = []
    interrupted(work)
    assert steps == ["answered"]


def test_what_stops_the_work_is_called_also_where_it_comes_late() -> None:
    called: list[str] = []

    def work() -> None:
        interrupts.on_interrupt(lambda: called.append("early"))
        with held():
            signal.raise_signal(signal.SIGINT)
            interrupts.on_interrupt(lambda: called.append("late"))
            wait(lambda: len(called) == 2)

    interrupted(work)
    assert sorted(called) == ["early", "late"]


class Noisy:
    """Python drops whatever a destructor raises, and prints it."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_signal_in_a_destructor_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        noisy = Noisy()
        del noisy
        wait(lambda: False)

    interrupted(work)
    assert capfd.readouterr().err == ""


IMPORTING = """
import importlib, os, signal, sys
from dptext_spark import __main__
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "dptext_spark.cli":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Slow())
__main__.main(["privatize"])
"""


@pytest.mark.e2e
def test_ctrl_c_while_libraries_are_loaded_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "dptext: Interrupted by SIGINT.\n")


def test_no_library_is_loaded_before_signals_are_heard() -> None:
    """Rejects a package that imports numpy or click when its name is imported."""
    script = "import sys, dptext_spark.__main__; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    loaded = subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, env=environment, text=True)
    assert not {"numpy", "click", "pyarrow", "scipy"}.intersection(loaded.split())
