"""Private vectors under the paper's Delta and ours, after Feyisetan and Kasiviswanathan 2021.

Every repetition has a projection of its own; intervals are over projections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.projection import (
    PublicProjection,
    gaussian_projection,
    least_dimension,
    sparse_dimension,
    spectral_constant,
    vocabulary_constant,
)
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.text.bags import KgramBags
from dptext_spark.text.tokens import PLAIN
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER, Floats, Mean, WordRows, markdown

LAWS: Final = {
    "plain": "M1: no projection",
    "paper": "M2, paper's Δ",
    "vocabulary": "M2, vocabulary's Δ",
    "spectral": "M2, spectral Δ",
    "principal": "main axes",
}
READINGS: Final = {
    "word": "a vector per word",
    "token": "a vector per token",
    "text": "a vector per text",
}
"""What is released: the paper does not say which. A word's is the same wherever the word stands."""
TASKS: Final = ("mr", "mpqa", "trec")
EPSILONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, math.inf)
BETAS: Final = (0.5, 0.7, 0.9)
DELTA: Final = 1e-6  # by which the paper chooses the dimension
TABLE_EPSILON: Final = 10.0
TABLE_BETA: Final = 0.9
TEXT_WORDS: Final = (20, 100)
FOLDS: Final = 5

# Ways to release vectors


