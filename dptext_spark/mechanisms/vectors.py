"""The release of vectors as a mechanism: random projection, noise, and a public grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
import scipy
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, Space
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.geometry.projection import (
    NoisyProjection,
    RandomProjection,
    least_dimension,
    spectral_constant,
)
from dptext_spark.guarantee import Claim, Guarantee, TypicalDistances, rounded_up
from dptext_spark.mechanisms.mechanism import (
    LEAST_EPSILON,
    NUMBER,
    PUBLIC_WORDS,
    Law,
    Mechanism,
    Perturbation,
    assumptions,
)
from dptext_spark.mechanisms.projected import ProjectionParameters, nearest_images
from dptext_spark.search.nearest import Search

MOST_EPSILON: Final = 1e24
"""Beyond it the grid of released numbers would be finer than what single precision can hold."""

# Steps of the grid to Delta sqrt(m) / epsilon, the size of the noise in one coordinate, at least.
_GRID_STEPS: Final = 256

# Bits of a released number in steps of its grid; float32 holds 24, and with them a sign.
_GRID_BITS: Final = 23


class VectorParameters(ProjectionParameters):
    """How vectors are projected and noised, whatever their length."""

    epsilon: float = NUMBER(
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        description="privacy parameter, in nats per unit of Euclidean distance of the input vectors",
    )
    dimension: int | None = Field(
        default=None, ge=1, strict=True, description="length of released vectors; default: by beta and delta"
    )
    sensitivity: Literal["spectral", "paper"] = Field(
        default="spectral", description="paper: less noise, and a larger proven epsilon"
    )

    @field_validator("sensitivity", mode="before")
    @classmethod
    def _explain_vocabulary(cls, value: Any) -> Any:
        if value == "vocabulary":
            raise PydanticCustomError(
                "vocabulary",
                "spectral or paper; the largest stretch of a difference of two words bounds neither "
                "differences of averages of words nor those of other vectors",
            )
        return value

    def rows(self, dimension: int) -> int:
        """Give the length of released vectors, which must suit input vectors of length ``dimension``."""
        least, stretch = least_dimension(dimension, self.beta, self.delta), (1.0 + self.beta) ** 2
        # Where vectors are short the paper's dimension can be too small: |Phi z| > (1 + beta) |z| must have
        # a chance of delta at most for any z, and m |Phi z|² / |z|² is chi-square of m degrees of freedom.
        while least <= dimension and scipy.special.gammaincc(least / 2, least * stretch / 2) > self.delta:
            least += 1
        wanted = self.dimension or min(least, dimension)
        low = least if self.sensitivity == "paper" else 1
        # More numbers than the input has would add noise and nothing else.
        if not low <= wanted <= dimension:
            raise ConfigError(
                f"The dimension of released vectors does not suit vectors of length {dimension}",
                allowed=f"at least {low} with --sensitivity {self.sensitivity}, at most {dimension}",
                got=str(wanted),
                do="Change --dimension or leave it out; "
                "with --sensitivity paper, --beta and --delta count too",
            )
        return wanted

    def of_length(self, input_dimension: int) -> VectorNoise:
        """Bind the mechanism to vectors of one length; refuses a dimension that does not suit them."""
        projection = self.projection(input_dimension)
        stretch = spectral_constant(projection.matrix)
        return VectorNoise(
            parameters=self,
            input_dimension=input_dimension,
            dimension=len(projection.matrix),
            stretch=stretch,
            sensitivity=stretch if self.sensitivity == "spectral" else 1.0 + self.beta,
        )


@dataclass(frozen=True, kw_only=True)
class VectorNoise:
    """The mechanism bound to one length of vectors: w = Phi x + kappa on a grid.

    Phi (m, n) is Gaussian and public; kappa has density proportional to exp(-epsilon |kappa| / Delta).
    Every number of w is rounded to a multiple of a public power of two. Floats as they come out of the
    sum would carry low-order bits that betray x (Mironov 2012).

    Source: Feyisetan and Kasiviswanathan 2021, Algorithm 1 and Proposition 5.
    """

    parameters: VectorParameters
    input_dimension: int  # n
    dimension: int  # m
    stretch: float  # bound of |Phi z| / |z| over all z
    sensitivity: float  # Delta, the bound of |Phi z| / |z| that the noise is scaled by

    @property
    def scale(self) -> float:
        """Delta / epsilon, the noise's scale."""
        return self.sensitivity / self.parameters.epsilon

    @property
    def grid(self) -> float:
        """The power of two of which all released numbers are multiples."""
        return float(2.0 ** math.floor(math.log2(self.scale * math.sqrt(self.dimension) / _GRID_STEPS)))

    @property
    def longest(self) -> float:
        """Length of input vectors up to which every released number fits its bits on the grid."""
        # Half of the room is the noise's: its length at the largest uniform is far below that.
        return self.grid * 2.0 ** (_GRID_BITS - 1) / self.stretch

    @property
    def pure_epsilon(self) -> float:
        """The proven epsilon, of this projection and all pairs of inputs."""
        exceeds = max(1.0, self.stretch / self.sensitivity)
        # The quotient and the product are rounded.
        return self.parameters.epsilon * (exceeds if exceeds == 1.0 else exceeds * (1.0 + 2.0**-50))

    @cached_property
    def projection(self) -> RandomProjection:
        """Phi, (m, n)."""
        return self.parameters.projection(self.input_dimension)

    def __call__(self, vectors: Floats, uniforms: Floats) -> Floats:
        """Release vectors (t, n) by uniforms (t, m + 1), overwritten: float64 (t, m) on the grid."""
        return on_grid(NoisyProjection(self.projection, self.scale)(vectors, uniforms), self.grid)

    def to_json(self) -> dict[str, Any]:
        """Give the mechanism with its projection as JSON-ready values: all that may be known of the noise."""
        return {
            **self.parameters.model_dump(include={"epsilon", "seed", "sensitivity"}),
            "input_dimension": self.input_dimension,
            "dimension": self.dimension,
            "Delta": self.sensitivity,
            "grid": self.grid,
            "derivation": "released = round((matrix @ input + noise) / grid) * grid, noise of density "
            "proportional to exp(-epsilon |noise| / Delta); matrix = "
            "dptext_spark.geometry.projection.gaussian_projection(seed, dimension, input_dimension)",
            "matrix": self.projection.matrix.tolist(),
        }

    def law(self) -> Law:
        """Name the law of released vectors and every parameter of it; see :meth:`Mechanism.law`."""
        return {
            **self.parameters.model_dump(include={"epsilon", "seed", "sensitivity"}),
            "law": "projected vectors",
            "constant": self.sensitivity,
            "dimension": self.dimension,
            "input_dimension": self.input_dimension,
        }

    def guarantee(self, fingerprint: str = "") -> Guarantee:
        """State what is proven for bare vectors, or for texts over the bundle of a fingerprint."""
        epsilon, of_texts = self.pure_epsilon, bool(fingerprint)
        bits = NoisyProjection(self.projection, self.scale).bits(self.longest)
        public = "parameters and seed were not chosen by the private table"
        return Guarantee(
            mechanism="projected vectors",
            configured_epsilon=self.parameters.epsilon,
            metric=f"Euclidean distance of {'averages of word vectors' if of_texts else 'input vectors'}",
            epsilon=epsilon,
            distances=None,
            law=SphericalLaplace(dimension=self.dimension, epsilon=epsilon),
            delta_num=rounded_vector_distance(self.dimension, self.scale / self.grid),
            noise_bits=bits,
            source="Feyisetan and Kasiviswanathan 2021, Claim 3, with the matrix's largest singular value",
            fingerprint=fingerprint,
            assumptions=(public, *([PUBLIC_WORDS] if of_texts else []), *assumptions(bits)),
            remarks=tuple(self._remarks(of_texts)),
        )

    def _remarks(self, of_texts: bool) -> Iterator[str]:
        length = self.dimension * self.scale
        yield (
            f"Vectors of {self.input_dimension} numbers become {self.dimension} numbers by the public "
            f"projection of seed {self.parameters.seed}; the noise, scaled by Delta = "
            f"{self.sensitivity:.4g}, is {length:.3g} long on average, and every number is rounded to a "
            f"multiple of 2^{math.log2(self.grid):.0f} so that its low-order bits reveal nothing."
        )
        if self.parameters.sensitivity == "paper":
            yield (
                f"The paper states epsilon {self.parameters.epsilon:g} up to a probability of "
                f"{self.parameters.delta:g} over the draw of the projection, for a pair of inputs that was "
                "fixed before it. This projection is public, and inputs may follow it: it stretches some "
                f"difference {rounded_up(self.stretch, 4)} times, so that what is proven is epsilon "
                f"{rounded_up(self.pure_epsilon, 4)}."
            )
        if of_texts:
            yield (
                "A text is the average of its known words' vectors: moving one of its l words by a distance "
                "d moves the text by d / l, so that a long text hides each of its words well, but not what "
                "they say together. Words outside the vocabulary are left out; a text without any known "
                "word is the zero vector, noised like any other."
            )
        yield (
            "Null rows stay null, and everyone sees which. A row's place, or a column that is kept, may show "
            "whose row it is. Privacy loss adds up over all vectors of one person, in all rows, columns and "
            "releases."
        )


