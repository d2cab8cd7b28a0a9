"""Radii and translations in the Poincaré ball, against high precision and at the extremes."""

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate

from dptext_spark.embedding.spaces import LARGEST_BALL_RADIUS
from dptext_spark.geometry.ball import (
    SHARPEST_EPSILON,
    LebesgueRadii,
    translated,
    translation_error,
    volume_radii,
)

EDGES = np.array([2.0**-53, 1e-12, 1e-3, 0.25, 0.5, 0.75, 0.999, 1 - 1e-12, 1 - 2.0**-53])


def log_above(radius, n, epsilon):
    """ln P[R > radius], where exp(-2 R) is Beta((epsilon - n + 1) / 2, n)."""
    u = mpmath.exp(-2 * mpmath.mpf(radius))
    return mpmath.log(mpmath.betainc((mpmath.mpf(epsilon) - n + 1) / 2, n, 0, u, regularized=True))


@pytest.mark.parametrize("n", [1, 2, 5, 50, 300])
def test_volume_radii_invert_their_law(n):
    """To 10^-12 of the radius, in 80 digits, from the smallest uniform to the largest; also at n - 1."""
    near = [n - 1 + gap for gap in (0.05, 1e-3, 1e-6, 1e-9)] + [math.nextafter(n - 1, math.inf)][
        : n - 1
    ]
    for epsilon in [*near, n - 0.5, 2.0 * n, 1e6]:
        radii = volume_radii(EDGES, dimension=n, epsilon=epsilon)
        assert (np.diff(radii) > 0).all()
        with mpmath.workdps(80):
            for radius, u in zip(radii.tolist(), EDGES.tolist(), strict=True):
                wanted = mpmath.log(1 - mpmath.mpf(u))
                low, high = (log_above(radius * (1 + side * 1e-12), n, epsilon) for side in (-1, 1))
                assert low > wanted > high, (epsilon, u)


@pytest.mark.parametrize("n", [1, 2, 5, 50, 300])
@pytest.mark.parametrize("epsilon", [1e-12, 0.1, 10.0, 1000.0])
def test_lebesgue_radii_invert_their_law(n, epsilon):
    """Against adaptive quadrature of rho^(n-1) ((1 - rho) / (1 + rho))^epsilon, from both ends."""

    def density(x):
        r = math.exp(
            x
        )  # rho = tanh(r / 2), (1 - rho) / (1 + rho) = exp(-r), drho = (1 - rho^2) / 2 r dx
        log = (
            x + (n - 1) * math.log(math.tanh(r / 2)) - 2 * math.log(math.cosh(r / 2)) - epsilon * r
        )
        return math.exp(log - law.log_mass)

    def mass(start, end):
        cuts = np.linspace(start, end, 60)
        return sum(
            integrate.quad(density, *ends, epsrel=1e-13, epsabs=0)[0] for ends in pairwise(cuts)
        )

    law = LebesgueRadii.of(dimension=n, epsilon=epsilon)
    first, last = law.edges[[0, -1]]
    total = mass(first, last)
    for u, r in zip(EDGES.tolist(), law(EDGES).tolist(), strict=True):
        part = mass(first, math.log(r)) / total if u <= 0.5 else mass(math.log(r), last) / total
        assert part == pytest.approx(min(u, 1 - u), rel=1e-10, abs=0)


@pytest.mark.parametrize("n", [1, 2, 50, 1000])
def test_radii_are_finite_everywhere_and_no_sharper_than_float64(n):
    for epsilon in (1e-12, 1.0, 1e6, 1e15, 1e300):
        with np.errstate(all="raise"):
            radii = LebesgueRadii.of(dimension=n, epsilon=epsilon)(EDGES)
        assert np.isfinite(radii).all() and (np.diff(radii) > 0).all() and radii[0] > 0
    sharp, sharper = (
        volume_radii(EDGES, dimension=n, epsilon=e) for e in (SHARPEST_EPSILON, 1e300)
    )
    assert (sharp == sharper).all() and (sharp > 0).all()


