"""The two geometries of embeddings: the points they allow, and the arrays of their bundles."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.errors import BundleError
from dptext_spark.geometry import WordVectors
from dptext_spark.geometry.ball import lorentz
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric, Metric

GeometryName: TypeAlias = Literal["euclidean", "poincare"]
Normalization: TypeAlias = Literal["none", "unit"]
Precision: TypeAlias = Literal["half", "single", "double"]
SpaceT = TypeVar("SpaceT", bound="Space")
Points: TypeAlias = NDArray[np.floating[Any]]

Faults: TypeAlias = Iterator[tuple[NDArray[np.bool_], str]]
"""For each kind of fault: which rows of a block have it, bool (b,), and its name."""

VECTORS: Final = "vectors.npy"

LARGEST_BALL_RADIUS: Final = 14.6
"""Farther out, float64 leaves noise of radius 1 fewer than 30 bits."""

NO_ARRAY: Final = (EOFError, OSError, OverflowError, SyntaxError, TokenError, TypeError, ValueError)
"""What NumPy raises at a file that is no ``.npy`` file, or one whose header lies."""

_BLOCK_FLOATS: Final = 2**19
# Shortest and longest vectors by type. In single precision squares and products of such lengths are
# far from the ends of the range; in half precision shorter ones would lose digits.
_LENGTHS: Final = {"float32": (1e-9, 1e12), "float16": (0.01, 65_504.0)}


class Space(ABC):
    """Where an embedding's words lie; its arrays are read-only views of the bundle's files."""

    geometry: ClassVar[GeometryName]
    # Of the vectors, the dtype in each precision; the first one is the default.
    precisions: ClassVar[Mapping[Precision, str]]
    # Its other fields: dtype and shape, of V words and n dimensions.
    derived: ClassVar[Mapping[str, tuple[str, str]]]
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none",)
    vectors: NDArray[Any]  # (V, n), C order, the words' points

    @classmethod
    def arrays(cls, precision: Precision) -> dict[str, tuple[str, str]]:
        """Return dtype and shape of all fields, each of which is an ``.npy`` file of that name."""
        return {"vectors": (cls.precisions[precision], "Vn"), **cls.derived}

    @classmethod
    @abstractmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        """Yield the faults of a block's points (b, n)."""

    @classmethod
    @abstractmethod
    def derive(cls, folder: Path) -> None:
        """Write the derived files next to ``vectors.npy``."""

    @abstractmethod
    def metric(self) -> Metric:
        """Return the distance of this geometry."""


@dataclass(frozen=True, kw_only=True, eq=False)
class EuclideanSpace(Space):
    """Vectors with their half norms and their covariance.

    Source: Xu et al. 2020, "A Differentially Private Text Perturbation Method Using Regularized
    Mahalanobis Metric", section 3, for the scaling of the covariance.
    """

    geometry: ClassVar[GeometryName] = "euclidean"
    precisions: ClassVar[Mapping[Precision, str]] = {"single": "<f4", "half": "<f2"}
    derived: ClassVar[Mapping[str, tuple[str, str]]] = {
        "half_norms": ("<f4", "V"),
        "covariance_values": ("<f8", "n"),
        "covariance_vectors": ("<f8", "nn"),
    }
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none", "unit")

    vectors: WordVectors
    half_norms: NDArray[np.float32]  # |y|²/2 computed in float64
    # Of the covariance scaled to trace n: its eigenvalues, ascending, and its eigenvectors in
    # columns.
    covariance_values: NDArray[np.float64]
    covariance_vectors: NDArray[np.float64]

    @classmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        squares = _squared_norms(vectors)
        yield squares == 0, "the vector is zero"
        if normalize == "none":
            shortest, longest = _LENGTHS[vectors.dtype.name]
            outside = (squares < shortest**2) | (squares > longest**2)
            yield outside, f"the vector's length is not between {shortest:g} and {longest:g}"

    @classmethod
    def derive(cls, folder: Path) -> None:
        rows, n = np.load(folder / VECTORS, mmap_mode="r").shape
        halves = (_squared_norms(block) / 2 for block in _blocks(folder))
        write_array(folder / "half_norms.npy", "<f4", (rows,), halves)
        # One thread: with more, BLAS splits sums, and the last bits depend on the number of cores.
        with threadpool_limits(limits=1, user_api="blas"):
            # Float64 sums of equal float32 numbers are exact, so equal rows have no variance.
            mean = sum(block.sum(axis=0) for block in _blocks(folder)) / rows
            scatter = np.zeros((n, n))
            for block in _blocks(folder):
                centred = block - mean
                scatter += centred.T @ centred
            trace = float(np.trace(scatter))
            if trace == 0:
                raise BundleError(
                    "The vectors have no variance, so their covariance cannot be scaled",
                    allowed="vectors that differ",
                    got=f"{rows} equal vectors",
                )
            values, vectors = np.linalg.eigh(scatter * (n / trace))
        # The largest entry of each eigenvector is positive; no eigenvalue is below 0.
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
        np.save(folder / "covariance_values.npy", np.maximum(values, 0.0))
        np.save(folder / "covariance_vectors.npy", np.ascontiguousarray(vectors * np.sign(largest)))

    @property
    def variance(self) -> float:
        """The mean squared distance of words from their mean."""
        rows = len(self.vectors)
        mean = self.vectors.mean(axis=0, dtype=np.float64)
        step = _BLOCK_FLOATS // len(mean) + 1
        total = 0.0
        for start in range(0, rows, step):
            total += float(_squared_norms(self.vectors[start : start + step] - mean).sum())
        return total / rows

    def metric(self) -> EuclideanMetric:
        # A slice of a memmap costs more than one of an array: each is a memmap of its own.
        return EuclideanMetric(vectors=np.asarray(self.vectors))


