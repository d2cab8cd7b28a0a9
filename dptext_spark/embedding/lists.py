"""Inverted lists: the releasable words of a bundle, grouped around centroids, as an optional part of it.

The library faiss finds the centroids when the lists are made; nothing needs it afterwards.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.parts import Part
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.sealing import file_sha256

# Words of each list that the centroids are found from, at most, and rounds of k-means.
_SAMPLE: Final = 256
_ROUNDS: Final = 20
_SEED: Final = 1234
_BLOCK: Final = 1 << 16
# Tells OpenBLAS, when it is loaded, whose processor's kernels to take.
_CORE: Final = "OPENBLAS_CORETYPE"


@dataclass(frozen=True, kw_only=True, eq=False)
class InvertedLists:
    """Words in lists, in read-only views of the bundle's files.

    Attributes:
        centroids: float32 (L, n), C order.
        centroid_half_norms: float32 (L,), half the squared length of each.
        starts: int64 (L + 1,), where in the other arrays each list starts; its last entry is V.
        rows: int32 (V,), the words' ids, ascending within each list.
        vectors: float32 (V, n), C order, the words' vectors in the same order.
        half_norms: float32 (V,), half the squared length of each.
    """

    centroids: NDArray[np.float32]
    centroid_half_norms: NDArray[np.float32]
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]
    vectors: NDArray[np.float32]
    half_norms: NDArray[np.float32]

    @classmethod
    def open(cls, embedding: Embedding, lists: int) -> Self:
        """Map a bundle's lists.

        Raises:
            ConfigError: It has none of that number.
            BundleError: They are damaged.
        """
        part = embedding.part(_name(lists))
        if part is None:
            raise ConfigError(
                "The embedding bundle has no such index",
                allowed=", ".join(f"ivf:{count}" for count in made(embedding)) or "none so far",
                got=f"ivf:{lists}",
                do=f"Make it with: dptext embedding SOURCE --output BUNDLE --index ivf:{lists}",
            )
        try:
            maps = {
                file.name: np.asarray(np.load(part.path(embedding.path, f"{file.name}.npy"), mmap_mode="r"))
                for file in fields(cls)
            }
        except (OSError, ValueError):
            raise BundleError("The index of the embedding bundle is damaged", do="Make it again") from None
        return cls(**maps)

    def stops(self, release_words: int) -> NDArray[np.int64]:
        """int64 (L,): where each list ends, if only the first so many words of the bundle may be output."""
        released = np.concatenate([[0], np.cumsum(self.rows < release_words)])
        starts = self.starts[:-1]
        stops: NDArray[np.int64] = starts + released[self.starts[1:]] - released[starts]
        return stops


def _name(lists: int) -> str:
    return f"ivf-{lists}"


def made(embedding: Embedding) -> list[int]:
    """List the numbers of lists that a bundle has an index of, ascending."""
    found = (path.name.removesuffix(".json") for path in (embedding.path / "parts").glob("ivf-*.json"))
    return sorted(int(name.removeprefix("ivf-")) for name in found if embedding.part(name) is not None)


def default_lists(releasable: int) -> int:
    """Give a power of two near 1.6 times the root of the number of words: 1,024 lists of 400,000 words."""
    return max(2, 1 << round(math.log2(1.6 * math.sqrt(releasable))))


def index_lists(index: str) -> int | None:
    """Read ``ivf`` or ``ivf:LISTS``: how many lists are asked for; None where that is left open.

    Raises:
        ConfigError: It is neither.
    """
    name, colon, lists = index.partition(":")
    if name != "ivf" or (colon and not (lists.isascii() and lists.isdecimal())):
        raise ConfigError("The index is unknown", allowed="ivf or ivf:LISTS", got=repr(index))
    return int(lists) if colon else None


def check_faiss() -> None:
    """Refuse to make lists where what finds their centroids is not installed.

    Raises:
        ConfigError: It is not.
    """
    if find_spec("faiss") is None:
        raise ConfigError(
            "The index needs the library faiss, which is not installed",
            do="pip install 'dptext-spark[index]', or leave --index out",
        )


def make_lists(embedding: Embedding, lists: int | None = None) -> InvertedLists:
    """Make the lists of a bundle's releasable words and keep them with it; equal input gives equal bytes.

    Args:
        embedding: The bundle, which must be writable.
        lists: How many, 2 to the number of releasable words; by default see :func:`default_lists`.

    Raises:
        ConfigError: Their number is impossible, the bundle's geometry has no such index, or faiss is missing.
        BundleError: The bundle's folder cannot be written to.
    """
    space = embedding.space
    if not isinstance(space, EuclideanSpace):
        raise ConfigError(
            "Only Euclidean bundles take an index", got=f"geometry {space.geometry}", do="Leave --index out"
        )
    check_faiss()
    lists = default_lists(embedding.releasable) if lists is None else lists
    if not 2 <= lists <= embedding.releasable:
        raise ConfigError(
            "The index has an impossible number of lists",
            allowed=f"2 to {embedding.releasable}, the words that may be output",
            got=str(lists),
        )
    vectors, half_norms = space.vectors[: embedding.releasable], space.half_norms[: embedding.releasable]
    centroids, nearest = _clustered(vectors, lists)
    order = np.argsort(nearest, kind="stable")
    arrays = {
        "centroids": centroids,
        "centroid_half_norms": (np.square(centroids, dtype=np.float64).sum(axis=1) / 2).astype(np.float32),
        "starts": np.concatenate([[0], np.cumsum(np.bincount(nearest, minlength=lists))]).astype(np.int64),
        "rows": order.astype(np.int32),
    }
    with tempfile.TemporaryDirectory(dir=embedding.path.parent, prefix=".index-") as folder:
        files = {
            f"{name}.npy": Path(folder, f"{name}.npy") for name in (f.name for f in fields(InvertedLists))
        }
        for name, array in arrays.items():
            np.save(files[f"{name}.npy"], array)
        target = np.lib.format.open_memmap(
            files["vectors.npy"], mode="w+", dtype=np.float32, shape=vectors.shape
        )
        for start in range(0, len(order), _BLOCK):
            target[start : start + _BLOCK] = vectors[order[start : start + _BLOCK]]
        target.flush()
        np.save(files["half_norms.npy"], half_norms[order])
        hashes = {name: file_sha256(path) for name, path in files.items()}
        embedding.keep(Part.of(_name(lists), embedding.fingerprint, {"lists": lists}, hashes), files)
    return InvertedLists.open(embedding, lists)


def _clustered(vectors: NDArray[np.float32], lists: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find centroids by k-means, float32 (L, n), and the nearest of each vector, int64 (V,)."""
    faiss = _faiss()
    # Every so manieth word: of a vocabulary by frequency, words of all frequencies.
    step = max(1, len(vectors) // (_SAMPLE * lists))
    sample = np.ascontiguousarray(vectors[::step], dtype=np.float32)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # sums in one order give one result
    try:
        means = faiss.Kmeans(
            vectors.shape[1], lists, niter=_ROUNDS, seed=_SEED, min_points_per_centroid=1,
            max_points_per_centroid=1 << 30,
        )  # fmt: skip
        means.train(sample)
        centroids: NDArray[np.float32] = np.ascontiguousarray(means.centroids, dtype=np.float32)
        nearest = np.empty(len(vectors), dtype=np.int64)
        for start in range(0, len(vectors), _BLOCK):
            block = np.ascontiguousarray(vectors[start : start + _BLOCK], dtype=np.float32)
            nearest[start : start + _BLOCK] = means.index.search(block, 1)[1][:, 0]
    finally:
        faiss.omp_set_num_threads(threads)
    return centroids, nearest


def _faiss() -> ModuleType:
    """Import faiss. Its BLAS is an old one, which takes a new processor for one of 2004: NumPy's knows it."""
    cores = [pool["architecture"] for pool in threadpool_info() if pool.get("architecture")]
    if unset := bool(cores) and _CORE not in os.environ:
        os.environ[_CORE] = cores[0]
    try:
        import faiss
    finally:
        if unset:
            del os.environ[_CORE]
    return faiss
