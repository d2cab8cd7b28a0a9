"""Texts as word ids: perturbed by noise that a few tokens share, and as features of linear models.

What a token becomes follows the mechanism's own law, whatever its place. Tokens of one word never share
noise; up to ``SHARE`` tokens of different words do, which are drawn at random from all texts that are given.
That is several times faster than noise for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.lookup import joining, look_up
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.token_columns import Tokens

SHARE: Final = 32

Features: TypeAlias = sparse.csr_matrix | NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WordRows:
    """Texts as the word ids of their tokens.

    Attributes:
        words: int64 (tokens,), -1 where the vocabulary has no such word.
        rows: int64 (tokens,), the row of each token, in order.
        count: How many rows there are.
    """

    words: NDArray[np.int64]
    rows: NDArray[np.int64]
    count: int

    @classmethod
    def of(cls, texts: Sequence[str], embedding: Embedding, *, longest: int | None = None) -> WordRows:
        """Read texts as a release does, or the first ``longest`` tokens of each."""
        tokens = Tokens.of(pa.array(texts, pa.string()), joining(embedding, TextPolicy().tokenizer), None)
        words, lengths = look_up(tokens, embedding), np.diff(tokens.offsets)
        rows = np.repeat(np.arange(len(texts)), lengths)
        if longest is not None:
            kept = np.arange(len(words)) - np.repeat(tokens.offsets[:-1], lengths) < longest
            words, rows = words[kept], rows[kept]
        return cls(words=words, rows=rows, count=len(texts))

    @property
    def known(self) -> NDArray[np.bool_]:
        """bool (tokens,): which tokens the vocabulary has."""
        return self.words >= 0

    def between(self, start: int, stop: int) -> WordRows:
        """Give the rows from start to stop."""
        first, last = np.searchsorted(self.rows, [start, stop])
        return replace(
            self, words=self.words[first:last], rows=self.rows[first:last] - start, count=stop - start
        )

    def having(self, words: NDArray[np.int64]) -> WordRows:
        """Give the same rows with other words in them."""
        return replace(self, words=words.astype(np.int64))

    def kept(self, original: WordRows) -> float:
        """Share of the original's known tokens that are the same word here."""
        return float((self.words == original.words)[original.known].mean())


def releases(
    texts: WordRows,
    mechanisms: Sequence[Mechanism],
    embedding: Embedding,
    *,
    repetitions: int,
    seed: int,
) -> list[list[WordRows]]:
    """Perturb texts by mechanisms that differ in epsilon alone; unknown words stay -1.

    Returns:
        For each mechanism, and each repetition, the texts. Repetitions have noise of their own; mechanisms
        share it, so that differences between them come out the sharper.
    """
    drawn = _drawn(np.tile(texts.words, repetitions), mechanisms, embedding, seed)
    return [[texts.having(part) for part in np.split(row, repetitions)] for row in drawn]


def bag_of_words(texts: WordRows, embedding: Embedding) -> Features:
    """Counts of words, with one column more for all unknown ones, as the placeholder of a release is."""
    width = len(embedding.words) + 1
    columns = np.where(texts.known, texts.words, width - 1)
    ones = np.ones(len(columns))
    return sparse.csr_matrix((ones, (texts.rows, columns)), shape=(texts.count, width))


def mean_vectors(texts: WordRows, embedding: Embedding) -> Features:
    """Mean vector of each row's known words; zeros where it has none."""
    words = bag_of_words(texts, embedding)[:, :-1]
    sums: NDArray[np.float64] = words @ np.asarray(embedding.vectors, dtype=np.float64)
    return sums / np.maximum(np.asarray(words.sum(axis=1)), 1.0)


def _drawn(
    words: NDArray[np.int64], mechanisms: Sequence[Mechanism], embedding: Embedding, seed: int
) -> NDArray[np.int32]:
    """int32 (mechanisms, tokens): draw an output for each token."""
    draw = estimator(
        mechanisms, embedding, search=ExactSearch.over(embedding), runs=1, seed=seed, name="shared-ray"
    )
    if not isinstance(draw, Estimator):
        raise TypeError(f"{type(draw).__name__} draws no words")
    outputs = np.full((len(mechanisms), len(words)), -1, dtype=np.int32)
    for block, (chosen, tokens) in enumerate(_blocks(words, np.random.default_rng(seed))):
        outputs[:, tokens] = replace(draw, runs=tokens.shape[1]).draws(chosen, block=block)
    return outputs


def _blocks(
    words: NDArray[np.int64], generator: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Deal all known tokens out to blocks: distinct words (k,), and tokens (k, r) of each.

    A word's tokens are in as many blocks as its count has binary digits 1, in random order.
    """
    order = generator.permutation(np.flatnonzero(words >= 0))
    order = order[np.argsort(words[order], kind="stable")]
    distinct, first, counts = np.unique(words[order], return_index=True, return_counts=True)
    for digit in range(int(counts.max(initial=0)).bit_length()):
        runs = 1 << digit
        chosen = generator.permutation(np.flatnonzero(counts & runs))
        for start in range(0, len(chosen), SHARE):
            part = chosen[start : start + SHARE]
            places = first[part] + (counts[part] & (runs - 1))
            yield distinct[part], order[places[:, None] + np.arange(runs)]
