"""What every mechanism is: validated parameters, a law, a guarantee, and words out of words and uniforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.metric import Metric
from dptext_spark.guarantee import Claim, Distances, Guarantee
from dptext_spark.noise import NoiseKey, ReleaseNoise

# Below this, noise outgrows what single precision can hold.
LEAST_EPSILON: Final = 1e-12

COMMON_ASSUMPTIONS: Final = (
    "the embedding and the release vocabulary were not made from the private table",
    "the noise key stays secret, and BLAKE2b and AES-256 are pseudorandom",
    "arithmetic stands for real numbers: uniforms have 52 bits, noise at least 30",
)

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


@runtime_checkable
class KnownLaw(Protocol):
    """A bound mechanism that can compute its probabilities."""

    def probabilities(self, words: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities (k, release_words) of the outputs of words (k,)."""


class Mechanism(BaseModel, ABC):
    """A configured mechanism, free of data: small, picklable, comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: ClassVar[str]
    geometries: ClassVar[tuple[str, ...]]
    # Noise mechanisms look for released words after the noise; elsewhere these shape the law itself.
    release_words_shape_law: ClassVar[bool] = False

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

        Two mechanisms with equal laws must turn equal uniforms into equal noise. What only looks at the
        noisy point afterwards is no part of it.
        """

    def release_noise(
        self, key: NoiseKey, *, salt: str, embedding: Embedding, release_words: int
    ) -> ReleaseNoise:
        """Derive the noise of a release of this mechanism; see :meth:`ReleaseNoise.of`."""
        law = dict(self.law())
        if self.release_words_shape_law:
            law["release words"] = release_words
        return ReleaseNoise.of(key, salt=salt, law=law, fingerprint=embedding.fingerprint)

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
    def metric(self, embedding: Embedding) -> Metric:
        """Give the distance between words in which the guarantee counts.

        Raises:
            ConfigError: The parameters and the embedding do not go together.
        """

    @abstractmethod
    def claim(self, embedding: Embedding) -> Claim:
        """Say what is proven for this mechanism on this embedding, in the distance of :meth:`metric`."""

    def guarantee(self, embedding: Embedding, distances: Distances | None = None) -> Guarantee:
        """State the guarantee with all that it rests on.

        Args:
            embedding: The embedding.
            distances: How far apart its words lie in this mechanism's metric, where that is known already.
        """
        metric = self.metric(embedding)
        return Guarantee(
            mechanism=self.name,
            configured_epsilon=self.epsilon,
            metric=metric.description,
            distances=distances or Distances.measure(metric),
            fingerprint=embedding.fingerprint,
            assumptions=COMMON_ASSUMPTIONS,
            **vars(self.claim(embedding)),
        )

    def prepared(self, embedding: Embedding) -> Self:
        """Compute, once and on the driver, what all workers need to know of an embedding beyond its files."""
        self.check(embedding)
        return self

    def check(self, embedding: Embedding) -> None:
        """Refuse an embedding that the mechanism cannot serve.

        Raises:
            ConfigError: The geometries differ, or the parameters do not suit the embedding.
        """
        if embedding.geometry not in self.geometries:
            fitting = sorted(n for n, m in MECHANISMS.items() if embedding.geometry in m.geometries)
            raise ConfigError(
                f"Mechanism {self.name} does not work on this embedding bundle",
                allowed=f"a bundle of geometry {' or '.join(self.geometries)}",
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


def present(array: NDArray[FloatT] | None) -> NDArray[FloatT]:
    """Narrow an array that every bundle of the mechanism's geometry has."""
    if array is None:
        raise ConfigError("The embedding bundle is of another geometry")
    return array
