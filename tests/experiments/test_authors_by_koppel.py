"""Koppel's attack on the demo's queries, with intents for authors: its figures have the right direction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    command = [sys.executable, "-m", "scripts.experiments.authors_by_koppel", "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_the_attack_finds_authors_of_original_texts(figures: dict[str, float]) -> None:
    """Rejects authors and texts that got out of step, and 4-grams that no text has."""
    assert figures["original"] > 0.8
    assert figures["windows"] > 2 * figures["floor"]
    assert figures["windows"] < figures["original"]


def test_a_high_score_is_seldom_wrong(figures: dict[str, float]) -> None:
    """Rejects a score that is not the share of votes."""
    assert 0.2 < figures["named at 0.8"] < 1.0
    assert figures["right at 0.8"] > figures["original"]


def test_noise_takes_what_it_replaces_and_no_more(figures: dict[str, float]) -> None:
    """Rejects an attacker who is shown the original, and a policy under which all words are perturbed."""
    assert figures["stayed at 1"] < 0.01
    assert figures["static at 1"] < figures["original"] - 0.1
    assert figures["static at 1"] == pytest.approx(figures["passes"], abs=0.1)
    assert figures["stayed at 100"] == 1.0
    assert figures["static at 100"] == pytest.approx(figures["original"], abs=0.02)


def test_who_learns_from_sanitized_texts_does_no_worse(figures: dict[str, float]) -> None:
    """Rejects an adaptive attacker whose 4-grams are those of the originals."""
    assert figures["adaptive at 1"] > figures["static at 1"] - 0.05


def test_an_interval_is_of_repetitions_too(figures: dict[str, float]) -> None:
    """Rejects one of authors alone: named by the first of two repetitions, and by the second nobody."""
    assert (figures["wavering"], figures["wavering, low"], figures["wavering, high"]) == (0.5, 0.0, 1.0)
