"""What the laws of noise and outputs should be: scipy's laws, textbook formulas of the ball, quadrature.

Nothing here comes from the package.
"""

from functools import cache

import numpy as np
from scipy import integrate, linalg, special, stats


def mixture_root(vectors, weight):
    """A^(1/2), A = weight Sigma + (1 - weight) I, Sigma by numpy.cov and of trace n."""
    n = vectors.shape[1]
    covariance = np.atleast_2d(np.cov(vectors.astype(np.float64), rowvar=False))
    values, axes = linalg.eigh(
        weight * covariance * n / np.trace(covariance) + (1 - weight) * np.eye(n)
    )
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


def delta(atoms, t):
    """E[(1 - exp(t - loss))+] of losses and their probabilities."""
    losses, masses = atoms
    return float((masses * -np.expm1(np.minimum(t - losses, 0.0))).sum())


def seen(quantiles, noise, rows, along=None):
    """Quantiles of lengths (rows, tokens), directions (rows, tokens, n) and their cosines with some way."""
    unit = noise / np.linalg.norm(noise, axis=1, keepdims=True)
    along = (
        unit.sum(axis=1) / np.sqrt(unit.shape[1]) if along is None else (unit * along).sum(axis=1)
    )
    return (
        quantiles.reshape(rows, -1),
        unit.reshape(rows, -1, unit.shape[1]),
        along.reshape(rows, -1),
    )


def seen_in_space(noise, rows, scale):
    """Noise (t, n), whose length is to be Gamma(n) times the scale."""
    lengths = np.linalg.norm(noise, axis=1)
    return seen(stats.gamma(noise.shape[1], scale=scale).cdf(lengths), noise, rows)


def seen_in_ball(words, points, rows, name, epsilon):
    """Points (t, n + 1), ln q0 and w of Lorentz's coordinates, from words, without cancelling at the edge."""
    log_q0 = points[:, :1]
    z, log_rim = points[:, 1:] / (1 + np.exp(-log_q0)), np.log(2) - np.logaddexp(0, log_q0[:, 0])
    rim = 1 - np.square(words).sum(axis=1)
    gap = z - words
    squares = np.square(gap).sum(axis=1)
    log_sinh = (np.log(squares) - log_rim - np.log(rim)) / 2  # ln sinh(d / 2)
    small = np.arcsinh(np.exp(np.minimum(log_sinh, 20)))
    distances = 2 * np.where(log_sinh < 20, small, log_sinh + np.log(2))
    # The numerator of the Möbius sum (-word) + z, rearranged.
    back = rim[:, None] * gap - squares[:, None] * words
    lengths = np.linalg.norm(words, axis=1, keepdims=True)
    outward = np.where(
        lengths > 0, words / np.where(lengths > 0, lengths, 1), np.eye(words.shape[1])[0]
    )
    quantiles = np.interp(np.log(distances), *ball_radii(name, words.shape[1], epsilon))
    return seen(quantiles, back, rows, outward)


def seen_by_lebesgue(points, words, noisy, rows, epsilon):
    """Noisy points (t, n + 1) of the density exp(-epsilon d) by Lebesgue measure around words (t,).

    Their distance r has the density exp(-epsilon r) d(s^n), where the points nearer than r are a Euclidean
    ball of radius s and centre k along the way to the word. Given r, the cosine c at that centre has the
    density 1 - v c over a uniform direction's, v = -dk/ds; quantiles by it make directions uniform.
    """
    n, radii = points.shape[1], 2 * np.arctanh(np.linalg.norm(points, axis=1))
    quantiles, units = np.empty(len(words)), np.empty((len(words), n))
    inside = noisy[:, 1:] / (1 + np.exp(-noisy[:, :1]))
    log_rims = np.log(2) - np.logaddexp(0, noisy[:, 0])
    r = np.exp(np.linspace(np.log(1e-9), np.log(60 + 60 / epsilon), 2**17))
    for word, (point, far) in enumerate(zip(points, radii, strict=True)):
        own = np.flatnonzero(words == word)
        way = point / np.linalg.norm(point) if far else np.eye(n)[0]
        gap = np.log(np.linalg.norm(inside[own] - point, axis=1))
        sinh = np.exp(gap - (log_rims[own] + np.log1p(-(point @ point))) / 2)
        distance = 2 * np.arcsinh(sinh)
        centre, _, lean = _euclidean_ball(distance, far)
        log_radius = np.log(_euclidean_ball(r, far)[1])
        density = n * log_radius - epsilon * r  # over ln s
        steps = np.exp((density[1:] + density[:-1]) / 2 - density.max()) * np.diff(log_radius)
        mass = np.append(0.0, np.cumsum(steps))
        quantiles[own] = np.interp(np.log(distance), np.log(r), mass / mass[-1])
        unit = normal(inside[own] - centre[:, None] * way)
        cosine = np.clip(unit @ way, -1.0, 1.0)
        half = (n - 1) / 2
        below = stats.beta(half, half).cdf((1 + cosine) / 2)
        below += lean * (1 - cosine**2) ** half / ((n - 1) * special.beta(0.5, half))
        cosines = 2 * stats.beta(half, half).ppf(np.clip(below, 0.0, 1.0)) - 1
        across = normal(unit - (unit @ way)[:, None] * way)
        units[own] = cosines[:, None] * way + np.sqrt(1 - cosines**2)[:, None] * across
    outward = np.array(
        [normal(point[None])[0] if point.any() else np.eye(n)[0] for point in points]
    )
    return seen(quantiles, units, rows, outward[words])


