"""How often words stay under Laplace noise, and what tasks and an auditor keep, after Feyisetan et al. 2020.

    OMP_NUM_THREADS=1 python -m scripts.experiments.feyisetan_2020 n-w glove-50d --limit 100000 --epsilon 5
    OMP_NUM_THREADS=1 python -m scripts.experiments.feyisetan_2020 tasks glove-300d --data FOLDER

FOLDER has ``senteval/{mr,subj,trec,mrpc}.parquet`` (movie reviews, subjectivity, questions by type,
paraphrases, as SentEval collects them) and ``pan11/{pan11_small,pan11_large}.parquet`` (PAN 2011 authorship,
mails of Enron). The audit asks whether an author's mails were among those that a language model was trained
on (after Song and Shmatikov 2019): here a model of word pairs, and likelihood ratios.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from scripts.experiments.shared import (
    FOLDER,
    Mean,
    WordRows,
    evenly,
    made_embedding,
    markdown,
    mean_vectors,
    releases,
    staying,
)

RUNS: Final = 1000
EPSILONS: Final = (9.0, 14.0, 20.0, 30.0)
PAIRS: Final = 400
# File, label, rows, words of a row, and the name of the task.
SETS: Final = (
    ("senteval/mr.parquet", "label", 2000, None, "sentiment (MR)"),
    ("senteval/subj.parquet", "subjective", 1500, None, "subjectivity (SUBJ)"),
    ("senteval/trec.parquet", "coarse", 2000, None, "questions, 6 types (TREC)"),
    ("pan11/pan11_small.parquet", "author", 1200, 50, "authors (PAN11)"),
)
AUTHOR_WORDS: Final = 400
LEAST: Final = 10
"""Rows that a class needs to be taken."""
SMOOTHING: Final = 10.0
"""Of the auditor's model of word pairs, in counts."""

Figures = dict[str, list[float]]
"""By name, a figure of each repetition."""


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/feyisetan-2020.md."""


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--epsilon", "epsilons", type=float, multiple=True, required=True)
@click.option("--words", "count", default=200, show_default=True, help="evenly spread over the vocabulary")
@click.option("--limit", type=int, help="take the first words alone, as --limit of dptext embedding does")
@click.option("--unit-length", is_flag=True, help="scale every vector to length 1 before")
def n_w(bundle: Path, epsilons: Sequence[float], count: int, limit: int | None, unit_length: bool) -> None:
    """Print N_w and S_w of Laplace noise, of 1,000 runs."""
    embedding = Embedding.open(bundle)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        if limit or unit_length:
            vectors = np.asarray(embedding.vectors[:limit], dtype=np.float32)
            if unit_length:
                vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
            embedding = made_embedding(embedding.words[:limit].to_pylist(), vectors, Path(folder, "own"))
        mechanisms = [Laplace(epsilon=epsilon) for epsilon in sorted(epsilons)]
        found = staying(mechanisms, embedding, evenly(count, len(embedding.words)), runs=RUNS)
    rows = [
        (
            f"{each.epsilon:g}",
            f"{n.mean():.3g}",
            " / ".join(f"{np.quantile(n, q):.3g}" for q in (0.05, 0.5, 0.95)),
            f"{s.mean():.3g}",
        )
        for each, n, s in zip(mechanisms, RUNS * found["n_w"], found["s_w"], strict=True)
    ]
    click.echo(markdown(("ε", "mean N_w", "5 / 50 / 95 %", "mean S_w"), rows))


# Tasks and the audit


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What is perturbed, and what is asked of it.

    Attributes:
        parts: Texts by task, and ``answers`` and ``audit``.
        labels: Labels of the rows of each part that is classified.
        answers: Paraphrases that are never perturbed: row i answers row i of the part ``answers``.
        reference: Texts of other authors than those of ``audit``, which the auditor has.
    """

    parts: dict[str, WordRows]
    labels: dict[str, NDArray[Any]]
    answers: WordRows
    reference: WordRows

    @property
    def texts(self) -> WordRows:
        """All parts, one after another: so they share noise."""
        counts = np.cumsum([part.count for part in self.parts.values()])
        rows = [part.rows + end - part.count for part, end in zip(self.parts.values(), counts, strict=True)]
        words = np.concatenate([part.words for part in self.parts.values()])
        return WordRows(words=words, rows=np.concatenate(rows), count=int(counts[-1]))

    def cut(self, texts: WordRows) -> dict[str, WordRows]:
        """Give the parts of what all texts became."""
        ends = np.cumsum([len(part.words) for part in self.parts.values()])
        words = np.split(texts.words, ends[:-1])
        return {name: part.having(own) for (name, part), own in zip(self.parts.items(), words, strict=True)}


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="The folder of the data sets.")
@click.option("--repetitions", default=5, show_default=True, help="Noises, splits and halves of authors.")
def tasks(bundle: Path, data: Path, repetitions: int) -> None:
    """Print what classifiers, paraphrases and an auditor get right after Laplace noise."""
    embedding = Embedding.open(bundle)
    corpus = read(data, embedding)
    found = measured(corpus, embedding, epsilons=EPSILONS, repetitions=repetitions)
    chance = {
        name: np.unique(labels, return_counts=True)[1].max() / len(labels)
        for name, labels in corpus.labels.items()
    }
    chance |= {"paraphrases, first": 1.0 / corpus.answers.count, "auditor (AUC)": 0.5}
    names = [*found[np.inf]]
    rows = [
        (
            name,
            f"{chance[name]:.3f}" if name in chance else "",
            *(f"{Mean(of[name]):.3f}" for of in found.values()),
        )
        for name in names
    ]
    columns = ["no noise" if epsilon == np.inf else f"ε = {epsilon:g}" for epsilon in found]
    click.echo(markdown(("", "chance", *columns), rows))


