"""Directions and radii: exact laws at the edges, and bits that do not depend on the batch."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import special

from dptext_spark.geometry.sphere import QUANTILE_ERROR, gamma_quantile, uniform_directions

EDGES = np.array([2.0**-53, 1e-12, 1e-3, 0.25, 0.5, 0.75, 1 - 1e-12, 1 - 2.0**-53])


@pytest.mark.parametrize("n", [1, 2, 300])
def test_directions_have_length_one(n: int) -> None:
    uniforms = np.random.default_rng(n).random((1000, n)) / 2 + 0.1
    uniforms[0], uniforms[1] = 2.0**-53, 1 - 2.0**-53
    directions = uniform_directions(uniforms)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=1), 1.0, rtol=1e-14)
    assert np.shares_memory(directions, uniforms)


def test_directions_on_a_line_are_signs() -> None:
    assert uniform_directions(EDGES[EDGES != 0.5, None].copy())[:, 0].tolist() == [-1.0] * 4 + [1.0] * 3


@pytest.mark.parametrize("n", [1, 2, 300])
def test_the_batch_does_not_change_a_bit_of_a_direction(n: int) -> None:
    """Rejects norms by BLAS, whose last bits follow the shape of the batch."""
    uniforms = np.random.default_rng(n).random((300, n))
    whole = uniform_directions(uniforms.copy())
    for size in (1, 2, 7, 64):
        parts = [uniform_directions(uniforms[i : i + size].copy()) for i in range(0, 300, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("shape", [1.0, 2.0, 50.0, 300.0])
def test_radii_are_gamma_quantiles(shape: float) -> None:
    radii = gamma_quantile(shape, EDGES)
    assert np.isfinite(radii).all() and (np.diff(radii) > 0).all() and radii[0] > 0
    # The law's lower and upper tails, each where it is the smaller one and keeps its digits.
    lower = EDGES <= 0.5
    np.testing.assert_allclose(special.gammainc(shape, radii[lower]), EDGES[lower], rtol=1e-9)
    np.testing.assert_allclose(special.gammaincc(shape, radii[~lower]), 1 - EDGES[~lower], rtol=1e-9)


# Uniforms over the whole range, and at its ends and its middle, exact in 52 bits.
SPREAD = np.concatenate(
    [EDGES[[0, -1]], (np.arange(0, 2**52, 2**48) + 0.5) * 2.0**-52, 2.0 ** -np.arange(2, 50.0)]
)


def relative_error(found: float, uniform: float, below: mpmath.mpf, density: mpmath.mpf) -> float:
    """Of a quantile, by how much probability it misses its uniform."""
    return float(abs((below - mpmath.mpf(uniform)) / density / mpmath.mpf(found)))


@pytest.mark.parametrize("shape", [0, 1, 50, 1000])
def test_quantiles_are_as_good_as_noise_bits_suppose(shape: int) -> None:
    """Against 40 digits, the normal law (shape 0) and Gamma laws; rejects single precision."""
    worst, single = 0.0, 0.0
    with mpmath.workdps(40):
        for uniform in SPREAD.tolist():
            quantile = special.ndtri(uniform) if shape == 0 else gamma_quantile(shape, np.array([uniform]))[0]
            for value in (float(quantile), float(np.float32(quantile))):
                x = mpmath.mpf(value)
                if shape == 0:
                    below, density = mpmath.ncdf(x), mpmath.npdf(x)
                else:
                    below = mpmath.gammainc(shape, 0, x, regularized=True)
                    density = mpmath.exp((shape - 1) * mpmath.log(x) - x - mpmath.loggamma(shape))
                error = relative_error(value, uniform, below, density)
                worst, single = (
                    (max(worst, error), single) if value == quantile else (worst, max(single, error))
                )
    assert worst <= QUANTILE_ERROR / 2.0 < single
