"""Inverted lists: a bundle's releasable words, grouped around centroids, as a part of the bundle.

The library faiss finds the centroids when the lists are made; nothing needs it afterwards.
"""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from dptext_spark.embedding.bundle import PARTS, Embedding, damaged, has_numbers
from dptext_spark.embedding.spaces import EuclideanSpace, write_rows
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import WordVectors

# Words of each list that k-means takes, at most.
_SAMPLE: Final = 256
_BLOCK: Final = 1 << 16
# Names the processor whose kernels OpenBLAS takes when it is loaded.
_CORE: Final = "OPENBLAS_CORETYPE"


@dataclass(frozen=True, kw_only=True, eq=False)
class InvertedLists:
    """Words in lists, in read-only views of the bundle's files."""

    centroids: NDArray[np.float32]  # (L, n), C order
    centroid_half_norms: NDArray[np.float32]  # (L,), half the squared length of each
    starts: NDArray[np.int64]  # (L + 1,), where each list starts in the other arrays, and V
    rows: NDArray[np.int32]  # (V,), the words' ids, ascending within each list
    vectors: WordVectors  # (V, n), C order, the words' vectors in the same order
    half_norms: NDArray[np.float32]

    @classmethod
    def open(cls, embedding: Embedding, lists: int) -> Self:
        """Map a bundle's lists; refuse where it has none of that number."""
        part = embedding.part(f"ivf-{lists}")
        if part is None:
            raise no_index(embedding, f"ivf:{lists}")
        words = embedding.releasable
        dimension = embedding.dimension
        layout = {
            "centroids": ("<f4", (lists, dimension)),
            "centroid_half_norms": ("<f4", (lists,)),
            "starts": ("<i8", (lists + 1,)),
            "rows": ("<i4", (words,)),
            "vectors": (embedding.vectors.dtype.str, (words, dimension)),
            "half_norms": ("<f4", (words,)),
        }
        opened = cls(**part.arrays(embedding.path, layout))
        if not opened.are_of(words, verified=embedding.verified):
            raise damaged(part.name, "its lists do not have each word once, or far numbers")
        return opened

    def are_of(self, words: int, *, verified: bool) -> bool:
        """Return whether each word is in one list, in order, and all numbers are finite.

        Vectors are read only where all of the bundle was: ``verified``.
        """
        borders = self.starts[1:-1]
        is_ascending = np.diff(self.rows) > 0
        is_ascending[borders[(borders > 0) & (borders < words)] - 1] = True
        floats = ["centroids", "centroid_half_norms", "half_norms"]
        if verified:
            floats.append("vectors")
        has_order = (np.diff(self.starts) >= 0).all() and is_ascending.all()
        if (self.starts[0], self.starts[-1]) != (0, words) or not has_order:
            return False
        if not has_each_once(self.rows, words):
            return False
        return all(has_numbers(name, getattr(self, name)) for name in floats)

    def stops(self, release_words: int) -> NDArray[np.int64]:
        """Return where each list ends, int64 (L,), if only the first words may be output."""
        released = np.concatenate([[0], np.cumsum(self.rows < release_words)])
        stops: NDArray[np.int64] = self.starts[:-1] + np.diff(released[self.starts])
        return stops


def has_each_once(numbers: NDArray[np.int32], count: int) -> bool:
    """Return whether these are the numbers below ``count``, each once, in any order."""
    if len(numbers) != count or numbers.min() < 0 or numbers.max() >= count:
        return False
    return bool((np.bincount(numbers, minlength=count) == 1).all())


def no_index(embedding: Embedding, index: str) -> ConfigError:
    """Return the error of a bundle that lacks an index, as ``--index`` names it."""
    command = f"dptext embedding SOURCE --output BUNDLE --index {index} --overwrite"
    return ConfigError(
        f"The embedding bundle has no index {index}",
        allowed=", ".join(f"ivf:{count}" for count in list_counts(embedding)) or "none so far",
        do=f"Run {command} with the bundle's other options, or take --search exact",
    )


