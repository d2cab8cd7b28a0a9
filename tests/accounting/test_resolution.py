"""What coarse uniforms change: all outputs that there are, against the bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from dptext_spark.accounting.resolution import (
    nearest_word_distance,
    proposed_word_distance,
    rounded_vector_distance,
)
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.sphere import gamma_quantile, uniform_directions
from dptext_spark.mechanisms import Exponential, Hyperbolic, Laplace, Mechanism
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.mechanisms.vectors import on_grid
from dptext_spark.search.exact import ExactSearch
from tests.helpers import bundles, worlds

CENTRE = 100.0  # far from 0, which no word may be


def cells(bits: int) -> np.ndarray:
    """All uniforms of so many bits, as ``to_uniform`` has them of 52."""
    return (np.arange(2**bits) + 0.5) / 2**bits


def product(*axes: np.ndarray) -> np.ndarray:
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def outputs(mechanism: Mechanism, world: Embedding, word: int, uniforms: np.ndarray) -> np.ndarray:
    """The law of a word's output, under equally likely uniforms (t, k)."""
    drawn = mechanism.bind(world, ExactSearch.over(world))(np.full(len(uniforms), word), uniforms.copy())
    return np.bincount(drawn, minlength=world.releasable) / len(uniforms)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Total variation."""
    return float(np.abs(one - other).sum() / 2.0)


def of_a_line(folder: Path, count: int, epsilon: float) -> tuple[Embedding, Laplace, np.ndarray, np.ndarray]:
    """Words on a line, word 0 in their middle; the borders of their cells, by rank, and the ranks' words."""
    places = np.sort(CENTRE + np.random.default_rng(2).normal(size=count)).astype(np.float32)
    order = np.argsort(np.abs(places - CENTRE), kind="stable")
    world = worlds.build(folder, places[order, None])
    sorted_places = places.astype(np.float64)
    borders = np.concatenate([[-np.inf], (sorted_places[1:] + sorted_places[:-1]) / 2, [np.inf]])
    return world, Laplace(epsilon=epsilon), borders, np.argsort(order)


@pytest.mark.parametrize("bits", [6, 8])
def test_a_coarse_length_on_a_line(tmp_path: Path, bits: int) -> None:
    """Rejects a bound without V; the truth is a tenth of the right one, or more."""
    world, laplace, borders, rank = of_a_line(tmp_path, 40, 1.0)
    place = float(world.vectors[0, 0])
    exact = np.diff(stats.laplace.cdf(borders, loc=place))
    uniforms = product(cells(bits), np.array([0.25, 0.75]), np.array([0.5]))  # a sign is exact in any bits
    found = apart(outputs(laplace, world, 0, uniforms)[rank], exact)
    bound = nearest_word_distance(40, 1, bits=bits)
    assert bound / 10.0 < found <= bound
    assert found > nearest_word_distance(2, 1, bits=bits)


def test_a_coarse_direction(tmp_path: Path) -> None:
    """Rejects a bound that counts one uniform in place of n + 1, where a coordinate has one bit."""
    n = 14
    lengths = gamma_quantile(n, cells(1))
    # A slab about the first word that just leaves out the noise: each coordinate of it is length / sqrt(n).
    slab = lengths[0] / np.sqrt(n) * 0.999
    points = np.tile(np.eye(n)[1] * CENTRE, (3, 1))
    points[1:, 0] = [2.0 * slab, -2.0 * slab]
    world = worlds.build(tmp_path, points)
    coarse = outputs(Laplace(epsilon=1.0), world, 0, product(*[cells(1)] * (n + 1), np.array([0.5])))
    # The noise's first coordinate, by 4 million midpoints of length and cosine.
    cosines = 2.0 * special.betaincinv((n - 1) / 2, (n - 1) / 2, cells(11)) - 1.0
    inside = float((np.abs(np.outer(gamma_quantile(n, cells(11)), cosines)) < slab).mean())
    found = apart(coarse, np.array([inside, (1.0 - inside) / 2, (1.0 - inside) / 2]))
    assert (3 - 1) * 2.0**-2 < found <= nearest_word_distance(3, n, bits=1)


def on_a_circle(angles: int, lengths: int) -> np.ndarray:
    """Uniforms (t, 4) whose noise lies on equally spaced directions of the plane, all lengths alike."""
    directions = 2.0 * np.pi * cells(angles)
    normals = special.ndtr(np.stack([np.cos(directions), np.sin(directions)], axis=1))
    fine = cells(lengths)
    return np.concatenate(
        [
            np.repeat(fine, len(normals))[:, None],
            np.tile(normals, (len(fine), 1)),
            np.full((len(fine) * len(normals), 1), 0.5),
        ],
        axis=1,
    )


