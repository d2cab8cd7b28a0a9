"""Random balls of ``hyperbolic-lebesgue``: digits of their radii and of points in them."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate

from dptext_spark.geometry.lebesgue import POINT_ERROR, uniform_in_balls
from tests.helpers.radii import law, rim_of

LAWS = list(itertools.product((1, 10, 100), (1e-3, 8.0, 300.0), (0.0, 6.0, 14.0)))


def log_integral(n, epsilon, radius, stop=None):
    """ln of the integral of (sinh t / (cosh t + cosh R))^n exp(-epsilon t) up to ``stop``, by its formula."""
    end = 14.0 + 100.0 / epsilon + 2.0 * n / epsilon if stop is None else stop
    x = np.linspace(np.log(1e-10 * end), np.log(end), 40_001)
    t = np.exp(x)
    half = np.exp(-2.0 * t)
    logs = np.log(-np.expm1(-2.0 * t)) - np.log1p(half + 2.0 * np.exp(-t) * np.cosh(radius))
    logs = n * logs - epsilon * t + x
    peak = logs.max()
    return float(peak + np.log(integrate.simpson(np.exp(logs - peak), x=x)))


@pytest.mark.parametrize(("n", "epsilon", "radius"), LAWS)
def test_quantiles_of_radii_are_those_of_the_density(n, epsilon, radius):
    """Rejects cells too coarse for a large epsilon or n, and the radius of another word in the batch."""
    uniforms = np.array([1e-12, 1e-3, 0.3, 0.5, 0.7, 0.999])
    all_rims = rim_of(np.array([0.0, radius, 14.0]))
    together = law(n, epsilon).radii(np.repeat(all_rims, 6), np.tile(uniforms, 3))
    radii = together[6:12]
    assert (np.diff(radii) > 0.0).all()
    whole = log_integral(n, epsilon, radius)
    computed = law(n, epsilon).log_masses(all_rims[1:2])[0]
    assert computed == pytest.approx(whole, abs=1e-6)
    for uniform, t in zip(uniforms.tolist(), radii.tolist(), strict=True):
        share = math.exp(log_integral(n, epsilon, radius, t) - whole)
        assert share == pytest.approx(uniform, rel=2e-5)


def test_quantiles_have_thirteen_digits():
    """By 30 digits; rejects single precision, and halves that are counted from one end."""
    for n, epsilon, radius in ((10, 4.0, 4.0), (2, 0.3, 1.0), (5, 60.0, 6.0)):
        cosh = mpmath.cosh(radius)

        def density(t, n=n, epsilon=epsilon, cosh=cosh):
            # In units that make its integrals no smaller than the quadrature's absolute error.
            ratio = epsilon * cosh * mpmath.sinh(t) / (mpmath.cosh(t) + cosh)
            return 1e12 * ratio**n * mpmath.exp(-epsilon * t)

        uniforms = np.array([1e-10, 0.4, 0.9, 1.0 - 1e-10])
        radii = law(n, epsilon, radius).radii(np.full(4, rim_of(radius)), uniforms)
        with mpmath.workdps(30):
            edges = [0.05, 0.1, 0.2, 0.5, 1, 2, 4, 6, 8, 12, 20]
            whole = mpmath.quad(density, [0, *edges, 60, 200])
            for uniform, t in zip(uniforms.tolist(), radii.tolist(), strict=True):
                inner = [edge for edge in edges if edge < t]
                share = mpmath.quad(density, [0, *inner, t]) / whole
                error = (share - mpmath.mpf(uniform)) / (density(t) / whole) / t
                assert abs(float(error)) < 1e-13


def test_extreme_uniforms_and_epsilons_have_finite_radii():
    """Rejects an overflow, and a cell without mass that is divided by."""
    ends = np.array([2.0**-53, 0.5, 1.0 - 2.0**-53])
    for n, epsilon in itertools.product((1, 50, 1000), (1e-12, 1.0, 1e4, 1e300)):
        for radius in (0.0, 14.6):
            with np.errstate(all="raise"):
                found = law(n, epsilon, 14.6).radii(np.full(3, rim_of(radius)), ends)
            assert np.isfinite(found).all() and (np.diff(found) >= 0.0).all() and found[0] > 0.0


def test_points_keep_their_digits_at_the_edge():
    """By 60 digits; rejects 1 - |x|² by a difference, which leaves none where the noise goes outwards."""
    rng = np.random.default_rng(1)
    with mpmath.workdps(60):
        for n, radius, t in itertools.product(
            (1, 2, 10), (0.0, 4.0, 14.6), (1e-9, 0.3, 8.0, 400.0)
        ):
            way = rng.standard_normal(n)
            p = np.tanh(radius / 2.0) * way / np.linalg.norm(way)
            for share, outwards in ((1e-9, False), (0.6, True), (1.0 - 1e-6, False)):
                direction = way if outwards else rng.standard_normal(n)
                direction = direction / np.linalg.norm(direction)
                point = uniform_in_balls(p[None], np.array([t]), np.array([share]), direction[None])
                z = mpmath.exp(-mpmath.mpf(t))
                exact = [mpmath.mpf(value) for value in p.tolist()]
                rim = 1 - mpmath.fsum(value**2 for value in exact)
                spread = 4 * z + rim * (1 - z) ** 2
                reach = rim * (1 - z * z) / spread * mpmath.mpf(share) ** (mpmath.mpf(1) / n)
                length = mpmath.sqrt(mpmath.fsum(mpmath.mpf(value) ** 2 for value in direction))
                x = [
                    4 * z / spread * value + reach * mpmath.mpf(float(step)) / length
                    for value, step in zip(exact, direction, strict=True)
                ]
                inward = 1 / (1 + mpmath.exp(-mpmath.mpf(point[0, 0])))
                errors = [
                    mpmath.mpf(value) * inward - other
                    for value, other in zip(point[0, 1:].tolist(), x, strict=True)
                ]
                assert max(abs(error) for error in errors) * mpmath.sqrt(n) < POINT_ERROR
                square = mpmath.fsum(value**2 for value in x)
                time = mpmath.log((1 + square) / (1 - square))
                assert abs(time - mpmath.mpf(point[0, 0])) < 1e-9
