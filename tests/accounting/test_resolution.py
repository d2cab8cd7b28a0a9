"""What coarse uniforms change: all outputs that there are, against the bound."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from dptext_spark.accounting.resolution import (
    ball_point_distance,
    nearest_word_distance,
    proposed_word_distance,
    rounded_vector_distance,
)
from dptext_spark.geometry.sphere import gamma_quantile, uniform_directions
from dptext_spark.mechanisms import Exponential, Hyperbolic, HyperbolicLebesgue, Laplace
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.mechanisms.vectors import on_grid
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds

CENTRE = 100.0  # far from 0, which no word may be
SIGNS, COIN = np.array([0.25, 0.75]), np.array([0.5])  # a sign is exact in any bits


def cells(bits):
    """All uniforms of so many bits, as ``to_uniform`` has them of 52."""
    return (np.arange(2**bits) + 0.5) / 2**bits


def product(*axes):
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def on_a_circle(angles, lengths):
    """Uniforms (t, 4) whose noise lies on equally spaced directions of the plane, all lengths alike."""
    directions = 2.0 * np.pi * cells(angles)
    normals = special.ndtr(np.stack([np.cos(directions), np.sin(directions)], axis=1))
    places = np.repeat(cells(lengths), len(normals)), np.tile(normals, (2**lengths, 1))
    return np.column_stack([*places, np.full(len(places[0]), 0.5)])


def outputs(mechanism, world, word, uniforms):
    """The law of a word's output, under equally likely uniforms (t, k)."""
    drawn = mechanism.bind(world, ExactSearch.over(world))(
        np.full(len(uniforms), word), uniforms.copy()
    )
    return np.bincount(drawn, minlength=world.releasable) / len(uniforms)


def apart(one, other):
    """Total variation."""
    return float(np.abs(one - other).sum() / 2.0)


@pytest.mark.parametrize(("bits", "t"), [(6, None), (8, None), (8, 0.4)])
def test_a_coarse_length_and_coin_on_a_line(tmp_path, bits, t):
    """Rejects a bound without V; without a choice the truth is a tenth of the right one, or more."""
    places = np.sort(CENTRE + np.random.default_rng(2).normal(size=40)).astype(np.float32)
    world, word, plain = worlds.build(tmp_path, places[:, None]), 20, Laplace(epsilon=1.0)
    # The law: coins by their probability, lengths by 65,536 midpoints.
    noise, search = product(cells(16), SIGNS), ExactSearch.over(world)
    points = plain.bind(world, search).points(np.full(len(noise), word), noise)
    nearest, distances = search.of_words(world).nearest_two(points)
    first = np.ones(len(noise)) if t is None else vickrey_probability(t, distances)
    law = np.bincount(nearest[:, 0], first, 40) + np.bincount(nearest[:, 1], 1.0 - first, 40)
    mechanism = plain if t is None else Laplace(epsilon=1.0, select="vickrey", t=t)
    coarse = outputs(
        mechanism, world, word, product(cells(bits), SIGNS, COIN if t is None else cells(bits))
    )
    found = apart(coarse, law / len(noise))
    bound = nearest_word_distance(40, 1, vickrey=t is not None, bits=bits)
    assert (0.0 if t else bound / 10.0) < found <= bound
    assert found > nearest_word_distance(2, 1, bits=bits)


def test_a_coarse_direction(tmp_path):
    """Rejects a bound that counts one uniform in place of n + 1, where a coordinate has one bit."""
    n = 14
    # A slab about the first word that just leaves out the noise: each coordinate of it is length / sqrt(n).
    slab = gamma_quantile(n, cells(1))[0] / np.sqrt(n) * 0.999
    points = np.tile(np.eye(n)[1] * CENTRE, (3, 1))
    points[1:, 0] = [2.0 * slab, -2.0 * slab]
    world = worlds.build(tmp_path, points)
    coarse = outputs(Laplace(epsilon=1.0), world, 0, product(*[cells(1)] * (n + 1), COIN))
    # The noise's first coordinate, by 4 million midpoints of length and cosine.
    cosines = 2.0 * special.betaincinv((n - 1) / 2, (n - 1) / 2, cells(11)) - 1.0
    inside = float((np.abs(np.outer(gamma_quantile(n, cells(11)), cosines)) < slab).mean())
    found = apart(coarse, np.array([inside, (1.0 - inside) / 2, (1.0 - inside) / 2]))
    assert (3 - 1) * 2.0**-2 < found <= nearest_word_distance(3, n, bits=1)


def test_coarse_uniforms_in_a_disc(tmp_path):
    """The cell of the first word is a thin strip, along which all noise of equal coordinates goes."""
    # Rejects a bound for one coordinate of the direction alone; the truth is a tenth of the right one, or
    # more.
    bits, mechanism = 5, Hyperbolic(epsilon=8.0)
    strip = np.array([[0.0, 0.0], [1e-3, -1e-3], [-1e-3, 1e-3]])
    world = worlds.build(tmp_path, strip, geometry="poincare")
    coarse = outputs(mechanism, world, 0, product(*[cells(bits)] * 3, COIN))
    found = apart(coarse, outputs(mechanism, world, 0, on_a_circle(10, 8)))
    bound = nearest_word_distance(3, 2, bits=bits)
    assert bound / 10.0 < found <= bound
    assert found > 2.0 ** -(bits + 1)


