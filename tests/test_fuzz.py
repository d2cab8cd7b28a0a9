"""The fuzzers: each target once round, and planted faults, which it must find."""

import re
import subprocess
import sys
import warnings
from importlib.util import find_spec

import pytest

from dptext_spark.errors import ConfigError
from scripts.fuzz import __main__ as fuzzer
from scripts.fuzz import findings as judged
from scripts.fuzz.targets import CANARY, Target, targets

CASES = {"ledgers": 2, "bundles": 8, "parts": 8}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.long] if n == "pages" else []) for n in targets()],
)
def test_a_few_cases_of_each_target_are_right(name):
    """Rejects an error of another class, a word in a message, and a target that reads nothing."""
    findings = fuzzer.fuzz(targets()[name], seed=1, cases=CASES.get(name, 15))
    assert findings.counts == {} and findings.refused > 0


def boom():
    raise KeyError(CANARY)


def leak():
    raise ConfigError("The word is wrong", got=CANARY)


def warn():
    warnings.warn("a library's", stacklevel=1)


def hang():
    while True:
        pass


FAULTS = {boom: "KeyError", leak: "a word in the message", warn: "UserWarning", hang: "Hang"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_faults_are_found(fault, monkeypatch):
    """Rejects a fuzzer that takes anything for an answer."""
    monkeypatch.setattr(judged, "PATIENCE", 0.05)

    class Planted(Target):
        name = "planted"

        def prepare(self):
            pass

        def case(self, rng, place):
            return fault

    del targets()["planted"]
    findings = fuzzer.fuzz(Planted, cases=2)
    (what,) = findings.counts
    assert FAULTS[fault] in what and findings.counts[what] == 2


@pytest.mark.long
@pytest.mark.skipif(not find_spec("atheris"), reason="requirements/fuzz.txt is not installed")
def test_choices_are_guided(tmp_path):
    """Rejects a package that is not instrumented: no choice would reach another branch."""
    arguments = ["keys", "--seconds", "5", "--inputs", str(tmp_path)]
    command = [sys.executable, "-m", "scripts.fuzz.guided", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept = int(re.findall(r"\d+$", done.stdout.strip())[0])
    assert kept > 210  # of 200 that it begins with
