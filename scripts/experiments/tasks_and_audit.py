"""Utility and audit experiments after Feyisetan et al. 2020, on data that stand in for the paper's.

    OMP_NUM_THREADS=1 python -m scripts.experiments.tasks_and_audit --embedding glove-300d --data FOLDER

FOLDER has ``senteval/{mr,subj,trec,mrpc}.parquet`` (movie reviews, subjectivity, questions by type,
paraphrases, as SentEval collects them) and ``pan11/{pan11_small,pan11_large}.parquet`` (PAN 2011 authorship,
mails of Enron). Models are trained and tested on perturbed texts, on both or one of the two. The audit asks
whether an author's mails were among those that a language model was trained on (after Song and Shmatikov
2019): here a model of word pairs, and likelihood ratios.

Prints Markdown; with ``--small`` one JSON object of a run on the demo.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from scripts.experiments.texts import Mean, demo_embedding, demo_queries, markdown
from scripts.experiments.word_rows import WordRows, bag_of_words, mean_vectors, releases

EPSILONS: Final = (9.0, 14.0, 20.0, 30.0)
MODES: Final = ("both", "training only", "test only")
"""Which rows are perturbed."""
MAIL_WORDS: Final = 50
AUTHOR_WORDS: Final = 400
PAIRS: Final = 400
LEAST: Final = 10
"""Rows that a class needs to be taken."""

Figures = dict[str, NDArray[np.float64]]
"""By name, float64 (repetitions,)."""


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """All texts, side by side so that they share noise, and what is asked of them.

    Attributes:
        texts: Texts of all parts.
        parts: Name of each part and its rows, from and to.
        labels: Labels of the rows of each part that is to be classified.
        answers: Rows of paraphrases that are never perturbed: row i answers row i of the part "answers".
        authors: Author of each row of the part "audit".
        reference: Texts of other authors, which the auditor has.
    """

    texts: WordRows
    parts: dict[str, tuple[int, int]]
    labels: dict[str, NDArray[Any]]
    answers: WordRows
    authors: NDArray[np.int64]
    reference: WordRows

    def part(self, name: str, texts: WordRows) -> WordRows:
        """Give a part of the texts, or of what they became."""
        return texts.between(*self.parts[name])


def read(data: Path, embedding: Embedding) -> Corpus:
    """Read a sample of each data set."""
    generator = np.random.default_rng(2020)
    sets = {
        "sentiment (MR)": ("senteval/mr.parquet", "label", 2000, None),
        "subjectivity (SUBJ)": ("senteval/subj.parquet", "subjective", 1500, None),
        "questions, 6 types (TREC)": ("senteval/trec.parquet", "coarse", 2000, None),
        "authors (PAN11 small)": ("pan11/pan11_small.parquet", "author", 1200, MAIL_WORDS),
    }
    named: dict[str, WordRows] = {}
    labels: dict[str, NDArray[Any]] = {}
    for name, (file, label, count, longest) in sets.items():
        table = pq.read_table(data / file)
        chosen = generator.permutation(table.num_rows)[:count]
        marks = np.array(table[label].to_pylist())
        values, counts = np.unique(marks[chosen], return_counts=True)
        chosen = chosen[np.isin(marks[chosen], values[counts >= LEAST])]
        texts = table["text"].take(chosen).to_pylist()
        named[name], labels[name] = WordRows.of(texts, embedding, longest=longest), marks[chosen]
    pairs = pq.read_table(data / "senteval/mrpc.parquet").to_pylist()
    pairs = [pair for pair in pairs if pair["label"] == 1][:PAIRS]
    named["answers"] = WordRows.of([pair["sentence_a"] for pair in pairs], embedding)
    mails = pq.read_table(data / "pan11/pan11_large.parquet")
    authors = sorted(set(mails["author"].to_pylist()))
    whole: dict[str, list[str]] = {author: [] for author in authors}
    for author, text in zip(mails["author"].to_pylist(), mails["text"].to_pylist(), strict=True):
        whole[author].append(text)
    named["audit"] = WordRows.of([" ".join(whole[a]) for a in authors], embedding, longest=AUTHOR_WORDS)
    others = pq.read_table(data / "pan11/pan11_small.parquet")["text"].to_pylist()
    return join(
        named,
        labels,
        answers=WordRows.of([pair["sentence_b"] for pair in pairs], embedding),
        reference=WordRows.of([" ".join(others)], embedding),
    )


def join(
    named: dict[str, WordRows], labels: dict[str, NDArray[Any]], *, answers: WordRows, reference: WordRows
) -> Corpus:
    """Put parts side by side."""
    ends = np.cumsum([part.count for part in named.values()])
    starts = [0, *ends[:-1]]
    texts = WordRows(
        words=np.concatenate([part.words for part in named.values()]),
        rows=np.concatenate([p.rows + s for p, s in zip(named.values(), starts, strict=True)]),
        count=int(ends[-1]),
    )
    parts = {name: (int(s), int(e)) for name, s, e in zip(named, starts, ends, strict=True)}
    authors = np.arange(named["audit"].count)
    return Corpus(
        texts=texts, parts=parts, labels=labels, answers=answers, authors=authors, reference=reference
    )


def classified(
    original: WordRows, perturbed: WordRows, labels: NDArray[Any], embedding: Embedding, seed: int
) -> dict[str, float]:
    """Accuracy by model and mode, of 30 % of the rows when 70 % train."""
    train, test = train_test_split(
        np.arange(original.count), test_size=0.3, random_state=seed, stratify=labels
    )
    found = {}
    for name, of, scaler, strength in (
        ("bag of words", bag_of_words, TfidfTransformer, 1.0),
        ("mean vectors", mean_vectors, StandardScaler, 300.0),
    ):
        plain, noisy = of(original, embedding), of(perturbed, embedding)
        fits = [
            make_pipeline(scaler(), RidgeClassifier(alpha=strength)).fit(features[train], labels[train])
            for features in (noisy, plain)
        ]
        for mode, model, features in zip(MODES, (fits[0], *fits), (noisy, plain, noisy), strict=True):
            found[f"{name}, {mode}"] = float((model.predict(features[test]) == labels[test]).mean())
    return found


def answered(questions: WordRows, answers: WordRows, embedding: Embedding) -> dict[str, float]:
    """Mean reciprocal rank of each perturbed row's own paraphrase, by cosine of mean vectors, and hits."""
    both = [mean_vectors(texts, embedding) for texts in (questions, answers)]
    centre = both[1].mean(axis=0)  # the answers are public
    asked, given = (side - centre for side in both)
    given /= np.maximum(np.linalg.norm(given, axis=1, keepdims=True), 1e-12)
    scores = asked @ given.T
    ranks = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
    return {"mean reciprocal rank": float((1.0 / ranks).mean()), "first": float((ranks == 1).mean())}


