"""Directions and radii: exact at the edges, and bits that do not depend on the batch."""

import mpmath
import numpy as np
import pytest
from scipy import special

from dptext_spark.geometry.sphere import QUANTILE_ERROR, gamma_quantile, uniform_directions

# Uniforms over the whole range, and at its ends and its middle, exact in 52 bits.
SPREAD = np.concatenate(
    [
        [2.0**-53, 1 - 2.0**-53],
        (np.arange(0, 2**52, 2**48) + 0.5) * 2.0**-52,
        2.0 ** -np.arange(2, 50.0),
    ]
)


@pytest.mark.parametrize("n", [1, 2, 300])
def test_directions_have_length_one_and_bits_of_their_row_alone(n):
    """Rejects norms by BLAS, whose last bits follow the shape of the batch."""
    uniforms = np.random.default_rng(n).random((300, n)) / 2 + 0.1
    uniforms[:2] = [[2.0**-53], [1 - 2.0**-53]]
    given = uniforms.copy()
    whole = uniform_directions(given)
    assert np.shares_memory(whole, given)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0, rtol=1e-14)
    assert n > 1 or (whole == np.where(uniforms < 0.5, -1.0, 1.0)).all()
    for size in (1, 2, 7, 64):
        parts = [uniform_directions(uniforms[i : i + size].copy()) for i in range(0, 300, size)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("shape", [0, 1, 50, 1000])
def test_quantiles_are_as_good_as_noise_bits_suppose(shape):
    """Against 40 digits, the normal law (shape 0) and Gamma laws; rejects single precision."""

    def error(quantile, uniform):
        """By how much probability it misses its uniform, over the density, relative."""
        x = mpmath.mpf(quantile)
        if shape == 0:
            below, density = mpmath.ncdf(x), mpmath.npdf(x)
        else:
            below = mpmath.gammainc(shape, 0, x, regularized=True)
            density = mpmath.exp((shape - 1) * mpmath.log(x) - x - mpmath.loggamma(shape))
        return float(abs((below - mpmath.mpf(uniform)) / density / x))

    quantiles = special.ndtri(SPREAD) if shape == 0 else gamma_quantile(shape, SPREAD)
    assert np.isfinite(quantiles).all()
    with mpmath.workdps(40):
        double, single = (
            max(error(q, u) for q, u in zip(values.tolist(), SPREAD.tolist(), strict=True))
            for values in (quantiles, np.float32(quantiles).astype(np.float64))
        )
    assert double <= QUANTILE_ERROR / 2.0 < single
