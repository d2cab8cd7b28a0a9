"""What the losses of several words add up to, by privacy loss distributions of the library dp-accounting."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Final

import numpy as np

from dptext_spark.accounting.laws import Atoms, LossLaw
from dptext_spark.geometry import Floats

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Steps of the grid of losses from 0 to the largest one, and of a coarse one, fewer for many words: what a
# step adds to the variance of a word's loss is a share of that variance, however many words there are.
_STEPS: Final = 4000
_COARSE: Final = range(100, 800)
# Words, beyond which the fine grid's transforms would be too long.
_MANY: Final = 1 << 14
# Part of delta that composition may cut off; it is added again.
_TRUNCATED: Final = 1e-3
# More than what Fourier transforms in double precision err by, for each word: at most 1.6 * 2^-52 were
# measured against transforms in extended precision, for 10 to 16,384 words.
FOURIER: Final = 2.0**-49
# Of the pure loss, to which t is searched for, and where a coarse answer will do.
_PRECISION: Final = 1e-8
_COARSELY: Final = 1e-5


@lru_cache(maxsize=256)  # both reports of a run, and what it prints, state the same losses
def loss_beyond(
    law: LossLaw, distance: float, *, words: int = 1, delta: float, coarse: bool = False
) -> float:
    """Find t such that words of a law, each moved by a distance at most, are (t, delta)-indistinguishable.

    It is in nats, never above what is proven without a delta; ``coarse`` bounds it less closely, far faster.
    """
    pure = words * law.bound(distance)
    if pure == 0.0:
        return 0.0
    steps = _STEPS
    if coarse or words > _MANY:
        law, steps = law.coarse(), max(_COARSE.start, min(_COARSE.stop, int(_COARSE.stop * 8 / words**0.5)))
    composed = _words(law, distance, law.bound(distance) / steps)
    if words > 1:
        cut_off, erred = _TRUNCATED * delta, FOURIER * words
        composed = composed.self_compose(words, tail_mass_truncation=cut_off)
        delta -= erred
    low, high = 0.0, pure
    if composed.get_delta_for_epsilon(low) <= delta:
        return low
    while high - low > (_COARSELY if coarse else _PRECISION) * pure:
        middle = (low + high) / 2.0
        if composed.get_delta_for_epsilon(middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def joint_loss_beyond(laws: Mapping[LossLaw, int], distance: float, *, delta: float) -> float:
    """Find t, as above, for one word that was released several times, so often with noise of each law."""
    pure = sum(times * law.bound(distance) for law, times in laws.items())
    if pure == 0.0:
        return 0.0
    # One grid for all: that of the largest loss.
    interval = max(law.bound(distance) for law in laws) / _STEPS
    # Each composition may cut off a part of its own.
    cut = _TRUNCATED * delta / (2 * len(laws))
    parts = [
        _words(law, distance, interval).self_compose(times, tail_mass_truncation=cut)
        for law, times in laws.items()
    ]
    composed = reduce(lambda one, other: one.compose(other, tail_mass_truncation=cut), parts)
    return min(max(float(composed.get_epsilon_for_delta(delta)), 0.0), pure)


@lru_cache(maxsize=64)
def _words(law: LossLaw, distance: float, interval: float) -> PrivacyLossDistribution:
    # A large package, and all that a release of words without an account does without.
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    first, masses = on_grid(law.atoms(distance), interval)
    return PrivacyLossDistribution.create_from_rounded_probability(
        {first + i: float(mass) for i, mass in enumerate(masses) if mass > 0.0},
        infinity_mass=0.0,
        value_discretization_interval=interval,
        pessimistic_estimate=True,
    )


def on_grid(atoms: Atoms, interval: float) -> tuple[int, Floats]:
    """Move atoms to multiples of an interval, the first and the masses from there on; no delta(t) falls.

    Each atom is split between its two neighbours on the grid, with equal mass and equal mean of exp(-loss):
    "connect the dots", Doroshenko et al. 2022.
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
