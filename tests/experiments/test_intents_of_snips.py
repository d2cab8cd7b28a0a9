"""The small run of the experiment on intents and slots: its figures go where they should."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

Figures = dict[str, dict[str, float]]


@pytest.fixture(scope="module")
def figures() -> Figures:
    command = [sys.executable, "-m", "scripts.experiments.intents_of_snips", "--small"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: Figures = json.loads(done.stdout)
    return found


def test_intents_are_told_without_slots(figures: Figures) -> None:
    """Rejects slots that are all words, by which no intent is told."""
    original = figures["unperturbed"]["by_originals"]
    for name in ("slots left out", "random", "laplace low"):
        assert original - 0.15 < figures[name]["by_originals"] <= original


def test_learning_on_sanitized_queries_helps(figures: Figures) -> None:
    """Rejects a model that learns on the originals in both columns."""
    assert figures["random"]["by_sanitized"] > figures["random"]["by_originals"]


def test_more_epsilon_gives_more_of_the_slots_away(figures: Figures) -> None:
    """Rejects an epsilon that is not used, and attackers that do not look at the outputs."""
    floor, low, high = (figures[name] for name in ("random", "laplace low", "laplace high"))
    assert floor["alone"] < low["alone"] < high["alone"]
    assert floor["words_kept"] < low["words_kept"] < high["words_kept"]


@pytest.mark.parametrize("name", ["random", "laplace low", "slots left out"])
def test_context_helps_attackers(figures: Figures, name: str) -> None:
    """Rejects attackers that do not look at the carrier phrase, or for whom no word of it is known."""
    assert figures[name]["in_context"] > figures[name]["alone"] + 0.01
