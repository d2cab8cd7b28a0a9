"""The two geometries of embeddings: which points they allow, and which arrays their bundles hold."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.errors import BundleError
from dptext_spark.geometry.ball import lorentz
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric, Metric

GeometryName: TypeAlias = Literal["euclidean", "poincare"]
Normalization: TypeAlias = Literal["none", "unit"]
SpaceT = TypeVar("SpaceT", bound="Space")

Reader: TypeAlias = Callable[[str, str, tuple[int, ...]], NDArray[Any]]
"""Maps a file of the bundle, by its name, dtype and shape."""

Points: TypeAlias = NDArray[np.floating[Any]]

Place: TypeAlias = Callable[[int], str]
"""Says where in the source a row of a block stands."""

VECTORS: Final = "vectors.npy"
HALF_NORMS: Final = "half_norms.npy"
COVARIANCE_VALUES: Final = "covariance_values.npy"
COVARIANCE_VECTORS: Final = "covariance_vectors.npy"
LORENTZ_SPACE: Final = "lorentz_space.npy"
LORENTZ_TIME: Final = "lorentz_time.npy"

LARGEST_BALL_RADIUS: Final = 14.6
"""Farther out, float64 leaves noise of radius 1 fewer than 30 bits."""

# Squares and products of such lengths are far from the ends of float32's range.
_LENGTHS: Final = (1e-9, 1e12)
_BLOCK_FLOATS: Final = 2**19


class Space(ABC):
    """Where an embedding's words lie; its arrays are read-only views of the bundle's files.

    Attributes:
        derived: Names of the files beside ``vectors.npy``, all computed from it.
        normalizations: What may be done to the vectors when a bundle is built.
        vectors: (V, n), C order, the words' points.
    """

    geometry: ClassVar[GeometryName]
    derived: ClassVar[tuple[str, ...]]
    dtype: ClassVar[type[np.floating[Any]]]
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none",)
    vectors: NDArray[Any]

    @classmethod
    @abstractmethod
    def open(cls, read: Reader, words: int, dimension: int) -> Self:
        """Map the arrays of V words in n dimensions."""

    @classmethod
    @abstractmethod
    def prepared(cls, vectors: Points, normalize: Normalization, place: Place) -> Points:
        """Check the points (b, n) of a block, and scale them if they are to be.

        Raises:
            BundleError: The geometry has no such point.
        """

    @classmethod
    @abstractmethod
    def derive(cls, folder: Path) -> None:
        """Write the derived files beside ``vectors.npy``."""

    @abstractmethod
    def metric(self) -> Metric:
        """Give the distance of this geometry."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EuclideanSpace(Space):
    """Vectors with their half norms and their covariance.

    Attributes:
        vectors: float32 (V, n).
        half_norms: float32 (V,), |y|²/2 computed in float64.
        covariance_values: float64 (n,), ascending eigenvalues of the sample covariance scaled to trace n.
        covariance_vectors: float64 (n, n), its eigenvectors in columns.

    Source: Xu et al. 2020, "A Differentially Private Text Perturbation Method Using Regularized Mahalanobis
    Metric", section 3, for the scaling of the covariance.
    """

    geometry: ClassVar[GeometryName] = "euclidean"
    derived: ClassVar[tuple[str, ...]] = (HALF_NORMS, COVARIANCE_VALUES, COVARIANCE_VECTORS)
    dtype: ClassVar[type[np.floating[Any]]] = np.float32
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none", "unit")

    vectors: NDArray[np.float32]
    half_norms: NDArray[np.float32]
    covariance_values: NDArray[np.float64]
    covariance_vectors: NDArray[np.float64]

    @classmethod
    def open(cls, read: Reader, words: int, dimension: int) -> Self:
        return cls(
            vectors=read(VECTORS, "<f4", (words, dimension)),
            half_norms=read(HALF_NORMS, "<f4", (words,)),
            covariance_values=read(COVARIANCE_VALUES, "<f8", (dimension,)),
            covariance_vectors=read(COVARIANCE_VECTORS, "<f8", (dimension, dimension)),
        )

    @classmethod
    def prepared(cls, vectors: Points, normalize: Normalization, place: Place) -> Points:
        squares = _squared_norms(vectors)
        _refuse(squares == 0, place, "the vector is zero", allowed="vectors with a length")
        if normalize == "unit":
            return (vectors / np.sqrt(squares)[:, None]).astype(np.float32)
        shortest, longest = _LENGTHS
        _refuse(
            (squares < shortest**2) | (squares > longest**2),
            place,
            "the vector's length is out of range",
            allowed=f"{shortest:g} to {longest:g}",
        )
        return vectors

    @classmethod
    def derive(cls, folder: Path) -> None:
        halves = [(_squared_norms(block) / 2).astype(np.float32) for block in _blocks(folder / VECTORS)]
        np.save(folder / HALF_NORMS, np.concatenate(halves))
        # One thread: with more, BLAS splits sums differently and the last bits follow the number of cores.
        with threadpool_limits(limits=1, user_api="blas"):
            values, vectors = _eigendecomposition(_covariance(folder / VECTORS))
        np.save(folder / COVARIANCE_VALUES, values)
        np.save(folder / COVARIANCE_VECTORS, vectors)

    def metric(self) -> EuclideanMetric:
        # A memmap keeps account of itself in every part of it that is taken, which costs more than the part.
        return EuclideanMetric(vectors=np.asarray(self.vectors))