@dataclass(frozen=True, kw_only=True)
class PairModel:
    """A language model of word pairs: each word given the one before it, smoothed by frequencies of words.

    Attributes:
        size: How many words there are, the unknown one included.
        pairs, pair_counts: int64, sorted, previous * size + word, and how often each came.
        counts: float64 (size,), of words that something follows.
        frequency: float64 (size,), each word's share, smoothed by a tenth of a count.
    """

    SMOOTHING = 10.0

    size: int
    pairs: NDArray[np.int64]
    pair_counts: NDArray[np.float64]
    counts: NDArray[np.float64]
    frequency: NDArray[np.float64]

    @classmethod
    def of(cls, texts: WordRows, size: int) -> PairModel:
        """Count."""
        words = np.where(texts.known, texts.words, size - 1)
        inner = texts.rows[1:] == texts.rows[:-1]
        keys, counts = np.unique((words[:-1] * size + words[1:])[inner], return_counts=True)
        frequency = np.bincount(words, minlength=size) + 0.1
        return cls(
            size=size,
            pairs=keys,
            pair_counts=counts.astype(np.float64),
            counts=np.bincount(words[:-1][inner], minlength=size).astype(np.float64),
            frequency=frequency / frequency.sum(),
        )

    def logs(self, texts: WordRows) -> NDArray[np.float64]:
        """float64 (rows,): mean log probability of each row's words, given those before them."""
        words = np.where(texts.known, texts.words, self.size - 1)
        inner = texts.rows[1:] == texts.rows[:-1]
        before, after, rows = words[:-1][inner], words[1:][inner], texts.rows[1:][inner]
        keys = before * self.size + after
        place = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
        counts = np.where(self.pairs[place] == keys, self.pair_counts[place], 0.0)
        smooth = self.SMOOTHING * self.frequency[after]
        logs = np.log((counts + smooth) / (self.counts[before] + self.SMOOTHING))
        sums = np.bincount(rows, logs, minlength=texts.count)
        lengths = np.bincount(rows, minlength=texts.count)
        return sums / np.maximum(lengths, 1)


