"""Axes along which released words are compared where no channel is needed.

Groups whose private words have equal frequencies have equal frequencies of outputs, and so an equal
mean of any weights of outputs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dptext_spark.geometry import Floats, Ints, WordVectors

MAIN_AXES: Final = 32
"""Axes of the words' vectors, the longest ones: noise leaves most of a difference there."""

MIXED_AXES: Final = 32
"""Axes that add up half of the words less the other half: no difference escapes all of them."""

_LEAST: Final = 1e-6  # of the longest axis


def axes_of(vectors: WordVectors, counts: Ints) -> Floats:
    """Return weights of outputs (outputs, axes), each with a mean square of 1.

    Args:
        vectors: (outputs, n).
        counts: How often each output came, (outputs,), of all groups together.
    """
    shares = counts / counts.sum()
    centred = vectors - shares @ vectors
    lengths, directions = np.linalg.eigh(centred.T @ (centred * shares[:, None]))
    longest = lengths > _LEAST * lengths[-1]
    main_axes = centred @ directions[:, longest][:, -MAIN_AXES:]
    weights = np.concatenate([main_axes, _signs(len(counts))], axis=1)
    return np.asarray(weights / np.sqrt(shares @ np.square(weights)))


def _signs(outputs: int) -> Floats:
    """Return 1 or -1 for each output, (outputs, MIXED_AXES), by a hash of its number.

    Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", figure 16.
    """
    mixed = np.arange(1, outputs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    bits = (mixed[:, None] >> np.arange(MIXED_AXES, dtype=np.uint64)) & np.uint64(1)
    return 2.0 * bits.astype(np.float64) - 1.0
