"""How far uniforms of finitely many bits move an output's law from the proven one.

An output that changes at B places as one uniform goes from 0 to 1 moves by at most B 2^-(bits + 1)
in total variation, and uniforms add up. docs/mathematics.md has the proof, and counts the places
for each mechanism.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dptext_spark.geometry.lebesgue import ball_radius
from dptext_spark.geometry.sphere import gamma_quantile
from dptext_spark.noise import UNIFORM_BITS

# How often, at most, the choice between two words changes under one coin while they are the
# nearest.
_CHOICES: Final = 9


def nearest_word_distance(
    words: int, dimension: int, *, vickrey: bool = False, bits: int = UNIFORM_BITS
) -> float:
    """Bound the total variation for the word of a noisy point, nearest or by Vickrey's choice."""
    arcs = _arcs(dimension)
    if not vickrey:
        return _moved((1 + 2 * arcs) * (words - 1), bits)
    ray = 4 * words
    ray += _CHOICES * (ray + 1)
    return _moved(ray + arcs * _arc_choices(words) + 1, bits)  # and the coin's own


def ball_point_distance(
    words: int,
    dimension: int,
    *,
    epsilon: float,
    least_rim: float,
    vickrey: bool = False,
    bits: int = UNIFORM_BITS,
) -> float:
    """Bound the total variation for the word of a uniform point of a random ball around a word.

    The radius costs 1 - n ln s half cells, s that of the first cell's middle: s^n is there at least
    2^-(bits + 1) exp(-n) s(n / epsilon)^n. Along the share of the volume, as along a coordinate of
    the direction, two scores are equal twice at most.
    """
    spread = ball_radius(np.array(dimension / epsilon), np.array(least_rim))
    radius = 1.0 + (bits + 1) * math.log(2.0) + dimension * (1.0 - math.log(float(spread)))
    arcs = _arcs(dimension) + 1
    if not vickrey:
        return _moved(radius + arcs * 2 * (words - 1), bits)
    return _moved(radius + arcs * _arc_choices(words) + 1, bits)


def _arc_choices(words: int) -> int:
    """Bound the changes of the ordered pair of nearest words on an arc, and of their choice."""
    pairs = 8 * words
    return pairs + _CHOICES * (pairs + 1)


def proposed_word_distance(words: int, *, bits: int = UNIFORM_BITS) -> float:
    """Bound the total variation for one of V words, proposed in rounds until one is accepted.

    A round gives words the probabilities p_y, which add up to a, and p'_y on the grid. Then the
    word's law is at most sum |p'_y - p_y| / a away; a is k / V or more for k words on the list.
    That sum has three parts:

    * Each of the k places on the list is half a cell off. The rounded sums in double precision move
    it
      at most as far again, and the quotients half as far. All this counts twice.
    * Each border between two far words is half a cell and a rounding off. It counts by the share in
      which its words are accepted: together no more than a.
    * The border of acceptance: half a cell, for all far words together.

    A list of all words is drawn from once, by its places alone.
    """
    grid = 2 * words + 2 * words + words
    rounded = 2 * (2 * 2 * words) + 2 * words  # (k + 1) / k is 2 at most
    return min(1.0, _moved(grid, bits) + _moved(rounded, max(bits, UNIFORM_BITS)))


def rounded_vector_distance(dimension: int, steps: float, *, bits: int = UNIFORM_BITS) -> float:
    """Bound the total variation for a noisy vector whose numbers are rounded to a grid.

    The noise's scale is so many ``steps`` of the grid. A number that rises or falls by s of them
    changes its rounded value at most s + 1 times. Beyond the radius of the uniform's last cell all
    outputs may differ: that costs a cell.
    """
    last_uniform = np.array([1.0 - 2.0**-bits])
    longest = float(gamma_quantile(dimension, last_uniform)[0]) * steps
    ray = math.sqrt(dimension) * longest + dimension + 2
    # The mean length of the noise counts, as its directions are replaced first.
    arc = 2.0 * dimension * steps * (1.0 + math.sqrt(dimension - 1)) + 2 * dimension
    return _moved(ray + _arcs(dimension) * arc, bits)


def _arcs(dimension: int) -> int:
    """Return how many uniforms of a direction move a point along an arc.

    On a line a direction is a sign, whose change at 1/2 lies between two cells.
    """
    if dimension == 1:
        return 0
    return dimension


def _moved(changes: float, bits: int) -> float:
    """Return the total variation of so many changes, 1 at most."""
    return min(1.0, changes * 2.0 ** -(bits + 1))