def normal(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _euclidean_ball(r, far):
    """Centre k and radius s of the ball of hyperbolic radius r around a word so far out, and -dk/ds."""
    ends = np.tanh((far + r) / 2), np.tanh((far - r) / 2)
    outer, inner = 1 / np.cosh((far + r) / 2) ** 2, 1 / np.cosh((far - r) / 2) ** 2
    lean = (inner - outer) / (inner + outer)
    return (ends[0] + ends[1]) / 2, np.sinh(r) / (np.cosh(r) + np.cosh(far)), lean


def uniform(values):
    return float(stats.kstest(values.ravel(), "uniform").pvalue)


def scores(uniforms):
    return stats.norm.ppf(np.clip(uniforms, 1e-12, 1 - 1e-12))


def noise_p_values(quantiles, unit, along):
    """P-values, each for all tests of its kind together (Bonferroni)."""
    # Kolmogorov-Smirnov of lengths, of all words and of each of four that take turns; of cosines of
    # directions with some ways; of cosines of next tokens and next rows. Correlations of normal scores of
    # lengths and directions. Two of 20,000 coordinates agree in 50 bits with probability 10^-6.
    n = unit.shape[2]
    cosine = stats.beta((n - 1) / 2, (n - 1) / 2)  # of (1 + u·v) / 2, u a uniform direction
    own = [cosine.cdf((1 + c) / 2) for c in (unit[..., 0], unit[..., -1], along)]
    next_to = [(unit[:, ::2], unit[:, 1::2]), (unit[::2], unit[1::2])]
    between = [cosine.cdf((1 + np.einsum("rtn,rtn->rt", *pair)) / 2) for pair in next_to]
    radii = scores(quantiles)
    pairs = [(radii, scores(side)) for c in own for side in (c, np.abs(2 * c - 1))]
    for each in (radii, scores(own[0])):
        pairs += [(each[:, ::2], each[:, 1::2]), (each[::2], each[1::2])]
    found = {
        "length": [uniform(quantiles), *(uniform(quantiles[:, word::4]) for word in range(4))],
        "direction": [uniform(c) for c in own],
        "neighbours": [uniform(c) for c in between],
        "independence": [stats.pearsonr(one.ravel(), other.ravel()).pvalue for one, other in pairs],
        "repeats": [float(len(np.unique(unit[..., 0])) == unit[..., 0].size)],
    }
    return {name: len(values) * float(min(values)) for name, values in found.items()}


def ranked(distances, t, count, weights=None):
    """Shares (count,) of the words chosen for points, distances (..., count); alike, or by weights."""
    flat = distances.reshape(-1, count)
    first = flat.argmin(axis=1)
    weights = np.ones(len(flat)) if weights is None else weights
    weights = weights / weights.sum()
    if t is None:
        return np.bincount(first, weights, count)
    order = np.argsort(flat, axis=1)[:, :2]
    near, far = np.take_along_axis(flat, order, axis=1).T
    chance = (1 - t) * far / (t * near + (1 - t) * far)
    shares = np.bincount(order[:, 0], weights * chance, count)
    return shares + np.bincount(order[:, 1], weights * (1 - chance), count)


def line_outputs(positions, scale):
    """P[M(x) = y] (x, y) of Laplace noise on a line, by survival functions where those keep digits."""
    order = np.argsort(positions)
    borders = np.concatenate(
        [[-np.inf], (positions[order][1:] + positions[order][:-1]) / 2, [np.inf]]
    )
    law = stats.laplace(scale=scale)
    low, high = borders[:-1] - positions[:, None], borders[1:] - positions[:, None]
    cells = np.where(low > 0, law.sf(low) - law.sf(high), law.cdf(high) - law.cdf(low))
    probabilities = np.empty_like(cells)
    probabilities[:, order] = cells
    return probabilities


MIDPOINTS = (np.arange(600) + 0.5) / 600
ANGLES = 2 * np.pi * (np.arange(500) + 0.5) / 500


def plane_outputs(points, scale, root, t):
    """P[M(x) = y] (x, y) on a plane, by midpoints of the length's quantile and of the angle."""
    # The length is Gamma(2) times the scale. What a ray gives is off by 1/1200 for each border that it meets,
    # and hardly on average over rays.
    rays = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) @ root
    steps = stats.gamma(2, scale=scale).ppf(MIDPOINTS)[:, None, None] * rays
    return np.array(
        [
            ranked(np.linalg.norm((x + steps)[:, :, None] - points, axis=3), t, len(points))
            for x in points
        ]
    )


