"""Figures 6 and 7 of Xu et al. 2020 again: spam and disasters, told after the Mahalanobis mechanism.

    OMP_NUM_THREADS=1 python -m scripts.experiments.spam_and_disasters --embedding glove-300d --data FOLDER

FOLDER has ``sms_spam/sms_spam.parquet`` (SMS Spam Collection, Almeida et al. 2011: ``label`` is ham or spam,
``text``) and ``disaster_tweets/train.parquet`` ("Real or not? NLP with disaster tweets": ``target`` is 0 or
1, ``text``). 70 % of the rows train, 30 % are classified, both perturbed, as in the paper's section 5.2.

Each repetition has noise and a split of its own; the same split serves every epsilon and lambda, so that
differences between them are of pairs. Prints Markdown; with ``--small`` one JSON object of a run on the demo.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from scipy.interpolate import PchipInterpolator
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import precision_recall_fscore_support
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.text.stop_words import stop_words
from scripts.experiments.texts import Mean, demo_embedding, demo_queries, markdown, sanitized
from scripts.experiments.word_rows import Features, WordRows, bag_of_words, mean_vectors, releases

LAMBDAS: Final = (0.0, 0.5, 1.0)
EPSILONS: Final = (5.0, 10.0, 15.0, 20.0)
BETWEEN: Final = (7.5, 12.5, 17.5)
"""More of them for lambda = 0, to compare at equal shares of words that stay."""
MEASURES: Final = ("accuracy", "precision", "recall", "recall of the others")
"""Precision and recall are of spam and of disasters; the others are ham and the other tweets."""
PAPER: Final = {"SMS": (0.99, 0.92, 0.99), "tweets": (0.78, 0.78, 0.69)}
"""What the paper's models reach without noise: accuracy, precision, recall."""

Scores: TypeAlias = NDArray[np.float64]


class Task(NamedTuple):
    """Texts of two classes, bool (rows,) of which True is the one that precision and recall are of."""

    name: str
    texts: list[str]
    labels: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What repetitions of one setting gave.

    Attributes:
        kept: float64 (repetitions,), share of known tokens that stayed.
        scores: For each model, float64 (repetitions, 4).
    """

    kept: NDArray[np.float64]
    scores: dict[str, Scores]


Cells: TypeAlias = dict[tuple[float, float], Cell]


def read_sms(data: Path) -> Task:
    """Read the SMS as they are."""
    table = pq.read_table(data / "sms_spam" / "sms_spam.parquet")
    return Task("SMS", table["text"].to_pylist(), np.array(table["label"].to_pylist()) == "spam")


def read_tweets(data: Path) -> Task:
    """Read the tweets without links, names of users and stop words: the paper has 7.3 words a tweet."""
    table = pq.read_table(data / "disaster_tweets" / "train.parquet")
    texts = [re.sub(r"https?://\S+|@\w+", " ", text.lower()) for text in table["text"].to_pylist()]
    stop = stop_words()
    texts = [" ".join(w for w in re.findall(r"\w+(?:'\w+)?", text) if w not in stop) for text in texts]
    return Task("tweets", texts, np.array(table["target"].to_pylist()) == 1)


def own_vocabulary(embedding: Embedding, tasks: Sequence[Task], folder: Path) -> Embedding:
    """Build a bundle of the words that the tasks' texts have, as the paper does. No release should."""
    found = np.unique(np.concatenate([WordRows.of(task.texts, embedding).words for task in tasks]))
    found = found[found >= 0]
    np.save(folder / "own.npy", embedding.vectors[found])
    words = embedding.words.take(pa.array(found)).to_pylist()
    (folder / "own.txt").write_text("".join(f"{word}\n" for word in words), "utf-8")
    return build_embedding(folder / "own.npy", folder / "own", vocabulary=folder / "own.txt")


MODELS: Final[dict[str, tuple[Callable[[WordRows, Embedding], Features], Callable[[], object]]]] = {
    "bag of words": (bag_of_words, TfidfTransformer),
    "mean vectors": (mean_vectors, StandardScaler),
}


