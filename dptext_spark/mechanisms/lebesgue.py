"""Noise in the Poincaré ball by Lebesgue measure around the word: ``hyperbolic-lebesgue``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dptext_spark.accounting.laws import LebesgueRange, VolumeLaw
from dptext_spark.accounting.resolution import ball_point_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import PoincareBall, Space
from dptext_spark.geometry import Floats, Floats32, Ints
from dptext_spark.geometry.ball import rims
from dptext_spark.geometry.lebesgue import POINT_ERROR, BallRadii, ball_radius, uniform_in_balls
from dptext_spark.geometry.sphere import bits_left, uniform_directions
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.hyperbolic import HyperbolicDensity, HyperbolicNoise
from dptext_spark.mechanisms.mechanism import NoiseParameters
from dptext_spark.mechanisms.noisy import NoiseDensity, NoiseMechanism
from dptext_spark.search.nearest import Search


@dataclass(frozen=True, kw_only=True)
class LebesgueNoise(HyperbolicNoise):
    """Uniform points of random balls around words, then nearest words.

    The density falls with the distance as that of its law does, but by Lebesgue measure.
    """

    least_rim: float  # of all words

    def points(self, words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Floats:
        """Turn words and uniforms (t, n + 2) into points, float64 (t, n + 1)."""
        points = np.asarray(self.vectors[words])
        if epsilons is None:
            epsilons = np.full(len(words), self.law.epsilon)
        radii = np.empty(len(words))
        word_rims = rims(points)
        for epsilon in np.unique(epsilons).tolist():
            rows = np.flatnonzero(epsilons == epsilon)
            radii[rows] = self.radii_law(epsilon).radii(word_rims[rows], uniforms[rows, 0])
        shares = uniforms[:, 1].copy()
        directions = uniform_directions(uniforms[:, 2:])
        return uniform_in_balls(points, radii, shares, directions)

    def radii_law(self, epsilon: float) -> BallRadii:
        """Return the law of the balls' radii at an epsilon."""
        dimension = self.vectors.shape[1]
        return BallRadii.of(dimension=dimension, epsilon=epsilon, least_rim=self.least_rim)

    def density(self, words: Ints) -> NoiseDensity:
        return LebesgueDensity(self, words)


class LebesgueDensity(HyperbolicDensity):
    """Density by Lebesgue measure: exp(-epsilon d) over its integral, another one for each word."""

    def __init__(self, noise: LebesgueNoise, words: Ints) -> None:
        super().__init__(noise, words)
        law = noise.radii_law(noise.law.epsilon)
        logs = law.log_masses(rims(np.asarray(noise.vectors[words])))
        self._log_masses = logs.astype(np.float32)

    def __call__(self, points: Floats) -> Floats32:
        densities = super().__call__(points)
        densities -= self._log_masses
        return densities


class HyperbolicLebesgue(NoiseMechanism):
    """Noise whose density by Lebesgue measure of the ball falls as exp(-epsilon d(x, word)).

    It is the exponential mechanism with all points of the ball as its range. Its constant differs
    from word to word: the proven epsilon is the parameter plus the lesser of it and n.

    Source: Feyisetan et al. 2019, section V-A, where the constant is taken for one; McSherry and
        Talwar 2007, Theorem 6.
    """

    name: ClassVar[str] = "hyperbolic-lebesgue"
    spaces: ClassVar[tuple[type[Space], ...]] = (PoincareBall,)
    along_rays: ClassVar[bool] = False

    def noise_parameters(self, dimension: int) -> NoiseParameters:
        return {"law": self.name, "epsilon": self.epsilon}

    def uniforms_per_token(self, dimension: int) -> int:
        """Return how many uniforms one token takes: one more than other noise, for the share."""
        return super().uniforms_per_token(dimension) + 1

    def bind(self, embedding: Embedding, search: Search) -> LebesgueNoise:
        return LebesgueNoise(
            vectors=embedding.vectors,
            law=VolumeLaw(dimension=embedding.dimension, epsilon=self.epsilon),
            least_rim=self._least_rim(embedding),
            search=search.of_words(embedding),
            vickrey=self.t,
        )

    def claim(self, embedding: Embedding) -> Claim:
        law = LebesgueRange(epsilon=self.epsilon, dimension=embedding.dimension)
        remark = (
            "The paper claims epsilon itself, but its density has another constant around each "
            "word: its logarithm changes by up to epsilon per unit of distance, and by at most "
            f"{embedding.dimension}."
        )
        return Claim(
            epsilon=law.bound(1.0),
            law=law,
            delta_num=self.delta_num(embedding, embedding.dimension),
            noise_bits=self.noise_bits(embedding),
            source="McSherry and Talwar 2007, Theorem 6, with the ball as range, for the density "
            "of Feyisetan et al. 2019, section V-A",
            remarks=(remark,),
        )

    def delta_num(self, embedding: Embedding, dimension: int) -> float:
        return ball_point_distance(
            embedding.releasable,
            dimension,
            epsilon=self.epsilon,
            least_rim=self._least_rim(embedding),
            vickrey=self.t is not None,
        )

    def noise_bits(self, embedding: Embedding) -> int:
        """Return the bits of the median ball's Euclidean radius, around the outermost word."""
        rim = self._least_rim(embedding)
        law = BallRadii.of(dimension=embedding.dimension, epsilon=self.epsilon, least_rim=rim)
        median = law.radii(np.array([rim]), np.array([0.5]))
        radius = float(ball_radius(median, np.array(rim))[0])
        return bits_left(POINT_ERROR / radius, embedding.dimension)

    def _least_rim(self, embedding: Embedding) -> float:
        """Return 1 - |p|² of the outermost word, or a little less: times are single precision."""
        time = float(self.space(embedding, PoincareBall).lorentz_time.max())
        return 2.0 / (1.0 + time * (1.0 + 1e-6))