@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """Releases matrix x + noise of density proportional to exp(-epsilon |z| / Delta)."""

    matrix: Floats  # (m, n), public
    constant: float  # Delta, in lengths of images per length of inputs

    def unit_noise(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw the noise of epsilon = Delta, float64 (count, m), equal for all laws of this m."""
        noise = rng.standard_normal((count, len(self.matrix)))
        lengths = rng.gamma(len(self.matrix), size=count)
        noise *= (lengths / np.linalg.norm(noise, axis=1))[:, None]
        return noise

    def released(
        self, vectors: NDArray[np.floating], epsilon: float, rng: np.random.Generator
    ) -> Floats:
        """Release vectors; ``epsilon`` may be infinite."""
        noise = self.unit_noise(len(vectors), rng) * (self.constant / epsilon)
        return vectors.astype(np.float64) @ self.matrix.T + noise


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What all parts share: the embedding, the projections' seeds, the delta of their dimension."""

    embedding: Embedding
    seeds: Sequence[int] = range(5)
    delta: float = DELTA

    @cache  # noqa: B019  a process has one setup
    def laws(self, beta: float, seed: int) -> dict[str, Law]:
        """Return all ways to release vectors.

        All but ``plain`` and ``principal`` have one Gaussian projection. The main axes are scaled
        to keep the mean square of the vocabulary's distances.
        """
        vectors = self.embedding.vectors
        n = self.embedding.dimension
        rows = least_dimension(n, beta, self.delta)
        gaussian = gaussian_projection(seed, rows, n)
        values, axes = np.linalg.eigh(np.cov(vectors, rowvar=False, dtype=np.float64))
        main = math.sqrt(values.sum() / values[-rows:].sum()) * axes[:, -rows:].T
        of_vocabulary = vocabulary_constant(vectors, PublicProjection(gaussian))
        return {
            "plain": Law(matrix=np.eye(n), constant=1.0),
            "paper": Law(matrix=gaussian, constant=1.0 + beta),
            "vocabulary": Law(matrix=gaussian, constant=of_vocabulary),
            "spectral": Law(matrix=gaussian, constant=spectral_constant(gaussian)),
            "principal": Law(matrix=main, constant=spectral_constant(main)),
        }


def text_stretch(law: Law, embedding: Embedding, words: int) -> float:
    """Compute by how much the projection stretches the difference of two texts that follow it.

    Each text averages ``words`` different words: those that lie furthest along the direction that
    Phi stretches most, either way, where directions in which the vocabulary spreads much count
    less.
    """
    _, _, directions = np.linalg.svd(law.matrix, full_matrices=False)
    vectors = embedding.vectors.astype(np.float64)
    weighted = np.linalg.solve(np.cov(vectors, rowvar=False), directions[0])
    order = np.argsort(vectors @ weighted, kind="stable")
    gap = vectors[order[-words:]].mean(axis=0) - vectors[order[:words]].mean(axis=0)
    return float(np.linalg.norm(law.matrix @ gap) / np.linalg.norm(gap))


def mean_constant(laws: Sequence[Mapping[str, Law]], name: str) -> Mean:
    """Return the mean Delta of a law over projections."""
    return Mean([of_seed[name].constant for of_seed in laws])


def stretches(setup: Setup) -> Iterator[str]:
    """Yield the table of how much projections stretch differences."""
    rows = []
    for beta in BETAS:
        laws = [setup.laws(beta, seed) for seed in setup.seeds]
        cells = [f"{mean_constant(laws, 'vocabulary'):.3f}"]
        for words in TEXT_WORDS:
            stretch = [text_stretch(of_seed["paper"], setup.embedding, words) for of_seed in laws]
            cells.append(f"{Mean(stretch):.2f}")
        cells.append(f"{mean_constant(laws, 'spectral'):.3f}")
        rows.append([beta, len(laws[0]["paper"].matrix), f"{1 + beta:.2f}", *cells])
    columns = [f"two texts of {words} words" for words in TEXT_WORDS]
    yield "**By how much Φ stretches differences.**\n"
    yield markdown(["β", "m", "1 + β", "any two words", *columns, "any two vectors"], rows)


# Figure 1


def errors(
    setup: Setup, pairs: NDArray[np.float32], beta: float, name: str, epsilon: float, draws: int = 3
) -> float:
    """Compute the mean absolute error of distances of released pairs (2, t, n).

    Each projection has ``draws``.
    """
    distances = cdist(*pairs)
    means = []
    for seed in setup.seeds:
        law = setup.laws(beta, seed)[name]
        for sequence in np.random.SeedSequence(seed).spawn(draws):
            rng = np.random.default_rng(sequence)
            first, second = (law.released(vectors, epsilon, rng) for vectors in pairs)
            means.append(np.abs(cdist(first, second) - distances).mean())
    return float(np.mean(means))


def sample(embedding: Embedding, count: int) -> NDArray[np.float32]:
    """Draw vectors of twice ``count`` words of the vocabulary, all different: (2, count, n)."""
    words = np.random.default_rng(0).choice(len(embedding.vectors), 2 * count, replace=False)
    return embedding.vectors[words].reshape(2, count, -1)


def figures(setup: Setup) -> Iterator[str]:
    """Yield the table of errors of distances."""
    pairs = sample(setup.embedding, 100)
    distances = cdist(*pairs)
    rows = []
    for epsilon, beta in product(EPSILONS, BETAS):
        cells = (f"{errors(setup, pairs, beta, name, epsilon):.3g}" for name in LAWS)
        rows.append([f"{epsilon:g}", beta, *cells])
    typical = np.abs(distances - np.median(distances)).mean()
    yield f"**Mean absolute error of distances; one number for all: {typical:.3g}.**\n"
    yield markdown(["ε", "β", *LAWS.values()], rows)


# Table 1


class Task(NamedTuple):
    """Labelled texts; ``tested``, bool (texts,), is the data set's own split, if it has one."""

    texts: WordRows
    labels: NDArray[Any]
    tested: NDArray[np.bool_] | None = None


def noise_of(
    texts: WordRows, law: Law, reading: str, rng: np.random.Generator, embedding: Embedding
) -> Floats:
    """Draw what noise of epsilon = Delta adds to each text's mean of known words: (texts, m)."""
    if reading == "text":
        return law.unit_noise(texts.count, rng)
    counts = shared.bag_of_words(texts, embedding)[:, :-1]
    sizes = np.maximum(np.asarray(counts.sum(axis=1)), 1.0)
    if reading == "token":
        rows = texts.rows[texts.known]
        places = rows, np.arange(len(rows))
        counts = sparse.csr_matrix((np.ones(len(rows)), places), shape=(texts.count, len(rows)))
    columns = counts.tocsc()
    noise = np.zeros((texts.count, len(law.matrix)))
    for start in range(0, counts.shape[1], 20_000):
        part = columns[:, start : start + 20_000]
        noise += part @ law.unit_noise(part.shape[1], rng)
    return noise / sizes


def of_texts(setup: Setup, task: Task, reading: str, name: str, epsilon: float) -> Mean:
    """Train and test on released vectors of texts; one run for each projection."""
    means = shared.mean_vectors(task.texts, setup.embedding)
    folding = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    rows = np.arange(len(task.labels))
    folds = [np.isin(rows, fold) for _, fold in folding.split(task.labels, task.labels)]
    scores = []
    for seed in setup.seeds:
        law = setup.laws(TABLE_BETA, seed)[name]
        rng = np.random.default_rng(seed)
        features = means @ law.matrix.T
        if epsilon < math.inf:
            noise = noise_of(task.texts, law, reading, rng, setup.embedding)
            features += noise * (law.constant / epsilon)
        # By squared errors of rows left out: its "accuracy" is 1 for any two classes (scikit-learn
        # 1.9).
        model = make_pipeline(StandardScaler(), RidgeClassifierCV(np.logspace(1.0, 5.0, 9)))
        tested = folds[seed % FOLDS] if task.tested is None else task.tested
        scores.append(shared.scored(model, features.astype(np.float32), task.labels, tested))
    return Mean(scores)


def senteval(setup: Setup, data: Path) -> Iterator[str]:
    """Yield the table of what tasks get right."""
    # The vocabulary's Delta covers differences of two words, not those of two averages.
    names = [*LAWS]
    names.remove("vocabulary")
    cells = list(product(READINGS, names))
    rows = []
    for name in TASKS:
        table = pq.read_table(data / f"{name}.parquet").to_pydict()
        labels = np.array(table["coarse" if name == "trec" else "label"])
        tested = np.array(table["split"]) == "test" if "split" in table else None
        task = Task(WordRows.of(table["text"], setup.embedding), labels, tested)
        scores = [of_texts(setup, task, *cell, TABLE_EPSILON) for cell in cells]
        scores.append(of_texts(setup, task, "text", "plain", math.inf))
        rows.append([name.upper(), *(f"{score:.1%}" for score in scores)])
    columns = [f"{LAWS[name]}, {READINGS[reading]}" for reading, name in cells]
    yield f"**Test accuracy at ε = {TABLE_EPSILON:g}, β = {TABLE_BETA:g}.**\n"
    yield markdown(["", *columns, "no noise"], rows)


# Bags of k-grams

KGRAM: Final = 2  # words
PLACES: Final = 4096  # to which k-grams are hashed: the vectors' dimension
KGRAM_TEXTS: Final = 400
KGRAM_EPSILONS: Final = (20.0, 100.0)


def kgram_bags(texts: Sequence[str], places: int) -> Floats:
    """Count hashed k-grams of texts, each scaled to length 1: float64 (texts, places)."""
    bags = KgramBags(kgrams=KGRAM, places=places, tokenizer=PLAIN)
    return bags.read(pa.array(texts), "text").vectors.toarray()


def bag_laws(entries: float, epsilon: float) -> Iterator[tuple[str, Law]]:
    """Yield ways to release bags of so many k-grams on average: the paper's two, and ours."""
    rows = sparse_dimension(PLACES, entries, TABLE_BETA, DELTA)
    matrix = gaussian_projection(0, rows, PLACES)
    yield "random, spectral", Law(matrix=matrix, constant=spectral_constant(matrix))
    yield "random, the paper's", Law(matrix=matrix, constant=1.0 + TABLE_BETA)
    places = ProjectedVectors(epsilon=epsilon, kgrams=KGRAM).of_bags().dimension
    yield "none", Law(matrix=np.eye(places), constant=1.0)


def of_bags(texts: Sequence[str]) -> Iterator[str]:
    """Yield errors of noisy bags: projected as in the paper, and hashed to few places at once."""
    exact = kgram_bags(texts, PLACES)
    entries = float(np.count_nonzero(exact, axis=1).mean())
    half = len(texts) // 2
    distances = cdist(exact[:half], exact[half : 2 * half])
    products = exact[:half] @ exact[half : 2 * half].T
    median = float(np.median(distances))
    lines = []
    for epsilon in KGRAM_EPSILONS:
        for name, law in bag_laws(entries, epsilon):
            rows, places = law.matrix.shape
            rng = np.random.default_rng(0)
            released = law.released(kgram_bags(texts, places), epsilon, rng)
            first = released[:half]
            second = released[half : 2 * half]
            proven = epsilon * float(np.linalg.norm(law.matrix, 2)) / law.constant
            numbers = [
                f"{law.constant:.3g}",
                f"{proven:.3g}",
                f"{rows * law.constant / epsilon:.3g}",
            ]
            errors_of_pairs = np.abs(cdist(first, second) - distances)
            errors_of_products = np.abs(first @ second.T - products)
            numbers += [f"{errors_of_pairs.mean():.3g}", f"{errors_of_products.mean():.3g}"]
            lines.append([f"{epsilon:g}", name, rows, *numbers])
    yield (
        f"{len(texts)} bags of {entries:.1f} {KGRAM}-grams, {PLACES:,} places. "
        f"Median distance {median:.2f}; one number for all errs by "
        f"{np.abs(distances - median).mean():.2g}, 0 for all products by {products.mean():.2g}.\n"
    )
    head = ["ε", "projection, Δ", "m", "Δ", "proven ε", "noise's length"]
    yield markdown([*head, "error of distances", "of products"], lines)


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/feyisetan-2021.md."""


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="folder of the data sets")
def vectors(bundle: Path, data: Path) -> None:
    """Print what projections stretch, errors of distances (Figure 1), and SentEval (Table 1)."""
    setup = Setup(embedding=Embedding.open(bundle, verify=False))
    for piece in chain(stretches(setup), figures(setup), senteval(setup, data)):
        click.echo(piece)


@main.command()
@click.option("--data", type=FILE, required=True, help="Parquet with text")
def kgrams(data: Path) -> None:
    """Print how long noise is on bags of k-grams, and what it leaves of their distances."""
    texts = pq.read_table(data)["text"].to_pylist()
    sampled_texts = [texts[row] for row in shared.evenly(KGRAM_TEXTS, len(texts))]
    for piece in of_bags(sampled_texts):
        click.echo(piece)


if __name__ == "__main__":
    main()