def list_counts(embedding: Embedding) -> list[int]:
    """Return the numbers of lists of a bundle's indexes, ascending."""
    counts = []
    for path in (embedding.path / PARTS).glob("ivf-*.json"):
        name = path.stem
        lists = name.removeprefix("ivf-")
        is_count = lists.isascii() and lists.isdecimal() and len(lists) < 10
        if is_count and embedding.part(name) is not None:
            counts.append(int(lists))
    return sorted(counts)


def index_lists(index: str) -> int | None:
    """Read ``ivf`` or ``ivf:LISTS`` and return the number of lists; None where it is left open."""
    name, colon, lists = index.partition(":")
    if name != "ivf" or (colon and not (lists.isascii() and lists.isdecimal())):
        raise ConfigError(f"index must be ivf or ivf:LISTS; got {index!r}")
    if not colon:
        return None
    return int(lists)


def check_faiss() -> None:
    """Refuse to make lists where faiss is not installed."""
    if find_spec("faiss") is None:
        do = "pip install 'dptext-spark[index]', or leave --index out"
        raise ConfigError("The index needs the library faiss, which is not installed", do=do)


def make_lists(embedding: Embedding, lists: int | None = None) -> InvertedLists:
    """Build the lists of a bundle's releasable words and keep them with the bundle.

    Equal input gives equal bytes.
    """
    space = embedding.space
    words = embedding.releasable
    if not isinstance(space, EuclideanSpace):
        got = f"geometry {space.geometry}"
        raise ConfigError("An index needs a Euclidean bundle", got=got, do="Leave --index out")
    check_faiss()
    if lists is None:
        # A power of two near 1.6 times the root of the number of words: 1,024 of 400,000 words.
        lists = max(2, 1 << round(math.log2(1.6 * math.sqrt(words))))
    if not 2 <= lists <= words:
        raise ConfigError(
            f"The number of lists must be 2 to {words}, the number of releasable words; got {lists}"
        )
    vectors = np.asarray(space.vectors[:words])
    centroids, nearest = _clustered(vectors, lists)
    half_squares = np.square(centroids, dtype=np.float64).sum(axis=1) / 2
    order = np.argsort(nearest, kind="stable")
    starts = np.searchsorted(nearest[order], np.arange(lists + 1))
    half_norms = space.half_norms[:words]
    arrays = {
        "centroids": centroids,
        "centroid_half_norms": half_squares.astype(np.float32),
        "starts": starts,
        "rows": order.astype(np.int32),
        "half_norms": half_norms[order],
    }
    with tempfile.TemporaryDirectory(dir=embedding.path.parent, prefix=".index-") as folder:
        for name, array in arrays.items():
            np.save(Path(folder, f"{name}.npy"), array)
        write_rows(Path(folder, "vectors.npy"), vectors, order)
        embedding.keep(f"ivf-{lists}", {"lists": lists}, Path(folder))
    return InvertedLists.open(embedding, lists)


def _clustered(vectors: WordVectors, lists: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Find centroids by k-means, float32 (L, n), and the nearest of each vector, int64 (V,)."""
    faiss = _faiss()
    # Words at equal steps: of a vocabulary in order of frequency, words of all frequencies.
    step = max(1, len(vectors) // (_SAMPLE * lists))
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # sums in one order give one result
    try:
        means = faiss.Kmeans(
            vectors.shape[1],
            lists,
            niter=20,
            seed=1234,
            min_points_per_centroid=1,
            max_points_per_centroid=1 << 30,
        )
        means.train(np.ascontiguousarray(vectors[::step], dtype=np.float32))
        nearest = []
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK].astype(np.float32, copy=False)
            _, centroids = means.index.search(block, 1)
            nearest.append(centroids[:, 0])
    finally:
        faiss.omp_set_num_threads(threads)
    return np.ascontiguousarray(means.centroids, dtype=np.float32), np.concatenate(nearest)


def _faiss() -> Any:
    """Import faiss with kernels for this processor.

    It brings an old BLAS, which takes a new processor for one of 2004; NumPy's BLAS recognizes it.
    """
    cores = [pool["architecture"] for pool in threadpool_info() if pool.get("architecture")]
    is_unset = bool(cores) and _CORE not in os.environ
    if is_unset:
        os.environ[_CORE] = cores[0]
    try:
        import faiss
    finally:
        if is_unset:
            del os.environ[_CORE]
    return faiss
