"""Released vectors of the demo's words and queries: what the experiment finds has the right direction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    command = [sys.executable, "-m", "scripts.experiments.private_vectors", "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("measure", ["distance", "corrected", "product"])
def test_errors_fall_as_epsilon_grows(figures: dict[str, Any], measure: str) -> None:
    """Rejects noise that epsilon does not divide, and epsilons in another order than their figures."""
    for name, errors in figures[measure].items():
        assert errors[0] > errors[1] > errors[2], name
    for name, order in figures["order"].items():
        assert order[0] < order[1] < order[2], name


def test_the_least_delta_has_the_least_error(figures: dict[str, Any]) -> None:
    """Rejects one Delta for all laws, and the noise of one law under another's name."""
    laws = ["vocabulary", "paper", "spectral"]
    deltas = [figures["constants"][name] for name in laws]
    assert deltas == sorted(set(deltas)) and deltas[1] == pytest.approx(1.9)
    for measure in ("distance", "product"):
        for place in (0, 1):
            errors = [figures[measure][name][place] for name in laws]
            assert errors == sorted(set(errors)), (measure, place)


def test_only_projections_err_without_noise(figures: dict[str, Any]) -> None:
    """Rejects a first mechanism of the paper that is projected too, and a second one that is not."""
    last = {name: errors[-1] for name, errors in figures["distance"].items()}
    assert last.pop("plain") < 0.1
    assert min(last.values()) > 0.2
    assert last["principal"] < last["orthogonal"] < last["paper"]


def test_noise_lengthens_distances_by_what_is_public(figures: dict[str, Any]) -> None:
    """Rejects a correction for the noise of one vector of a pair, or without Delta."""
    for name, errors in figures["distance"].items():
        assert figures["corrected"][name][0] < 0.45 * errors[0]
        assert errors[0] < figures["bound"][0]
        assert figures["corrected"][name][0] > figures["typical"]["distance"]


def test_texts_can_follow_the_projection(figures: dict[str, Any]) -> None:
    """Rejects texts built along another direction, and a constant of words that is taken for theirs."""
    most_of_words = figures["constants"]["vocabulary"]
    assert most_of_words < 1.9 < figures["text_stretch"] < figures["stretch"]
    assert figures["stretch"] == figures["constants"]["spectral"]


def test_models_learn_more_as_epsilon_grows(figures: dict[str, Any]) -> None:
    """Rejects noise in the training vectors alone, and a score of training rows."""
    for name, scores in figures["words"].items():
        assert 0.4 < scores[0] < 0.65 < scores[1] <= scores[-1] + 0.02, name
    for reading in ("token", "text"):
        for name, scores in figures["texts"][reading].items():
            assert scores[0] < figures["majority"] + 0.15 < figures["projected"] - 0.3 < scores[-1], name
    assert figures["projected"] < figures["ceiling"]


def test_one_vector_per_word_hides_no_words(figures: dict[str, Any]) -> None:
    """Rejects fresh noise for every token under the name of one vector per word."""
    for name, scores in figures["texts"]["word"].items():
        assert scores[0] > figures["texts"]["token"][name][0] + 0.3


def test_random_vectors_tell_nothing(figures: dict[str, Any]) -> None:
    """Rejects labels that leak into features, and test rows that are trained on."""
    assert figures["random"] < figures["majority"] + 0.1
