"""The release of vectors: random projection, noise, and a public grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.accounting.row_budget import LEAST_EPSILON
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats
from dptext_spark.geometry.projection import (
    NoisyProjection,
    RandomProjection,
    least_dimension,
    spectral_constant,
)
from dptext_spark.guarantee import Guarantee, rounded_up
from dptext_spark.mechanisms.mechanism import NUMBER, PUBLIC_WORDS, NoiseParameters, assumptions
from dptext_spark.mechanisms.projected import ProjectionParameters

# Steps of the grid to Delta sqrt(m) / epsilon, the size of the noise in one coordinate, at least.
_GRID_STEPS: Final = 256

# Bits of a released number in steps of its grid; float32 holds 24, and with them a sign.
_GRID_BITS: Final = 23

_SOURCE: Final = (
    "Feyisetan and Kasiviswanathan 2021, Claim 3, with the matrix's largest singular value"
)


class ProjectedVectors(ProjectionParameters):
    """How vectors are projected and noised.

    No stretch of pairs of words bounds averages of words.
    """

    epsilon: float = NUMBER(
        ge=LEAST_EPSILON,
        le=1e24,  # beyond, the grid would be finer than what single precision can hold
        description="privacy parameter, in nats per unit of Euclidean distance of the input "
        "vectors",
    )
    dimension: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="length of released vectors; default: from beta and delta",
    )
    sensitivity: Literal["spectral", "paper"] = Field(
        default="spectral",
        description="how noise is scaled: spectral, or paper (less noise, larger proven epsilon)",
    )

    def rows(self, dimension: int) -> int:
        """Return the length of released vectors; refuse one that does not suit the input's."""
        least = least_dimension(dimension, self.beta, self.delta)
        rows = self.dimension or min(least, dimension)
        if self.sensitivity != "paper":
            least = 1
        # More numbers than the input has would add noise and nothing else.
        if not least <= rows <= dimension:
            raise ConfigError(
                f"The dimension of released vectors does not suit vectors of length {dimension}",
                allowed=f"at least {least} with --sensitivity {self.sensitivity}, at most "
                f"{dimension}",
                got=str(rows),
                do="Change --dimension or leave it out; "
                "with --sensitivity paper, --beta and --delta count too",
            )
        return rows

    def of_length(self, input_dimension: int) -> VectorNoise:
        """Bind the mechanism to vectors of one length, which the dimension must suit."""
        projection = self.projection(input_dimension)
        stretch = spectral_constant(projection.matrix)
        sensitivity = 1.0 + self.beta
        if self.sensitivity == "spectral":
            sensitivity = stretch
        return VectorNoise(
            parameters=self,
            input_dimension=input_dimension,
            dimension=len(projection.matrix),
            stretch=stretch,
            sensitivity=sensitivity,
        )


