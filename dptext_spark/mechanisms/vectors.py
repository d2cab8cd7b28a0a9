"""The release of vectors: a public projection, noise, and a public grid."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import numpy as np
from pydantic import Field, ValidationError

from dptext_spark.accounting.laws import SphericalLaplace
from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.accounting.row_budget import LEAST_EPSILON
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError, faults, parsed
from dptext_spark.geometry import Floats
from dptext_spark.geometry.projection import (
    NoisyProjection,
    NoProjection,
    PublicProjection,
    least_dimension,
    main_axes,
    sparse_dimension,
    spectral_constant,
)
from dptext_spark.guarantee import Guarantee, rounded_up
from dptext_spark.mechanisms.mechanism import NUMBER, PUBLIC_WORDS, NoiseParameters, assumptions
from dptext_spark.mechanisms.projected import ProjectionName, ProjectionParameters
from dptext_spark.text.bags import KgramBags
from dptext_spark.text.tokens import Segmentation

# Steps of the grid to Delta sqrt(m) / epsilon, the size of the noise in one coordinate, at least.
_GRID_STEPS: Final = 256

# Bits of a released number in steps of its grid; float32 holds 24, and with them a sign.
_GRID_BITS: Final = 23

_OF_TEXTS: Final = (
    "A text is the average of its known words' vectors: moving one of its l words by a distance d "
    "moves the text by d / l, so that a long text hides each of its words well, but not what they "
    "say together. Words outside the vocabulary are left out; a text without any known word is the "
    "zero vector, noised like any other."
)
_OF_WORDS: Final = (
    "Each word of a text has a vector of its own, in its place: the bound is for one word, and "
    "privacy loss adds up over the words of a text. Everyone sees how many words a text has. A "
    "word outside the vocabulary is the zero vector, noised like any other."
)
_OF_BAGS: Final = (
    "A text is the counts of its {kgrams}-grams of words in lower case, hashed to {places} places "
    "and scaled to length 1. Two texts, however long, are at most 2 apart: the whole text costs at "
    "most {loss} nats, not only a word of it. The inner product of two released bags without a "
    "common gram is 0 on average, with a standard deviation of {error:.3g}."
)
_OF_ROWS: Final = (
    "Null rows are null in the output: everyone sees which. A row's place, or a kept column, may "
    "show whose row it is. Privacy loss adds up over all vectors of one person, in all rows, "
    "columns and releases."
)

_SOURCE: Final = (
    "Feyisetan and Kasiviswanathan 2021, Claim 3, with the matrix's largest singular value"
)

TEXT_WORDS: Final = 10
"""Words of the texts whose spread noise is compared with."""

BAGS: Final = "bags"
"""What evaluations call texts as bags of K-grams."""

# To which K-grams are hashed before a random projection; no bag has more numbers.
_PLACES: Final = 4096

# The fewest axes are taken that keep so much of what the best number of axes keeps.
_NEARLY_BEST: Final = 0.97
# Below this, a constant serves nearly as well.
_LEAST_KEPT: Final = 0.1


class Spread(NamedTuple):
    """How far vectors are from each other, by a public prior, and what noise leaves of that."""

    vectors: str  # whose, in words
    distance: float  # between two of them
    noise: float  # mean length
    # Share of the variance that the best linear estimate from released vectors has; a constant: 0.
    variance: float

    @property
    def is_useless(self) -> bool:
        """Whether a constant serves nearly as well."""
        return self.variance < _LEAST_KEPT

    def to_json(self) -> dict[str, Any]:
        """Return its numbers, and what they say, JSON-ready."""
        return {**self._asdict(), "is_useless": self.is_useless, "said": self.describe()}

    def describe(self) -> str:
        """Compare the noise with the vectors, in a sentence or two."""
        sentence = (
            f"The noise is {self.noise:.3g} long on average; {self.vectors} are {self.distance:.3g}"
            f" apart. The release keeps {self.variance:.0%} of their variance."
        )
        if self.is_useless:
            sentence += (
                " WARNING: a constant would serve nearly as well. Raise --epsilon, or lower "
                "--dimension without --projection random."
            )
        return sentence


@dataclass(frozen=True, kw_only=True, eq=False)
class PublicPrior:
    """How vectors spread, as far as a public embedding says."""

    axes: Floats  # (n, n), main axes in columns, the narrowest first
    variances: Floats  # (n,), along them
    vectors: str  # which vectors spread so, in words

    @classmethod
    def of(cls, space: EuclideanSpace, *, words: int = 1) -> Self:
        """Return the spread of a bundle's words, or of means of several that are independent."""
        vectors = "words of the embedding"
        if words > 1:
            vectors = f"texts of {words} words of the embedding"
        variances = space.covariance_values * (space.variance / space.vectors.shape[1] / words)
        return cls(axes=space.covariance_vectors, variances=variances, vectors=vectors)

    def best_dimension(self, epsilon: float) -> int:
        """Return how many main axes to release: more of them have more noise each.

        The fewest that keep nearly as much of the variance as the best number.
        """
        widest = self.variances[::-1]
        rows = np.arange(1, len(widest) + 1)
        noise = (rows[:, None] + 1.0) / epsilon**2
        explained = np.tril(widest**2 / (widest + noise)).sum(axis=1)
        return int(rows[explained >= _NEARLY_BEST * explained.max()][0])

    def spread(self, matrix: Floats, scale: float) -> Spread:
        """Compare the vectors with noise of density exp(-|z| / scale) on their images."""
        rows = len(matrix)
        image = (matrix @ self.axes) * self.variances  # covariance of an image with its vector
        covariance = image @ (matrix @ self.axes).T
        noisy = covariance + np.eye(rows) * ((rows + 1.0) * scale**2)
        total = float(self.variances.sum())
        explained = float((image * np.linalg.solve(noisy, image)).sum())
        return Spread(self.vectors, math.sqrt(2.0 * total), rows * scale, explained / total)


