"""What releases of one word lose together, told by the noise that each was made under."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from dptext_spark.accounting.ledger import claimed_total


def joint_loss(one: Sequence[Hashable], other: Sequence[Hashable], losses: Sequence[float]) -> float:
    """Bound what somebody learns who sees all releases of a word, in nats.

    Noise is a function of its context: releases under equal contexts look at one noisy point, and lose what
    one of them loses; under distinct contexts noise is independent, and losses add up. So the loss is the sum
    over the distinct contexts, for two inputs that repeat contexts in the same places.

    Where they do not, nothing is proven. Let two releases have equal contexts for input x, as those of a row
    that was not edited, and distinct ones for x'. Equal outputs are certain for x, and for x' as likely as
    sum_y P[y | x] P[y | x']; unequal ones never come of x, and some do of x'. No sum of the releases' losses
    bounds that. Which contexts are equal is therefore public, and inputs are compared that agree in it.

    Args:
        one: The context of each release, for the one input.
        other: The same for the other input.
        losses: What each release loses by itself, in nats.

    Returns:
        The bound; infinite where contexts are repeated in other places.
    """
    places = [one.index(context) for context in one]
    if places != [other.index(context) for context in other]:
        return math.inf
    return float(claimed_total(zip(one, map(float, losses), strict=True)))