def exactly(point, radius, direction):
    """q0 and w of the boosted point, in Decimal, with the direction at length 1."""
    p, u = ([Decimal(x) for x in vector.tolist()] for vector in (point, direction))
    size = sum((x * x for x in u), Decimal(0)).sqrt()
    u = [x / size for x in u]
    rim, r = 1 - sum(x * x for x in p), Decimal(radius)
    cosh, sinh = (r.exp() + (-r).exp()) / 2, (r.exp() - (-r).exp()) / 2
    m0, m = (2 - rim) / rim, [2 * x / rim for x in p]
    along = sinh * sum(a * b for a, b in zip(m, u, strict=True))
    q0 = cosh * m0 + along
    return q0, [(sinh * b + (cosh + along / (1 + m0)) * a) / q0 for a, b in zip(m, u, strict=True)]


def placed(n, norm):
    """A word at a norm, and directions in which formulas could cancel."""
    way, other = np.random.default_rng(n).standard_normal((2, n))
    way /= np.linalg.norm(way)
    directions = {"out": way, "back": -way, "nearly back": -way + 1e-4 * other, "aside": other}
    return norm * way, {name: u / np.linalg.norm(u) for name, u in directions.items()}


def moved(point, radius, direction):
    with np.errstate(all="raise"):
        return translated(point[None], np.array([radius]), direction[None].copy())[0]


@pytest.mark.parametrize("norm", [0.0, 1e-9, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("radius", [0.0, 1e-9, 1.0, 14.5, 700.0])
def test_translation_is_exact_to_the_digits_that_float64_has(norm, radius):
    """A direction's rounding of 10^-16 moves a point by 10^-16 / (1 - |p|) at most."""
    for n in (1, 2, 20):
        point, directions = placed(n, norm)
        for name, direction in directions.items():
            found = moved(point, radius, direction)
            with localcontext() as context:
                context.prec = 60 + int(radius)
                q0, w = exactly(point, radius, direction)
                log_q0 = float(q0.ln())
            tolerance = 1e-15 / (1 - norm) if "back" in name else 1e-15
            assert abs(found[0] - log_q0) <= tolerance + 1e-15 * log_q0, (n, name)
            assert np.abs(found[1:] - np.array(w, dtype=float)).max() <= tolerance, (n, name)


def strays(point, radius, direction):
    """How far, in hyperbolic distance, noise ends up from where it should."""
    found = moved(point, radius, direction).tolist()
    with localcontext() as context:
        context.prec = 100
        q0, w = exactly(point, radius, direction)
        r0 = Decimal(found[0]).exp()
        # As the search does: q0 tells how far the point is, w in which direction.
        size = sum((Decimal(x) ** 2 for x in found[1:]), Decimal(0)).sqrt() / (1 - 1 / r0**2).sqrt()
        cosh = q0 * r0 * (1 - sum(Decimal(x) / size * y for x, y in zip(found[1:], w, strict=True)))
        return float((2 * max(cosh - 1, Decimal(0))).sqrt())


@pytest.mark.parametrize("out", [0.0, 0.7, 2.5, 7.0, LARGEST_BALL_RADIUS])
def test_translation_strays_as_far_as_it_says(out):
    """Within four bits; rejects one error for all points, as at the origin."""
    errors = [
        strays(point, radius, u) / max(1.0, math.sinh(radius))
        for point, directions in (placed(n, math.tanh(out / 2)) for n in (2, 5, 50))
        for radius in (0.1, 1.0, 5.0, 14.0)
        for u in directions.values()
    ]
    # Noise has thirty bits at every point that a bundle takes.
    assert max(errors) <= min(translation_error(math.cosh(out)), 2.0**-30)
    assert translation_error(math.cosh(out)) <= 16.0 * max(errors)
    assert out < 7.0 or max(errors) > translation_error(1.0)


@pytest.mark.parametrize("radius", [1e3, 1e9, 1e17])
def test_translation_reaches_the_edge_of_the_ball(radius):
    point, directions = placed(3, 1 - 1e-6)
    for u in directions.values():
        found = moved(point, radius, u)
        assert found[0] == pytest.approx(radius, abs=20 + 1e-15 * radius)
        assert np.linalg.norm(found[1:]) == pytest.approx(1.0, abs=1e-9)
