"""Private vectors under the paper's Delta and ours, after Feyisetan and Kasiviswanathan 2021.

    OMP_NUM_THREADS=1 python -m scripts.experiments.feyisetan_2021 glove-300d --data FOLDER

FOLDER has ``opinion_lexicon/{positive,negative}-words.txt`` (Hu and Liu) and SentEval's tasks as
``senteval/NAME.parquet``. Every repetition has a projection of its own; intervals are over projections.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.projection import (
    RandomProjection,
    gaussian_projection,
    least_dimension,
    spectral_constant,
    vocabulary_constant,
)
from scripts.experiments.shared import FOLDER, Mean, WordRows, markdown

LAWS: Final = {
    "plain": "M1: no projection",
    "paper": "M2, paper's Δ",
    "vocabulary": "M2, vocabulary's Δ",
    "spectral": "M2, spectral Δ",
    "principal": "main axes",
}
READINGS: Final = {"word": "a vector per word", "token": "a vector per token", "text": "a vector per text"}
"""What is released: the paper does not say which. A word's is the same wherever the word stands."""
TASKS: Final = ("mr", "cr", "mpqa", "sst5", "trec")
EPSILONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, math.inf)
WORD_EPSILONS: Final = (1.0, 5.0, 10.0, 20.0, 50.0, math.inf)
BETAS: Final = (0.5, 0.7, 0.9)
DELTA: Final = 1e-6
"""By which the paper chooses the dimension."""
TABLE_EPSILON: Final = 10.0
TABLE_BETA: Final = 0.9
TEXT_WORDS: Final = (20, 100)
FOLDS: Final = 5
STRENGTHS: Final = (1e-4, 1e-3, 1e-2, 1e-1)
"""C of the support vector machine, from which a fifth of the training rows picks."""

