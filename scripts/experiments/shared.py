"""What experiments share: embeddings, perturbed words, features of linear models, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse, stats

from dptext_spark import demo
from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.calibration.estimators import DrawingEstimator
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import GeometryName
from dptext_spark.lookup import joining, look_up
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.columns import Tokens
from dptext_spark.text.policies import TextPolicy

Words: TypeAlias = NDArray[np.int64]

SHARE: Final = 32
"""Tokens of different words that share noise; sharing is several times faster than noise for each."""

FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
FILE: Final = click.Path(exists=True, path_type=Path)


# Tables


@dataclass(frozen=True)
class Mean:
    """The mean of independent repetitions with its 95 % interval (Student's t)."""

    repetitions: Sequence[float] | NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Of the repetitions."""
        return float(np.mean(self.repetitions))

    @property
    def half(self) -> float:
        """Half the interval's width; NaN for a single repetition."""
        values = np.asarray(self.repetitions, dtype=np.float64)
        return float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1)) if len(values) > 1 else np.nan

    def __format__(self, form: str) -> str:
        """Write both by the same form, such as ``.1f`` or ``.1%``."""
        both = format(self.mean, form)
        return both if np.isnan(self.half) else f"{both} ± {self.half:{form.lstrip('+')}}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Draw a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


# Embeddings


def demo_embedding(folder: Path) -> Embedding:
    """Build the demo's bundle, 8,000 words in 50 dimensions, in ``folder``."""
    return build_embedding(demo.GLOVE, folder / "demo-glove")


