"""How often words stay under Laplace noise, and what tasks and an auditor keep, after Feyisetan et al. 2020.

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
from dptext_spark.mechanisms import Laplace
from scripts.experiments import shared
from scripts.experiments.shared import FOLDER, Floats, Mean, WordRows, Words

RUNS: Final = 1000
EPSILONS: Final = (9.0, 14.0, 20.0, 30.0)
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
    """Print N_w and S_w of Laplace noise: 200 words, evenly spread over the vocabulary, 1,000 runs."""
    embedding, mechanisms = (
        Embedding.open(bundle),
        [Laplace(epsilon=epsilon) for epsilon in sorted(epsilons)],
    )
    with threadpool_limits(1):
        found = shared.staying(
            mechanisms, embedding, shared.evenly(200, len(embedding.words)), runs=RUNS
        )
    rows = []
    for each, n, sizes in zip(mechanisms, RUNS * found["n_w"], found["s_w"], strict=True):
        spread = " / ".join(f"{np.quantile(n, q):.3g}" for q in (0.05, 0.5, 0.95))
        rows.append((f"{each.epsilon:g}", f"{n.mean():.3g}", spread, f"{sizes.mean():.3g}"))
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
        chosen = generator.permutation(table.num_rows)[:count]
        marks = np.array(table[label].to_pylist())
        values, counts = np.unique(marks[chosen], return_counts=True)
        chosen = chosen[np.isin(marks[chosen], values[counts >= LEAST])]
        parts[name] = WordRows.of(
            table["text"].take(chosen).to_pylist(), embedding, longest=longest
        )
        labels[name] = marks[chosen]
    whole: dict[str, list[str]] = {}
    for mail in pq.read_table(data / "pan11/pan11_large.parquet").to_pylist():
        whole.setdefault(mail["author"], []).append(mail["text"])
    mails = [" ".join(whole[author]) for author in sorted(whole)]
    parts["audit"] = WordRows.of(mails, embedding, longest=AUTHOR_WORDS)
    others = pq.read_table(data / "pan11/pan11_small.parquet")["text"].to_pylist()
    reference = WordRows.of([" ".join(others)], embedding)
    corpus = Corpus(parts=parts, labels=labels, reference=reference)
    found = measured(corpus, embedding, epsilons=EPSILONS, repetitions=5)
    chance = {"auditor (AUC)": 0.5}
    for name, own in labels.items():
        chance[name] = np.unique(own, return_counts=True)[1].max() / len(own)
    rows = [
        (
            name,
            f"{chance[name]:.3f}" if name in chance else "",
            *(f"{of[name]:.3f}" for of in found.values()),
        )
        for name in found[np.inf]
    ]
    columns = ["no noise" if epsilon == np.inf else f"ε = {epsilon:g}" for epsilon in found]
    click.echo(shared.markdown(("", "chance", *columns), rows))


def measured(
    corpus: Corpus, embedding: Embedding, *, epsilons: Sequence[float], repetitions: int
) -> dict[float, dict[str, Mean]]:
    """Give all figures by epsilon; the last one, infinity, is without noise."""
    mechanisms = [Laplace(epsilon=epsilon) for epsilon in epsilons]
    drawn = {
        name: [
            *shared.releases(part, mechanisms, embedding, repetitions=repetitions, seed=seed),
            [part] * repetitions,
        ]
        for seed, (name, part) in enumerate(corpus.parts.items(), 7)
    }

    def measure(place: int, seed: int) -> dict[str, float]:
        parts = {name: outputs[place][seed] for name, outputs in drawn.items()}
        stay = [
            (parts[name].words == part.words)[part.known] for name, part in corpus.parts.items()
        ]
        figures = {"words that stay": float(np.concatenate(stay).mean())}
        for name, labels in corpus.labels.items():
            model = make_pipeline(StandardScaler(), RidgeClassifier(alpha=300.0))
            features, tested = (
                shared.mean_vectors(parts[name], embedding),
                shared.drawn(labels, seed),
            )
            figures[name] = shared.scored(model, features, labels, tested)
        figures["auditor (AUC)"] = audited(corpus, parts["audit"], len(embedding.words) + 1, seed)
        return figures

    return {
        epsilon: shared.repeated(partial(measure, place), range(repetitions))
        for place, epsilon in enumerate([*epsilons, np.inf])
    }


def audited(corpus: Corpus, trained_on: WordRows, size: int, seed: int) -> float:
    """Give the area under the ROC curve of an auditor who looks for authors of the training data.

    Half of the authors, at random, train the model. The auditor has each author's texts as written,
    and divides what the model gives them by what a model of other authors' original texts gives
    them.
    """
    members = np.random.default_rng(seed).permutation(trained_on.count) < trained_on.count // 2
    texts, target = corpus.parts["audit"], trained_on.take(np.flatnonzero(members))
    logs, others = (pair_logs(each, texts, size) for each in (target, corpus.reference))
    return float(roc_auc_score(members, logs - others))


def pair_logs(trained_on: WordRows, texts: WordRows, size: int) -> Floats:
    """Mean log probability of each text's words, given those before them: float64 (texts,).

    The language model counts pairs of ``size`` words, the unknown one included, and smooths them by
    the frequencies of words.
    """

    def pairs(rows: WordRows) -> tuple[Words, Words, Words]:
        """Words, and the first and second of each two that follow one another."""
        words, inner = np.where(rows.known, rows.words, size - 1), rows.rows[1:] == rows.rows[:-1]
        return words, words[:-1][inner], words[1:][inner]

    words, before, after = pairs(trained_on)
    seen = sparse.csr_matrix((np.ones(len(before)), (before, after)), shape=(size, size))
    followed, frequency = (
        np.bincount(before, minlength=size),
        np.bincount(words, minlength=size) + 0.1,
    )
    _, before, after = pairs(texts)
    smooth = SMOOTHING * (frequency / frequency.sum())[after]
    logs = np.log(
        (np.asarray(seen[before, after]).ravel() + smooth) / (followed[before] + SMOOTHING)
    )
    rows = texts.rows[1:][texts.rows[1:] == texts.rows[:-1]]
    lengths = np.bincount(rows, minlength=texts.count)
    return np.bincount(rows, logs, minlength=texts.count) / np.maximum(lengths, 1)


if __name__ == "__main__":
    main()
