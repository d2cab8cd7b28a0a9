"""Vectors in, projected noisy vectors out, in NumPy and Arrow, free of Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError
from scipy import special

from dptext_spark.counts import Counts, CountT
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.geometry.projection import (
    RandomProjection,
    gaussian_projection,
    least_dimension,
    projected_noise,
    spectral_constant,
)
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms.mechanism import COMMON_ASSUMPTIONS, LEAST_EPSILON
from dptext_spark.noise import ColumnNoise, ReleaseNoise, to_uniform
from dptext_spark.privatizer import CHUNK, look_up
from dptext_spark.text.token_columns import Tokens, check_unicode, id_bytes, slices

# The grid of released numbers would be finer than what single precision can hold.
MOST_EPSILON: Final = 1e24

# Steps of the grid to Delta sqrt(m) / epsilon, the size of the noise in one coordinate, at least.
_GRID_STEPS: Final = 256

# Bits of a released number in steps of its grid; float32 holds 24, and with them a sign.
_GRID_BITS: Final = 23


class VectorParameters(BaseModel):
    """How vectors are projected and noised, whatever their length."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epsilon: float = Field(
        ge=LEAST_EPSILON,
        le=MOST_EPSILON,
        allow_inf_nan=False,
        strict=True,
        description="privacy parameter, in nats per unit of Euclidean distance of the input vectors",
    )
    beta: float = Field(
        0.9,
        gt=0.0,
        lt=1.0,
        strict=True,
        description="distortion of distances from which the dimension follows",
    )
    delta: float = Field(
        1e-6, gt=0.0, lt=1.0, strict=True, description="chance of more distortion, the same way"
    )
    dimension: int | None = Field(
        None, ge=1, description="length of released vectors; default: by beta, delta and the input's length"
    )
    sensitivity: Literal["spectral", "paper"] = Field(
        "spectral", description="spectral (pure epsilon for any vectors) or paper (1 + beta, up to delta)"
    )
    seed: int = Field(0, ge=0, lt=2**63, description="public seed of the projection")

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