@dataclass(frozen=True, kw_only=True, eq=False)
class PoincareBall(Space):
    """Points of the unit ball with their Lorentz coordinates.

    Attributes:
        vectors: float64 (V, n), of norm below 1; float32 is not enough near the edge.
        lorentz_space: float32 (V, n), 2 p / (1 - |p|²) of each point p, computed in float64.
        lorentz_time: float32 (V,), (1 + |p|²) / (1 - |p|²) likewise.
    """

    geometry: ClassVar[GeometryName] = "poincare"
    derived: ClassVar[tuple[str, ...]] = (LORENTZ_SPACE, LORENTZ_TIME)
    dtype: ClassVar[type[np.floating[Any]]] = np.float64

    vectors: NDArray[np.float64]
    lorentz_space: NDArray[np.float32]
    lorentz_time: NDArray[np.float32]

    @classmethod
    def open(cls, read: Reader, words: int, dimension: int) -> Self:
        return cls(
            vectors=read(VECTORS, "<f8", (words, dimension)),
            lorentz_space=read(LORENTZ_SPACE, "<f4", (words, dimension)),
            lorentz_time=read(LORENTZ_TIME, "<f4", (words,)),
        )

    @classmethod
    def prepared(cls, vectors: Points, normalize: Normalization, place: Place) -> Points:
        squares = _squared_norms(vectors)
        _refuse(
            squares >= 1, place, "the point is not inside the Poincaré ball", allowed="points of norm < 1"
        )
        norm = math.tanh(LARGEST_BALL_RADIUS / 2)
        _refuse(
            squares > norm**2,
            place,
            "the point is too near the edge of the Poincaré ball for precise noise",
            allowed=f"norms up to 1 - {1 - norm:.1e}, a hyperbolic radius of {LARGEST_BALL_RADIUS:g}",
            got=lambda row: f"1 - {1 - math.sqrt(squares[row]):.1e}",
            do="Train it again with points kept farther in, or remove this row",
        )
        return vectors

    @classmethod
    def derive(cls, folder: Path) -> None:
        times = []
        with (folder / LORENTZ_SPACE).open("wb") as file:
            write_header(file, np.dtype(np.float32), np.load(folder / VECTORS, mmap_mode="r").shape)
            for block in _blocks(folder / VECTORS):
                space, time = lorentz(block)
                file.write(_rounded(space).data)
                times.append(_rounded(time))
        np.save(folder / LORENTZ_TIME, np.concatenate(times))

    def metric(self) -> HyperbolicMetric:
        return HyperbolicMetric(points=self.vectors)


SPACES: Final[dict[str, type[Space]]] = {space.geometry: space for space in (EuclideanSpace, PoincareBall)}


def write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Begin an ``.npy`` file in C order."""
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _refuse(
    faulty: NDArray[np.bool_],
    place: Place,
    what: str,
    *,
    allowed: str,
    got: Callable[[int], str] = lambda row: "",
    do: str = "Remove this row",
) -> None:
    if faulty.any():
        row = int(np.argmax(faulty))
        raise BundleError(f"{place(row)}: {what}", allowed=allowed, got=got(row), do=do)


def _squared_norms(vectors: Points) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64, copy=False)
    # einsum and not BLAS: the order of the sums is then the same for every number of threads.
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return squares


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(under="ignore"):
        return values.astype(np.float32)


def _blocks(path: Path) -> Iterator[NDArray[np.float64]]:
    """Read a matrix block by block: (b, n) float64. Mapping it would count the whole file as resident."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        (rows, dimension), _, dtype = np.lib.format.read_array_header_1_0(file)
        step = max(1, _BLOCK_FLOATS // dimension)
        for start in range(0, rows, step):
            count = min(step, rows - start)
            yield np.fromfile(file, dtype, count * dimension).reshape(count, dimension).astype(np.float64)


def _covariance(path: Path) -> NDArray[np.float64]:
    """Compute the sample covariance of the rows, scaled to trace n: (n, n) float64."""
    # Float64 sums of equal float32 numbers are exact, so equal rows have exactly zero variance.
    rows, n = np.load(path, mmap_mode="r").shape
    mean = sum(block.sum(axis=0) for block in _blocks(path)) / rows
    centred = (block - mean for block in _blocks(path))
    scatter: NDArray[np.float64] = sum(block.T @ block for block in centred)
    trace = float(np.trace(scatter))
    if trace == 0:
        raise BundleError(
            "The vectors have no variance, so their covariance cannot be scaled",
            allowed="vectors that differ",
            got=f"{rows} equal vectors",
        )
    scatter *= n / trace
    return scatter


def _eigendecomposition(covariance: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return ascending eigenvalues (n,), none below 0, and eigenvectors (n, n) in columns of settled sign."""
    values, vectors = np.linalg.eigh(covariance)
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
    return np.maximum(values, 0.0), np.ascontiguousarray(vectors * np.sign(largest))