@dataclass(frozen=True, kw_only=True, eq=False)
class PoincareBall(Space):
    """Points of the unit ball with their Lorentz coordinates."""

    geometry: ClassVar[GeometryName] = "poincare"
    # Single precision is not enough near the edge.
    precisions: ClassVar[Mapping[Precision, str]] = {"double": "<f8"}
    derived: ClassVar[Mapping[str, tuple[str, str]]] = {
        "lorentz_space": ("<f4", "Vn"),
        "lorentz_time": ("<f4", "V"),
    }

    vectors: NDArray[np.float64]  # of norm below 1
    lorentz_space: NDArray[np.float32]  # 2 p / (1 - |p|²) of each point p, computed in float64
    lorentz_time: NDArray[np.float32]  # (1 + |p|²) / (1 - |p|²) likewise

    @classmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        squares = _squared_norms(vectors)
        largest = f"{LARGEST_BALL_RADIUS:g}"
        outside = squares > math.tanh(LARGEST_BALL_RADIUS / 2) ** 2
        yield outside, f"the point is not inside the Poincaré ball, up to a radius of {largest}"

    @classmethod
    def derive(cls, folder: Path) -> None:
        shape = np.load(folder / VECTORS, mmap_mode="r").shape
        space = (lorentz(block)[0] for block in _blocks(folder))
        write_array(folder / "lorentz_space.npy", "<f4", shape, space)
        time = (lorentz(block)[1] for block in _blocks(folder))
        write_array(folder / "lorentz_time.npy", "<f4", shape[:1], time)

    def metric(self) -> HyperbolicMetric:
        return HyperbolicMetric(vectors=self.vectors)


SPACES: Final[dict[str, type[Space]]] = {
    EuclideanSpace.geometry: EuclideanSpace,
    PoincareBall.geometry: PoincareBall,
}


def write_array(
    path: Path, dtype: str, shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]
) -> None:
    """Write an ``.npy`` file in C order, block by block."""
    with path.open("wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(np.ascontiguousarray(block, dtype=dtype).data)


def write_rows(path: Path, rows: NDArray[Any], order: NDArray[np.int64]) -> None:
    """Write rows (V, n) in another order as an ``.npy`` file."""
    step = max(1, _BLOCK_FLOATS // rows.shape[1])
    blocks = (rows[order[start : start + step]] for start in range(0, len(order), step))
    write_array(path, rows.dtype.str, rows.shape, blocks)


def unit(vectors: Points, dtype: str) -> Points:
    """Scale vectors to length 1, in float64, and round them."""
    lengths = np.sqrt(_squared_norms(vectors))
    scaled: Points = (vectors / lengths[:, None]).astype(dtype)
    return scaled


def _squared_norms(vectors: Points) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64, copy=False)
    # einsum and not BLAS: the order of the sums is then the same for every number of threads.
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return squares


def _blocks(folder: Path) -> Iterator[NDArray[np.float64]]:
    """Read a bundle's vectors block by block: (b, n) float64."""
    vectors = np.asarray(np.load(folder / VECTORS, mmap_mode="r"))
    step = max(1, _BLOCK_FLOATS // vectors.shape[1])
    for row in range(0, len(vectors), step):
        yield vectors[row : row + step].astype(np.float64)
