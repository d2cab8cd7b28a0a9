"""What noise and outputs should be: scipy's laws, textbook formulas of the ball, quadrature.

Nothing here comes from the package.
"""

from functools import cache

import numpy as np
from scipy import integrate, linalg, stats


def mixture_root(vectors, weight):
    """A^(1/2), A = weight Sigma + (1 - weight) I, Sigma by numpy.cov and of trace n."""
    n = vectors.shape[1]
    covariance = np.atleast_2d(np.cov(vectors.astype(np.float64), rowvar=False))
    values, axes = linalg.eigh(weight * covariance * n / np.trace(covariance) + (1 - weight) * np.eye(n))
    return (axes * np.sqrt(values)) @ axes.T


def stretches(vectors, matrix):
    """All ratios |matrix (x - y)| / |x - y| of distinct vectors, from the differences."""
    first, second = np.triu_indices(len(vectors), 1)
    gaps = vectors[first].astype(np.float64) - vectors[second]
    lengths, images = (np.sqrt((each**2).sum(axis=1)) for each in (gaps, gaps @ matrix.T))
    return images[lengths > 0] / lengths[lengths > 0]


def largest_stretch(vectors, matrix):
    """The largest stretch of two words' difference, by brute force."""
    return float(stretches(vectors, matrix).max())


@cache
def ball_radii(name, n, epsilon):
    """Grid of ln r and the distribution function of the hyperbolic radius r on it."""
    # ``hyperbolic`` from its density by volume, sinh(r)^(n-1) exp(-epsilon r) dr; ``hyperbolic-icdm`` from
    # the paper's in the ball, rho^(n-1) ((1 - rho) / (1 + rho))^epsilon drho at rho = tanh(r/2).
    decay = epsilon - n + 1 if name == "hyperbolic" else 1.0
    x = np.linspace(np.log(1e-9), np.log(800 / min(1.0, decay)), 2**17)
    r = np.exp(x)
    if name == "hyperbolic":
        logs = (n - 1) * (r + np.log(-np.expm1(-2 * r))) - epsilon * r
    else:
        rest = 2 / (np.exp(np.minimum(r, 700)) + 1)  # 1 - rho
        rho = np.where(r < 1, np.tanh(r / 2), 1 - rest)
        logs = (n - 1) * np.log(rho) + epsilon * np.log(rest / (1 + rho)) + np.log(rest * (1 + rho))
    density = np.exp(logs + x - (logs + x).max())
    below = integrate.cumulative_simpson(density, x=x, initial=0.0)
    return x, below / below[-1]


def directions(uniforms):
    """Directions (t, n) by normalised normal quantiles."""
    normals = stats.norm.ppf(uniforms)
    return normals / np.linalg.norm(normals, axis=1, keepdims=True)


def seen_from(words, points):
    """Hyperbolic distances (t,) of points from words, and the directions (t, n) in which they are seen."""
    # Points (t, n + 1) are ln q0 and w of Lorentz's coordinates; nothing cancels at the edge.
    log_q0 = points[:, :1]
    z, log_rim = points[:, 1:] / (1 + np.exp(-log_q0)), np.log(2) - np.logaddexp(0, log_q0[:, 0])
    rim, gap = 1 - np.square(words).sum(axis=1), z - words
    squares = np.square(gap).sum(axis=1)
    log_sinh = (np.log(squares) - log_rim - np.log(rim)) / 2  # ln sinh(d / 2)
    small = np.arcsinh(np.exp(np.minimum(log_sinh, 20)))
    # The numerator of the Möbius sum (-word) + z, rearranged.
    back = rim[:, None] * gap - squares[:, None] * words
    return (
        2 * np.where(log_sinh < 20, small, log_sinh + np.log(2)),
        back / np.linalg.norm(back, axis=1, keepdims=True),
    )


def chosen(distances, t, coins):
    """The nearest of words at distances (t, V), or by a coin the first or second nearest (Xu et al. 2021)."""
    if t is None:
        return distances.argmin(axis=1)
    order = np.argsort(distances, axis=1)[:, :2]
    near, far = np.take_along_axis(distances, order, axis=1).T
    return np.where(coins < (1 - t) * far / (t * near + (1 - t) * far), *order.T)


def delta(atoms, t):
    """E[(1 - exp(t - loss))+] of losses and their probabilities."""
    losses, masses = atoms
    return float((masses * -np.expm1(np.minimum(t - losses, 0.0))).sum())
