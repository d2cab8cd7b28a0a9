"""The fuzzer: each target once round, and planted faults, which it must find."""

import warnings

import pytest

from dptext_spark.errors import ConfigError
from scripts.fuzz import __main__ as fuzzer
from scripts.fuzz.targets import CANARY, Target, targets

CASES = {"ledgers": 2, "bundles": 8, "parts": 8}


@pytest.mark.parametrize("name", targets())
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
    monkeypatch.setattr(fuzzer, "PATIENCE", 0.05)

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