def read(data: Path, embedding: Embedding) -> Corpus:
    """Read a sample of each data set."""
    generator = np.random.default_rng(2020)
    parts: dict[str, WordRows] = {}
    labels: dict[str, NDArray[Any]] = {}
    for file, label, count, longest, name in SETS:
        table = pq.read_table(data / file)
        chosen = generator.permutation(table.num_rows)[:count]
        marks = np.array(table[label].to_pylist())
        values, counts = np.unique(marks[chosen], return_counts=True)
        chosen = chosen[np.isin(marks[chosen], values[counts >= LEAST])]
        parts[name] = WordRows.of(table["text"].take(chosen).to_pylist(), embedding, longest=longest)
        labels[name] = marks[chosen]
    pairs = [pair for pair in pq.read_table(data / "senteval/mrpc.parquet").to_pylist() if pair["label"] == 1]
    parts["answers"] = WordRows.of([pair["sentence_a"] for pair in pairs[:PAIRS]], embedding)
    whole: dict[str, list[str]] = {}
    for mail in pq.read_table(data / "pan11/pan11_large.parquet").to_pylist():
        whole.setdefault(mail["author"], []).append(mail["text"])
    mails = [" ".join(whole[author]) for author in sorted(whole)]
    parts["audit"] = WordRows.of(mails, embedding, longest=AUTHOR_WORDS)
    others = pq.read_table(data / "pan11/pan11_small.parquet")["text"].to_pylist()
    return Corpus(
        parts=parts,
        labels=labels,
        answers=WordRows.of([pair["sentence_b"] for pair in pairs[:PAIRS]], embedding),
        reference=WordRows.of([" ".join(others)], embedding),
    )


def measured(
    corpus: Corpus, embedding: Embedding, *, epsilons: Sequence[float], repetitions: int
) -> dict[float, Figures]:
    """Give all figures by epsilon; the last one, infinity, is without noise."""
    original = corpus.texts
    mechanisms = [Laplace(epsilon=epsilon) for epsilon in epsilons]
    drawn = releases(original, mechanisms, embedding, repetitions=repetitions, seed=7)
    found: dict[float, Figures] = {}
    for epsilon, outputs in zip([*epsilons, np.inf], [*drawn, [original] * repetitions], strict=True):
        figures: Figures = {}
        for seed, texts in enumerate(outputs):
            parts = corpus.cut(texts)
            row = {"words that stay": texts.kept(original)}
            for name, labels in corpus.labels.items():
                row |= classified(name, corpus.parts[name], parts[name], labels, embedding, seed)
            row["paraphrases, first"] = answered(parts["answers"], corpus.answers, embedding)
            row["auditor (AUC)"] = audited(corpus, parts["audit"], len(embedding.words) + 1, seed)
            for name, value in row.items():
                figures.setdefault(name, []).append(value)
        found[epsilon] = figures
    return found