class ProjectedVectors(VectorParameters, Mechanism):
    """Releases vectors of any length; of words, their vectors, and then the word of the nearest image.

    The second step, which looks at the released vector alone, is for contract tests and audits.
    """

    name: ClassVar[str] = "vectors"
    title: ClassVar[str] = "projected vectors"
    spaces: ClassVar[tuple[type[Space], ...]] = (EuclideanSpace,)
    releases: ClassVar[Literal["words", "vectors"]] = "vectors"

    def law(self, dimension: int) -> Law:
        return self.of_length(dimension).law()

    def uniforms_per_token(self, dimension: int) -> int:
        return self.rows(dimension) + 1

    def check(self, embedding: Embedding) -> None:
        super().check(embedding)
        self.rows(embedding.dimension)

    def bind(self, embedding: Embedding, search: Search) -> Perturbation:
        self.check(embedding)
        release, vectors = self.of_length(embedding.dimension), embedding.vectors
        nearest = nearest_images(embedding, release.projection, search)

        def perturb(words: Ints, uniforms: Floats, epsilons: Floats | None = None) -> Ints:
            if epsilons is not None:
                raise ConfigError("Mechanism vectors has one epsilon for all words")
            return nearest(release(vectors[words].astype(np.float64), uniforms))

        return perturb

    def claim(self, embedding: Embedding) -> Claim:
        return self.guarantee(embedding)

    def guarantee(
        self,
        embedding: Embedding | Path | str,
        distances: TypicalDistances | None = None,
        search: Search | None = None,
    ) -> Guarantee:
        """State the guarantee of vectors: neither distances nor a search of words matter to it."""
        self.check(embedding := Embedding.of(embedding))
        return self.of_length(embedding.dimension).guarantee(embedding.fingerprint)


def on_grid(values: Floats, grid: float) -> Floats:
    """Round to multiples of ``grid``, a power of two; in place, and without negative zeros."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    values += 0.0
    return values
