"""Words dealt out to blocks, epsilons, and what shares noise."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dptext_spark.calibration.grid import BATCHES, Grid
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Exponential, Laplace, Mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers.tables import ROOT


def of(embedding: Embedding, *mechanisms: Mechanism, words: Any = "all") -> Grid:
    given: dict[str, Any] = {"runs": 10, "seed": 0, "confidence": 0.95, "eta": 0.05, "words": words}
    return Grid.over(embedding, ExactSearch.over(embedding), mechanisms, estimator_name="auto", **given)


@pytest.mark.parametrize(
    ("mechanism", "words", "blocks"),
    [
        (Laplace(epsilon=2.0), 1, 1),
        (Laplace(epsilon=2.0), 7, 7),
        (Laplace(epsilon=2.0), 100, BATCHES),
        (Laplace(epsilon=2.0), "all", BATCHES),
        (Exponential(epsilon=2.0), "all", 2 * BATCHES),
    ],
)
def test_words_are_dealt_out_evenly(small: Embedding, mechanism: Mechanism, words: Any, blocks: int) -> None:
    """To whole batches of blocks, none larger than its estimator takes; rejects ranks in the vocabulary."""
    found = of(small, mechanism, words=words)
    assert (found.words, found.blocks) == (300 if words == "all" else words, blocks)
    assert found.certain == (isinstance(mechanism, Exponential) and words == "all")
    dealt = [found.block(number) for number in range(found.blocks)]
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(found.words) * 300 // found.words)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1
    zipf = 1.0 / np.arange(1, found.words + 1)
    np.testing.assert_allclose(found.weights("zipf"), zipf / zipf.sum())
    ranks = [found.ranks_of(number) for number in range(found.blocks)]
    shared = [found.weights("zipf")[own - 1].sum() for own in ranks]
    np.testing.assert_allclose(found.units("zipf"), shared if found.monotone else found.weights("zipf"))
    np.testing.assert_allclose(replace(found, estimator="plain").units("uniform"), 1.0 / found.words)


def test_other_epsilons_leave_all_else(small: Embedding) -> None:
    """In whatever order epsilons are given; one that comes again counts once."""
    whole = of(small, Laplace(epsilon=4.0), Laplace(epsilon=2.0))
    assert whole.at(3.0) == replace(whole, mechanisms=(Laplace(epsilon=3.0),))
    assert whole.at(4.0, 2.0, 4.0) == whole and whole.epsilons == [2.0, 4.0]


@pytest.mark.parametrize("module", ["dptext_spark.calibration", "dptext_spark.calibration.measure"])
def test_who_only_measures_loads_nothing_that_draws(module: str) -> None:
    """Workers import these at every start."""
    code = f"import sys, {module}; print({{'matplotlib', 'jinja2', 'scipy.stats'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