@dataclass(frozen=True, kw_only=True)
class VectorGuarantee(Guarantee):
    """A guarantee for whole vectors in place of words; see :class:`Guarantee`."""

    def describe(self) -> str:
        """Say the guarantee in plain words."""
        pure = "" if self.delta == 0 else f", up to an additional probability of {self.delta:g}"
        return "\n".join(
            [
                f"{self.mechanism}, epsilon {self.configured_epsilon:g}: whoever sees a released vector can "
                f"favour one input over another by a factor of at most exp({self.epsilon:g} x distance)"
                f"{pure}, where the distance is the {self.metric}.",
                *self.remarks,
                f"Proof: {self.source}. It assumes: {'; '.join(self.assumptions)}.",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class VectorMechanism:
    """Releases w = Phi x + kappa on a grid, for vectors x of one length.

    Phi (m, n) is Gaussian and public; kappa has density proportional to exp(-epsilon |kappa| / Delta).
    Every number of w is rounded to a multiple of a public power of two. Floats as they come out of the
    sum would carry low-order bits that betray x (Mironov 2012).

    Attributes:
        parameters: What the user chose.
        input_dimension: n.
        dimension: m.
        stretch: Bound of |Phi z| / |z| over all z.
        sensitivity: Delta, the bound of |Phi z| / |z| that the noise is scaled by.

    Source: Feyisetan and Kasiviswanathan 2021, Algorithm 1 and Proposition 5.
    """

    parameters: VectorParameters
    input_dimension: int
    dimension: int
    stretch: float
    sensitivity: float

    @classmethod
    def of(cls, parameters: VectorParameters, input_dimension: int) -> VectorMechanism:
        """Derive the mechanism for vectors of length ``input_dimension``.

        Raises:
            ConfigError: The wanted dimension does not suit them.
        """
        dimension = _dimension(parameters, input_dimension)
        stretch = spectral_constant(gaussian_projection(parameters.seed, dimension, input_dimension))
        return cls(
            parameters=parameters,
            input_dimension=input_dimension,
            dimension=dimension,
            stretch=stretch,
            sensitivity=stretch if parameters.sensitivity == "spectral" else 1.0 + parameters.beta,
        )

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
        """Length of input vectors up to which every released number fits its bits on the grid.

        Half of the room is the noise's: its length at the largest uniform is far below that.
        """
        return self.grid * 2.0 ** (_GRID_BITS - 1) / self.stretch

    def matrix(self) -> NDArray[np.float64]:
        """Phi, float64 (m, n)."""
        return gaussian_projection(self.parameters.seed, self.dimension, self.input_dimension)

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
            "matrix": self.matrix().tolist(),
        }

    def law(self) -> dict[str, str | float | int]:
        """Name the law of released vectors and every parameter of it, as the noise's context wants them."""
        return {
            "law": "projected vectors",
            "epsilon": self.parameters.epsilon,
            "sensitivity": self.parameters.sensitivity,
            "constant": self.sensitivity,
            "seed": self.parameters.seed,
            "dimension": self.dimension,
            "input_dimension": self.input_dimension,
        }

    def bind(self) -> Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
        """Give the function from vectors (t, n) and uniforms (t, m + 1) to released vectors (t, m)."""
        projection, scale, grid = RandomProjection(self.matrix()), self.scale, self.grid

        def release(vectors: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
            points = projection.times(vectors)
            points += projected_noise(uniforms, scale)
            return on_grid(points, grid)

        return release

    def guarantee(self, fingerprint: str = "") -> VectorGuarantee:
        """State what is proven for bare vectors, or for texts over the bundle of a fingerprint."""
        parameters, of_texts = self.parameters, bool(fingerprint)
        pure = parameters.sensitivity == "spectral"
        assumed = COMMON_ASSUMPTIONS if of_texts else COMMON_ASSUMPTIONS[1:]
        return VectorGuarantee(
            mechanism="projected vectors",
            configured_epsilon=parameters.epsilon,
            metric=f"Euclidean distance of {'averages of word vectors' if of_texts else 'input vectors'}",
            epsilon=parameters.epsilon,
            delta=0.0 if pure else parameters.delta,
            distances=None,
            source="Feyisetan and Kasiviswanathan 2021, Claim 3, with "
            + ("the projection's largest singular value" if pure else "the chi-square law of |Phi z|^2"),
            fingerprint=fingerprint,
            assumptions=("parameters and seed were not chosen by the private table", *assumed),
            remarks=tuple(self._remarks(of_texts)),
        )

    def _remarks(self, of_texts: bool) -> Iterator[str]:
        length = self.dimension * self.scale
        yield (
            f"Vectors of {self.input_dimension} numbers become {self.dimension} numbers by the public "
            f"projection of seed {self.parameters.seed}; the noise, scaled by Delta = "
            f"{self.sensitivity:.4g}, is {length:.3g} long on average, and every number is rounded to a "
            f"multiple of 2^{math.log2(self.grid):.0f} so that its low-order bits say nothing."
        )
        if self.parameters.sensitivity == "paper":
            # Printed to four digits a bound must not round down.
            pure = 1.0005 * self.parameters.epsilon * max(1.0, self.stretch / self.sensitivity)
            yield (
                "The additional probability is over the draw of the projection, for any pair of inputs that "
                "was fixed before it. For all pairs at once this projection has no additional probability at "
                f"epsilon {pure:.4g}."
            )
        if of_texts:
            yield (
                "A text is the average of its known words' vectors: moving one of its l words by a distance "
                "d moves the text by d / l, so that a long text hides each of its words well, but not what "
                "they say together. Words outside the vocabulary are left out; a text without any known "
                "word is the zero vector, noised like any other."
            )
        yield (
            "Rows that are null stay null, for all to see, and whose row it is may show by its place or by a "
            "column that is kept. The losses of all vectors of one person, in whatever rows, columns and "
            "releases, add up."
        )


def _dimension(parameters: VectorParameters, input_dimension: int) -> int:
    """Check the wanted number of dimensions, or give the default one."""
    least = _least_dimension(parameters, input_dimension)
    wanted = parameters.dimension or min(least, input_dimension)
    low = least if parameters.sensitivity == "paper" else 1
    # More numbers than the input has would add noise and nothing else.
    if not low <= wanted <= input_dimension:
        raise ConfigError(
            f"The dimension of released vectors does not suit vectors of length {input_dimension}",
            allowed=f"at least {low} with --sensitivity {parameters.sensitivity}, at most {input_dimension}",
            got=str(wanted),
            do="Change --dimension or leave it out; with --sensitivity paper, --beta and --delta count too",
        )
    return wanted


def _least_dimension(parameters: VectorParameters, input_dimension: int) -> int:
    """The paper's m, or the next one at which |Phi z| > (1 + beta) |z| has chance delta at most for any z.

    Where n is tiny the paper's m can be too small for it.
    """
    least = least_dimension(input_dimension, parameters.beta, parameters.delta)
    while least <= input_dimension and _stretch_chance(least, parameters.beta) > parameters.delta:
        least += 1
    return least


def _stretch_chance(dimension: int, beta: float) -> float:
    """P[|Phi z| > (1 + beta) |z|] over Phi: m |Phi z|^2 / |z|^2 is chi-square of m degrees of freedom."""
    return float(special.gammaincc(dimension / 2.0, dimension * (1.0 + beta) ** 2 / 2.0))


def on_grid(values: NDArray[np.float64], grid: float) -> NDArray[np.float64]:
    """Round to multiples of ``grid``, a power of two; in place, and without negative zeros."""
    values /= grid
    np.rint(values, out=values)
    values *= grid
    values += 0.0
    return values


@dataclass(frozen=True, kw_only=True)
class VectorCounts(Counts[CountT]):
    """What was done to the rows of a column.

    Attributes:
        released: 1 for a released vector.
        null: 1 for a row that is null and stays so.
        wordless: 1 for a text without any known token, released as the zero vector.
        known: Tokens of a text that its average is over.
        unknown: Tokens of a text outside the vocabulary, left out of it.
    """

    released: CountT
    null: CountT
    wordless: CountT
    known: CountT
    unknown: CountT


@dataclass(frozen=True, kw_only=True)
class ReleasedVectors:
    """A released column: lists of floats, and what was done to each row."""

    values: pa.Array
    counts: VectorCounts[NDArray[np.int64]]


class VectorPrivatizer:
    """Releases columns of vectors, or of texts as averages of their words' vectors.

    What a row becomes is a pure function of the key, the row's id and its content; batches, their
    order and their sizes do not matter.

    Args:
        mechanism: For the columns' vectors.
        noise: The release's noise, of the mechanism's law.
        embedding: The words' vectors, for columns of texts.
    """

    def __init__(
        self, *, mechanism: VectorMechanism, noise: ReleaseNoise, embedding: Embedding | None = None
    ) -> None:
        self.mechanism = mechanism
        self._noise = noise
        self._embedding = embedding
        self._release = mechanism.bind()

    def sanitize(self, values: pa.Array, ids: pa.Array, *, column: str) -> ReleasedVectors:
        """Release rows of one column.

        Args:
            values: Lists of floats, or texts where there is an embedding; null stays null.
            ids: Row ids, integers or strings, unique in the whole table, without nulls.
            column: The column's name, which keeps its noise apart from other columns'.

        Returns:
            Lists of the input's type, or of float32 for texts.

        Raises:
            InputError: Types, lengths or numbers are wrong, a vector is too long, or an id is null.
        """
        row_ids = id_bytes(ids)
        if len(row_ids) != len(values):
            raise InputError(
                f"Column {column} has other rows than its ids",
                got=f"{len(values)} rows, {len(row_ids)} ids",
            )
        _check_type(values.type, column, texts=self._embedding is not None)
        parts = [self._sanitize(values[part], row_ids[part], column) for part in _row_slices(values)]
        kind = self._released_type(values.type)
        return ReleasedVectors(
            values=pa.concat_arrays([part.values for part in parts] or [pa.array([], kind)]),
            counts=VectorCounts.concat(part.counts for part in parts),
        )

    def _released_type(self, kind: pa.DataType) -> pa.DataType:
        return kind if self._embedding is None else pa.list_(pa.float32())

    def _sanitize(self, values: pa.Array, ids: list[bytes], column: str) -> ReleasedVectors:
        present = values.is_valid().to_numpy(zero_copy_only=False)
        inputs = self._read(values.drop_null(), column)
        _check_lengths(inputs.vectors, self.mechanism.longest, column)
        noise = self._noise.column(column, purpose="vector", uint64s_per_token=self.mechanism.dimension + 1)
        uniforms = _uniforms(noise, list(compress(ids, present)), inputs.contents)
        released = self._release(inputs.vectors, uniforms)
        counts = _nulls(~present)
        counts.released[present] = 1
        for name, count in inputs.counts.items():
            getattr(counts, name)[present] = count
        return ReleasedVectors(
            values=_lists(released, present, self._released_type(values.type)), counts=counts
        )

    def _read(self, values: pa.Array, column: str) -> _Inputs:
        if self._embedding is None:
            return _read_vectors(values, self.mechanism.input_dimension, column)
        return _read_texts(values, self._embedding, column)


def nothing_released(values: pa.Array, column: str) -> ReleasedVectors:
    """Pass a column in which no vector was found, and which must be null in all rows.

    Raises:
        InputError: It is not.
    """
    if values.null_count != len(values):
        raise InputError(
            f"Column {column} has vectors that were not there when the job began",
            do="Run the job again and leave the table alone meanwhile",
        )
    return ReleasedVectors(values=values, counts=_nulls(np.ones(len(values), dtype=np.bool_)))


def _nulls(flags: NDArray[np.bool_]) -> VectorCounts[NDArray[np.int64]]:
    counts: VectorCounts[NDArray[np.int64]] = VectorCounts.zeros(len(flags))
    counts.null[flags] = 1
    return counts


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Rows of a column, none of them null.

    Attributes:
        vectors: float64 (t, n).
        contents: The rows' content for the noise's context.
        counts: Counters of :class:`VectorCounts` that only texts have, int64 (t,) each.
    """

    vectors: NDArray[np.float64]
    contents: Iterable[tuple[bytes | memoryview, ...]]
    counts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)


def _read_vectors(values: pa.Array, dimension: int, column: str) -> _Inputs:
    """Read lists of floats; equal numbers of either width have equal content."""
    lengths = pc.list_value_length(values).to_numpy(zero_copy_only=False)
    flat = values.flatten().cast(pa.float64())
    numbers = flat.fill_null(0.0).to_numpy(zero_copy_only=False)
    faults = {
        f"vectors of another length than {dimension}": int((lengths != dimension).sum()),
        "elements that are null": flat.null_count,
        "elements that are infinite or no number": int((~np.isfinite(numbers)).sum()),
    }
    if found := [f"{count} {fault}" for fault, count in faults.items() if count]:
        raise InputError(
            f"Column {column} has vectors that cannot be released",
            allowed=f"vectors of {dimension} finite numbers, or null in place of a whole vector",
            got=f"{', '.join(found)} in one batch of rows",
            do="Repair them before the job",
        )
    vectors = numbers.reshape(-1, dimension) + 0.0  # one zero, not two
    return _Inputs(vectors=vectors, contents=((row.astype("<f8").tobytes(),) for row in vectors))


def _read_texts(values: pa.Array, embedding: Embedding, column: str) -> _Inputs:
    """Average the vectors of each text's known tokens."""
    check_unicode(values, column)
    tokens = Tokens.of(values)
    word_ids = look_up(tokens, embedding)
    known, unknown = tokens.count(word_ids >= 0), tokens.count(word_ids < 0)
    vectors = np.zeros((len(values), embedding.dimension))
    ends = np.cumsum(known)
    for row, chosen in enumerate(np.split(word_ids[word_ids >= 0], ends[:-1])):
        # Plain sums in the text's order, cut from its start: nothing hangs on the rows around it.
        for start in range(0, len(chosen), CHUNK):
            vectors[row] += embedding.vectors[chosen[start : start + CHUNK]].sum(axis=0, dtype=np.float64)
    vectors /= np.maximum(known, 1)[:, None]
    embedding.check_unchanged()
    return _Inputs(
        vectors=vectors,
        contents=map(tokens.row_content, range(len(values))),
        counts={"known": known, "unknown": unknown, "wordless": (known == 0).astype(np.int64)},
    )


def _check_type(kind: pa.DataType, column: str, *, texts: bool) -> None:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    fits = {
        True: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        False: lists and (pa.types.is_float32(kind.value_type) or pa.types.is_float64(kind.value_type)),
    }
    if not fits[texts]:
        allowed = "string" if texts else "list of float32 or float64"
        raise InputError(f"Column {column} cannot be released as vectors", allowed=allowed, got=str(kind))


def _row_slices(values: pa.Array) -> Iterator[slice]:
    """Cut rows into runs of at most ``CHUNK``, and texts by their size as well."""
    texts = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    for part in slices(values) if texts else [slice(0, len(values))]:
        for start in range(part.start, part.stop, CHUNK):
            yield slice(start, min(start + CHUNK, part.stop))


def _check_lengths(vectors: NDArray[np.float64], longest: float, column: str) -> None:
    with np.errstate(under="ignore"):
        lengths = np.sqrt(np.square(np.clip(vectors, -longest, longest)).sum(axis=1))
    if longer := int((lengths >= longest).sum()):
        raise InputError(
            f"Column {column} has vectors that are too long to be released at this epsilon",
            allowed=f"length below {0.9995 * longest:.4g}, so that numbers on the noise's grid fit float32",
            got=f"{longer} longer vectors in one batch of rows",
            do="Scale the vectors down by a public factor, or lower --epsilon",
        )


def _uniforms(
    noise: ColumnNoise, ids: Iterable[bytes], contents: Iterable[tuple[bytes | memoryview, ...]]
) -> NDArray[np.float64]:
    """float64 (t, uint64s_per_token): uniforms of rows by id and content; a row is one token."""
    keys = [noise.row_key(row_id, content) for row_id, content in zip(ids, contents, strict=True)]
    uint64s = np.empty((len(keys), noise.uint64s_per_token), dtype=np.uint64)
    for row, key in enumerate(keys):
        noise.fill(uint64s[row : row + 1], key, 0)
    return to_uniform(uint64s)


def _lists(vectors: NDArray[np.float64], present: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Make vectors (t, m) the rows that are present of an Arrow column."""
    lengths = np.where(present, vectors.shape[1], 0)
    numbers = pa.array(vectors.ravel()).cast(kind.value_type)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    return pa.LargeListArray.from_arrays(offsets, numbers, mask=pa.array(~present)).cast(kind)
