"""Bags of K-grams: how often each run of K words is in a text, hashed to a vector."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from dptext_spark.text.columns import Tokens, check_unicode, slices
from dptext_spark.text.tokens import Segmentation, lookup_forms


class Bags(NamedTuple):
    """The bags of some texts."""

    vectors: sparse.csr_array  # (rows, places), float64; a row has length 1, or is zero
    contents: list[tuple[bytes, ...]]  # of the texts, for the noise's context
    grams: NDArray[np.int64]  # (rows,), how many each text has


@dataclass(frozen=True, kw_only=True)
class KgramBags:
    """Hashes each K-gram of a text to a place and a sign, adds up, and scales to length 1.

    K-grams are runs of K tokens in lower case; a text of fewer tokens has one gram of all. Signs
    are +1 or -1, so that grams that meet in a place do not add up on average. Counts are integers:
    a bag is the same to the last bit on every machine.

    Source: Weinberger et al. 2009, "Feature hashing for large scale multitask learning".
    """

    kgrams: int
    places: int
    tokenizer: Segmentation

    @property
    def identity(self) -> str:
        """What enters the noise of texts, so that no two kinds of bags share noise."""
        tokenizer = self.tokenizer.identity or self.tokenizer.name
        return f"bags of {self.kgrams}-grams at {self.places} places, {tokenizer}"

    def read(self, texts: pa.Array, column: str) -> Bags:
        """Read texts (rows,), none of them null."""
        check_unicode(texts, column)
        hashes: list[int] = []
        contents: list[tuple[bytes, ...]] = []
        counts: list[int] = []
        for rows in slices(texts):
            tokens = Tokens.of(texts[rows], self.tokenizer)
            distinct_hashes: dict[tuple[str, ...], int] = {}
            for row, grams in enumerate(_grams(tokens, self.kgrams)):
                for gram in grams:
                    if gram not in distinct_hashes:
                        distinct_hashes[gram] = _hash(gram)
                    hashes.append(distinct_hashes[gram])
                counts.append(len(grams))
                contents.append(tokens.row_content(row))
        gram_counts = np.array(counts, dtype=np.int64)
        vectors = self._vectors(np.array(hashes, dtype=np.uint64), gram_counts)
        return Bags(vectors, contents, gram_counts)

    def _vectors(
        self, hashes: NDArray[np.uint64], gram_counts: NDArray[np.int64]
    ) -> sparse.csr_array:
        """Add up the signs of grams by text and place, and scale each text to length 1."""
        rows = np.repeat(np.arange(len(gram_counts)), gram_counts)
        signs = np.where(hashes & np.uint64(1), -1.0, 1.0)
        places = ((hashes >> np.uint64(1)) % np.uint64(self.places)).astype(np.int64)
        shape = (len(gram_counts), self.places)
        vectors = sparse.csr_array((signs, (rows, places)), shape=shape)
        # A sum of squared integers is 0, where all signs cancel, or 1 at least.
        squares = np.maximum((vectors * vectors).sum(axis=1), 1.0)
        vectors.data /= np.repeat(np.sqrt(squares), np.diff(vectors.indptr))
        return vectors


def _grams(tokens: Tokens, kgrams: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield the K-grams of each text."""
    forms = [lookup_forms(token)[1] for token in tokens.distinct.to_pylist()]
    words = [forms[code] for code in tokens.codes.tolist()]
    for start, end in pairwise(tokens.offsets.tolist()):
        length = max(1, min(kgrams, end - start))
        yield [tuple(words[place : place + length]) for place in range(start, end - length + 1)]


def _hash(gram: tuple[str, ...]) -> int:
    """Hash a gram; each word's length comes first, so that no two grams are hashed as one."""
    digest = hashlib.blake2b(digest_size=8, person=b"dptext-kgrams")
    for word in gram:
        encoded = word.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little")
