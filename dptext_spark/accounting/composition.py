"""What the losses of several words add up to, by privacy loss distributions of the library dp-accounting."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.accounting.laws import Atoms, LossLaw

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Steps of the grid of losses from 0 to the largest one.
_STEPS: Final = 4000
# Part of delta that composition may cut off; it is added again.
_TRUNCATED: Final = 1e-3


def loss_beyond(law: LossLaw, distance: float, *, words: int = 1, delta: float) -> float:
    """Find t such that several words, each moved by a distance at most, are (t, delta)-indistinguishable.

    Args:
        law: The loss of one word.
        distance: How far each word moves at most.
        words: How many do.
        delta: Probability beside t, above 0.

    Returns:
        t in nats, never above what is proven without a delta.
    """
    pure = words * law.bound(distance)
    if pure == 0.0:
        return 0.0
    composed = _words(law, distance)
    if words > 1:
        composed = composed.self_compose(words, tail_mass_truncation=_TRUNCATED * delta)
    return min(max(float(composed.get_epsilon_for_delta(delta)), 0.0), pure)


@lru_cache(maxsize=64)
def _words(law: LossLaw, distance: float) -> PrivacyLossDistribution:
    # A large package, and all that a release of words without an account does without.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    interval = law.bound(distance) / _STEPS
    first, masses = on_grid(law.atoms(distance), interval)
    return PrivacyLossDistribution.create_from_rounded_probability(
        {first + i: float(mass) for i, mass in enumerate(masses) if mass > 0.0},
        infinity_mass=0.0,
        value_discretization_interval=interval,
    )


def on_grid(atoms: Atoms, interval: float) -> tuple[int, NDArray[np.float64]]:
    """Move atoms to multiples of an interval so that delta(t) grows nowhere smaller.

    Each atom is split between its two neighbours on the grid, with equal mass and equal mean of exp(-loss):
    "connect the dots", Doroshenko et al. 2022.

    Returns:
        The first multiple, and the masses there and at all after it, float64.
    """
    losses, masses = atoms
    below = np.floor(losses / interval)
    upper = np.expm1(below * interval - losses) / np.expm1(-interval)  # 0 on the grid point, 1 on the next
    upper = np.clip(upper, 0.0, 1.0) * masses
    first = int(below.min())
    index = (below - first).astype(np.int64)
    size = int(index.max()) + 2
    on = np.zeros(size)
    on += np.bincount(index, weights=masses - upper, minlength=size)
    on += np.bincount(index + 1, weights=upper, minlength=size)
    return first, on