Row = list[object]
Split = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows to train on, and rows to test on."""


# Ways to release vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """Releases matrix x + noise of density proportional to exp(-epsilon |z| / Delta).

    Attributes:
        matrix: float64 (m, n), public.
        constant: Delta, in lengths of images per length of inputs.
    """

    matrix: NDArray[np.float64]
    constant: float

    @classmethod
    def spectral(cls, matrix: NDArray[np.float64]) -> Self:
        """Scale the noise by the most that the matrix stretches any vector: epsilon for all vectors."""
        return cls(matrix=matrix, constant=spectral_constant(matrix))

    @property
    def dimension(self) -> int:
        """m, the length of released vectors."""
        return len(self.matrix)

    def images(self, vectors: NDArray[np.floating]) -> NDArray[np.float64]:
        """Project vectors (t, n) without noise: float64 (t, m)."""
        return vectors.astype(np.float64) @ self.matrix.T

    def unit_noise(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the noise of epsilon = Delta, float64 (count, m): the same for all laws of this m."""
        noise = rng.standard_normal((count, self.dimension))
        noise *= (rng.gamma(self.dimension, size=count) / np.linalg.norm(noise, axis=1))[:, None]
        return noise

    def released(
        self, vectors: NDArray[np.floating], epsilon: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Release vectors; ``epsilon`` may be infinite."""
        return self.images(vectors) + self.unit_noise(len(vectors), rng) * (self.constant / epsilon)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all parts share: the embedding, the seeds of the projections, and the delta of their dimension."""

    embedding: Embedding
    seeds: Sequence[int] = range(5)
    delta: float = DELTA
    _known: dict[tuple[float, int], dict[str, Law]] = field(default_factory=dict)

    def laws(self, beta: float, seed: int) -> dict[str, Law]:
        """Give all ways to release vectors.

        ``paper``, ``vocabulary`` and ``spectral`` share the Gaussian projection of the seed. ``principal``
        has the embedding's main axes for rows, scaled to keep the mean square of the vocabulary's distances.
        """
        if (beta, seed) not in self._known:
            vectors, n = self.embedding.vectors, self.embedding.dimension
            rows = least_dimension(n, beta, self.delta)
            gaussian = gaussian_projection(seed, rows, n)
            values, axes = np.linalg.eigh(np.cov(vectors, rowvar=False, dtype=np.float64))
            most = vocabulary_constant(vectors, RandomProjection(gaussian))
            scale = math.sqrt(values.sum() / values[-rows:].sum())
            self._known[beta, seed] = {
                "plain": Law(matrix=np.eye(n), constant=1.0),
                "paper": Law(matrix=gaussian, constant=1.0 + beta),
                "vocabulary": Law(matrix=gaussian, constant=most),
                "spectral": Law.spectral(gaussian),
                "principal": Law.spectral(scale * axes[:, -rows:].T),
            }
        return self._known[beta, seed]


def text_stretch(law: Law, embedding: Embedding, words: int) -> float:
    """Give by how much the projection stretches the difference of two texts that follow it.

    Each text averages ``words`` different words: those that lie furthest along the direction that Phi
    stretches most, either way, where directions in which the vocabulary spreads much count less.
    """
    direction = np.linalg.svd(law.matrix, full_matrices=False)[2][0]
    vectors = embedding.vectors.astype(np.float64)
    order = np.argsort(vectors @ np.linalg.solve(np.cov(vectors, rowvar=False), direction), kind="stable")
    gap = vectors[order[-words:]].mean(axis=0) - vectors[order[:words]].mean(axis=0)
    return float(np.linalg.norm(law.matrix @ gap) / np.linalg.norm(gap))


def stretches(setup: Setup) -> Iterator[str]:
    """Say what each projection stretches."""
    rows: list[Row] = []
    for beta in BETAS:
        laws = [setup.laws(beta, seed) for seed in setup.seeds]
        texts = [
            f"{Mean([text_stretch(each['paper'], setup.embedding, words) for each in laws]):.2f}"
            for words in TEXT_WORDS
        ]
        two, any_two = (
            f"{Mean([each[n].constant for each in laws]):.3f}" for n in ("vocabulary", "spectral")
        )
        rows.append([beta, laws[0]["paper"].dimension, f"{1 + beta:.2f}", two, *texts, any_two])
    texts = [f"two texts of {words} words" for words in TEXT_WORDS]
    yield "**By how much Φ stretches differences.**\n"
    yield markdown(["β", "m", "1 + β", "any two words", *texts, "any two vectors"], rows)


# Figures 1 and 2


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Vectors of two sets of words, float32 (t, n) each; all pairs are compared."""

    left: NDArray[np.float32]
    right: NDArray[np.float32]

    @classmethod
    def sample(cls, embedding: Embedding, count: int) -> Pairs:
        """Draw twice ``count`` words of the vocabulary, all different."""
        words = np.random.default_rng(0).choice(len(embedding.vectors), 2 * count, replace=False)
        return cls(left=embedding.vectors[words[:count]], right=embedding.vectors[words[count:]])

    def true(self) -> dict[str, NDArray[np.float64]]:
        """Distances and inner products (t, t)."""
        product = self.left.astype(np.float64) @ self.right.T
        return {"distance": cdist(self.left, self.right), "product": product}

    def errors(self, law: Law, epsilon: float, rng: np.random.Generator) -> dict[str, float]:
        """Release both sets; give mean absolute errors."""
        left, right = (law.released(vectors, epsilon, rng) for vectors in (self.left, self.right))
        found = {"distance": cdist(left, right), "product": left @ right.T}
        return {name: float(np.abs(found[name] - true).mean()) for name, true in self.true().items()}


def errors(
    setup: Setup, pairs: Pairs, beta: float, name: str, epsilon: float, draws: int = 3
) -> dict[str, Mean]:
    """Release the pairs under one law, ``draws`` times for each projection."""
    found: dict[str, list[float]] = {}
    for seed in setup.seeds:
        rngs = [np.random.default_rng(each) for each in np.random.SeedSequence(seed).spawn(draws)]
        runs = [pairs.errors(setup.laws(beta, seed)[name], epsilon, rng) for rng in rngs]
        for measure in runs[0]:
            found.setdefault(measure, []).append(float(np.mean([run[measure] for run in runs])))
    return {measure: Mean(values) for measure, values in found.items()}


def figures(setup: Setup) -> Iterator[str]:
    """Print Figures 1 and 2."""
    pairs = Pairs.sample(setup.embedding, 100)
    typical = {name: float(np.abs(v - np.median(v)).mean()) for name, v in pairs.true().items()}
    tables: dict[str, list[Row]] = {"distance": [], "product": []}
    for epsilon in EPSILONS:
        for beta in BETAS:
            cells = [errors(setup, pairs, beta, name, epsilon) for name in LAWS]
            for measure, rows in tables.items():
                rows.append([shown(epsilon), beta, *(f"{cell[measure]:.3g}" for cell in cells)])
    titles = {
        "distance": f"Mean absolute error of distances; one number for all: {typical['distance']:.3g}",
        "product": f"The same of inner products; one number for all: {typical['product']:.3g}",
    }
    for measure, title in titles.items():
        yield f"**{title}.**\n"
        yield markdown(["ε", "β", *LAWS.values()], tables[measure])


def shown(epsilon: float) -> str:
    """Write an epsilon."""
    return f"{epsilon:g}" if epsilon < math.inf else "no noise"


# Figure 3


def fold(labels: NDArray[np.int64], number: int) -> Split:
    """Test on one of five stratified folds."""
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(labels, labels)
    return list(folds)[number % FOLDS]


def support_vectors() -> BaseEstimator:
    """Make the linear support vector machine of Figure 3."""
    one_fifth = StratifiedShuffleSplit(1, test_size=0.2, random_state=0)
    return GridSearchCV(LinearSVC(dual=False, tol=1e-2), {"C": STRENGTHS}, cv=one_fifth)


def least_squares() -> BaseEstimator:
    """Make the linear classifier of texts."""
    # By squared errors of rows left out: its "accuracy" is 1 for any two classes (scikit-learn 1.9).
    return RidgeClassifierCV(np.logspace(1.0, 5.0, 9))


def accuracy(
    features: NDArray[np.float64], labels: NDArray[np.int64], split: Split, model: Callable[[], BaseEstimator]
) -> float:
    """Scale features by the training rows, train and test."""
    (train, test), chosen = split, make_pipeline(StandardScaler(), model())
    chosen.fit(features[train].astype(np.float32), labels[train])
    return float(chosen.score(features[test].astype(np.float32), labels[test]))


def opinion_words(folder: Path, embedding: Embedding) -> Split:
    """Read the opinion lexicon: word ids of the vocabulary and labels, as many of either kind."""
    rank = {word: place for place, word in enumerate(embedding.words.to_pylist())}
    kinds = []
    for name in ("negative", "positive"):
        lines = (folder / f"{name}-words.txt").read_text(encoding="latin-1").splitlines()
        words = {line.strip() for line in lines if line.strip() and not line.startswith(";")}
        kinds.append(np.sort([rank[word] for word in words if word in rank]))
    least, rng = min(map(len, kinds)), np.random.default_rng(0)
    chosen = [np.sort(rng.permutation(kind)[:least]) for kind in kinds]
    return np.concatenate(chosen).astype(np.int64), np.repeat([0, 1], least).astype(np.int64)


def of_words(setup: Setup, words: Split, beta: float, name: str, epsilon: float) -> Mean:
    """Train and test on released vectors of words: one run for each projection."""
    ids, labels = words
    found = []
    for seed in setup.seeds:
        law, rng = setup.laws(beta, seed)[name], np.random.default_rng(seed)
        released = law.released(setup.embedding.vectors[ids], epsilon, rng)
        found.append(accuracy(released, labels, fold(labels, seed), support_vectors))
    return Mean(found)


def sentiment(setup: Setup, data: Path) -> Iterator[str]:
    """Print Figure 3."""
    words = opinion_words(data / "opinion_lexicon", setup.embedding)
    rows: list[Row] = [
        [shown(epsilon), beta, *(f"{of_words(setup, words, beta, name, epsilon):.1%}" for name in LAWS)]
        for epsilon in WORD_EPSILONS
        for beta in (0.5, 0.9)
    ]
    yield f"**A linear SVM on {len(words[0]) // 2:,} words of each kind; chance is 50 %.**\n"
    yield markdown(["ε", "β", *LAWS.values()], rows)


# Table 1


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Labelled texts; words outside the vocabulary are left out.

    Attributes:
        texts: Known words alone.
        labels: int64 (texts,).
        given: The data set's own split, if it has one.
    """

    texts: WordRows
    labels: NDArray[np.int64]
    given: Split | None = None

    @classmethod
    def of(
        cls, texts: Sequence[str], labels: Sequence[object], embedding: Embedding, given: Split | None = None
    ) -> Texts:
        """Look up the words of texts."""
        every = WordRows.of(texts, embedding)
        known = WordRows(words=every.words[every.known], rows=every.rows[every.known], count=every.count)
        codes = np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.int64)
        return cls(texts=known, labels=codes, given=given)

    @classmethod
    def read(cls, folder: Path, name: str, embedding: Embedding) -> Texts:
        """Read a task of SentEval: Parquet with text, label (TREC: coarse) and, where it has one, split."""
        table = pq.read_table(folder / f"{name}.parquet").to_pydict()
        splits = np.array(table.get("split", []))
        given = np.flatnonzero(splits == "train"), np.flatnonzero(splits == "test")
        labels = table["coarse" if name == "trec" else "label"]
        return cls.of(table["text"], labels, embedding, given if len(splits) else None)

    def split(self, repetition: int) -> Split:
        """Give the data set's own split, or a fold of five."""
        return self.given or fold(self.labels, repetition)

    def averages(self, columns: NDArray[np.int64]) -> sparse.csr_array:
        """Weigh each token's column in its text's mean: (texts, columns)."""
        offsets = self.texts.offsets
        lengths = np.diff(offsets)
        shape = (len(lengths), int(columns.max()) + 1)
        return sparse.csr_array(
            (np.repeat(1.0 / np.maximum(lengths, 1), lengths), columns, offsets), shape=shape
        )

    def means(self, embedding: Embedding) -> NDArray[np.float64]:
        """Average each text's words' vectors: float64 (texts, n), of which images are linear."""
        distinct, columns = np.unique(self.texts.words, return_inverse=True)
        return self.averages(columns) @ embedding.vectors[distinct].astype(np.float64)

    def noise(self, law: Law, reading: str, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw what noise of epsilon = Delta adds to each text's average: float64 (texts, m)."""
        if reading == "text":
            return law.unit_noise(len(self.labels), rng)
        if reading == "word":
            columns = np.unique(self.texts.words, return_inverse=True)[1]
            return self.averages(columns) @ law.unit_noise(int(columns.max()) + 1, rng)
        added, averages = (
            np.zeros((len(self.labels), law.dimension)),
            self.averages(np.arange(len(self.texts.words))),
        )
        for start in range(0, averages.shape[1], 20_000):
            part = averages.tocsc()[:, start : start + 20_000]
            added += part @ law.unit_noise(part.shape[1], rng)
        return added


def of_texts(setup: Setup, texts: Texts, reading: str, name: str, epsilon: float) -> Mean:
    """Train and test on released vectors of texts; one run for each projection."""
    means, found = texts.means(setup.embedding), []
    for seed in setup.seeds:
        law = setup.laws(TABLE_BETA, seed)[name]
        noise = texts.noise(law, reading, np.random.default_rng(seed)) if epsilon < math.inf else 0.0
        features = law.images(means) + noise * (law.constant / epsilon)
        found.append(accuracy(features, texts.labels, texts.split(seed), least_squares))
    return Mean(found)


def senteval(setup: Setup, data: Path) -> Iterator[str]:
    """Print Table 1."""
    # The vocabulary's Delta covers differences of two words, not those of two averages.
    cells = [(reading, name) for reading in READINGS for name in LAWS if name != "vocabulary"]
    rows: list[Row] = []
    for task in TASKS:
        texts = Texts.read(data / "senteval", task, setup.embedding)
        found = [of_texts(setup, texts, *cell, TABLE_EPSILON) for cell in cells]
        found.append(of_texts(setup, texts, "text", "plain", math.inf))
        rows.append([task.upper(), *(f"{each:.1%}" for each in found)])
    columns = [f"{LAWS[name]}, {READINGS[reading]}" for reading, name in cells]
    yield f"**Test accuracy at ε = {TABLE_EPSILON:g}, β = {TABLE_BETA:g}.**\n"
    yield markdown(["", *columns, "no noise"], rows)


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="folder of the data sets")
@click.option("--part", "parts", type=click.Choice(["errors", "words", "texts"]), multiple=True)
def main(bundle: Path, data: Path, parts: Sequence[str]) -> None:
    """Print the tables of docs/experiments/feyisetan-2021.md, or those of some parts."""
    setup = Setup(embedding=Embedding.open(bundle, verify=False))
    printed: dict[str, Callable[[], Iterable[str]]] = {
        "errors": lambda: (*stretches(setup), *figures(setup)),
        "words": lambda: sentiment(setup, data),
        "texts": lambda: senteval(setup, data),
    }
    for part in parts or printed:
        for piece in printed[part]():
            click.echo(piece)


if __name__ == "__main__":
    main()
