"""The comparison of mechanisms at equal success of the attack, small: a direction that holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.experiments.equal_success", "--small"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_mechanisms_are_compared_where_attackers_get_equally_much(result: dict[str, Any]) -> None:
    """Rejects equal epsilons in place of equal success, and vickrey selection as a gain in words kept.

    Fixed seeds: the numbers are the same every time.
    """
    found, floors = result["found"], result["floors"]
    for name, match in found.items():
        assert abs(match["recovered"] - 0.5) <= 0.04
        assert match["distance"] < floors[name]["distance"]
        assert all(
            match[measure] > floors[name][measure]
            for measure in ("accuracy", "similarity", "kept", "word_overlap")
        )
    nearest, vickrey, exponential = (
        found[name] for name in ("laplace", "laplace, vickrey, t = 0.5", "exponential")
    )
    assert exponential["epsilon"] < nearest["epsilon"] / 2 < nearest["epsilon"] < vickrey["epsilon"]
    assert vickrey["kept"] < nearest["kept"]


@pytest.mark.parametrize("name", ["hyperbolic", "exponential, ball"])
def test_a_ball_is_judged_by_the_euclidean_vectors(result: dict[str, Any], name: str) -> None:
    """Rejects distances of the ball's own, words in another order, and a ball that keeps more."""
    found, floors = result["found"], result["floors"]
    assert floors[name]["distance"] == pytest.approx(floors["laplace"]["distance"], rel=0.05)
    assert found["laplace"]["distance"] < found[name]["distance"] < 0.7 * floors[name]["distance"]
    assert found["laplace"]["similarity"] > found[name]["similarity"]