def _product_error(dimension: Any, scale: float) -> Any:
    """Compute the mean square error of inner products of released bags of length 1.

    Places that grams share give 1 / m, noise of density exp(-|z| / scale) on both bags the rest.
    """
    noise = (dimension + 1.0) * scale**2  # the variance of each number
    return 1.0 / dimension + 2.0 * noise + dimension * noise**2


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
        description="length of released vectors; default: what keeps most at this epsilon, or, if "
        "random, from beta and delta",
    )
    projection: ProjectionName | None = Field(
        default=None,
        description="public matrix: main-axes (of the embedding), or random; default: main-axes "
        "for texts and words, random for vectors, none for --kgrams",
    )
    kgrams: int | None = Field(
        default=None,
        ge=1,
        le=TEXT_WORDS,
        strict=True,
        description="release each text as its hashed counts of runs of K words, without an "
        "embedding",
    )
    sensitivity: Literal["spectral", "paper"] = Field(
        default="spectral",
        description="how noise is scaled: spectral, or paper (random projections only: less noise, "
        "larger proven epsilon)",
    )

    def rows(self, dimension: int) -> int:
        """Return the length of released vectors; refuse one that does not suit the input's."""
        least = self._least(dimension)
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

    def _least(self, dimension: int) -> int:
        """Return the paper's dimension of a random projection."""
        if self.kgrams is None:
            return least_dimension(dimension, self.beta, self.delta)
        grams = TEXT_WORDS - self.kgrams + 1
        return sparse_dimension(dimension, grams, self.beta, self.delta)

    def check_bags(self) -> None:
        """Check that bags of K-grams can be released so."""
        if self.dimension is not None and self.dimension > _PLACES:
            raise ConfigError(
                f"The dimension of bags of K-grams must be at most {_PLACES}; got {self.dimension}"
            )
        if self.projection == "main-axes":
            raise ConfigError("Bags of K-grams have no main axes", do="Leave --projection out")
        if self.sensitivity == "paper" and self.projection is None:
            raise ConfigError(
                "Bags of K-grams have --sensitivity paper after a random projection alone",
                do="Leave it out, or take --projection random",
            )

    def of_bags(self) -> VectorNoise:
        """Bind the mechanism to bags of K-grams.

        Without a projection they are hashed to as many places as numbers are released. By default
        these make the error of inner products smallest.
        """
        self.check_bags()
        vectors = f"hashed bags of {self.kgrams}-grams"
        if self.projection == "random":
            variances = np.full(_PLACES, 1.0 / _PLACES)
            prior = PublicPrior(axes=np.eye(_PLACES), variances=variances, vectors=vectors)
            return self.of_length(_PLACES, prior)
        scale = 1.0 / self.epsilon
        best = int(_product_error(np.arange(1.0, _PLACES + 1.0), scale).argmin()) + 1
        places = self.dimension or best
        kept = 1.0 / (1.0 + places * (places + 1.0) * scale**2)
        return VectorNoise(
            parameters=self,
            input_dimension=places,
            dimension=places,
            stretch=1.0,
            sensitivity=1.0,
            spread=Spread(vectors, math.sqrt(2.0), places * scale, kept),
        )

    def of_length(self, input_dimension: int, prior: PublicPrior | None = None) -> VectorNoise:
        """Bind the mechanism to vectors of one length, which the dimension must suit.

        With a public prior it projects to the prior's main axes, unless another projection is
        asked for.
        """
        axes = self._axes(input_dimension, prior)
        matrix = axes
        if matrix is None:
            matrix = self.random_projection(input_dimension).matrix
        stretch = spectral_constant(matrix)
        sensitivity = 1.0 + self.beta
        if self.sensitivity == "spectral":
            sensitivity = stretch
        spread = None
        if prior is not None:
            spread = prior.spread(matrix, sensitivity / self.epsilon)
        return VectorNoise(
            parameters=self,
            input_dimension=input_dimension,
            dimension=len(matrix),
            stretch=stretch,
            sensitivity=sensitivity,
            axes=b"" if axes is None else axes.astype("<f8").tobytes(),
            spread=spread,
        )

    def _axes(self, input_dimension: int, prior: PublicPrior | None) -> Floats | None:
        """Return the main axes to project to, (m, n); None where the projection is random."""
        is_paper = self.sensitivity == "paper"
        if self.projection == "random" or (self.projection is None and (is_paper or not prior)):
            return None
        if is_paper:
            raise ConfigError(
                "A projection to main axes has no --sensitivity paper",
                do="Leave it out, or take --projection random",
            )
        if prior is None or len(prior.variances) != input_dimension:
            raise ConfigError(
                "Vectors are projected to the main axes of other vectors of their length",
                allowed=f"an --embedding of {input_dimension} dimensions",
                got="none" if prior is None else f"{len(prior.variances)} dimensions",
                do="Give public vectors of the same kind, or take --projection random",
            )
        rows = self.dimension or prior.best_dimension(self.epsilon)
        if rows > input_dimension:
            raise ConfigError(
                f"The dimension of released vectors does not suit vectors of length "
                f"{input_dimension}",
                allowed=f"at most {input_dimension}",
                got=str(rows),
                do="Change --dimension or leave it out",
            )
        return main_axes(prior.axes, rows)


