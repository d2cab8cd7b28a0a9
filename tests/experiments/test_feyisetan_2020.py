"""Tasks, paraphrases and the audit of authors after Laplace noise: the small run of the experiment."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ENDS = ("1", "8", "inf")


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    command = [sys.executable, "-m", "scripts.experiments.tasks_and_audit", "--small"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_without_noise_nothing_changes(found: dict[str, float]) -> None:
    """Rejects a ranking that misses a row's own text, and modes that mix up which rows are perturbed."""
    assert found["words that stay, inf"] == found["mean reciprocal rank, inf"] == found["first, inf"] == 1.0
    for model in ("bag of words", "mean vectors"):
        both, train, test = (
            found[f"intents, {model}, {mode}, inf"] for mode in ("both", "training only", "test only")
        )
        assert both == train == test > 0.9


@pytest.mark.parametrize("model", ["bag of words", "mean vectors"])
def test_tasks_keep_more_of_more_epsilon(found: dict[str, float], model: str) -> None:
    """Rejects test rows that were trained on: seven intents are told by chance where no word stays."""
    for mode in ("both", "training only", "test only"):
        least, some, whole = (found[f"intents, {model}, {mode}, {end}"] for end in ENDS)
        assert least < 0.5 < some <= whole


def test_paraphrases_and_members_are_found_by_their_words_alone(found: dict[str, float]) -> None:
    """Rejects an audit of the original training data, and one whose members are told by their rows."""
    least, some, whole = (found[f"mean reciprocal rank, {end}"] for end in ENDS)
    assert least < 0.2 < some < whole
    for copy in ("as written", "perturbed again"):
        least, some, whole = (found[f"audit, {copy}, {end}"] for end in ENDS)
        assert abs(least - 0.5) < 0.2
        assert 0.75 < some < whole
