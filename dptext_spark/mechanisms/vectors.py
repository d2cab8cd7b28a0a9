"""The release of vectors: random projection, noise, and a public grid."""

from __future__ import annotations

import math
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


class ProjectedVectors(ProjectionParameters):
    """How vectors are projected and noised; no stretch of pairs of words bounds averages of words."""

    epsilon: float = NUMBER(
        ge=LEAST_EPSILON,
        le=1e24,  # beyond, the grid would be finer than what single precision can hold
        description="privacy parameter, in nats per unit of Euclidean distance of the input vectors",
    )
    dimension: int | None = Field(
        default=None,
        ge=1,
        strict=True,
        description="length of released vectors; default: from beta and delta",
    )
    sensitivity: Literal["spectral", "paper"] = Field(
        default="spectral",
        description="scale of the noise: spectral, or paper (less noise, and a larger proven epsilon)",
    )

    def rows(self, dimension: int) -> int:
        """Give the length of released vectors, which must suit input vectors of length ``dimension``."""
        least = least_dimension(dimension, self.beta, self.delta)
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
        return float(
            2.0 ** math.floor(math.log2(self.scale * math.sqrt(self.dimension) / _GRID_STEPS))
        )

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
        """Release vectors (t, n) by uniforms (t, m + 1), overwritten: float64 (t, m) on the grid."""
        return on_grid(NoisyProjection(self.projection, self.scale)(vectors, uniforms), self.grid)

    def _facts(self) -> dict[str, Any]:
        lengths = {"input_dimension": self.input_dimension, "dimension": self.dimension}
        return {**self.parameters.model_dump(include={"epsilon", "seed", "sensitivity"}), **lengths}

    def to_json(self) -> dict[str, Any]:
        """Give the mechanism with its projection as JSON-ready values: all that may be known of the noise."""
        return {
            **self._facts(),
            "Delta": self.sensitivity,
            "grid": self.grid,
            "derivation": "released = round((matrix @ input + noise) / grid) * grid, noise of density "
            "proportional to exp(-epsilon |noise| / Delta); matrix = "
            "dptext_spark.geometry.projection.gaussian_projection(seed, dimension, input_dimension)",
            "matrix": self.projection.matrix.tolist(),
        }

    def noise_parameters(self) -> NoiseParameters:
        """Return the parameters of released vectors; see :meth:`Mechanism.noise_parameters`."""
        return {**self._facts(), "law": "projected vectors", "constant": self.sensitivity}

    def guarantee(self, fingerprint: str = "") -> Guarantee:
        """State what is proven for bare vectors, or for texts over the bundle of a fingerprint."""
        given, epsilon, of_texts = self.parameters, self.parameters.epsilon, bool(fingerprint)
        if self.stretch > self.sensitivity:  # the quotient and the product are rounded
            epsilon *= self.stretch / self.sensitivity * (1.0 + 2.0**-50)
        bits = NoisyProjection(self.projection, self.scale).bits(self.longest)
        remarks = [
            f"Vectors of {self.input_dimension} numbers become {self.dimension} numbers by the public "
            f"projection of seed {given.seed}; the noise, scaled by Delta = {self.sensitivity:.4g}, is "
            f"{self.dimension * self.scale:.3g} long on average, and every number is rounded to a multiple "
            f"of 2^{math.log2(self.grid):.0f} so that its low-order bits reveal nothing."
        ]
        if given.sensitivity == "paper":
            remarks.append(
                f"The paper states epsilon {given.epsilon:g} up to a probability of {given.delta:g} over the "
                "draw of the projection, for a pair of inputs that was fixed before it. This projection is "
                "public, and inputs may follow it: it stretches some difference "
                f"{rounded_up(self.stretch, 4)} times, so that what is proven is epsilon "
                f"{rounded_up(epsilon, 4)}."
            )
        if of_texts:
            remarks.append(
                "A text is the average of its known words' vectors: moving one of its l words by a distance "
                "d moves the text by d / l, so that a long text hides each of its words well, but not what "
                "they say together. Words outside the vocabulary are left out; a text without any known "
                "word is the zero vector, noised like any other."
            )
        remarks.append(
            "Null rows stay null, and everyone sees which. A row's place, or a column that is kept, may show "
            "whose row it is. Privacy loss adds up over all vectors of one person, in all rows, columns and "
            "releases."
        )
        public = "parameters and seed were not chosen by the private table"
        return Guarantee(
            mechanism="projected vectors",
            configured_epsilon=given.epsilon,
            metric=f"Euclidean distance of {'averages of word vectors' if of_texts else 'input vectors'}",
            epsilon=epsilon,
            distances=None,
            law=SphericalLaplace(dimension=self.dimension, epsilon=epsilon),
            delta_num=rounded_vector_distance(self.dimension, self.scale / self.grid),
            noise_bits=bits,
            source="Feyisetan and Kasiviswanathan 2021, Claim 3, with the matrix's largest singular value",
            fingerprint=fingerprint,
            assumptions=(public, *([PUBLIC_WORDS] if of_texts else []), *assumptions(bits)),
            remarks=tuple(remarks),
        )


def on_grid(values: Floats, grid: float) -> Floats:
    """Round to multiples of ``grid``, a power of two; in place, and without negative zeros."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    values += 0.0
    return values