def classified(
    name: str, original: WordRows, perturbed: WordRows, labels: NDArray[Any], embedding: Embedding, seed: int
) -> dict[str, float]:
    """Give accuracies on 30 % of the rows, perturbed or as written, of models trained on 70 %, perturbed."""
    train, test = train_test_split(
        np.arange(original.count), test_size=0.3, random_state=seed, stratify=labels
    )
    plain, noisy = mean_vectors(original, embedding), mean_vectors(perturbed, embedding)
    model = make_pipeline(StandardScaler(), RidgeClassifier(alpha=300.0)).fit(noisy[train], labels[train])
    return {
        name: float(model.score(noisy[test], labels[test])),
        f"{name}, trained on perturbed texts alone": float(model.score(plain[test], labels[test])),
    }


def answered(questions: WordRows, answers: WordRows, embedding: Embedding) -> float:
    """Share of perturbed rows whose own paraphrase is the nearest, by cosine of mean vectors."""
    asked, given = (mean_vectors(texts, embedding) for texts in (questions, answers))
    centre = given.mean(axis=0)  # the answers are public
    given = given - centre
    given /= np.maximum(np.linalg.norm(given, axis=1, keepdims=True), 1e-12)
    scores = (asked - centre) @ given.T
    return float((scores <= np.diag(scores)[:, None]).all(axis=1).mean())


def audited(corpus: Corpus, trained_on: WordRows, size: int, seed: int) -> float:
    """Give the area under the ROC curve of an auditor who tells the authors in the training data from others.

    Half of the authors, at random, train the model. The auditor has each author's texts as written, and
    divides what the model gives them by what a model of other authors' original texts gives them.
    """
    members = np.random.default_rng(seed).permutation(trained_on.count) < trained_on.count // 2
    target = PairModel.of(trained_on.take(np.flatnonzero(members)), size)
    other, texts = PairModel.of(corpus.reference, size), corpus.parts["audit"]
    return float(roc_auc_score(members, target.logs(texts) - other.logs(texts)))


@dataclass(frozen=True, kw_only=True)
class PairModel:
    """A language model of word pairs: each word given the one before it, smoothed by frequencies of words.

    Attributes:
        size: How many words there are, the unknown one included.
        pairs, pair_counts: int64, sorted, previous * size + word, and how often each came.
        counts: float64 (size,), of words that something follows.
        frequency: float64 (size,), each word's share, smoothed by a tenth of a count.
    """

    size: int
    pairs: NDArray[np.int64]
    pair_counts: NDArray[np.int64]
    counts: NDArray[np.float64]
    frequency: NDArray[np.float64]

    @classmethod
    def of(cls, texts: WordRows, size: int) -> PairModel:
        """Count."""
        words = np.where(texts.known, texts.words, size - 1)
        inner = texts.rows[1:] == texts.rows[:-1]
        keys, counts = np.unique((words[:-1] * size + words[1:])[inner], return_counts=True)
        frequency = np.bincount(words, minlength=size) + 0.1
        followed = np.bincount(words[:-1][inner], minlength=size).astype(np.float64)
        return cls(
            size=size, pairs=keys, pair_counts=counts, counts=followed, frequency=frequency / frequency.sum()
        )

    def logs(self, texts: WordRows) -> NDArray[np.float64]:
        """float64 (rows,): mean log probability of each row's words, given those before them."""
        words = np.where(texts.known, texts.words, self.size - 1)
        inner = texts.rows[1:] == texts.rows[:-1]
        before, after, rows = words[:-1][inner], words[1:][inner], texts.rows[1:][inner]
        keys = before * self.size + after
        place = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        counts = np.where(self.pairs[place] == keys, self.pair_counts[place], 0.0)
        logs = np.log((counts + SMOOTHING * self.frequency[after]) / (self.counts[before] + SMOOTHING))
        lengths = np.bincount(rows, minlength=texts.count)
        return np.bincount(rows, logs, minlength=texts.count) / np.maximum(lengths, 1)


if __name__ == "__main__":
    main()
