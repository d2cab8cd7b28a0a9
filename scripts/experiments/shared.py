"""What experiments share: embeddings, perturbed words, features, repetitions, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import click
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.model_selection import train_test_split

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.calibration.estimators import BLOCK_WORDS
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import GeometryName, Precision
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.columns import Tokens
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import joining, look_up

T = TypeVar("T")
Words: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
FILE: Final = click.Path(exists=True, path_type=Path)
CHUNK: Final = 4096  # tokens that are perturbed at once


# Repetitions and tables


@dataclass(frozen=True)
class Mean:
    """The mean of independent repetitions with its 95 % interval (Student's t)."""

    repetitions: Sequence[float] | Floats

    @property
    def mean(self) -> float:
        return float(np.mean(self.repetitions))

    def __sub__(self, other: Mean) -> Mean:
        """Return the mean of differences, repetition by repetition."""
        return Mean(np.subtract(self.repetitions, other.repetitions))

    def __format__(self, form: str) -> str:
        """Write mean and half the interval's width by the same form, such as ``.1f`` or ``.1%``."""
        half = stats.sem(self.repetitions) * stats.t.ppf(0.975, len(self.repetitions) - 1)
        return f"{self.mean:{form}} ± {half:{form.lstrip('+')}}"


def repeated(
    measure: Callable[[T], Mapping[str, float]], repetitions: Iterable[T]
) -> dict[str, Mean]:
    """Measure in each repetition, and return the means by name."""
    rows = [measure(repetition) for repetition in repetitions]
    means = {}
    for name in rows[0]:
        means[name] = Mean([row[name] for row in rows])
    return means


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


# Embeddings


def made_embedding(
    words: Iterable[str],
    vectors: NDArray[Any],
    folder: Path,
    geometry: GeometryName = "euclidean",
    precision: Precision | None = None,
) -> Embedding:
    """Build a bundle of words and their vectors (V, n) in a new folder."""
    folder.mkdir()
    np.save(folder / "vectors.npy", vectors)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return build_embedding(
        folder / "vectors.npy",
        folder / "bundle",
        geometry=geometry,
        precision=precision,
        vocabulary=folder / "vocab.txt",
    )


def in_common(folder: Path, *embeddings: Embedding) -> list[Embedding]:
    """Restrict embeddings to the words that all have, in the order of the first."""
    first, *rest = embeddings
    words: list[str] = first.words.to_pylist()
    for embedding in rest:
        vocabulary = {*embedding.words.to_pylist()}
        words = [word for word in words if word in vocabulary]
    if len(words) < 100:
        raise click.UsageError(f"The embeddings have {len(words)} words in common; 100 are needed.")
    restricted = []
    for number, embedding in enumerate(embeddings):
        rows = {word: row for row, word in enumerate(embedding.words.to_pylist())}
        vectors = embedding.vectors[[rows[word] for word in words]]
        geometry = embedding.space.geometry
        restricted.append(made_embedding(words, vectors, folder / str(number), geometry))
    return restricted


def by_epsilon(spec: str, epsilons: Iterable[float]) -> list[Mechanism]:
    """Return mechanisms that differ in epsilon alone."""
    return [mechanism(spec, epsilon=epsilon) for epsilon in epsilons]


def evenly(count: int, size: int) -> Words:
    """Spread ``count`` rows evenly over ``size``."""
    return np.unique(np.linspace(0, size - 1, min(count, size)).astype(np.int64))


def staying(
    mechanisms: Sequence[Mechanism],
    embedding: Embedding,
    words: Words,
    *,
    runs: int,
    seed: int = 0,
    blocks: int | None = None,
) -> dict[str, Floats]:
    """Measure ``n_w``, as a share, and ``s_w`` by mechanisms that differ in epsilon alone.

    The words (k,) are dealt out to so many blocks in turn; those of one block share noise. Each
    result is float64 (epsilons, k), in the order of the words.
    """
    search = ExactSearch.over(embedding)
    draw = estimator(mechanisms, embedding, search=search, runs=runs, seed=seed)
    blocks = blocks or -(-len(words) // min(512, BLOCK_WORDS[draw.name]))
    shape = (len(mechanisms), len(words))
    statistics = {"n_w": np.empty(shape), "s_w": np.empty(shape)}
    for block in range(blocks):
        table = word_statistics(draw(words[block::blocks], block=block))
        for name, values in statistics.items():
            values[:, block::blocks] = table[name].to_numpy().reshape(len(mechanisms), -1)
    return statistics


# Texts as words


@dataclass(frozen=True, kw_only=True)
class WordRows:
    words: Words  # (tokens,), -1 where the vocabulary has no such word
    rows: NDArray[np.int64]  # (tokens,), ascending
    count: int  # of rows

    @classmethod
    def of(
        cls, texts: Sequence[str], embedding: Embedding, *, longest: int | None = None
    ) -> WordRows:
        """Read texts as a release does, or the first ``longest`` tokens of each."""
        tokens = Tokens.of(
            pa.array(texts, pa.string()), joining(embedding, TextPolicy().tokenizer), None
        )
        words = look_up(tokens, embedding)
        lengths = np.diff(tokens.offsets)
        rows = np.repeat(np.arange(len(texts)), lengths)
        if longest is not None:
            places = np.arange(len(words)) - np.repeat(tokens.offsets[:-1], lengths)
            is_first = places < longest
            words = words[is_first]
            rows = rows[is_first]
        return cls(words=words, rows=rows, count=len(texts))

    @property
    def known(self) -> NDArray[np.bool_]:
        """bool (tokens,): which tokens the vocabulary has."""
        return self.words >= 0

    @property
    def offsets(self) -> Words:
        """int64 (rows + 1,): where each row's tokens start."""
        return np.searchsorted(self.rows, np.arange(self.count + 1))

    def take(self, rows: NDArray[np.int64]) -> WordRows:
        """Return some rows, in this order."""
        starts = self.offsets
        parts = [self.words[starts[row] : starts[row + 1]] for row in rows]
        numbers = np.repeat(np.arange(len(parts)), [*map(len, parts)])
        return WordRows(words=np.concatenate(parts), rows=numbers, count=len(parts))

    def having(self, words: Words) -> WordRows:
        """Return the same rows with other words in them."""
        return replace(self, words=words.astype(np.int64))

    def kept(self, original: WordRows) -> float:
        """Return the share of the original's known tokens that are the same word here."""
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
    """Perturb texts by each mechanism, in each repetition; unknown words stay -1.

    Mechanisms differ in epsilon alone and share noise, so that differences between them come out
    sharper.
    """
    words = np.tile(texts.words, repetitions)
    search = ExactSearch.over(embedding, release_words)
    tokens = np.flatnonzero(words >= 0)
    released = []
    for configured in mechanisms:
        bound = configured.bind(embedding, search)
        rng = np.random.default_rng(seed)
        width = configured.uniforms_per_token(embedding.dimension)
        outputs = np.full(len(words), -1)
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            outputs[part] = bound(words[part], rng.random((len(part), width)))
        released.append([texts.having(part) for part in np.split(outputs, repetitions)])
    return released


def bag_of_words(texts: WordRows, embedding: Embedding) -> sparse.csr_matrix:
    """Count words, with one more column for all unknown ones, as a release has a placeholder."""
    width = len(embedding.words) + 1
    columns = np.where(texts.known, texts.words, width - 1)
    return sparse.csr_matrix(
        (np.ones(len(columns)), (texts.rows, columns)), shape=(texts.count, width)
    )


def mean_vectors(texts: WordRows, embedding: Embedding) -> Floats:
    """Average the vectors of each row's known words (rows, n); zeros where it has none."""
    words = bag_of_words(texts, embedding)[:, :-1]
    sums: Floats = words @ np.asarray(embedding.vectors, dtype=np.float64)
    return sums / np.maximum(np.asarray(words.sum(axis=1)), 1.0)


def drawn(labels: NDArray[Any], seed: int) -> NDArray[np.bool_]:
    """Choose 30 % of the rows for tests, of each label as many: bool (rows,)."""
    rows = np.arange(len(labels))
    _, tested = train_test_split(rows, test_size=0.3, random_state=seed, stratify=labels)
    return np.isin(rows, tested)


def scored(model: Any, features: Any, labels: NDArray[Any], tested: NDArray[np.bool_]) -> float:
    """Return the share of tested rows, bool (rows,), that a model of the others gets right."""
    fitted = model.fit(features[~tested], labels[~tested])
    return float(fitted.score(features[tested], labels[tested]))