def test_coarse_uniforms_of_random_balls(tmp_path):
    """As above; rejects a bound without the share of the volume, and one without the radius."""
    bits, mechanism = 4, HyperbolicLebesgue(epsilon=8.0)
    strip = np.array([[0.0, 0.0], [1e-3, -1e-3], [-1e-3, 1e-3]])
    world = worlds.build(tmp_path, strip, geometry="poincare")
    coarse = outputs(mechanism, world, 0, product(*[cells(bits)] * 4, COIN))
    radii = np.repeat(cells(5), 2**15)
    fine = np.column_stack([radii, np.tile(on_a_circle(9, 6), (2**5, 1))])
    found = apart(coarse, outputs(mechanism, world, 0, fine))
    given = {"epsilon": 8.0, "least_rim": 1.0 - 2e-6}
    bound = ball_point_distance(3, 2, bits=bits, **given)
    assert bound / 40.0 < found <= bound


def test_a_coarse_radius_of_random_balls(tmp_path):
    """One word in all of a small ball: rejects a bound without what the radius' uniform changes."""
    bits, mechanism = 5, HyperbolicLebesgue(epsilon=30.0)
    # Words on a line through the first one, at the radius of the first cell's middle.
    world = worlds.build(tmp_path, [[0.0], [2e-3], [-2e-3]], geometry="poincare")
    fine, shares = (
        product(cells(12), cells(6), SIGNS, COIN),
        product(cells(bits), cells(6), SIGNS, COIN),
    )
    found = apart(outputs(mechanism, world, 0, shares), outputs(mechanism, world, 0, fine))
    alone = ball_point_distance(1, 1, epsilon=30.0, least_rim=1.0 - 4e-6, bits=bits)
    assert 0.0 < found <= alone


@pytest.mark.parametrize("truncate", [None, 1.0])
@pytest.mark.parametrize("listed", [0.0, 10.0])
def test_a_coarse_proposal(tmp_path, truncate, listed):
    """All words listed, or few; rejects a bound without V; the truth is a hundredth of the right one."""
    count, bits = 40, 6
    world = worlds.build(tmp_path, np.random.default_rng(5).normal(size=(count, 2)))
    bound = Exponential(epsilon=2.0, truncate=truncate).bind(world, ExactSearch.over(world))
    bound, words = replace(bound, listed=listed), np.arange(0, count, 5)
    uniforms, exact = product(*[cells(bits)] * 3), bound.probabilities(words)
    lists, found = bound.lists(words, bound.reach(words)[0]), []
    assert (lists.radii < bound.truncate).all() == (listed > 0.0)
    for place, word in enumerate(words):
        drawn = bound.round(
            lists, np.full(len(uniforms), place), np.full(len(uniforms), word), uniforms
        )
        law = np.bincount(drawn[drawn >= 0], minlength=count)
        found.append(apart(law / law.sum(), exact[place]))
    stated = proposed_word_distance(count, bits=bits)
    assert stated / 100.0 < max(found) <= stated
    assert max(found) > proposed_word_distance(1, bits=bits)


def test_a_coarse_vector_on_a_grid():
    """Rejects a bound that counts no steps of the grid."""
    bits, steps, start = 7, 8.0, 0.3

    def released(uniforms):
        noise = uniform_directions(uniforms[:, 1:]) * gamma_quantile(2, uniforms[:, 0])[:, None]
        numbers = np.clip(on_grid(start + steps * noise, 1.0), -200.0, 200.0).astype(np.int64) + 200
        return np.bincount(numbers @ 401 ** np.arange(2), minlength=401**2) / len(uniforms)

    found = apart(
        released(product(*[cells(bits)] * 3)), released(on_a_circle(10, 10)[:, :3].copy())
    )
    assert (
        rounded_vector_distance(2, 0.0, bits=bits)
        < found
        <= rounded_vector_distance(2, steps, bits=bits)
    )


def test_the_places_that_are_counted():
    """As docs/mathematics.md has them; rejects other constants than those that are proven there."""
    assert nearest_word_distance(7917, 50) == 101 * 7916 * 2.0**-53
    changes = 40 * 10 + 9 + 50 * (80 * 10 + 9) + 1
    assert nearest_word_distance(10, 50, vickrey=True) == changes * 2.0**-53
    longest = 3.0 * float(gamma_quantile(4, np.array([1.0 - 2.0**-52]))[0])
    walls = 2.0 * longest + 6.0 + 4.0 * (24.0 * (1.0 + np.sqrt(3.0)) + 8.0)
    assert rounded_vector_distance(4, 3.0) == pytest.approx(walls * 2.0**-53, rel=1e-12)
    radius = 1.0 + 53 * np.log(2.0) + 10 * (1.0 - np.log(np.sinh(2.5) / (np.cosh(2.5) + 3.0)))
    given = {"epsilon": 4.0, "least_rim": 0.5}  # whose Lorentz time is 3
    for vickrey, changes in ((False, 11 * 2 * 99), (True, 11 * (80 * 100 + 9) + 1)):
        computed = ball_point_distance(100, 10, vickrey=vickrey, **given)
        assert computed == pytest.approx((radius + changes) * 2.0**-53, rel=1e-12)
    assert proposed_word_distance(10) == 150 * 2.0**-53 and proposed_word_distance(2**60) == 1.0
