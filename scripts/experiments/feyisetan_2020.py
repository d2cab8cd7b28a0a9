"""How often words stay under Laplace noise, and what is kept, after Feyisetan et al. 2020.

The data are ``senteval/{mr,subj,trec}.parquet`` and ``pan11/{pan11_small,pan11_large}.parquet``.
The audit asks whether an author's mails were among those that a language model was trained on
(after Song and Shmatikov 2019): here a model of word pairs, and likelihood ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from scripts.experiments import shared
from scripts.experiments.shared import FOLDER, Floats, Mean, WordRows, Words

RUNS: Final = 1000
EPSILONS: Final = (9.0, 14.0, 20.0)
# File, label, rows, words of a row, and the name of the task.
SETS: Final = (
    ("senteval/mr.parquet", "label", 2000, None, "sentiment (MR)"),
    ("senteval/subj.parquet", "subjective", 1500, None, "subjectivity (SUBJ)"),
    ("senteval/trec.parquet", "coarse", 2000, None, "questions, 6 types (TREC)"),
    ("pan11/pan11_small.parquet", "author", 1200, 50, "authors (PAN11)"),
)
AUTHOR_WORDS: Final = 400
LEAST: Final = 10  # rows that a class needs to be taken
SMOOTHING: Final = 10.0  # of the auditor's model of word pairs, in counts


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/feyisetan-2020.md."""


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--epsilon", "epsilons", type=float, multiple=True, required=True)
def n_w(bundle: Path, epsilons: Sequence[float]) -> None:
    """Print N_w and S_w of Laplace noise: 200 words, spread over the vocabulary, 1,000 runs."""
    embedding = Embedding.open(bundle)
    mechanisms = shared.by_epsilon("laplace", sorted(epsilons))
    words = shared.evenly(200, len(embedding.words))
    with threadpool_limits(1):
        statistics = shared.staying(mechanisms, embedding, words, runs=RUNS)
    stays = RUNS * statistics["n_w"]
    rows = []
    for laplace, n, sizes in zip(mechanisms, stays, statistics["s_w"], strict=True):
        spread = " / ".join(f"{np.quantile(n, q):.3g}" for q in (0.05, 0.5, 0.95))
        rows.append((f"{laplace.epsilon:g}", f"{n.mean():.3g}", spread, f"{sizes.mean():.3g}"))
    click.echo(shared.markdown(("ε", "mean N_w", "5 / 50 / 95 %", "mean S_w"), rows))


