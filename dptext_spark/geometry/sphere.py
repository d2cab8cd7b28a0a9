"""Formulas of the geometries: how uniforms become directions, radii and points."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import scipy

from dptext_spark.geometry import Floats

# Relative error of SciPy's quantiles of the normal law and of Gamma laws of shapes from 1 to 1,000: measured,
# below half of this against 40 digits.
QUANTILE_ERROR: Final = 2.0**-47


def noise_error(dimension: int) -> float:
    """Bound the rounding of a computed length times a direction, in that length; beside it, of a unit vector.

    The sum of n squares in any order is good to n roundoffs, its root to half of these.
    """
    return 2.0 * QUANTILE_ERROR + (dimension / 2.0 + 8.0) * 2.0**-53


def bits_left(error: float, dimension: int) -> int:
    """Give the bits that noise of length 1 keeps in one coordinate of n, 1 / sqrt(n), beside an error."""
    return max(0, math.floor(-math.log2(error * math.sqrt(dimension))))


def uniform_directions(uniforms: Floats) -> Floats:
    """Turn uniforms (t, n) in (0, 1) into points (t, n) uniform on the unit sphere, in the same memory.

    Source: Muller 1959, by normalised Gaussians.
    """
    normals: Floats = scipy.special.ndtri(uniforms, out=uniforms)
    # A plain row-wise reduction, not BLAS: its bits do not depend on the batch around the row.
    norms = np.sqrt(np.square(normals).sum(axis=1))
    normals /= norms[:, None]
    return normals


def gamma_quantile(shape: float, uniforms: Floats) -> Floats:
    """Quantile (t,) of the Gamma law of a shape and unit scale, for radii of multivariate Laplace noise."""
    return np.asarray(scipy.special.gammaincinv(shape, uniforms), dtype=np.float64)