def score(features: Features, task: Task, seed: int, scaler: Callable[[], object]) -> list[float]:
    """Train on 70 % of the rows and give the measures of the rest."""
    train, test = train_test_split(
        np.arange(len(task.labels)), test_size=0.3, random_state=seed, stratify=task.labels
    )
    strength = 10.0 if sparse.issparse(features) else 0.01
    model = make_pipeline(scaler(), LogisticRegression(C=strength, max_iter=300))
    guessed = model.fit(features[train], task.labels[train]).predict(features[test])
    precision, recall, _, _ = precision_recall_fscore_support(
        task.labels[test], guessed, labels=[False, True], zero_division=0.0
    )
    return [float((guessed == task.labels[test]).mean()), precision[1], recall[1], recall[0]]


def as_written(task: Task, repetitions: int) -> Scores:
    """Scores of a bag of the original texts' words, unknown ones too, float64 (repetitions, 4)."""
    words = CountVectorizer(token_pattern=r"\w+").fit_transform(task.texts)
    return np.array([score(words, task, seed, TfidfTransformer) for seed in range(repetitions)])


def cell(original: WordRows, outputs: Sequence[WordRows], task: Task, embedding: Embedding) -> Cell:
    """Score the repetitions of one setting, each with its own split."""
    scores = {
        name: np.array([score(of(texts, embedding), task, s, scaler) for s, texts in enumerate(outputs)])
        for name, (of, scaler) in MODELS.items()
    }
    return Cell(kept=np.array([texts.kept(original) for texts in outputs]), scores=scores)


def measure(
    task: Task,
    embedding: Embedding,
    *,
    lambdas: Sequence[float],
    epsilons: Sequence[float],
    between: Sequence[float],
    repetitions: int,
) -> Cells:
    """Score every setting by (lambda, epsilon); (0, infinity) is without noise."""
    original = WordRows.of(task.texts, embedding)
    cells = {(0.0, np.inf): cell(original, [original] * repetitions, task, embedding)}
    for number, mixing in enumerate(lambdas):
        grid = sorted({*epsilons, *between}) if mixing == 0.0 else list(epsilons)
        mechanisms = [mechanism("mahalanobis", epsilon=e, **{"lambda": mixing}) for e in grid]
        drawn = releases(original, mechanisms, embedding, repetitions=repetitions, seed=1 + number)
        for epsilon, outputs in zip(grid, drawn, strict=True):
            cells[mixing, epsilon] = cell(original, outputs, task, embedding)
            click.echo(f"{task.name}: lambda {mixing:g}, epsilon {epsilon:g}", err=True)
    return cells


def at_equal_change(cells: Cells, mixing: float, epsilon: float, model: str) -> Scores:
    """Scores minus those that lambda = 0 has where as many words stay, float64 (repetitions, 4)."""
    here = cells[mixing, epsilon]
    base = [cells[key] for key in sorted(cells) if key[0] == 0.0]
    shares = np.array([each.kept.mean() for each in base])
    values = np.stack([each.scores[model] for each in base])
    between: Scores = PchipInterpolator(shares, values, axis=0)(here.kept.mean())
    return here.scores[model] - between


def figures(task: Task, cells: Cells) -> Iterator[str]:
    """The figure of one data set: scores by epsilon and lambda."""
    majority = max(task.labels.mean(), 1.0 - task.labels.mean())
    paper = ", ".join(f"{m} {v:.2f}" for m, v in zip(MEASURES[:3], PAPER[task.name], strict=True))
    repetitions = len(cells[0.0, np.inf].kept)
    scores = zip(MEASURES, as_written(task, repetitions).T, strict=True)
    written = ", ".join(f"{m} {Mean.of(values):.3f}" for m, values in scores)
    yield f"Majority class: accuracy {majority:.3f}. The paper's model without noise: {paper}.\n"
    yield f"A bag of the original texts' words, unknown ones too: {written}.\n"
    for model in MODELS:
        yield f"### {task.name}, {model}\n"
        rows = [
            (
                "no noise" if epsilon == np.inf else f"{epsilon:g}",
                "" if epsilon == np.inf else f"{mixing:g}",
                f"{found.kept.mean():.3f}",
                *(f"{Mean.of(values):.3f}" for values in found.scores[model].T),
            )
            for (mixing, epsilon), found in sorted(cells.items(), key=lambda item: (item[0][1], item[0][0]))
        ]
        yield markdown(("ε", "λ", "words that stay", *MEASURES), rows)


