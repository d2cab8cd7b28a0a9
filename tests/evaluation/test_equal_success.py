"""The comparison of mechanisms at equal success of the attack, small: a direction that holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_mechanisms_are_compared_where_attackers_get_equally_much() -> None:
    """Rejects equal epsilons in place of equal success, and vickrey selection as a gain in words kept.

    Fixed seeds: the numbers are the same every time.
    """
    done = subprocess.run(
        [sys.executable, "-m", "scripts.experiments.equal_success", "--small"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)
    found, floors = result["found"], result["floors"]
    nearest, vickrey, exponential = found.values()
    for match in found.values():
        assert abs(match["recovered"] - 0.5) <= 0.04
        assert match["distance"] < floors["distance"]
        assert all(match[name] > floors[name] for name in ("accuracy", "similarity", "kept", "word_overlap"))
    assert exponential["epsilon"] < nearest["epsilon"] / 2 < nearest["epsilon"] < vickrey["epsilon"]
    assert vickrey["kept"] < nearest["kept"]