def projected_vectors(spec: str, *, epsilon: float) -> ProjectedVectors:
    """Read ``main-axes``, ``random`` or ``bags``, with parameters: ``main-axes:dimension=12``."""
    name, listed = parsed(spec)
    fields = ProjectedVectors.model_fields
    names = [field for field in fields if field not in ("projection", "epsilon")]
    values: dict[str, Any] = {"kgrams": 1, **listed, "epsilon": epsilon}
    if name != BAGS:
        values = {**listed, "projection": name, "epsilon": epsilon}
    if name not in (*get_args(ProjectionName), BAGS):
        allowed = f"{', '.join(get_args(ProjectionName))} or {BAGS}"
        raise ConfigError("Vectors cannot be released so", allowed=allowed, got=repr(name))
    try:
        setting = ProjectedVectors.model_validate(values)
    except ValidationError as error:
        problems = faults(
            error,
            lambda problem: f"Parameter {next(iter(problem['loc']), '')} of {name}",
            unknown=f"is unknown. Allowed: {', '.join(names)}",
            known=names,
        )
        raise ConfigError("Vectors cannot be released so", faults=problems) from None
    if setting.kgrams is not None:
        setting.check_bags()
    return setting


@dataclass(frozen=True, kw_only=True)
class VectorNoise:
    """The mechanism bound to one length of vectors: w = Phi x + kappa on a grid.

    Phi (m, n) is public: Gaussian, of main axes, or for bags the identity. kappa has density
    proportional to exp(-epsilon |kappa| / Delta). Every number of w is rounded to a multiple of a
    public power of two. Floats as they come out of the sum would carry low-order bits that betray x
    (Mironov 2012).

    Source: Feyisetan and Kasiviswanathan 2021, Algorithm 1 and Proposition 5.
    """

    parameters: ProjectedVectors
    input_dimension: int  # n
    dimension: int  # m
    stretch: float  # bound of |Phi z| / |z| over all z
    sensitivity: float  # Delta, the bound of |Phi z| / |z| that the noise is scaled by
    axes: bytes = field(default=b"", repr=False)  # Phi's float64 if it is of main axes
    spread: Spread | None = None  # by a public prior

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

    @property
    def kind(self) -> str:
        """What Phi is; ``none`` where bags are hashed to as many places as are released."""
        if self.axes:
            return "main-axes"
        if self.parameters.kgrams is not None and self.parameters.projection is None:
            return "none"
        return "random"

    def bags(self, tokenizer: Segmentation) -> KgramBags | None:
        """Return what turns texts into the mechanism's vectors, where these are bags."""
        kgrams = self.parameters.kgrams
        if kgrams is None:
            return None
        return KgramBags(kgrams=kgrams, places=self.input_dimension, tokenizer=tokenizer)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the matrix, which each worker makes: it would travel with every task."""
        return {name: value for name, value in vars(self).items() if name != "projection"}

    @cached_property
    def projection(self) -> PublicProjection:
        """Phi, (m, n)."""
        if self.kind == "none":
            return NoProjection(np.eye(self.dimension))
        if not self.axes:
            return self.parameters.random_projection(self.input_dimension)
        return PublicProjection(np.frombuffer(self.axes, "<f8").reshape(self.dimension, -1))

    def __call__(self, vectors: Floats, uniforms: Floats) -> Floats:
        """Release vectors (t, n) by uniforms (t, m + 1), overwritten: float64 (t, m)."""
        released = NoisyProjection(self.projection, self.scale)(vectors, uniforms)
        return on_grid(released, self.grid)

    def _facts(self) -> dict[str, Any]:
        facts = self.parameters.model_dump(include={"epsilon", "seed", "sensitivity"})
        if self.kind != "random":
            del facts["seed"]
            facts["projection"] = self.kind
        if self.parameters.kgrams is not None:
            facts["kgrams"] = self.parameters.kgrams
        facts["input_dimension"] = self.input_dimension
        facts["dimension"] = self.dimension
        return facts

    def to_json(self) -> dict[str, Any]:
        """Return the mechanism with its projection, JSON-ready: all that may be known of it."""
        module = "dptext_spark.geometry.projection"
        matrix = f"{module}.gaussian_projection(seed, dimension, input_dimension)"
        if self.axes:
            matrix = f"{module}.main_axes(covariance_vectors of the embedding, dimension)"
        if self.kind == "none":
            matrix = "numpy.eye(dimension)"
        return {
            **self._facts(),
            "Delta": self.sensitivity,
            "grid": self.grid,
            "derivation": "released = round((matrix @ input + noise) / grid) * grid, noise of "
            f"density proportional to exp(-epsilon |noise| / Delta); matrix = {matrix}",
            "matrix": None if self.kind == "none" else self.projection.matrix.tolist(),
        }

    def noise_parameters(self) -> NoiseParameters:
        """Return the parameters of released vectors; see :meth:`Mechanism.noise_parameters`."""
        parameters = {
            **self._facts(),
            "law": "projected vectors",
            "constant": self.sensitivity,
        }
        if self.axes:  # equal noise on the images of two matrices would reveal the vector
            parameters["matrix"] = hashlib.sha256(self.axes).hexdigest()
        return parameters

    def guarantee(self, fingerprint: str = "", *, by_word: bool = False) -> Guarantee:
        """Return what is proven for bare vectors, or for texts over the bundle of a fingerprint.

        Texts are averages of words, or ``by_word`` one vector for each word.
        """
        epsilon = self.parameters.epsilon
        if self.stretch > self.sensitivity:  # the quotient and the product are rounded
            epsilon *= self.stretch / self.sensitivity * (1.0 + 2.0**-50)
        law = SphericalLaplace(dimension=self.dimension, epsilon=epsilon)
        delta_num = rounded_vector_distance(self.dimension, self.scale / self.grid)
        bits = NoisyProjection(self.projection, self.scale).bits(self.longest)
        public = ["parameters and seed were not chosen by the private table"]
        inputs = "input vectors"
        if fingerprint or self.axes:
            public.append(PUBLIC_WORDS)
        if fingerprint:
            inputs = "word vectors" if by_word else "averages of word vectors"
        kgrams = self.parameters.kgrams
        mechanism = "projected vectors"
        if kgrams is not None:
            mechanism = inputs = f"bags of {kgrams}-grams"
        remarks = [self._about_noise(), *self._remarks(epsilon)]
        if fingerprint:
            remarks.append(_OF_WORDS if by_word else _OF_TEXTS)
        if kgrams is not None:
            error = math.sqrt(_product_error(self.dimension, self.scale))
            loss = rounded_up(2.0 * epsilon, 4)
            remarks.append(
                _OF_BAGS.format(kgrams=kgrams, places=self.input_dimension, loss=loss, error=error)
            )
        remarks.append(_OF_ROWS)
        return Guarantee(
            mechanism=mechanism,
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

    def _about_noise(self) -> str:
        """Return how vectors are projected and noised, as a sentence."""
        projection = f"the public projection of seed {self.parameters.seed}"
        if self.axes:
            projection = "the main axes of the public embedding"
        images = f"become {self.dimension} numbers by {projection}"
        if self.kind == "none":
            images = "are not projected"
        return (
            f"Vectors of {self.input_dimension} numbers {images}; the noise, scaled by Delta = "
            f"{self.sensitivity:.4g}, is {self.dimension * self.scale:.3g} long on average, and "
            f"every number is rounded to a multiple of 2^{math.log2(self.grid):.0f} so that its "
            "low-order bits reveal nothing."
        )

    def _remarks(self, epsilon: float) -> Iterator[str]:
        """Yield what the paper's guarantee leaves of its epsilon."""
        parameters = self.parameters
        if parameters.sensitivity == "paper":
            yield (
                f"The paper states epsilon {parameters.epsilon:g} up to a probability of "
                f"{parameters.delta:g} over the draw of the projection, for a pair of inputs that "
                "was fixed before it. This projection is public, and inputs may follow it: it "
                f"stretches some difference {rounded_up(self.stretch, 4)} times, so that what is "
                f"proven is epsilon {rounded_up(epsilon, 4)}."
            )


