"""The experiment with the paper's noise in the ball, on a made world: figures have the right direction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    command = [sys.executable, "-m", "scripts.experiments.clipped_ball_noise", "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def test_the_papers_ordering_appears(figures: dict[str, float]) -> None:
    """At one worst case; rejects noise moved to the word by an isometry, which leaves nearly all words."""
    assert figures["average"] < figures["laplace average"] / 3
    assert figures["isometry average"] > 900


def test_words_at_the_centre_take_the_outputs_and_the_worst_case(figures: dict[str, float]) -> None:
    """Rejects points that are compared by Euclidean distance: the word's own neighbours would come out."""
    assert figures["central outputs"] == 1.0
    assert figures["central average"] > 10 * figures["average"]


def test_words_lose_more_than_the_paper_claims(figures: dict[str, float]) -> None:
    """Rejects a bound of epsilon * d; the measured loss is one that is surely reached."""
    assert figures["loss"] > 2 * figures["claimed"]


def test_a_part_of_the_noise_is_out_of_the_other_words_reach(figures: dict[str, float]) -> None:
    """Against a plain sum over the disk; rejects noise without an end, and a delta that forgets this part."""
    axis = (np.arange(2000) + 0.5) / 1000 - 1.0
    x, y = np.meshgrid(axis, axis)
    length = np.hypot(x, y)
    density = np.where(length < 1.0, (1.0 - length) / (1.0 + length), 0.0)
    beyond = density[np.hypot(x - 0.5, y) >= 1.0].sum() / density.sum()
    assert figures["unreachable"] == pytest.approx(beyond, abs=1e-4)
    assert beyond <= figures["delta at 50"] < 1.2 * beyond
