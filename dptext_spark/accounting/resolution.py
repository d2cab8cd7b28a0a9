"""What uniforms of finitely many bits change: the computed law of an output against the proven one.

An output that changes at B places as one uniform goes from 0 to 1 moves by B 2^-(bits + 1) at most in total
variation, and uniforms add up: docs/mathematics.md has the proof, and counts the places for each mechanism.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dptext_spark.geometry.sphere import gamma_quantile
from dptext_spark.noise import UNIFORM_BITS

# How often, at most, the choice between two words changes under one coin where they stay the two nearest.
_CHOICES: Final = 9


def nearest_word_distance(
    words: int, dimension: int, *, vickrey: bool = False, bits: int = UNIFORM_BITS
) -> float:
    """Bound the total variation for the word of a noisy point, nearest or by Vickrey's choice."""
    # On a line a direction is a sign, whose change at 1/2 lies between two cells.
    arcs = dimension if dimension > 1 else 0
    if not vickrey:
        return _moved((1 + 2 * arcs) * (words - 1), bits)
    # Changes of the ordered pair of nearest words on a ray and on an arc, and of the choice between them.
    ray, arc = 4 * words, 8 * words
    changes = ray + _CHOICES * (ray + 1) + arcs * (arc + _CHOICES * (arc + 1))
    return _moved(changes + 1, bits)  # and the coin's own


def proposed_word_distance(words: int, *, bits: int = UNIFORM_BITS) -> float:
    """Bound the total variation for one of V words that is proposed, round after round, until it is accepted.

    If a round gives words p_y, which add up to a, and on the grid p'_y, the word that comes out is
    sum |p'_y - p_y| / a away at most; a is k / V or more, k words listed. That sum has three parts:

    * Of the k places on the list each lies half a cell off; the rounded sums in double precision move them as
      far again at most, and the quotients half as far. All this counts twice.
    * Each border between two far words lies half a cell and a rounding off, and counts for as much of it as
      its words are accepted: all together no more than a.
    * The border of acceptance: half a cell, for all far words together.

    A list of all words is drawn from once, by its places alone.
    """
    grid = 2 * words + 2 * words + words
    rounded = 2 * (2 * 2 * words) + 2 * words  # (k + 1) / k is 2 at most
    return min(1.0, _moved(grid, bits) + _moved(rounded, max(bits, UNIFORM_BITS)))


def rounded_vector_distance(dimension: int, steps: float, *, bits: int = UNIFORM_BITS) -> float:
    """Bound the total variation for a noisy vector whose numbers are rounded to a grid.

    The noise's scale is so many ``steps`` of the grid. A number that rises or falls by s of them is rounded
    otherwise s + 1 times at most. Beyond the radius that the last cell of the uniform has, outputs may all
    differ: that costs a cell.
    """
    longest = float(gamma_quantile(dimension, np.array([1.0 - 2.0**-bits]))[0]) * steps
    ray = math.sqrt(dimension) * longest + dimension + 2
    # The mean length of the noise counts, for its directions are replaced first.
    arc = 2.0 * dimension * steps * (1.0 + math.sqrt(dimension - 1)) + 2 * dimension
    return _moved(ray + (dimension if dimension > 1 else 0) * arc, bits)


def _moved(changes: float, bits: int) -> float:
    return min(1.0, changes * 2.0 ** -(bits + 1))
