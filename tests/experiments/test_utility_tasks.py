"""The small run of the experiment on utility: its figures go where they should."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    command = [sys.executable, "-m", "scripts.experiments.utility_tasks", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("protected", ["slots", "all"])
@pytest.mark.parametrize("noise", ["hyperbolic", "laplace"])
def test_more_epsilon_keeps_more(figures: dict[str, float], protected: str, noise: str) -> None:
    """Rejects outputs that are scored against other examples' labels, and an epsilon that is not used."""
    low, high = (figures[f"{protected} {noise} {size}"] for size in ("low", "high"))
    assert low < high <= figures["unperturbed"] + 3
    assert figures[f"{protected} {noise} low, kept"] < 0.2 < figures[f"{protected} {noise} high, kept"]


def test_random_words_in_slots_are_no_floor(figures: dict[str, float]) -> None:
    """Rejects slots that are all words: what stands outside of them tells the class."""
    assert figures["slots random"] > figures["all random"] + 20
    assert abs(figures["all random"] - figures["most frequent class"]) < 8


@pytest.mark.parametrize("noise", ["hyperbolic", "laplace"])
def test_words_come_out_near_where_they_were(figures: dict[str, float], noise: str) -> None:
    """Rejects random words in place of the mechanism's."""
    assert figures[f"all {noise} low"] > figures["all random"] + 10
