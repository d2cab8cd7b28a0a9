"""Noise in the Poincaré ball: ``hyperbolic`` and ``hyperbolic-icdm``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Never

import numpy as np

from dptext_spark.accounting.laws import BallLaw, LebesgueLaw, VolumeLaw
from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import PoincareBall, Space
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.ball import lorentz, translated, translation_error
from dptext_spark.geometry.sphere import bits_left, uniform_directions
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.mechanism import NoiseParameters
from dptext_spark.mechanisms.noisy import NoiseDensity, NoiseMechanism, NoisyNearest
from dptext_spark.search.nearest import Search


@dataclass(frozen=True, kw_only=True)
class HyperbolicNoise(NoisyNearest):
    """Noise of a radius law around the origin, moved to the word's point, then nearest words."""

    vectors: Floats  # (V, n), the input words' points in the ball
    law: BallLaw  # of hyperbolic radii

    def points(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Floats:
        """Return noisy points, float64 (t, n + 1), of :func:`translated`; all have one epsilon."""
        if epsilons is not None:
            raise ConfigError("Noise in the Poincaré ball has one epsilon for all words")
        radii = self.law.radii(uniforms[:, 0].copy())
        return translated(
            np.asarray(self.vectors[words]), radii, uniform_directions(uniforms[:, 1:])
        )

    def density(self, words: Ints) -> NoiseDensity:
        return HyperbolicDensity(self, words)


class HyperbolicDensity(NoiseDensity):
    """Density by hyperbolic volume, which falls with the hyperbolic distance from the word."""

    dtype = np.float64  # near the edge single precision does not tell points apart

    def __init__(self, noise: HyperbolicNoise, words: Ints) -> None:
        self._noise = noise
        space, self._time = lorentz(np.asarray(noise.vectors[words]))
        self._klein = space / self._time[:, None]

    def still(self, words: Ints) -> Floats:
        vectors = np.asarray(self._noise.vectors[words])
        any_direction = np.broadcast_to(np.eye(1, vectors.shape[1]), vectors.shape)
        return translated(vectors, np.zeros(len(words)), any_direction)

    def __call__(self, points: Floats) -> Floats32:
        # cosh d = q0 u0 (1 - w·v) for points q0 (1, w) and words u0 (1, v).
        products = 1.0 - points[:, 1:] @ self._klein.T
        logarithms = np.log(np.maximum(products, np.finfo(np.float64).tiny))
        logarithms += points[:, :1] + np.log(self._time)
        np.maximum(logarithms, 0.0, out=logarithms)  # rounding may leave less
        distances = logarithms + np.log1p(np.sqrt(-np.expm1(-2.0 * logarithms)))
        return -self._noise.law.fall(distances).astype(np.float32)


class BallNoise(NoiseMechanism):
    """Noise that depends on the hyperbolic distance from the word alone."""

    spaces: ClassVar[tuple[type[Space], ...]] = (PoincareBall,)
    losses: ClassVar[type[BallLaw]]  # of what density the noise is, and so its losses
    source: ClassVar[str]  # of the proof

    def ball_law(self, dimension: int) -> BallLaw:
        """Return the law of the noise's hyperbolic radius and of losses, in n dimensions."""
        return self.losses(dimension=dimension, epsilon=self.epsilon)

    def claim(self, embedding: Embedding) -> Claim:
        law = self.ball_law(embedding.dimension)
        return Claim(
            epsilon=law.bound(1.0),
            law=law,
            delta_num=self.delta_num(embedding, embedding.dimension),
            noise_bits=self.noise_bits(embedding),
            source=self.source,
        )

    def noise_parameters(self, dimension: int) -> NoiseParameters:
        return {"law": self.name, "epsilon": self.epsilon}

    def noise_bits(self, embedding: Embedding) -> int:
        """Count the bits of noise of its median radius around the outermost word.

        They are those of its direction where the radius is long.
        """
        space = self.space(embedding, PoincareBall)
        median = float(self.ball_law(embedding.dimension).radii(np.array([0.5]))[0])
        error = translation_error(float(space.lorentz_time.max()))
        return bits_left(error / min(median, 1.0), embedding.dimension)

    def row_epsilons(self, budget: RowBudget, embedding: Embedding) -> Never:
        raise ConfigError(
            f"Mechanism {self.name} cannot be used with a row budget: long rows need a smaller "
            "loss than it has",
            do="Use a mechanism that allows every epsilon, such as exponential",
        )

    def bind(self, embedding: Embedding, search: Search) -> HyperbolicNoise:
        self.check(embedding)
        return HyperbolicNoise(
            vectors=embedding.vectors,
            law=self.ball_law(embedding.dimension),
            search=search.of_words(embedding),
            vickrey=self.t,
        )


class Hyperbolic(BallNoise):
    """Noise whose density by hyperbolic volume is proportional to exp(-epsilon d(z, word)).

    Its constant is the same for all words, as the proof wants it. Such a law exists only where
    epsilon is above n - 1, for volume grows as exp((n - 1) r).

    Source: Feyisetan et al. 2019, sections V-A and V-B, with hyperbolic volume for Lebesgue
        measure.
    """

    name: ClassVar[str] = "hyperbolic"
    losses: ClassVar[type[BallLaw]] = VolumeLaw
    source: ClassVar[str] = (
        "Feyisetan et al. 2019, section V-A, for the density by hyperbolic volume"
    )

    def check(self, embedding: Embedding) -> None:
        super().check(embedding)
        if self.epsilon <= embedding.dimension - 1:
            raise ConfigError(
                f"Mechanism {self.name} has no noise of this epsilon in {embedding.dimension} "
                "dimensions",
                allowed=f"epsilon above {embedding.dimension - 1}, the dimension less 1",
                got=f"epsilon {self.epsilon!r}",
                do="Raise --epsilon, take an embedding of at most "
                f"{math.ceil(self.epsilon)} dimensions, or {HyperbolicIcdm.name}, which takes any "
                "epsilon",
            )


class HyperbolicIcdm(BallNoise):
    """The paper's noise: density ((1 - |z|) / (1 + |z|))^epsilon, moved to the word.

    The density counts by Lebesgue measure. By hyperbolic volume its logarithm is -epsilon r + 2 n
    ln sech(r / 2), whose slope is at most epsilon + n and comes as near to it as one likes far out.

    Source: Feyisetan et al. 2019, equation 7, drawn without a Markov chain; the bound is our
        correction.
    """

    name: ClassVar[str] = "hyperbolic-icdm"
    losses: ClassVar[type[BallLaw]] = LebesgueLaw
    source: ClassVar[str] = (
        "Feyisetan et al. 2019, section V-A, with the slope of the density by hyperbolic volume"
    )

    def claim(self, embedding: Embedding) -> Claim:
        remark = (
            "The paper claims epsilon itself, but counts its density by Lebesgue measure, which "
            "changes when noise is moved from word to word; by hyperbolic volume, which does not "
            f"change, the density falls by epsilon + {embedding.dimension} nats per unit of "
            "distance at most."
        )
        return replace(super().claim(embedding), remarks=(remark,))
