"""Experiments behind figures of the documents: each is imported; small runs go where their figures should."""

from __future__ import annotations

import importlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from dptext_spark.mechanisms import MECHANISMS

ROOT: Final = Path(__file__).parents[2]
MODULES: Final = sorted((ROOT / "scripts" / "experiments").glob("*.py"))

Key = str | tuple[str | int, ...]
RISING: Final[Mapping[str, list[tuple[Key | float, ...]]]] = {
    "clipped_ball_noise": [
        ("average", "laplace average"),
        (900.0, "isometry average"),
        ("average", "central average"),
        ("claimed", "loss"),
    ],
    "tasks_and_audit": [
        *(
            (-1.0, f"intents, bag of words, {mode}, 1", 0.5, f"intents, bag of words, {mode}, 8")
            for mode in ("both", "training only", "test only")
        ),
        ("mean reciprocal rank, 1", "mean reciprocal rank, 8", "mean reciprocal rank, inf"),
        (0.3, "audit, as written, 1", 0.7, "audit, as written, 8", "audit, as written, inf"),
    ],
    "intents_of_snips": [
        (("random", "by_originals"), ("random", "by_sanitized")),
        *((("random", key), ("laplace low", key), ("laplace high", key)) for key in ("alone", "words_kept")),
        *(((name, "alone"), (name, "in_context")) for name in ("random", "laplace low", "slots left out")),
    ],
    "private_vectors": [
        (("constants", "vocabulary"), ("constants", "paper"), ("constants", "spectral")),
        *(
            (("distance", name, 2), ("distance", name, 1), ("distance", name, 0))
            for name in ("paper", "plain")
        ),
        ("projected", "ceiling"),
        (("constants", "vocabulary"), 1.9, "text_stretch", "stretch"),
    ],
    "spam_and_disasters": [
        ("kept 0 1", 0.01, "kept 0 8", "kept 0 14", "kept 0 inf"),
        ("kept 1 8", "kept 0 8"),
        *(
            (f"accuracy 0 1 {model}", f"accuracy 0 8 {model}", f"accuracy 0 inf {model}")
            for model in ("bag of words", "mean vectors")
        ),
    ],
    "utility_tasks": [
        *(
            (f"{kept} {noise} low", f"{kept} {noise} high")
            for kept in ("slots", "all")
            for noise in ("hyperbolic", "laplace")
        ),
        ("all random", "slots random"),
        ("all random", "all laplace low"),
    ],
}
"""What must rise in each small run, as numbers or names of figures; rejects an epsilon that is not used."""


@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.stem)
def test_an_experiment_is_imported(module: Path) -> None:
    """Mechanisms that an experiment has of its own are unknown to other tests."""
    before = {*MECHANISMS}
    importlib.import_module(f"scripts.experiments.{module.stem}")
    for name in {*MECHANISMS} - before:
        del MECHANISMS[name]


def at(figures: Any, key: Key | float) -> float:
    if isinstance(key, float):
        return key
    for part in (key,) if isinstance(key, str) else key:
        figures = figures[part]
    return float(figures)


@pytest.mark.long
@pytest.mark.parametrize("name", RISING)
def test_figures_rise(name: str) -> None:
    command = [sys.executable, "-m", f"scripts.experiments.{name}", "--small"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    for keys in RISING[name]:
        values = [at(figures, key) for key in keys]
        assert all(one < other for one, other in itertools.pairwise(values)), dict(
            zip(keys, values, strict=True)
        )


@pytest.mark.long
def test_the_papers_sampler_does_not_sample_its_target() -> None:
    command = [
        sys.executable,
        ROOT / "scripts/experiments/metropolis_hastings.py",
        "--chains",
        "1000",
        "--steps",
        "200",
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    target, space, own = (
        [float(re.findall(r"p (\S+)", line)[0]) for line in lines if name in line]
        for name in ("the target", "the hyperboloid's space", "own stationary law")
    )
    assert (len(target), len(space), len(own)) == (8, 8, 4)
    assert max(target) < 1e-6 and min(own) > 1e-4 and min(space[1:4:2]) > 1e-4