@dataclass(frozen=True, kw_only=True)
class VectorNoise:
    """The mechanism bound to one length of vectors: w = Phi x + kappa on a grid.

    Phi (m, n) is Gaussian and public; kappa has density proportional to exp(-epsilon |kappa| /
    Delta). Every number of w is rounded to a multiple of a public power of two. Floats as they come
    out of the sum would carry low-order bits that betray x (Mironov 2012).

    Source: Feyisetan and Kasiviswanathan 2021, Algorithm 1 and Proposition 5.
    """

    parameters: ProjectedVectors
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
        step = self.scale * math.sqrt(self.dimension) / _GRID_STEPS
        return float(2.0 ** math.floor(math.log2(step)))

    @property
    def longest(self) -> float:
        """Length of input vectors up to which every released number fits its bits on the grid."""
        # Half of the room is the noise's: its length at the largest uniform is far below that.
        return self.grid * 2.0 ** (_GRID_BITS - 1) / self.stretch

    @cached_property
    def projection(self) -> RandomProjection:
        """Phi, (m, n)."""
        return self.parameters.projection(self.input_dimension)

    def __call__(self, vectors: Floats, uniforms: Floats) -> Floats:
        """Release vectors (t, n) by uniforms (t, m + 1), overwritten: float64 (t, m)."""
        released = NoisyProjection(self.projection, self.scale)(vectors, uniforms)
        return on_grid(released, self.grid)

    def _facts(self) -> dict[str, Any]:
        facts = self.parameters.model_dump(include={"epsilon", "seed", "sensitivity"})
        facts["input_dimension"] = self.input_dimension
        facts["dimension"] = self.dimension
        return facts

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism with its projection, JSON-ready: all that may be known of it."""
        return {
            **self._facts(),
            "Delta": self.sensitivity,
            "grid": self.grid,
            "derivation": "released = round((matrix @ input + noise) / grid) * grid, noise of "
            "density proportional to exp(-epsilon |noise| / Delta); matrix = "
            "dptext_spark.geometry.projection.gaussian_projection"
            "(seed, dimension, input_dimension)",
            "matrix": self.projection.matrix.tolist(),
        }

    def noise_parameters(self) -> NoiseParameters:
        """Return the parameters of released vectors; see :meth:`Mechanism.noise_parameters`."""
        return {**self._facts(), "law": "projected vectors", "constant": self.sensitivity}

    def guarantee(self, fingerprint: str = "") -> Guarantee:
        """Return what is proven for bare vectors, or for texts over the bundle of a fingerprint."""
        epsilon = self.parameters.epsilon
        if self.stretch > self.sensitivity:  # the quotient and the product are rounded
            epsilon *= self.stretch / self.sensitivity * (1.0 + 2.0**-50)
        law = SphericalLaplace(dimension=self.dimension, epsilon=epsilon)
        delta_num = rounded_vector_distance(self.dimension, self.scale / self.grid)
        bits = NoisyProjection(self.projection, self.scale).bits(self.longest)
        public = ["parameters and seed were not chosen by the private table"]
        inputs = "input vectors"
        if fingerprint:
            public.append(PUBLIC_WORDS)
            inputs = "averages of word vectors"
        remarks = self._remarks(epsilon, of_texts=bool(fingerprint))
        return Guarantee(
            mechanism="projected vectors",
            configured_epsilon=self.parameters.epsilon,
            metric=f"Euclidean distance of {inputs}",
            epsilon=epsilon,
            distances=None,
            law=law,
            delta_num=delta_num,
            noise_bits=bits,
            source=_SOURCE,
            fingerprint=fingerprint,
            assumptions=(*public, *assumptions(bits)),
            remarks=tuple(remarks),
        )

    def _remarks(self, epsilon: float, *, of_texts: bool) -> Iterator[str]:
        """Yield what a guarantee of a proven epsilon does and does not cover, in sentences."""
        parameters = self.parameters
        yield (
            f"Vectors of {self.input_dimension} numbers become {self.dimension} numbers by the "
            f"public projection of seed {parameters.seed}; the noise, scaled by Delta = "
            f"{self.sensitivity:.4g}, is {self.dimension * self.scale:.3g} long on average, and "
            f"every number is rounded to a multiple of 2^{math.log2(self.grid):.0f} so that its "
            "low-order bits reveal nothing."
        )
        if parameters.sensitivity == "paper":
            yield (
                f"The paper states epsilon {parameters.epsilon:g} up to a probability of "
                f"{parameters.delta:g} over the draw of the projection, for a pair of inputs that "
                "was fixed before it. This projection is public, and inputs may follow it: it "
                f"stretches some difference {rounded_up(self.stretch, 4)} times, so that what is "
                f"proven is epsilon {rounded_up(epsilon, 4)}."
            )
        if of_texts:
            yield (
                "A text is the average of its known words' vectors: moving one of its l words by a "
                "distance d moves the text by d / l, so that a long text hides each of its words "
                "well, but not what they say together. Words outside the vocabulary are left out; "
                "a text without any known word is the zero vector, noised like any other."
            )
        yield (
            "Null rows stay null, and everyone sees which. A row's place, or a column that is "
            "kept, may show whose row it is. Privacy loss adds up over all vectors of one person, "
            "in all rows, columns and releases."
        )


def on_grid(values: Floats, grid: float) -> Floats:
    """Round to multiples of ``grid``, a power of two; in place, and without negative zeros."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    values += 0.0
    return values