@pytest.mark.parametrize("kind", ["laplace", "hyperbolic"])
def test_coarse_uniforms_in_a_plane_and_a_disc(tmp_path: Path, kind: str) -> None:
    """The cell of the first word is a thin strip, along which all noise of equal coordinates goes.

    Rejects a bound for one coordinate of the direction alone; the truth is a tenth of the right one, or more.
    """
    bits, strip = 5, np.array([[0.0, 0.0], [1e-3, -1e-3], [-1e-3, 1e-3]])
    if kind == "laplace":
        world: Embedding = worlds.build(tmp_path, CENTRE + strip)
        mechanism: Mechanism = Laplace(epsilon=2.0)
    else:
        world = bundles.poincare_bundle(tmp_path, strip)
        mechanism = Hyperbolic(epsilon=8.0)
    coarse = outputs(mechanism, world, 0, product(*[cells(bits)] * 3, np.array([0.5])))
    found = apart(coarse, outputs(mechanism, world, 0, on_a_circle(10, 8)))
    bound = nearest_word_distance(3, 2, bits=bits)
    assert bound / 10.0 < found <= bound
    assert found > 2.0 ** -(bits + 1)


def test_a_coarse_choice_of_the_second_nearest(tmp_path: Path) -> None:
    """On a line, lengths and coins of 8 bits; rejects a bound that forgets V."""
    count, bits, t = 40, 8, 0.4
    world, plain, _, _ = of_a_line(tmp_path, count, 1.0)
    mechanism = Laplace(epsilon=1.0, select="vickrey", t=t)
    signs = np.array([0.25, 0.75])
    found = outputs(mechanism, world, 0, product(cells(bits), signs, cells(bits)))
    # The law: coins by their probability, lengths by 65,536 midpoints.
    points = plain.bind(world, ExactSearch.over(world)).points(
        np.zeros(2**17, dtype=np.int64), product(cells(16), signs)
    )
    nearest, distances = ExactSearch.over(world).of_words(world).nearest_two(points)
    first = vickrey_probability(t, distances)
    law = np.bincount(nearest[:, 0], first, count) + np.bincount(nearest[:, 1], 1.0 - first, count)
    distance = apart(found, law / len(points))
    assert distance > nearest_word_distance(2, 1, bits=bits)
    assert distance <= nearest_word_distance(count, 1, vickrey=True, bits=bits)


@pytest.mark.parametrize("truncate", [None, 1.0])
@pytest.mark.parametrize("listed", [0.0, 10.0])
def test_a_coarse_proposal(tmp_path: Path, truncate: float | None, listed: float) -> None:
    """All words listed, or few; rejects a bound without V; the truth is a hundredth of the right one."""
    count, bits = 40, 6
    world = worlds.build(tmp_path, np.random.default_rng(5).normal(size=(count, 2)))
    bound = Exponential(epsilon=2.0, truncate=truncate).bind(world, ExactSearch.over(world))
    bound, words = replace(bound, listed=listed), np.arange(0, count, 5)
    uniforms, exact = product(*[cells(bits)] * 3), bound.probabilities(words)
    lists, found = bound.lists(words, bound.reach(words)[0]), []
    assert (lists.radii < bound.truncate).all() == (listed > 0.0)
    for place, word in enumerate(words):
        drawn = bound.round(lists, np.full(len(uniforms), place), np.full(len(uniforms), word), uniforms)
        law = np.bincount(drawn[drawn >= 0], minlength=count)
        found.append(apart(law / law.sum(), exact[place]))
    stated = proposed_word_distance(count, bits=bits)
    assert stated / 100.0 < max(found) <= stated
    assert max(found) > proposed_word_distance(1, bits=bits)


@pytest.mark.parametrize(("dimension", "bits"), [(1, 10), (2, 7)])
def test_a_coarse_vector_on_a_grid(dimension: int, bits: int) -> None:
    """Rejects a bound that counts no steps of the grid."""
    steps, start = 8.0, 0.3
    signs = [np.array([0.25, 0.75])] if dimension == 1 else [cells(bits)] * dimension

    def released(uniforms: np.ndarray) -> np.ndarray:
        noise = uniform_directions(uniforms[:, 1:]) * gamma_quantile(dimension, uniforms[:, 0])[:, None]
        numbers = np.clip(on_grid(start + steps * noise, 1.0), -1000.0, 1000.0).astype(np.int64) + 1000
        return np.bincount(numbers @ 2001 ** np.arange(dimension), minlength=2001**dimension) / len(uniforms)

    fine = product(cells(18), *signs) if dimension == 1 else on_a_circle(11, 11)[:, :3].copy()
    found = apart(released(product(cells(bits), *signs)), released(fine))
    bound = rounded_vector_distance(dimension, steps, bits=bits)
    assert found <= bound
    assert found > rounded_vector_distance(dimension, 0.0, bits=bits)


def test_fewer_words_and_more_bits_change_less() -> None:
    for bound in (
        lambda words, bits: nearest_word_distance(words, 50, bits=bits),
        lambda words, bits: nearest_word_distance(words, 50, vickrey=True, bits=bits),
        lambda words, bits: proposed_word_distance(words, bits=bits),
    ):
        assert bound(10, 52) < bound(11, 52) < bound(11, 51) < 1e-10
        assert bound(2**60, 2) == 1.0
    assert nearest_word_distance(7917, 50) == 101 * 7916 * 2.0**-53
