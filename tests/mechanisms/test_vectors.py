"""The mechanism of released vectors: its constants, guarantee and options."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms.vectors import ProjectedVectors, VectorNoise
from dptext_spark.options import VectorsOptions


def mechanism(length: int = 300, **parameters: Any) -> VectorNoise:
    return ProjectedVectors(**{"epsilon": 10.0} | parameters).of_length(length)


@pytest.mark.parametrize(
    ("length", "parameters", "expected"),
    [
        (300, {}, 54),
        (10, {}, 10),
        (300, {"dimension": 7}, 7),
        (300, {"sensitivity": "paper"}, 54),
        (300, {"dimension": 301}, None),
        (300, {"dimension": 53, "sensitivity": "paper"}, None),
        (10, {"sensitivity": "paper"}, None),
        (300, {"sensitivity": "paper", "beta": 0.01}, None),
    ],
)
def test_the_dimension_is_the_papers_and_never_above_the_inputs(
    length: int, parameters: dict[str, Any], expected: int | None
) -> None:
    if expected:
        assert mechanism(length, **parameters).dimension == expected
        return
    with pytest.raises(ConfigError, match=f"does not suit vectors of length {length}.* at most {length}"):
        mechanism(length, **parameters)


@pytest.mark.parametrize("delta", [1e-3, 1e-30])
@pytest.mark.parametrize("beta", [0.3, 0.99])
def test_the_papers_constant_holds_for_a_fixed_pair_but_for_delta(beta: float, delta: float) -> None:
    """The tail of m |Phi z|^2, chi-square of m degrees, by scipy.stats; Proposition 5 alone is vague."""
    length = 3000
    least = ProjectedVectors(epsilon=1.0, beta=beta, delta=delta).rows(length)
    assert least < length
    assert stats.chi2(least).sf(least * (1 + beta) ** 2) <= delta


def test_the_guarantee_holds_for_the_worst_pair_and_not_with_the_papers_constant() -> None:
    """Log-ratios of the noise densities along the direction that Phi stretches most."""
    for sensitivity in ("spectral", "paper"):
        used = mechanism(300, sensitivity=sensitivity)
        worst = np.linalg.svd(used.projection.matrix)[2][0]
        points = np.linspace(-3, 3, 61)[:, None] * (used.projection.matrix @ worst)
        ratios = np.linalg.norm(points - used.projection.matrix @ worst, axis=1) - np.linalg.norm(
            points, axis=1
        )
        loss = np.abs(ratios).max() / used.scale
        allowed = used.guarantee().loss(1.0)
        assert 0.9999 * allowed < loss <= allowed  # not by giving away more than is needed
        assert used.guarantee().delta == 0.0  # the paper's is over the draw of a matrix that is known
        if sensitivity == "paper":
            assert loss > 1.5 * used.parameters.epsilon  # what the paper states
            strongest = re.search(r"what is proven is epsilon ([\d.]+)\.", used.guarantee().describe())
            assert strongest and loss <= float(strongest[1]) <= 1.001 * loss


def test_the_words_of_the_guarantee() -> None:
    pure, texts = mechanism().guarantee(), mechanism().guarantee("f" * 64)
    paper, said = mechanism(sensitivity="paper").guarantee(), pure.describe()
    assert (pure.epsilon, pure.delta, pure.fingerprint, pure.distances) == (10.0, 0.0, "", None)
    # The grid's steps count.
    assert pure.delta_num is not None and pure.delta_num > rounded_vector_distance(54, 0.0)
    assert paper.epsilon > 10.0 and paper.delta == 0.0
    assert f"exp({rounded_up(paper.epsilon, 6)} x distance)" in paper.describe()
    assert "up to a probability of 1e-06 over the draw of the projection" in paper.describe()
    assert ("moves the text by d / l" in texts.describe(), "d / l" in said) == (True, False)
    assert "input word" not in said + texts.describe()
    metric = "exp(10 x distance), where the distance is the Euclidean distance of input vectors"
    for part in (metric, "Vectors of 300 numbers become 54", "seed 0", "multiple of 2^-", "null"):
        assert part in said
    assert pure.to_json()["words"] == said


@pytest.mark.parametrize("epsilon", [1e-12, 777.0, 1e24])
def test_the_grid_is_fine_against_the_noise_and_exact_in_float32(epsilon: float) -> None:
    used = mechanism(epsilon=epsilon)
    size = used.scale * math.sqrt(used.dimension)
    assert size / 512 < used.grid <= size / 256
    assert math.log2(used.grid).is_integer()
    for steps in (1.0, 2.0**23 - 1):
        assert float(np.float32(steps * used.grid)) == steps * used.grid
    # The noise at the largest uniform, and the longest vector where Phi stretches most.
    tail = stats.gamma(used.dimension, scale=used.scale).isf(2.0**-53)
    assert tail + used.longest * used.stretch < 2.0**23 * used.grid


def test_good_options() -> None:
    given: dict[str, Any] = {"input": "in", "output": "out/", "epsilon": 5.0, "vector": ("v",)}
    options = VectorsOptions.of(given | {"seed": 3, "name": None})
    assert isinstance(options, VectorsOptions)
    assert options.mechanism == ProjectedVectors(epsilon=5.0, seed=3)
    paths = (options.projection_path, options.report_path, options.public_report_path)
    assert paths == ("out.projection.json", "out.private/report.json", "out.release.json")
    assert options.to_json().keys() & options.published == {
        *("vector", "text", "tokenizer", "id", "trust-id", "key", "epsilon-from-private-rows"),
        *("epsilon", "beta", "delta", "dimension", "sensitivity", "seed"),
    }
    kept = VectorsOptions.of(given | {"key-file": "/secret/place", "name": "s"}).to_json()
    assert (kept["epsilon"], kept["sensitivity"], kept["key"]) == (5.0, "spectral", "file")
    assert "/secret/place" not in str(kept)
