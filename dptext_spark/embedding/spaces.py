"""The two geometries of embeddings: which points they allow, and which arrays their bundles hold."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.errors import BundleError
from dptext_spark.geometry.ball import lorentz
from dptext_spark.geometry.metric import EuclideanMetric, HyperbolicMetric, Metric

GeometryName: TypeAlias = Literal["euclidean", "poincare"]
Normalization: TypeAlias = Literal["none", "unit"]
SpaceT = TypeVar("SpaceT", bound="Space")
Points: TypeAlias = NDArray[np.floating[Any]]

Faults: TypeAlias = Iterator[tuple[NDArray[np.bool_], str, str]]
"""Kind by kind: which rows of a block have the fault, bool (b,), what it is, and what is allowed."""

VECTORS: Final = "vectors.npy"

LARGEST_BALL_RADIUS: Final = 14.6
"""Farther out, float64 leaves noise of radius 1 fewer than 30 bits."""

# Squares and products of such lengths are far from the ends of float32's range.
_LENGTHS: Final = (1e-9, 1e12)
_BLOCK_FLOATS: Final = 2**19


class Space(ABC):
    """Where an embedding's words lie; its arrays are read-only views of the bundle's files.

    Attributes:
        arrays: Its fields, each an ``.npy`` file of that name: dtype and shape, of V words and n dimensions.
        vectors: (V, n), C order, the words' points.
    """

    geometry: ClassVar[GeometryName]
    arrays: ClassVar[Mapping[str, tuple[str, str]]]
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none",)
    vectors: NDArray[Any]

    @classmethod
    @abstractmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        """Find the points of a block (b, n) that have no place here."""

    @classmethod
    @abstractmethod
    def derive(cls, folder: Path) -> None:
        """Write the derived files next to ``vectors.npy``."""

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
    arrays: ClassVar[Mapping[str, tuple[str, str]]] = {
        "vectors": ("<f4", "Vn"),
        "half_norms": ("<f4", "V"),
        "covariance_values": ("<f8", "n"),
        "covariance_vectors": ("<f8", "nn"),
    }
    normalizations: ClassVar[tuple[Normalization, ...]] = ("none", "unit")

    vectors: NDArray[np.float32]
    half_norms: NDArray[np.float32]
    covariance_values: NDArray[np.float64]
    covariance_vectors: NDArray[np.float64]

    @classmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        squares = _squared_norms(vectors)
        yield squares == 0, "the vector is zero", "vectors with a length"
        if normalize == "none":
            shortest, longest = _LENGTHS
            outside = (squares < shortest**2) | (squares > longest**2)
            yield outside, "the vector's length is out of range", f"{shortest:g} to {longest:g}"

    @classmethod
    def derive(cls, folder: Path) -> None:
        halves = [(_squared_norms(block) / 2).astype(np.float32) for block in _blocks(folder)]
        np.save(folder / "half_norms.npy", np.concatenate(halves))
        rows, n = np.load(folder / VECTORS, mmap_mode="r").shape
        # One thread: with more, BLAS splits sums differently and the last bits follow the number of cores.
        with threadpool_limits(limits=1, user_api="blas"):
            # Float64 sums of equal float32 numbers are exact, so equal rows have exactly zero variance.
            mean = sum(block.sum(axis=0) for block in _blocks(folder)) / rows
            scatter = sum(centred.T @ centred for centred in (block - mean for block in _blocks(folder)))
            if (trace := float(np.trace(scatter))) == 0:
                what = "The vectors have no variance, so their covariance cannot be scaled"
                raise BundleError(what, allowed="vectors that differ", got=f"{rows} equal vectors")
            values, vectors = np.linalg.eigh(scatter * (n / trace))
        # The largest entry of each eigenvector is positive; no eigenvalue is below 0.
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
        np.save(folder / "covariance_values.npy", np.maximum(values, 0.0))
        np.save(folder / "covariance_vectors.npy", np.ascontiguousarray(vectors * np.sign(largest)))

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
    arrays: ClassVar[Mapping[str, tuple[str, str]]] = {
        "vectors": ("<f8", "Vn"),
        "lorentz_space": ("<f4", "Vn"),
        "lorentz_time": ("<f4", "V"),
    }

    vectors: NDArray[np.float64]
    lorentz_space: NDArray[np.float32]
    lorentz_time: NDArray[np.float32]

    @classmethod
    def faults(cls, vectors: Points, normalize: Normalization) -> Faults:
        squares = _squared_norms(vectors)
        yield squares >= 1, "the point is not inside the Poincaré ball", "points of norm < 1"
        norm = math.tanh(LARGEST_BALL_RADIUS / 2)
        what = "the point is too near the edge of the Poincaré ball for precise noise"
        allowed = f"norms up to 1 - {1 - norm:.1e}, a hyperbolic radius of {LARGEST_BALL_RADIUS:g}"
        yield squares > norm**2, what, allowed

    @classmethod
    def derive(cls, folder: Path) -> None:
        times = []
        with (folder / "lorentz_space.npy").open("wb") as file:
            write_header(file, np.dtype(np.float32), np.load(folder / VECTORS, mmap_mode="r").shape)
            for block in _blocks(folder):
                space, time = lorentz(block)
                file.write(space.astype(np.float32).data)
                times.append(time.astype(np.float32))
        np.save(folder / "lorentz_time.npy", np.concatenate(times))

    def metric(self) -> HyperbolicMetric:
        return HyperbolicMetric(vectors=self.vectors)


SPACES: Final[dict[str, type[Space]]] = {space.geometry: space for space in (EuclideanSpace, PoincareBall)}


def write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Begin an ``.npy`` file in C order."""
    header = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def write_rows(path: Path, rows: NDArray[Any], order: NDArray[np.int64]) -> None:
    """Write rows (V, n) in another order as an ``.npy`` file, block by block."""
    with path.open("wb") as file:
        write_header(file, rows.dtype, rows.shape)
        step = max(1, _BLOCK_FLOATS // rows.shape[1])
        for start in range(0, len(order), step):
            file.write(rows[order[start : start + step]].data)


def unit(vectors: Points) -> Points:
    """Scale vectors to length 1, in float64, and round them."""
    return (vectors / np.sqrt(_squared_norms(vectors))[:, None]).astype(np.float32)


def _squared_norms(vectors: Points) -> NDArray[np.float64]:
    wide = vectors.astype(np.float64, copy=False)
    # einsum and not BLAS: the order of the sums is then the same for every number of threads.
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", wide, wide)
    return squares


def _blocks(folder: Path) -> Iterator[NDArray[np.float64]]:
    """Read a bundle's vectors block by block: (b, n) float64."""
    vectors = np.asarray(np.load(folder / VECTORS, mmap_mode="r"))
    step = max(1, _BLOCK_FLOATS // vectors.shape[1])
    yield from (vectors[row : row + step].astype(np.float64) for row in range(0, len(vectors), step))
