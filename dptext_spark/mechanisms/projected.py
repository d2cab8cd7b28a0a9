"""Noise after a public projection to fewer dimensions: ``projection``."""

from __future__ import annotations

import hashlib
import math
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.embedding.bundle import Embedding, damaged
from dptext_spark.embedding.spaces import EuclideanSpace, Space
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.products import longest_of
from dptext_spark.geometry.projection import (
    NoisyProjection,
    PublicProjection,
    gaussian_projection,
    least_dimension,
    main_axes,
    spectral_constant,
    vocabulary_constant,
)
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.guarantee import Claim, rounded_up
from dptext_spark.mechanisms.mechanism import NUMBER, NoiseParameters, Parameters
from dptext_spark.mechanisms.noisy import AdditiveNoise, NoiseMechanism
from dptext_spark.search.nearest import Search

_BLOCK: Final = 4096
_TRIED_WORDS: Final = 4096

ProjectionName: TypeAlias = Literal["random", "main-axes"]


class ProjectionParameters(Parameters):
    """What a user chooses about a projection and its noise."""

    projection: ProjectionName | None = Field(
        default=None,
        description="public matrix: random, or main-axes, those of the embedding; default: random",
    )
    beta: float = NUMBER(
        default=0.9,
        gt=0.0,
        lt=1.0,
        description="distortion that the dimension of a random projection is chosen for",
    )
    delta: float = NUMBER(
        default=1e-6, gt=0.0, lt=1.0, description="probability of more distortion"
    )
    dimension: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="dimension to project to; default: by beta and delta",
    )
    sensitivity: Literal["paper", "vocabulary", "spectral"] = Field(
        default="vocabulary",
        description="what the noise is scaled by: vocabulary, the largest stretch of all pairs of "
        "words, spectral, of all vectors, or paper, 1 + beta",
    )
    seed: int = Field(
        default=0, ge=0, lt=2**63, strict=True, description="public seed of a random projection"
    )

    def rows(self, dimension: int) -> int:
        """Return the dimension m that vectors of ``dimension`` are projected to."""
        return self.dimension or least_dimension(dimension, self.beta, self.delta)

    def random_projection(self, dimension: int) -> PublicProjection:
        """Draw the public projection of vectors of ``dimension``."""
        return PublicProjection(gaussian_projection(self.seed, self.rows(dimension), dimension))

    @property
    def random_alone(self) -> set[str]:
        """Parameters that a projection to main axes does not have."""
        return {"beta", "delta", "seed"} if self.projection == "main-axes" else {"projection"}


def vocabulary_stretch(embedding: Embedding, projection: PublicProjection) -> float:
    """Return the largest stretch of differences of a bundle's words, computed once.

    It is an optional part of the bundle, named by the matrix: workers find it there, and later runs
    do where the bundle's folder can be written to.
    """
    matrix = hashlib.sha256(projection.matrix.astype("<f8").tobytes()).hexdigest()
    name = f"projection-vocabulary-{matrix[:32]}"
    part = embedding.part(name)
    if part is None:
        stretch = vocabulary_constant(embedding.vectors, projection)
        part = embedding.keep(name, {"constant": stretch})
    constant: Any = part.values.get("constant")
    if not isinstance(constant, float) or not _is_possible(constant, embedding, projection):
        raise damaged(part.name, "words are stretched more than its constant says")
    return float(constant)


def _is_possible(constant: float, embedding: Embedding, projection: PublicProjection) -> bool:
    """Return whether a constant bounds the stretch of some words: one that is planted may not."""
    differences = np.diff(embedding.vectors[:_TRIED_WORDS].astype(np.float64), axis=0)
    lengths = np.linalg.norm(differences, axis=1)
    stretched = np.linalg.norm(differences @ projection.matrix.T, axis=1)
    return bool((stretched <= constant * (1.0 + 1e-9) * lengths).all()) and constant < math.inf


