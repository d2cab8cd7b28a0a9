"""Noise around a word's point, then a choice that looks at the noisy point alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dptext_spark.accounting.resolution import nearest_word_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.mechanisms.mechanism import NUMBER, Mechanism
from dptext_spark.search.nearest import NearestWords


class NoiseDensity(ABC):
    """How likely a noisy point is around each of some words: what an attacker inverts."""

    dtype: ClassVar[type[np.floating[Any]]]  # that keeps points well enough

    @abstractmethod
    def still(self, words: Ints) -> Floats:
        """Return the points of any words (t,) without noise; see :meth:`NoisyNearest.points`."""

    @abstractmethod
    def __call__(self, points: Floats) -> Floats32:
        """Compute log-densities of noisy points (t, ...) around the k words, float32 (t, k).

        They may be off by one number for each point, the same for all words.
        """


@dataclass(frozen=True, kw_only=True)
class NoisyNearest(ABC):
    """A noise mechanism bound to an embedding; see :class:`Perturbation`."""

    search: NearestWords
    # Weight t of the first-or-second choice; None takes the nearest always.
    vickrey: float | None = None

    @abstractmethod
    def points(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Floats:
        """Turn words (t,) and uniforms (t, n + 1) into noisy points, as the search wants them."""

    def density(self, words: Ints) -> NoiseDensity | None:
        """Return the density of noisy points around words (k,); None where nobody wrote it down."""
        return None

    def __call__(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Ints:
        """Perturb words; the last uniform tosses the coin of the choice."""
        coins = uniforms[:, -1].copy()
        return self.choose(self.points(words, uniforms[:, :-1], epsilons), coins)

    def choose(self, points: Floats, coins: Floats) -> Ints:
        """Choose a word near each point (t, ...), by its coin (t,) where there is a choice."""
        if self.vickrey is None:
            return self.search(points)
        nearest, distances = self.search.nearest_two(points)
        first = coins < vickrey_probability(self.vickrey, distances)
        return np.where(first, nearest[:, 0], nearest[:, 1])


@dataclass(frozen=True, kw_only=True)
class AdditiveNoise(NoisyNearest):
    """Noisy points that are a centre plus a length times a direction, as all Euclidean noise is."""

    epsilon: float  # has a part in the lengths alone
    rate: float  # the noise's log-density falls by this per unit of its ``norm``
    # Maps points (t, d) to where Euclidean distances are those of the noise's norm; None leaves
    # them.
    norm: Callable[[Floats], Floats] | None = None
    centres: Callable[[Ints], Floats]  # of words (t,): their points (t, d) without noise
    lengths: Callable[[Floats], Floats]  # of uniforms (t,): (t,)
    directions: Callable[[Floats], Floats]  # of uniforms (t, d), overwritten: (t, d)

    def points(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Floats:
        lengths = self.lengths(uniforms[:, 0])
        if epsilons is not None:
            lengths = lengths * (self.epsilon / epsilons)
        points = self.directions(uniforms[:, 1:])
        points *= lengths[:, None]
        points += self.centres(words)
        return points

    def density(self, words: Ints) -> NoiseDensity:
        return AdditiveDensity(self, words)


class AdditiveDensity(NoiseDensity):
    """Density proportional to exp(-rate |z - centre|), in the norm of the noise."""

    dtype = np.float32

    def __init__(self, noise: AdditiveNoise, words: Ints) -> None:
        self._noise = noise
        self._centres = self._located(noise.centres(words))
        self._squares = np.square(self._centres).sum(axis=1)

    def still(self, words: Ints) -> Floats:
        return self._noise.centres(words)

    def __call__(self, points: Floats) -> Floats32:
        located = self._located(points)
        distances = located @ self._centres.T
        distances *= np.float32(-2.0)
        distances += self._squares
        distances += np.square(located).sum(axis=1)[:, None]
        np.maximum(distances, np.float32(0.0), out=distances)  # rounding may leave less
        np.sqrt(distances, out=distances)
        distances *= np.float32(-self._noise.rate)
        return distances

    def _located(self, points: Floats) -> Floats32:
        if self._noise.norm is not None:
            points = self._noise.norm(points)
        return points.astype(np.float32)


def vickrey_probability(t: float, distances: Floats) -> Floats:
    """Compute the probability of the nearer of words at distances d1 <= d2, (c, 2).

    It is (1 - t) d2 / (t d1 + (1 - t) d2), for t from 0 (the nearest always) to 1 (the second
    always, unless the nearest is at distance 0).

    Source: Xu et al. 2021, "On a Utilitarian Approach to Privacy Preserving Text Generation",
        section 3.
    """
    nearest, second = distances.T
    # A distance of 0 to both, or of infinity, far out in the ball, leaves no ratio: they are equal
    # then.
    ratio = np.ones(len(distances))
    np.divide(nearest, second, out=ratio, where=(second > 0) & np.isfinite(second))
    weight = (1.0 - t) + t * ratio
    probability = np.ones(len(distances))
    np.divide(1.0 - t, weight, out=probability, where=weight > 0)
    return probability


class NoiseMechanism(Mechanism):
    """A mechanism that moves a word's point by noise, and then looks at the noisy point alone."""

    select: Literal["nearest", "vickrey"] = Field(
        default="nearest",
        description="nearest word of the noisy point, or vickrey: the first or second nearest",
    )
    t: float | None = NUMBER(
        default=None,
        ge=0.0,
        le=1.0,
        description="with select=vickrey: 0 takes the nearest word always, 1 the second",
    )

    # Whether less noise leaves a point on the geodesic from its word that it is on.
    along_rays: ClassVar[bool] = True

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        if (self.select == "vickrey") != (self.t is not None):
            raise ValueError("Parameters select=vickrey and t go together: give both or neither")
        return self

    def uniforms_per_token(self, dimension: int) -> int:
        """Return how many uniforms one token takes: the radius', the direction's, the choice's.

        The last is drawn even where it is not needed: both choices then look at one noisy point,
        and two releases that differ in the choice alone spend epsilon once.
        """
        return dimension + 2

    def delta_num(self, embedding: Embedding, dimension: int) -> float:
        """Bound what the uniforms' bits change, for noise of a dimension and all output words."""
        return nearest_word_distance(embedding.releasable, dimension, vickrey=self.t is not None)
