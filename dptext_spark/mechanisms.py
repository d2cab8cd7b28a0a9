"""Mechanisms: how a word is perturbed, and what is proven about it.

A mechanism is a class with a ``name`` and validated parameters. Its subclasses register themselves:
the command line, configuration, report and contract tests find a new mechanism without another edit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import ExactProduct, gamma_quantile, uniform_directions
from dptext_spark.guarantee import Distances, Guarantee
from dptext_spark.search import NearestWords

# Below this, noise outgrows what single precision can hold.
LEAST_EPSILON: Final = 1e-12
# A covariance root with an eigenvalue below this loses float64's digits when it is inverted.
LEAST_EIGENVALUE: Final = 1e-9

FloatT = TypeVar("FloatT", np.float32, np.float64)

MECHANISMS: Final[dict[str, type[Mechanism]]] = {}


class Perturbation(Protocol):
    """A mechanism bound to an embedding: a pure function of words and uniforms."""

    def __call__(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Perturb words.

        Args:
            words: int64 (t,), rows of the embedding.
            uniforms: float64 (t, k) in (0, 1), k as ``Mechanism.uniforms_per_word``; overwritten.

        Returns:
            int64 (t,), rows below ``release_words``.
        """


class Mechanism(BaseModel, ABC):
    """A configured mechanism, free of data: small, picklable, comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: ClassVar[str]
    geometry: ClassVar[str]

    epsilon: float = Field(
        ge=LEAST_EPSILON,
        allow_inf_nan=False,
        strict=True,
        description="privacy parameter, in nats per unit of the mechanism's distance",
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            MECHANISMS[cls.name] = cls

    @abstractmethod
    def law(self) -> Mapping[str, str | float | int]:
        """Name the noise law and every parameter of it, as the noise's context wants them.

        Two mechanisms with equal laws must turn equal uniforms into equal noise.
        """

    @abstractmethod
    def uniforms_per_word(self, dimension: int) -> int:
        """Say how many uniforms one word takes."""

    @abstractmethod
    def bind(self, embedding: Embedding, release_words: int) -> Perturbation:
        """Prepare the mechanism for an embedding whose first ``release_words`` words may be output.

        Raises:
            ConfigError: The parameters and the embedding do not go together.
        """

    @abstractmethod
    def guarantee(self, embedding: Embedding) -> Guarantee:
        """State what is proven for this mechanism on this embedding."""

    def check(self, embedding: Embedding) -> None:
        """Refuse an embedding that the mechanism cannot serve.

        Raises:
            ConfigError: The geometries differ, or the parameters do not suit the embedding.
        """
        if embedding.geometry != self.geometry:
            fitting = sorted(n for n, m in MECHANISMS.items() if m.geometry == embedding.geometry)
            raise ConfigError(
                f"Mechanism {self.name} does not work on this embedding bundle",
                allowed=f"a bundle of geometry {self.geometry}",
                got=f"geometry {embedding.geometry}",
                do=f"Take another bundle or a mechanism for it: {', '.join(fitting) or 'none so far'}",
            )


def mechanism(name: str, **parameters: Any) -> Mechanism:
    """Configure a mechanism by name.

    Args:
        name: One of ``MECHANISMS``.
        **parameters: The mechanism's parameters by option name, ``epsilon`` among them.

    Raises:
        ConfigError: The name is unknown.
        pydantic.ValidationError: Parameters are missing, unknown or out of range.
    """
    if name not in MECHANISMS:
        raise ConfigError("The mechanism is unknown", allowed=", ".join(sorted(MECHANISMS)), got=repr(name))
    return MECHANISMS[name](**parameters)


@dataclass(frozen=True, kw_only=True)
class EuclideanNoise:
    """Additive noise (g / epsilon) A^(1/2) u, then the nearest word in Euclidean distance.

    Attributes:
        vectors: float32 (V, n), the input words' vectors.
        epsilon: Nats per unit of distance.
        root: A^(1/2); None stands for the identity.
        search: Nearest released word.
    """

    vectors: NDArray[np.float32]
    epsilon: float
    root: ExactProduct | None
    search: NearestWords

    def noise(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn uniforms (t, n + 1) into noise vectors (t, n); the first uniform gives the radius."""
        dimension = uniforms.shape[1] - 1
        radii = gamma_quantile(dimension, uniforms[:, 0]) / self.epsilon
        noise = uniform_directions(uniforms[:, 1:])
        if self.root is not None:
            noise = self.root.times(noise)
        noise *= radii[:, None]
        return noise

    def __call__(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Perturb words; see :class:`Perturbation`."""
        points = self.noise(uniforms)
        points += self.vectors[words]
        return self.search(points)


class EllipticalLaplace(Mechanism):
    """Noise of density proportional to exp(-epsilon |A^(-1/2) z|), A = mixing Sigma + (1 - mixing) I.

    Sigma is the embedding's sample covariance scaled to trace n (Xu 2020, section 4.2).
    """

    geometry: ClassVar[str] = "euclidean"

    @property
    @abstractmethod
    def mixing(self) -> float:
        """Weight of the embedding's covariance in the noise's shape, 0 to 1."""

    def law(self) -> Mapping[str, str | float | int]:
        """See :meth:`Mechanism.law`."""
        return {"law": "elliptical-laplace", "epsilon": self.epsilon, "mixing": self.mixing}

    def uniforms_per_word(self, dimension: int) -> int:
        """One uniform for the radius, one for each coordinate of the direction."""
        return dimension + 1

    def bind(self, embedding: Embedding, release_words: int) -> EuclideanNoise:
        """See :meth:`Mechanism.bind`."""
        self.check(embedding)
        return EuclideanNoise(
            vectors=embedding.vectors,
            epsilon=self.epsilon,
            root=self._root(embedding),
            search=NearestWords(
                vectors=embedding.vectors[:release_words],
                half_norms=_present(embedding.half_norms)[:release_words],
            ),
        )

    def check(self, embedding: Embedding) -> None:
        """See :meth:`Mechanism.check`; refuses a singular A as well."""
        super().check(embedding)
        self.least_eigenvalue(embedding)

    def least_eigenvalue(self, embedding: Embedding) -> float:
        """Smallest eigenvalue of A.

        Raises:
            ConfigError: A is singular, so that some directions would get no noise at all.
        """
        least = self.mixing * max(float(_present(embedding.covariance_values)[0]), 0.0) + 1.0 - self.mixing
        if least < LEAST_EIGENVALUE:
            raise ConfigError(
                f"Mechanism {self.name} would leave some directions of this embedding without noise",
                allowed=f"lambda such that the smallest eigenvalue of A is {LEAST_EIGENVALUE:g} or more",
                got=f"smallest eigenvalue {least:.3g} at lambda {self.mixing:g}",
                do="Lower --lambda below 1",
            )
        return least

    def distances(self, embedding: Embedding) -> Distances:
        """Distances between the embedding's words in the norm |A^(-1/2) (x - y)|."""
        self.check(embedding)
        inverse = None if self.mixing == 0.0 else self._power(embedding, -0.5)

        def coordinates(rows: slice) -> NDArray[np.float64]:
            points = embedding.vectors[rows].astype(np.float64)
            return points if inverse is None else points @ inverse

        return Distances.measure(len(embedding.vectors), coordinates)

    def _root(self, embedding: Embedding) -> ExactProduct | None:
        return None if self.mixing == 0.0 else ExactProduct.of(self._power(embedding, 0.5))

    def _power(self, embedding: Embedding, exponent: float) -> NDArray[np.float64]:
        """A power of A, by the eigendecomposition of Sigma."""
        axes, values = _present(embedding.covariance_vectors), _present(embedding.covariance_values)
        scales = (self.mixing * np.maximum(values, 0.0) + 1.0 - self.mixing) ** exponent
        power: NDArray[np.float64] = (axes * scales) @ axes.T
        return power


def _present(array: NDArray[FloatT] | None) -> NDArray[FloatT]:
    """Narrow an array that every Euclidean bundle has."""
    if array is None:
        raise ConfigError("The embedding bundle is not Euclidean")
    return array


COMMON_ASSUMPTIONS: Final = (
    "the embedding and the release vocabulary were not made from the private table",
    "the noise key stays secret, and BLAKE2b and AES-256 are pseudorandom",
    "arithmetic stands for real numbers: uniforms have 52 bits, noise at least 30",
)


class Laplace(EllipticalLaplace):
    """Multivariate Laplace noise, density proportional to exp(-epsilon |z|).

    Source: Fernandes et al. 2019; Feyisetan et al. 2020, Algorithm 1 and Theorem 1.
    """

    name: ClassVar[str] = "laplace"

    @property
    def mixing(self) -> float:
        """No covariance: spherical noise."""
        return 0.0

    def guarantee(self, embedding: Embedding) -> Guarantee:
        """Epsilon in Euclidean distance."""
        self.check(embedding)
        return Guarantee(
            mechanism=self.name,
            metric="Euclidean distance of their vectors",
            epsilon=self.epsilon,
            euclidean_epsilon=self.epsilon,
            distances=self.distances(embedding),
            source="Feyisetan et al. 2020, section 2.4, by the triangle inequality and post-processing",
            fingerprint=embedding.fingerprint,
            assumptions=COMMON_ASSUMPTIONS,
        )


class Mahalanobis(EllipticalLaplace):
    """Elliptical Laplace noise in the regularized Mahalanobis norm; lambda 0 is ``laplace``.

    Source: Xu et al. 2020, Algorithms 1 and 2, Theorem 1 and Lemma 2.
    """

    name: ClassVar[str] = "mahalanobis"

    lambda_: float = Field(
        alias="lambda",
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        strict=True,
        description="weight of the embedding's covariance in the noise, 0 (spherical) to 1",
    )

    @property
    def mixing(self) -> float:
        """The paper's lambda."""
        return self.lambda_ + 0.0  # -0.0 is 0.0, also where the law is written down

    def guarantee(self, embedding: Embedding) -> Guarantee:
        """Epsilon in the regularized Mahalanobis norm, weaker in Euclidean distance."""
        self.check(embedding)
        return Guarantee(
            mechanism=self.name,
            metric=f"regularized Mahalanobis norm (lambda {self.lambda_:g}) of their vectors' difference",
            epsilon=self.epsilon,
            euclidean_epsilon=self.epsilon / float(np.sqrt(self.least_eigenvalue(embedding))),
            distances=self.distances(embedding),
            source="Xu et al. 2020, Theorem 1; Euclidean equivalent by Lemma 2",
            fingerprint=embedding.fingerprint,
            assumptions=COMMON_ASSUMPTIONS,
        )