class Projection(ProjectionParameters, NoiseMechanism):
    """A public projection to m dimensions, random or to main axes, then noise.

    The noise has density proportional to exp(-epsilon |z| / Delta). Delta must be at least the
    projection's largest stretch, |Phi (x - y)| / |x - y|. ``paper`` trusts that it is 1 + beta,
    which fails with a probability over the draw of Phi; ``vocabulary`` takes its exact value over
    all pairs of words, and ``spectral`` a bound over all vectors: of main axes it is 1. Phi is
    public.

    Source: Feyisetan and Kasiviswanathan 2021, Algorithm PrivEmb, Claim 3 and Proposition 5.
    """

    name: ClassVar[str] = "projection"
    spaces: ClassVar[tuple[type[Space], ...]] = (EuclideanSpace,)

    @model_validator(mode="after")
    def _check_main_axes(self) -> Self:
        if self.projection == "main-axes":
            if self.dimension is None:
                raise ValueError("projection=main-axes needs dimension, the number of axes")
            if self.sensitivity == "paper":
                raise ValueError("sensitivity=paper needs projection=random")
        return self

    def uniforms_per_token(self, dimension: int) -> int:
        return super().uniforms_per_token(self.rows(dimension))

    def noise_parameters(self, dimension: int) -> NoiseParameters:
        parameters = self.model_dump(exclude={"select", "t", *self.random_alone})
        return {**parameters, "law": "projection", "dimension": self.dimension or 0}

    def check(self, embedding: Embedding) -> None:
        super().check(embedding)
        columns = embedding.dimension
        rows = self.rows(columns)
        if rows > columns:
            raise ConfigError(
                f"Mechanism {self.name} cannot project to more dimensions than the embedding has",
                allowed=f"1 to {columns} dimensions",
                got=str(rows),
                do=f"Give dimension, {columns} at most, or take a mechanism without a projection",
            )

    def prepare(self, embedding: Embedding) -> None:
        super().prepare(embedding)
        self.constant(embedding)

    def constant(self, embedding: Embedding) -> float:
        """Return Delta, by which the noise is scaled, for a bundle that passes :meth:`check`."""
        if self.sensitivity == "paper":
            return 1.0 + self.beta
        projection = self._projection(embedding)
        if self.sensitivity == "spectral":
            return spectral_constant(projection.matrix)
        return vocabulary_stretch(embedding, projection)

    def bind(self, embedding: Embedding, search: Search) -> AdditiveNoise:
        """Add noise to words' images, and take the nearest among the images of the vocabulary.

        The search's matrix, m / n of the size of the bundle's, belongs to one worker process alone.
        """
        self.check(embedding)
        noise = self._noise(embedding)
        vectors = embedding.vectors
        released = search.release_words

        def centres(words: Ints | slice) -> Floats:
            return noise.projection.times(vectors[words].astype(np.float64))

        images = np.empty((released, self.rows(embedding.dimension)), dtype=np.float32)
        half_norms = np.empty(released, dtype=np.float32)
        with np.errstate(under="ignore"):
            for start in range(0, released, _BLOCK):
                block = slice(start, min(start + _BLOCK, released))
                images[block] = centres(block)
                half_norms[block] = np.square(images[block], dtype=np.float64).sum(axis=1) / 2.0
        return AdditiveNoise(
            epsilon=self.epsilon,
            rate=1.0 / noise.scale,
            centres=centres,
            lengths=noise.lengths,
            directions=uniform_directions,
            search=search.of_images(images, half_norms),
            vickrey=self.t,
        )

    def _projection(self, embedding: Embedding) -> PublicProjection:
        """Return the public projection of a bundle's vectors."""
        if self.projection != "main-axes":
            return self.random_projection(embedding.dimension)
        space = self.space(embedding, EuclideanSpace)
        return PublicProjection(main_axes(space.covariance_vectors, self.rows(embedding.dimension)))

    def _noise(self, embedding: Embedding) -> NoisyProjection:
        return NoisyProjection(self._projection(embedding), self.constant(embedding) / self.epsilon)

    def claim(self, embedding: Embedding) -> Claim:
        space = self.space(embedding, EuclideanSpace)
        columns = embedding.dimension
        rows = self.rows(columns)
        epsilon = self.epsilon
        source = {
            "paper": "Proposition 5",
            "vocabulary": "Claim 3, with the largest stretch of all pairs of words",
            "spectral": "Claim 3, with the largest singular value of the matrix",
        }[self.sensitivity]
        matrix = f"by the public matrix of seed {self.seed}"
        if self.projection == "main-axes":
            matrix = "main axes of the embedding"
        remarks = [
            f"Vectors of {columns} dimensions are projected to {rows} {matrix}; the noise is "
            f"scaled by {self.constant(embedding):.4g} ({self.sensitivity})."
        ]
        if self.sensitivity == "paper":
            stretch = vocabulary_stretch(embedding, self._projection(embedding))
            pure = epsilon * stretch / (1.0 + self.beta)
            epsilon = max(epsilon, pure)
            remarks.append(
                f"The paper states epsilon {self.epsilon:g} up to a probability over the draw of "
                "the matrix, while it is not yet known. It is public, and stretches the difference "
                f"of two words {rounded_up(stretch, 4)} times at most: epsilon "
                f"{rounded_up(pure, 4)} holds."
            )
        return Claim(
            epsilon=epsilon,
            # The image of a difference is that long at most, in units of the noise.
            law=SphericalLaplace(dimension=rows, epsilon=epsilon),
            delta_num=self.delta_num(embedding, rows),
            noise_bits=self._noise(embedding).bits(longest_of(space.half_norms)),
            euclidean_epsilon=epsilon,
            source=f"Feyisetan and Kasiviswanathan 2021, {source}",
            remarks=tuple(remarks),
        )
