"""Signals as one exception: raised once, where nothing stays half done, and not lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dptext_spark import interrupts
from dptext_spark.interrupts import Interrupted, ends_first, handled, held, hold_to_the_end

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.usefixtures("signals_as_before")


def interrupted(work):
    """What comes out of work to which a signal comes."""
    with pytest.raises(Interrupted) as caught, handled():
        work()
    return caught.value


def fails_as_it_is_stopped(steps):
    ends_first(lambda number: (signal.raise_signal(signal.SIGHUP), steps.append(number)))
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.raise_signal(signal.SIGINT)
        steps.append("cleaned")
        raise RuntimeError("the connection was lost")


def cannot_be_undone(steps):
    ends_first(steps.append)
    with handled():
        hold_to_the_end()
        signal.raise_signal(signal.SIGTERM)
        steps.append("renamed")
    steps.append("the next was begun")


@pytest.mark.parametrize(
    ("work", "expected", "finished"),
    [
        (fails_as_it_is_stopped, [15, "cleaned"], False),
        (cannot_be_undone, ["renamed"], True),
    ],
)
def test_a_signal_to_work_that(work, expected, finished):
    """What comes out is the first signal, once."""
    # Rejects a JVM that is ended twice, after the exception or by an earlier run's function; a second signal
    # that disturbs the clean-up or the message; a message on a broken connection; a cut between two renames.
    steps = []
    ends_first(lambda number: steps.append(f"an earlier run: {number}"))
    found = interrupted(lambda: work(steps))
    signal.raise_signal(signal.SIGINT)  # while the message is printed
    assert (str(found), found.exit_code, found.finished) == (
        "Interrupted by SIGTERM",
        143,
        finished,
    )
    assert steps == expected


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_ends_the_work(number):
    """Its own alone, and without one all is as before."""
    ended = []
    ends_first(ended.append)  # of an earlier run
    before = signal.getsignal(number), sys.unraisablehook
    with pytest.raises(ValueError, match="of the work"), handled():
        raise ValueError("of the work")
    assert (signal.getsignal(number), sys.unraisablehook) == before
    found = interrupted(lambda: (signal.raise_signal(number), pytest.fail("the work went on")))
    assert (str(found), found.exit_code, ended) == (
        f"Interrupted by {number.name}",
        128 + number,
        [],
    )


def test_what_is_ignored_stays_ignored():
    """Rejects a run under nohup that ends with the terminal, also once Spark has taken Ctrl-C over."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    with handled():
        with held():
            signal.signal(signal.SIGINT, lambda *_: pytest.fail("it is heard"))
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGINT)


def test_the_handler_of_a_library_is_replaced():
    """Rejects Spark's own, which asks a JVM in the midst of another question; outside of runs it stays."""

    def of_a_library(*_):
        raise KeyboardInterrupt

    def work():
        with held():
            signal.signal(signal.SIGINT, of_a_library)
        ends_first(lambda _: steps.append("ended"))
        signal.raise_signal(signal.SIGINT)

    steps = []
    interrupted(work)
    assert steps == ["ended"]
    with held():
        signal.signal(signal.SIGINT, of_a_library)
    assert signal.getsignal(signal.SIGINT) is of_a_library


class Noisy:
    """Python drops whatever a destructor raises, and prints it."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_in_a_destructor_is_not_lost(capfd):
    def work():
        noisy = Noisy()
        del noisy
        time.sleep(5)

    assert not interrupted(work).finished
    assert capfd.readouterr().err == ""


IMPORTING = """
import importlib, os, signal, sys
from dptext_spark import __main__
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "dptext_spark.cli":
            print(*sys.modules, flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Slow())
__main__.main(["privatize"])
"""


@pytest.mark.e2e
def test_ctrl_c_while_libraries_are_loaded_is_no_traceback():
    """Rejects a package that imports numpy or click when its name is imported: none is loaded before."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "dptext: Interrupted by SIGINT.\n")
    assert not {"numpy", "click", "pyarrow", "scipy"}.intersection(done.stdout.split())