def audited(
    corpus: Corpus, trained_on: WordRows, copies: dict[str, WordRows], size: int, seed: int
) -> dict[str, float]:
    """How well an auditor tells the authors in the training data from the others: areas under ROC curves.

    Half of the authors, at random, train the model. The auditor knows each author's texts, and divides what
    the model gives them by what a model of other authors' original texts gives them.

    Args:
        corpus: Who wrote what.
        trained_on: The rows of the part "audit" that the model sees.
        copies: What the auditor scores, by name: these rows as they were written, or perturbed by himself.
        size: Words, the unknown one included.
        seed: Says which half.
    """
    members = np.zeros(trained_on.count, dtype=np.bool_)
    members[np.random.default_rng(seed).permutation(trained_on.count)[: trained_on.count // 2]] = True
    chosen = members[trained_on.rows]
    seen = WordRows(words=trained_on.words[chosen], rows=trained_on.rows[chosen], count=trained_on.count)
    target, other = PairModel.of(seen, size), PairModel.of(corpus.reference, size)
    return {
        f"audit, {name}": float(roc_auc_score(members, target.logs(copy) - other.logs(copy)))
        for name, copy in copies.items()
    }


def measure(
    corpus: Corpus, embedding: Embedding, *, epsilons: Sequence[float], repetitions: int
) -> dict[float, Figures]:
    """All figures by epsilon; infinity is without noise."""
    size = len(embedding.words) + 1
    mechanisms = [Laplace(epsilon=epsilon) for epsilon in epsilons]
    drawn = releases(corpus.texts, mechanisms, embedding, repetitions=repetitions, seed=7)
    found = {}
    for epsilon, outputs in zip([np.inf, *epsilons], [[corpus.texts] * repetitions, *drawn], strict=True):
        rows = []
        for seed, texts in enumerate(outputs):
            row = {"words that stay": texts.kept(corpus.texts)}
            for name, labels in corpus.labels.items():
                original, perturbed = (corpus.part(name, of) for of in (corpus.texts, texts))
                scores = classified(original, perturbed, labels, embedding, seed)
                row |= {f"{name}, {key}": value for key, value in scores.items()}
            row |= answered(corpus.part("answers", texts), corpus.answers, embedding)
            copies = {
                "as written": corpus.part("audit", corpus.texts),
                "perturbed again": corpus.part("audit", outputs[(seed + 1) % repetitions]),
            }
            row |= audited(corpus, corpus.part("audit", texts), copies, size, seed)
            rows.append(row)
        found[epsilon] = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        click.echo(f"epsilon {epsilon:g}", err=True)
    return found


def report(corpus: Corpus, found: dict[float, Figures]) -> Iterator[str]:
    """Draw all tables."""
    epsilons = sorted(found)
    names = ["no noise" if e == np.inf else f"{e:g}" for e in epsilons]
    headings = [*(f"ε = {name}" for name in names[:-1]), names[-1]]
    plain = found[np.inf]

    def line(key: str, form: str = ".3f") -> list[str]:
        return [format(Mean.of(found[e][key]), form) for e in epsilons]

    def loss(key: str) -> list[str]:
        return [f"{100 * Mean.of(plain[key] - found[e][key]).mean:.1f}" for e in epsilons[:-1]]

    yield "## Utility: accuracy\n"
    rows: list[list[str]] = [["", "", "words that stay", "", *line("words that stay")]]
    for task, labels in corpus.labels.items():
        majority = np.unique(labels, return_counts=True)[1].max() / len(labels)
        for model in ("bag of words", "mean vectors"):
            rows += [
                [task, model, mode, f"{majority:.3f}", *line(f"{task}, {model}, {mode}")] for mode in MODES
            ]
    pairs = corpus.answers.count
    chance = {"mean reciprocal rank": float((1.0 / np.arange(1, pairs + 1)).mean()), "first": 1.0 / pairs}
    for key, floor in chance.items():
        rows.append([f"one of {pairs} paraphrases (MRPC)", "mean vectors", key, f"{floor:.3f}", *line(key)])
    yield markdown(("task", "model", "perturbed", "majority or chance", *headings), rows)
    yield "## Utility that is lost, in points\n"
    rows = [
        [task, model, mode, *loss(f"{task}, {model}, {mode}")]
        for task in corpus.labels
        for model in ("bag of words", "mean vectors")
        for mode in MODES[:2]
    ]
    rows += [["paraphrases (MRPC)", "mean vectors", key, *loss(key)] for key in chance]
    yield markdown(("task", "model", "perturbed", *headings[:-1]), rows)
    yield "## Audit: area under the curve, members against others\n"
    copies = ("as written", "perturbed again")
    rows = [[copy, "0.500", *line(f"audit, {copy}")] for copy in copies]
    yield markdown(("the auditor's copy", "chance", *headings), rows)


def small() -> dict[str, float]:
    """Run on the demo's queries, in 50 dimensions: intents for labels, runs of ten queries for authors."""
    texts, intents = demo_queries(600)
    with tempfile.TemporaryDirectory() as folder:
        embedding = demo_embedding(Path(folder))
        asked = WordRows.of(texts[:300], embedding)
        authors = [" ".join(texts[start : start + 10]) for start in range(0, 400, 10)]
        corpus = join(
            {"intents": asked, "answers": asked.between(0, 100), "audit": WordRows.of(authors, embedding)},
            {"intents": np.array(intents[:300])},
            answers=asked.between(0, 100),
            reference=WordRows.of([" ".join(texts[400:])], embedding),
        )
        found = measure(corpus, embedding, epsilons=(1.0, 8.0), repetitions=2)
    names = {"inf": np.inf, "8": 8.0, "1": 1.0}
    return {
        f"{key}, {name}": float(values.mean())
        for name, epsilon in names.items()
        for key, values in found[epsilon].items()
    }


@click.command()
@click.option("--embedding", "bundle", type=click.Path(exists=True, path_type=Path), help="A bundle.")
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="The folder of the data sets.")
@click.option("--repetitions", default=5, show_default=True, help="Noises, splits and halves of authors.")
@click.option("--epsilon", "epsilons", multiple=True, type=float, help="Instead of the grid; repeatable.")
@click.option("--small", "is_small", is_flag=True, help="A few seconds on the demo.")
def main(
    bundle: Path | None, data: Path | None, repetitions: int, epsilons: tuple[float, ...], is_small: bool
) -> None:
    """Measure use and risk of texts after Laplace noise."""
    if is_small:
        click.echo(json.dumps(small()))
        return
    if bundle is None or data is None:
        raise click.UsageError("Give --embedding and --data, or --small.")
    embedding = Embedding.open(bundle)
    corpus = read(data, embedding)
    tokens = {name: corpus.part(name, corpus.texts) for name in corpus.parts}
    sizes = "; ".join(f"{name}: {t.count:,} rows, {len(t.words):,} words" for name, t in tokens.items())
    click.echo(f"{sizes}. {corpus.texts.known.mean():.1%} of the words are in the vocabulary.\n")
    for line in report(
        corpus, measure(corpus, embedding, epsilons=epsilons or EPSILONS, repetitions=repetitions)
    ):
        click.echo(line)


if __name__ == "__main__":
    main()
