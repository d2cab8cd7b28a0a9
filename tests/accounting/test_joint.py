"""What releases lose together: held against joint laws that are enumerated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from dptext_spark.accounting.joint import joint_loss

LAW = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.3, 0.5, 0.2]])
"""P[output | word] of three words: largest log-ratio of the first two is ln 7."""

CONTEXTS = [
    (("a",), ("b",)),
    (("a", "a"), ("b", "b")),
    (("a", "b"), ("c", "d")),
    (("a", "b"), ("a", "c")),
    (("a", "b", "a"), ("c", "d", "c")),
    (("a", "a", "b"), ("c", "c", "d")),
]


def enumerated(words: Sequence[int], contexts: Sequence[str]) -> dict[tuple[int, ...], float]:
    """P[outputs] of releases: one output of each context, equal ones for equal contexts."""
    distinct = dict(zip(contexts, words, strict=True))
    law: dict[tuple[int, ...], float] = {}
    for outputs in product(range(LAW.shape[1]), repeat=len(distinct)):
        of_context = dict(zip(distinct, outputs, strict=True))
        together = tuple(of_context[context] for context in contexts)
        law[together] = math.prod(LAW[distinct[context], output] for context, output in of_context.items())
    return law


def largest_loss(one: dict[tuple[int, ...], float], other: dict[tuple[int, ...], float]) -> float:
    ways = [(one, other), (other, one)]
    return max(math.log(p / q[y]) if y in q else math.inf for law, q in ways for y, p in law.items())


@pytest.mark.parametrize(("one", "other"), CONTEXTS)
def test_the_bound_is_that_of_the_enumerated_law(one: Sequence[str], other: Sequence[str]) -> None:
    """Rejects a sum over all releases, over none but the first, and the largest of them."""
    actual = largest_loss(enumerated([0] * len(one), one), enumerated([1] * len(one), other))
    assert joint_loss(one, other, [math.log(7)] * len(one)) == pytest.approx(actual, rel=1e-12)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [(("a", "a"), ("b", "c"), (0, 1)), (("a", "b"), ("c", "c"), (1, 1)), (("a", "a"), ("a", "b"), (0, 1))],
)
def test_nothing_is_proven_where_contexts_are_repeated_elsewhere(
    one: Sequence[str], other: Sequence[str], words: Sequence[int]
) -> None:
    """Rejects a sum of losses: equal outputs are certain for one input and not for the other."""
    first = words if one[0] != one[1] else [words[0]] * 2
    actual = largest_loss(enumerated(first, one), enumerated(words, other))
    assert actual == joint_loss(one, other, [math.log(7)] * 2) == math.inf


def test_losses_under_one_context_may_differ_and_the_largest_counts() -> None:
    assert joint_loss(("a", "b", "a"), ("c", "b", "c"), (1.0, 0.5, 2.0)) == 2.5
    assert joint_loss((), (), ()) == 0.0


def test_a_loss_for_each_release() -> None:
    with pytest.raises(ValueError, match="shorter"):
        joint_loss(("a", "b"), ("c", "d"), (1.0,))