def ball_outputs(points, name, epsilon, t):
    """P[M(x) = y] (x, y) in the disc, by midpoints of the radius' quantile and the angle on geodesic rays."""
    words = points[:, 0] + 1j * points[:, 1]
    x, below = ball_radii(name, 2, epsilon)
    radii = np.exp(np.interp(MIDPOINTS, below, x))[:, None]
    step, rows = np.tanh(radii / 2) * np.exp(1j * ANGLES), []
    for word in words:
        moved = 1 + np.conj(word) * step
        z, rim = (
            (word + step) / moved,
            (1 - abs(word) ** 2) / (np.cosh(radii / 2) * np.abs(moved)) ** 2,
        )
        cosh = 1 + 2 * np.abs(z[..., None] - words) ** 2 / (
            rim[..., None] * (1 - np.abs(words) ** 2)
        )
        rows.append(ranked(np.arccosh(np.maximum(cosh, 1)), t, len(words)))
    return np.array(rows)


def lebesgue_outputs(points, epsilon, t):
    """P[M(x) = y] (x, y) in the disc, by equally large cells of it, of weights exp(-epsilon d)."""
    radii, angles = (
        np.sqrt((np.arange(1000) + 0.5) / 1000),
        2 * np.pi * (np.arange(800) + 0.5) / 800,
    )
    x = (radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    words, rim = np.asarray(points), 1 - np.square(x).sum(axis=1)
    squares = np.square(x[:, None] - words).sum(axis=2)
    cosh = 1 + 2 * squares / (rim[:, None] * (1 - np.square(words).sum(axis=1)))
    distances = np.arccosh(cosh)
    weights = np.exp(-epsilon * distances)
    return np.array([ranked(distances, t, len(words), own) for own in weights.T])


def exponential_law(gaps, epsilon, truncate):
    """P[M(x) = y] by distances (x, y)."""
    weights = np.exp(-epsilon * np.minimum(gaps, truncate) / 2)
    return weights / weights.sum(axis=1, keepdims=True)


def output_p_values(outputs, probabilities):
    """P-values of outputs (words, draws) by the probabilities (words, released): law, independence."""
    # Chi-squares; cells of less than 20 join the fullest of their row. Independence is that of disjoint pairs
    # of next outputs, those of less than a twentieth taken as one.
    statistic, freedom, pairs = 0.0, 0, []
    for drawn, law in zip(outputs, probabilities, strict=True):
        counts = len(drawn) * law
        gaps = np.bincount(drawn, minlength=len(law)) - counts
        rare, fullest = counts < 20, counts.argmax()
        gaps[fullest] += gaps[rare].sum()
        counts[fullest] += counts[rare].sum()
        statistic += float((gaps[~rare] ** 2 / counts[~rare]).sum())
        freedom += int((~rare).sum()) - 1
        labels = np.where(law < 0.05, 0, np.arange(1, len(law) + 1))[drawn]
        table = np.zeros((len(law) + 1, len(law) + 1))
        np.add.at(table, (labels[::2], labels[1::2]), 1)
        table = table[table.any(axis=1)][:, table.any(axis=0)]
        table = table[table.sum(axis=1) > 250][:, table.sum(axis=0) > 250]
        pairs.append(float(stats.chi2_contingency(table).pvalue) if min(table.shape) > 1 else 1.0)
    return {
        "law": float(stats.chi2.sf(statistic, df=freedom)),
        "independence": len(pairs) * min(pairs),
    }
