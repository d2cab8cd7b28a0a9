"""Formulas of the geometries: how uniforms become directions, radii and points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special


def uniform_directions(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn uniforms into points uniform on the unit sphere, by normalised Gaussians (Muller 1959).

    Args:
        uniforms: float64 (t, n) in (0, 1); overwritten, its memory becomes the result's.

    Returns:
        float64 (t, n), each row of Euclidean norm 1.
    """
    normals: NDArray[np.float64] = special.ndtri(uniforms, out=uniforms)
    # A plain row-wise reduction, not BLAS: its bits do not depend on the batch around the row.
    norms = np.sqrt(np.square(normals).sum(axis=1))
    normals /= norms[:, None]
    return normals


def gamma_quantile(shape: float, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Quantile of the Gamma law with unit scale, for radii of multivariate Laplace noise.

    Args:
        shape: The law's shape, above 0.
        uniforms: float64 (t,) in (0, 1).
    """
    return np.asarray(special.gammaincinv(shape, uniforms), dtype=np.float64)