def differences(task: Task, cells: Cells) -> Iterator[str]:
    """Differences to lambda = 0, at the same epsilon and where as many words stay."""
    for model in MODELS:
        yield f"### {task.name}, {model}: differences to λ = 0\n"
        rows = []
        for mixing, epsilon in sorted(cells, key=lambda key: (key[1], key[0])):
            if mixing == 0.0:
                continue
            same = cells[mixing, epsilon].scores[model] - cells[0.0, epsilon].scores[model]
            equal = at_equal_change(cells, mixing, epsilon, model)
            parts = [f"{Mean.of(values):+.3f}".replace("± +", "± ") for values in (*same.T, *equal.T)]
            rows.append((f"{epsilon:g}", f"{mixing:g}", *parts))
        columns = [f"{m}, same ε" for m in MEASURES] + [f"{m}, as many stay" for m in MEASURES]
        yield markdown(("ε", "λ", *columns), rows)


def small() -> dict[str, float]:
    """Score the demo's queries about music against the others, in 50 dimensions."""
    texts, intents = demo_queries(400)
    task = Task("queries", texts, np.array([i in ("PlayMusic", "AddToPlaylist") for i in intents]))
    with tempfile.TemporaryDirectory() as folder:
        embedding = demo_embedding(Path(folder))
        cells = measure(
            task, embedding, lambdas=(0.0, 1.0), epsilons=(1.0, 8.0), between=(14.0,), repetitions=2
        )
        original = WordRows.of(texts, embedding)
        plain = sanitized(texts, embedding, mechanism("laplace", epsilon=8.0), seed=0)
    found = {
        "majority": float(max(task.labels.mean(), 1.0 - task.labels.mean())),
        "kept 0 8, noise for each token": WordRows.of(plain, embedding).kept(original),
    }
    for (mixing, epsilon), each in cells.items():
        found[f"kept {mixing:g} {epsilon:g}"] = float(each.kept.mean())
        for model, scores in each.scores.items():
            found[f"accuracy {mixing:g} {epsilon:g} {model}"] = float(scores[:, 0].mean())
    return found


@click.command()
@click.option("--embedding", "bundle", type=click.Path(exists=True, path_type=Path), help="A bundle.")
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="The folder of both data sets.")
@click.option("--repetitions", default=5, show_default=True, help="Noises and splits.")
@click.option("--whole-vocabulary", is_flag=True, help="Let all words of the bundle be outputs.")
@click.option("--epsilon", "epsilons", multiple=True, type=float, help="Instead of the grid; repeatable.")
@click.option("--small", "is_small", is_flag=True, help="A few seconds on the demo.")
def main(
    bundle: Path | None,
    data: Path | None,
    repetitions: int,
    whole_vocabulary: bool,
    epsilons: tuple[float, ...],
    is_small: bool,
) -> None:
    """Classify perturbed texts."""
    if is_small:
        click.echo(json.dumps(small()))
        return
    if bundle is None or data is None:
        raise click.UsageError("Give --embedding and --data, or --small.")
    tasks = [read_sms(data), read_tweets(data)]
    with tempfile.TemporaryDirectory() as folder:
        embedding = Embedding.open(bundle)
        if not whole_vocabulary:
            embedding = own_vocabulary(embedding, tasks, Path(folder))
        click.echo(f"Vocabulary: {len(embedding.words):,} words × {embedding.dimension}.\n")
        for task in tasks:
            texts = WordRows.of(task.texts, embedding)
            click.echo(
                f"## {task.name}\n\n{texts.count:,} rows, {len(texts.words):,} words, "
                f"{texts.known.mean():.1%} of them in the vocabulary; {repetitions} repetitions.\n"
            )
            cells = measure(
                task,
                embedding,
                lambdas=LAMBDAS,
                epsilons=epsilons or EPSILONS,
                between=() if epsilons else BETWEEN,
                repetitions=repetitions,
            )
            for line in (*figures(task, cells), *differences(task, cells)):
                click.echo(line)


if __name__ == "__main__":
    main()
