"""Additive noise in the embedding's own space: ``laplace`` and ``mahalanobis``."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import numpy as np

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, Space
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.metric import EuclideanMetric
from dptext_spark.geometry.products import ExactProduct, longest_of
from dptext_spark.geometry.sphere import bits_left, gamma_quantile, noise_error, uniform_directions
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.mechanism import NUMBER, NoiseParameters
from dptext_spark.mechanisms.noisy import AdditiveNoise, NoiseMechanism
from dptext_spark.search.nearest import Search

# A covariance root with an eigenvalue below this loses float64's digits when it is inverted.
LEAST_EIGENVALUE: Final = 1e-9


class Laplace(NoiseMechanism):
    """Noise of density proportional to exp(-epsilon |A^(-1/2) z|).

    A = mixing Sigma + (1 - mixing) I. By itself it is spherical, mixing 0. Sigma is the embedding's
    sample covariance scaled to trace n (Xu 2020, section 4.2).

    Source: Fernandes et al. 2019; Feyisetan et al. 2020, Algorithm 1 and Theorem 1.
    """

    name: ClassVar[str] = "laplace"
    spaces: ClassVar[tuple[type[Space], ...]] = (EuclideanSpace,)
    # Of the proof.
    source: ClassVar[str] = (
        "Feyisetan et al. 2020, section 2.4, by the triangle inequality and post-processing"
    )

    @property
    def mixing(self) -> float:
        """Weight of the embedding's covariance in the noise's shape, 0 (spherical noise) to 1."""
        return 0.0

    def noise_parameters(self, dimension: int) -> NoiseParameters:
        return {"law": "elliptical-laplace", "epsilon": self.epsilon, "mixing": self.mixing}

    def bind(self, embedding: Embedding, search: Search) -> AdditiveNoise:
        """Add (g / epsilon) A^(1/2) u to words' vectors, and take the nearest words."""
        self.check(embedding)
        vectors = embedding.vectors
        dimension = embedding.dimension
        directions = uniform_directions
        norm = None
        if self.mixing > 0.0:
            root = ExactProduct.of(self._power(embedding, 0.5))
            inverse_root = self._power(embedding, -0.5)

            def directions(uniforms: Floats) -> Floats:
                return root.times(uniform_directions(uniforms))

            def norm(points: Floats) -> Floats:
                return np.asarray(points @ inverse_root)

        def centres(words: Ints) -> Floats:
            return vectors[words].astype(np.float64)

        def lengths(uniforms: Floats) -> Floats:
            return gamma_quantile(dimension, uniforms) / self.epsilon

        return AdditiveNoise(
            epsilon=self.epsilon,
            rate=self.epsilon,
            norm=norm,
            centres=centres,
            lengths=lengths,
            directions=directions,
            search=search.of_words(embedding),
            vickrey=self.t,
        )

    def check(self, embedding: Embedding) -> None:
        super().check(embedding)
        self.least_eigenvalue(embedding)

    def least_eigenvalue(self, embedding: Embedding) -> float:
        """Compute the smallest eigenvalue of A.

        A singular A, which leaves some directions without noise, is refused.
        """
        values = self.space(embedding, EuclideanSpace).covariance_values
        least = float(self._eigenvalues(values)[0])
        if least < LEAST_EIGENVALUE:
            raise ConfigError(
                f"Mechanism {self.name} would leave some directions of this embedding without "
                "noise",
                allowed="lambda such that the smallest eigenvalue of A is "
                f"{LEAST_EIGENVALUE:g} or more",
                got=f"smallest eigenvalue {least:.3g} at lambda {self.mixing!r}",
                do="Lower lambda below 1",
            )
        return least

    def metric(self, embedding: Embedding) -> EuclideanMetric:
        self.check(embedding)
        if self.mixing == 0.0:
            return self.space(embedding, EuclideanSpace).metric()
        return EuclideanMetric(
            vectors=embedding.vectors,
            map=self._power(embedding, -0.5),
            description=f"regularized Mahalanobis norm (lambda {self.mixing!r}) of their vectors' "
            "difference",
        )

    def claim(self, embedding: Embedding) -> Claim:
        """Return epsilon in the norm of :meth:`metric`, which makes the noise spherical.

        It is weaker in Euclidean distance.
        """
        law = SphericalLaplace(dimension=embedding.dimension, epsilon=self.epsilon)
        return Claim(
            epsilon=self.epsilon,
            law=law,
            delta_num=self.delta_num(embedding, embedding.dimension),
            noise_bits=self.noise_bits(embedding),
            euclidean_epsilon=self.epsilon / math.sqrt(self.least_eigenvalue(embedding)),
            source=self.source,
        )

    def noise_bits(self, embedding: Embedding) -> int:
        """Count the bits of noise of its mean length n / epsilon, in any direction.

        Lengths count in the norm of :meth:`metric`.
        """
        space = self.space(embedding, EuclideanSpace)
        n = embedding.dimension
        weakest = math.sqrt(self.least_eigenvalue(embedding))
        strongest = math.sqrt(self._eigenvalues(space.covariance_values)[-1])
        # Of the sum with the word's vector, whose length counts in lengths of the noise.
        astray = (longest_of(space.half_norms) * self.epsilon / n + strongest) * 2.0**-53
        error = noise_error(n)
        if self.mixing > 0.0:
            root = self._power(embedding, 0.5)
            product = ExactProduct.of(root)
            error += math.sqrt(n) * 2.0 ** -(2 * product.bits + 1)
            # The root itself and its inverse, by which distances count, are good to n roundoffs.
            astray += product.error(root) + n * 2.0**-52 * strongest
        return bits_left(error + astray / weakest, n)

    def _eigenvalues(self, values: Floats) -> Floats:
        """Compute the eigenvalues of A (n,), by those of Sigma."""
        # 1 - mixing first: where it is 0, small eigenvalues keep their digits.
        return self.mixing * values + (1.0 - self.mixing)

    def _power(self, embedding: Embedding, exponent: float) -> Floats:
        """Compute a power of A, by the eigendecomposition of Sigma."""
        space = self.space(embedding, EuclideanSpace)
        axes = space.covariance_vectors
        return (axes * self._eigenvalues(space.covariance_values) ** exponent) @ axes.T


class Mahalanobis(Laplace):
    """Elliptical Laplace noise in the regularized Mahalanobis norm; lambda 0 is ``laplace``.

    Source: Xu et al. 2020, Algorithms 1 and 2, Theorem 1 and Lemma 2.
    """

    name: ClassVar[str] = "mahalanobis"
    source: ClassVar[str] = "Xu et al. 2020, Theorem 1; Euclidean equivalent by Lemma 2"

    lambda_: float = NUMBER(
        alias="lambda",
        ge=0.0,
        le=1.0,
        description="weight of the embedding's covariance in the noise, 0 (spherical) to 1",
    )

    @property
    def mixing(self) -> float:
        return self.lambda_
