"""Codes of the words that a search looks at: whether it has any, and where they lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import PARTS, Embedding, Part, damaged
from dptext_spark.embedding.lists import has_each_once
from dptext_spark.errors import BundleError
from dptext_spark.search import kernel
from dptext_spark.search.codes import TILE, CodedWords, ScoreTerms, code_width, euclidean
from dptext_spark.search.withheld import NONE, Withheld

_LAYOUT: Final = 1  # of codes that lie with a bundle: those of another layout are not read
_PRIVATE: Final = 1 << 25  # largest codes, in bytes, that a process keeps in its own memory
# Coordinates of all words, and of one word, up to which single precision is as fast.
_FEW: Final = 1 << 19
_PATIENCE: Final = 300.0
"""Seconds to wait for a lock: whoever may read its file can hold it for ever."""

_NARROW: Final = 15


def _pays(words: int, dimension: int) -> bool:
    return words * dimension > _FEW and dimension > _NARROW


def products_of(words: int, dimension: int) -> str | None:
    """Describe the products that search so many words on this machine; None for few words."""
    if not _pays(words, dimension):
        return None
    bits = kernel.trusted_bits(code_width(dimension))
    if not bits:
        return "single precision"
    return f"codes of {bits} bits where there is room for them"


def coded_words(
    vectors: NDArray[Any],
    embedding: Embedding | None = None,
    score_terms: ScoreTerms = euclidean,
    *,
    withheld: Withheld = NONE,
) -> CodedWords | None:
    """Return words (V, n) with their codes, which lie with the bundle if these are its words.

    None where codes do not pay, where no product can be trusted, or where codes would be large and
    no folder can hold them.
    """
    if not _pays(*vectors.shape):
        return None
    width = code_width(vectors.shape[1])
    bits = kernel.trusted_bits(width)
    if not bits:
        return None
    if embedding is not None:
        part = _stored_codes(embedding, vectors, bits, score_terms)
        if part is not None:
            coded = _coded(part, embedding, vectors, bits, score_terms)
            return coded.without(withheld.among(len(vectors)))
    if len(vectors) * width > _PRIVATE:
        return None
    return CodedWords.of(vectors, bits, score_terms).without(withheld.among(len(vectors)))


def _coded(
    part: Part, embedding: Embedding, vectors: NDArray[Any], bits: int, score_terms: ScoreTerms
) -> CodedWords:
    """Open the codes of a part, which must be those of as many words."""
    count, dimension = vectors.shape
    layout = {
        "codes": ("|u1", (count, code_width(dimension))),
        "words": ("<i4", (count,)),
        "tiles": ("<f8", (4, -(-count // TILE))),
    }
    arrays = part.arrays(embedding.path, layout)
    unit: Any = part.values.get("unit")
    zero = part.values.get("zero")
    is_unit = isinstance(unit, float) and 0.0 < unit < math.inf
    has_tiles = arrays["tiles"].min() >= 0.0 and arrays["tiles"].max() < math.inf
    has_words = has_each_once(arrays["words"], count)
    if not (is_unit and zero == 1 << (bits - 1) and has_tiles and has_words):
        raise damaged(part.name, "it does not have each word once, or numbers of another kind")
    return CodedWords(vectors=vectors, score_terms=score_terms, unit=unit, zero=zero, **arrays)


def _stored_codes(
    embedding: Embedding, vectors: NDArray[Any], bits: int, score_terms: ScoreTerms
) -> Part | None:
    """Return the codes that lie with a bundle; make them if there are none, once on a machine."""
    name = f"codes-{_LAYOUT}-{len(vectors)}-{bits}"
    part = embedding.part(name)
    if part is not None:
        return part
    folder = embedding.path / PARTS
    with suppress(OSError, BundleError):
        folder.mkdir(exist_ok=True)
        with (
            FileLock(folder / "codes.lock", timeout=_PATIENCE),
            TemporaryDirectory(dir=folder, prefix=".codes-") as files,
        ):
            part = embedding.part(name)  # another process may have made them meanwhile
            if part is None:
                values = _write_codes(Path(files), vectors, bits, score_terms)
                part = embedding.keep(name, values, Path(files))
    return part


def _write_codes(
    folder: Path, vectors: NDArray[Any], bits: int, score_terms: ScoreTerms
) -> Mapping[str, Any]:
    """Write the arrays of a bundle's codes, each to its file, and return their other values."""
    words = CodedWords.of(vectors, bits, score_terms, file=folder / "codes.npy")
    np.save(folder / "words.npy", words.words)
    np.save(folder / "tiles.npy", words.tiles)
    values = {"unit": words.unit, "zero": words.zero}
    del words  # writes what is mapped
    return values