# Tasks and the audit


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is perturbed, and what is asked of it."""

    parts: dict[str, WordRows]  # by task, and ``audit``
    labels: dict[str, NDArray[Any]]  # of the rows of each part that is classified
    reference: WordRows  # of other authors than those of ``audit``, which the auditor has


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="The folder of the data sets.")
def tasks(bundle: Path, data: Path) -> None:
    """Print what classifiers and an auditor get right after Laplace noise."""
    embedding = Embedding.open(bundle)
    generator = np.random.default_rng(2020)
    parts: dict[str, WordRows] = {}
    labels: dict[str, NDArray[Any]] = {}
    for file, label, count, longest, name in SETS:
        table = pq.read_table(data / file)
        rows = generator.permutation(table.num_rows)[:count]
        marks = np.array(table[label].to_pylist())
        values, counts = np.unique(marks[rows], return_counts=True)
        rows = rows[np.isin(marks[rows], values[counts >= LEAST])]
        texts = table["text"].take(rows).to_pylist()
        parts[name] = WordRows.of(texts, embedding, longest=longest)
        labels[name] = marks[rows]
    mails: dict[str, list[str]] = {}
    for mail in pq.read_table(data / "pan11/pan11_large.parquet").to_pylist():
        mails.setdefault(mail["author"], []).append(mail["text"])
    of_authors = [" ".join(mails[author]) for author in sorted(mails)]
    parts["audit"] = WordRows.of(of_authors, embedding, longest=AUTHOR_WORDS)
    small = pq.read_table(data / "pan11/pan11_small.parquet")["text"].to_pylist()
    reference = WordRows.of([" ".join(small)], embedding)
    corpus = Corpus(parts=parts, labels=labels, reference=reference)
    figures = measured(corpus, embedding, epsilons=EPSILONS, repetitions=5)
    chance = {"auditor (AUC)": "0.500"}
    for name, of_part in labels.items():
        _, counts = np.unique(of_part, return_counts=True)
        chance[name] = f"{counts.max() / len(of_part):.3f}"
    lines = []
    for name in figures[np.inf]:
        cells = [f"{of_epsilon[name]:.3f}" for of_epsilon in figures.values()]
        lines.append((name, chance.get(name, ""), *cells))
    columns = [*(f"ε = {epsilon:g}" for epsilon in EPSILONS), "no noise"]
    click.echo(shared.markdown(("", "chance", *columns), lines))


def measured(
    corpus: Corpus, embedding: Embedding, *, epsilons: Sequence[float], repetitions: int
) -> dict[float, dict[str, Mean]]:
    """Return all figures by epsilon; the last one, infinity, is without noise."""
    mechanisms = shared.by_epsilon("laplace", epsilons)
    released = {}
    for seed, (name, part) in enumerate(corpus.parts.items(), 7):
        outputs = shared.releases(part, mechanisms, embedding, repetitions=repetitions, seed=seed)
        released[name] = [*outputs, [part] * repetitions]

    def measure(place: int, seed: int) -> dict[str, float]:
        """Measure one repetition at one epsilon."""
        parts = {name: outputs[place][seed] for name, outputs in released.items()}
        stay = []
        for name, part in corpus.parts.items():
            stay.append((parts[name].words == part.words)[part.known])
        figures = {"words that stay": float(np.concatenate(stay).mean())}
        for name, labels in corpus.labels.items():
            model = make_pipeline(StandardScaler(), RidgeClassifier(alpha=300.0))
            features = shared.mean_vectors(parts[name], embedding)
            figures[name] = shared.scored(model, features, labels, shared.drawn(labels, seed))
        figures["auditor (AUC)"] = audited(corpus, parts["audit"], len(embedding.words) + 1, seed)
        return figures

    figures = {}
    for place, epsilon in enumerate([*epsilons, np.inf]):
        figures[epsilon] = shared.repeated(partial(measure, place), range(repetitions))
    return figures


def audited(corpus: Corpus, trained_on: WordRows, size: int, seed: int) -> float:
    """Compute the area under the ROC curve of an auditor who looks for the training data's authors.

    Half of the authors, at random, train the model. The auditor has each author's texts as written,
    and divides what the model gives them by what a model of other authors' original texts gives
    them.
    """
    members = np.random.default_rng(seed).permutation(trained_on.count) < trained_on.count // 2
    texts = corpus.parts["audit"]
    target = trained_on.take(np.flatnonzero(members))
    logs = pair_logs(target, texts, size)
    reference_logs = pair_logs(corpus.reference, texts, size)
    return float(roc_auc_score(members, logs - reference_logs))


def pair_logs(trained_on: WordRows, texts: WordRows, size: int) -> Floats:
    """Compute the mean log probability of each text's words, given those before: float64 (texts,).

    The language model counts pairs of ``size`` words, the unknown one included, and smooths them by
    the frequencies of words.
    """

    def pairs(rows: WordRows) -> tuple[Words, Words, Words]:
        """Return words, and the first and second of each two that follow one another."""
        words = np.where(rows.known, rows.words, size - 1)
        inner = rows.rows[1:] == rows.rows[:-1]
        return words, words[:-1][inner], words[1:][inner]

    words, before, after = pairs(trained_on)
    counts = sparse.csr_matrix((np.ones(len(before)), (before, after)), shape=(size, size))
    followers = np.bincount(before, minlength=size)
    frequency = np.bincount(words, minlength=size) + 0.1
    _, before, after = pairs(texts)
    smooth = SMOOTHING * (frequency / frequency.sum())[after]
    of_pairs = np.asarray(counts[before, after]).ravel() + smooth
    logs = np.log(of_pairs / (followers[before] + SMOOTHING))
    rows = texts.rows[1:][texts.rows[1:] == texts.rows[:-1]]
    lengths = np.bincount(rows, minlength=texts.count)
    return np.bincount(rows, logs, minlength=texts.count) / np.maximum(lengths, 1)


if __name__ == "__main__":
    main()
