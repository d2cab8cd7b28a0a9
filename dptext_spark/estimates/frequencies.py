"""The likeliest frequencies of private words, and which words an output cannot distinguish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from dptext_spark.channel.matrix import ChannelMatrix
from dptext_spark.geometry import Floats, Ints

ITERATIONS: Final = 100
"""Steps of expectation maximization. Many more make peaks of what is only noise."""

MOST_ALIKE: Final = 5
"""Words that are listed next to one that they cannot be distinguished from."""

_LEAST: Final = 1e-20  # probability of an output
_ENOUGH: Final = 4.0  # twice the logarithm of a likelihood ratio that distinguishes two words


def likeliest_frequencies(
    matrices: Mapping[float, ChannelMatrix], counts: Mapping[float, Ints]
) -> Floats:
    """Compute the share of each word of the matrices, (k,), by expectation maximization.

    It begins at the prior, and stops before it is at the maximum (Dempster, Laird and Rubin 1977).

    Args:
        matrices: P[output | word] at each epsilon.
        counts: How often each output came at each epsilon, (outputs,).
    """
    first = next(iter(matrices.values()))
    shares = first.prior.astype(np.float32)
    total = sum(int(of_outputs.sum()) for of_outputs in counts.values())
    if total == 0:
        return shares.astype(np.float64)
    for _ in range(ITERATIONS):
        expected = np.zeros(len(shares))
        for epsilon, of_outputs in counts.items():
            table = matrices[epsilon].table
            likely = shares @ table
            # An output that the channel knows nothing of says nothing.
            ratio = np.zeros(len(likely), dtype=np.float32)
            np.divide(of_outputs, likely, out=ratio, where=likely > _LEAST, casting="same_kind")
            expected += shares * (table @ ratio)
        shares = (expected / total).astype(np.float32)
    return np.asarray(shares / shares.sum(dtype=np.float64), dtype=np.float64)


def alike(matrix: ChannelMatrix, shares: Floats, places: Ints, total: int) -> list[Ints]:
    """Return, for some words by their places, the places of words that fit the outputs as well.

    Two words are not distinguished where moving the share of one to the other changes the
    likelihood of so many outputs too little: by their Bhattacharyya coefficient.
    """
    roots = np.sqrt(matrix.table)
    overlap = roots[places] @ roots.T
    overlap[np.arange(len(places)), places] = -1.0
    order = np.argsort(-overlap, axis=1, kind="stable")[:, :MOST_ALIKE]
    neighbours = []
    for row, place in enumerate(places.tolist()):
        distances = 8.0 * (1.0 - overlap[row, order[row]])
        is_near = total * shares[place] * distances < _ENOUGH
        neighbours.append(order[row][is_near])
    return neighbours