@dataclass(frozen=True, kw_only=True)
class VectorSetting:
    """A setting of vectors as evaluations name it; its dimension is always part of it."""

    noise: VectorNoise

    @property
    def name(self) -> str:
        """The projection, or which K-grams are counted."""
        kgrams = self.noise.parameters.kgrams
        if kgrams is None:
            return self.noise.kind
        return f"{kgrams}-grams" if self.noise.kind == "none" else f"random {kgrams}-grams"

    @property
    def epsilon(self) -> float:
        """The privacy parameter."""
        return self.noise.parameters.epsilon

    @property
    def _choices(self) -> dict[str, str]:
        """The parameters that are not the default, besides projection and epsilon."""
        choices = {"dimension": str(self.noise.dimension)}
        for name in ("beta", "delta", "seed", "sensitivity"):
            value = getattr(self.noise.parameters, name)
            if value != ProjectedVectors.model_fields[name].default:
                choices[name] = str(value)
        return choices

    @property
    def parameters(self) -> str:
        """These, for reading: ``dimension=12``."""
        return ", ".join(f"{name}={value}" for name, value in self._choices.items())

    @property
    def options(self) -> str:
        """The options of ``dptext vectors`` that choose it."""
        words = []
        if self.noise.parameters.kgrams is not None:
            words += ["--kgrams", str(self.noise.parameters.kgrams)]
        if self.noise.kind != "none":
            words += ["--projection", self.noise.kind]
        for name, value in self._choices.items():
            words += [f"--{name}", value]
        epsilon = repr(self.epsilon).removesuffix(".0")
        return " ".join([*words, "--epsilon", epsilon])


def on_grid(values: Floats, grid: float) -> Floats:
    """Round to multiples of ``grid``, a power of two; in place, and without negative zeros."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    values += 0.0
    return values