def demo_queries(count: int | None = None) -> tuple[list[str], list[str]]:
    """Give the demo's queries, or ``count`` of them evenly spread, and the intent of each."""
    table = pq.read_table(demo.QUERIES)
    texts, intents = table["text"].to_pylist(), table["intent"].to_pylist()
    step = max(1, len(texts) // count) if count else 1
    return texts[::step][:count], intents[::step][:count]


def made_embedding(
    words: Iterable[str], vectors: NDArray[Any], folder: Path, geometry: GeometryName = "euclidean"
) -> Embedding:
    """Build a bundle of words and their vectors (V, n) in a new folder."""
    folder.mkdir()
    np.save(folder / "vectors.npy", vectors)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return build_embedding(
        folder / "vectors.npy", folder / "bundle", geometry=geometry, vocabulary=folder / "vocab.txt"
    )


def restricted(embedding: Embedding, words: Sequence[str], folder: Path) -> Embedding:
    """Build a bundle of some of an embedding's words, in the given order."""
    rows = {word: row for row, word in enumerate(embedding.words.to_pylist())}
    vectors = embedding.vectors[[rows[word] for word in words]]
    return made_embedding(words, vectors, folder, embedding.space.geometry)


def common_words(first: Embedding, *others: Embedding) -> list[str]:
    """Give the words that all embeddings have, in the order of the first."""
    known = [set(other.words.to_pylist()) for other in others]
    words = [word for word in first.words.to_pylist() if all(word in each for each in known)]
    if len(words) < 100:
        raise click.UsageError(f"The embeddings have {len(words)} words in common; 100 are needed.")
    return words


def evenly(count: int, size: int) -> Words:
    """Spread ``count`` rows evenly over ``size``."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).astype(np.int64))


def made_ball(embedding: Embedding, folder: Path, *, dimension: int = 10, radius: float = 1.0) -> Embedding:
    """Lay an embedding's words in a ball by its main directions: for small runs, no is-a pairs."""
    vectors = np.asarray(embedding.vectors, dtype=np.float64)
    vectors = vectors - vectors.mean(axis=0)
    flat = vectors @ np.linalg.eigh(vectors.T @ vectors)[1][:, -dimension:]
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    ball = flat / lengths * np.tanh(0.5 * radius * lengths / lengths.max())
    return made_embedding(embedding.words.to_pylist(), ball, folder, "poincare")


# How often words stay


def staying(
    mechanisms: Sequence[Mechanism],
    embedding: Embedding,
    words: Words,
    *,
    runs: int,
    seed: int = 0,
    blocks: int | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Measure ``n_w``, as a share, and ``s_w`` by mechanisms that differ in epsilon alone.

    Args:
        mechanisms, embedding: As for :func:`~dptext_spark.calibration.estimator`.
        words: int64 (k,), ascending.
        runs, seed: Of each word; of the noise.
        blocks: The words are dealt out to so many blocks in turn; those of one block share noise.

    Returns:
        Each float64 (epsilons, k), in the order of the words.
    """
    search = ExactSearch.over(embedding)
    draw = estimator(mechanisms, embedding, search=search, runs=runs, seed=seed)
    blocks = blocks or -(-len(words) // min(512, draw.block_words))
    found = {name: np.empty((len(mechanisms), len(words))) for name in ("n_w", "s_w")}
    for block in range(blocks):
        table = word_statistics(draw(words[block::blocks], block=block))
        for name, values in found.items():
            values[:, block::blocks] = table[name].to_numpy().reshape(len(mechanisms), -1)
    return found


# Texts as words


@dataclass(frozen=True, kw_only=True)
class WordRows:
    """Texts as the word ids of their tokens.

    Attributes:
        words: int64 (tokens,), -1 where the vocabulary has no such word.
        rows: int64 (tokens,), the row of each token, in order.
        count: How many rows there are.
    """

    words: Words
    rows: NDArray[np.int64]
    count: int

    @classmethod
    def of(cls, texts: Sequence[str], embedding: Embedding, *, longest: int | None = None) -> WordRows:
        """Read texts as a release does, or the first ``longest`` tokens of each."""
        tokens = Tokens.of(pa.array(texts, pa.string()), joining(embedding, TextPolicy().tokenizer), None)
        words, lengths = look_up(tokens, embedding), np.diff(tokens.offsets)
        rows = np.repeat(np.arange(len(texts)), lengths)
        if longest is not None:
            first = np.arange(len(words)) - np.repeat(tokens.offsets[:-1], lengths) < longest
            words, rows = words[first], rows[first]
        return cls(words=words, rows=rows, count=len(texts))

    @property
    def known(self) -> NDArray[np.bool_]:
        """bool (tokens,): which tokens the vocabulary has."""
        return self.words >= 0

    @property
    def offsets(self) -> NDArray[np.int64]:
        """int64 (rows + 1,): where each row's tokens start."""
        return np.searchsorted(self.rows, np.arange(self.count + 1))

    def take(self, chosen: NDArray[np.int64]) -> WordRows:
        """Give some rows, in this order."""
        starts = self.offsets
        lengths = np.diff(starts)[chosen]
        ends = np.cumsum(lengths)
        tokens = np.arange(lengths.sum()) + np.repeat(starts[chosen] - (ends - lengths), lengths)
        return WordRows(
            words=self.words[tokens], rows=np.repeat(np.arange(len(chosen)), lengths), count=len(chosen)
        )

    def having(self, words: Words) -> WordRows:
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
    repetitions: int = 1,
    seed: int = 0,
    release_words: int | None = None,
) -> list[list[WordRows]]:
    """Perturb texts by mechanisms that differ in epsilon alone; unknown words stay -1.

    Each token becomes what the mechanism makes of it. Tokens of one word never share noise; up to ``SHARE``
    tokens of different words do, drawn at random from all texts.

    Returns:
        For each mechanism and each repetition, the texts. Repetitions have noise of their own; mechanisms
        share it, so that differences between them come out sharper.
    """
    words, search = np.tile(texts.words, repetitions), ExactSearch.over(embedding, release_words)
    outputs = np.full((len(mechanisms), len(words)), -1, dtype=np.int64)
    if mechanisms[0].name == "exponential":  # its noise lies on no rays that could be shared
        known, width = np.flatnonzero(words >= 0), mechanisms[0].uniforms_per_token(embedding.dimension)
        for row, each in enumerate(mechanisms):
            bound, rng = each.bind(embedding, search), np.random.default_rng(seed)
            for start in range(0, len(known), 4096):
                part = known[start : start + 4096]
                outputs[row, part] = bound(words[part], rng.random((len(part), width)))
    else:
        draw = estimator(mechanisms, embedding, search=search, runs=1, seed=seed, name="shared-ray")
        if not isinstance(draw, DrawingEstimator):
            raise TypeError(f"{type(draw).__name__} draws no words")
        for block, (chosen, tokens) in enumerate(_blocks(words, np.random.default_rng(seed))):
            outputs[:, tokens] = replace(draw, runs=tokens.shape[1]).draws(chosen, block=block)
    return [[texts.having(part) for part in np.split(row, repetitions)] for row in outputs]


def _blocks(words: Words, generator: np.random.Generator) -> Iterator[tuple[Words, NDArray[np.int64]]]:
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


def bag_of_words(texts: WordRows, embedding: Embedding) -> sparse.csr_matrix:
    """Count words, with one more column for all unknown ones, as the placeholder of a release is."""
    width = len(embedding.words) + 1
    columns = np.where(texts.known, texts.words, width - 1)
    return sparse.csr_matrix((np.ones(len(columns)), (texts.rows, columns)), shape=(texts.count, width))


def mean_vectors(texts: WordRows, embedding: Embedding) -> NDArray[np.float64]:
    """Average the vectors of each row's known words (rows, n); zeros where it has none."""
    words = bag_of_words(texts, embedding)[:, :-1]
    sums: NDArray[np.float64] = words @ np.asarray(embedding.vectors, dtype=np.float64)
    return sums / np.maximum(np.asarray(words.sum(axis=1)), 1.0)
