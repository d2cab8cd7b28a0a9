"""Mahalanobis noise against Laplace noise, after Xu et al. 2020.

``statistics`` prints N_w and S_w of Tables 1 to 4. Words of a block share their noise, at all
epsilons; two blocks, or two lambdas, share none. Each ordering that the paper calls significant is
tested: the words' differences between lambda and 0 are averaged over each block, and the averages
enter a one-sided Student test. All claims together have a false-alarm rate of at most LEVEL
(Bonferroni).

``sparsity`` prints percentiles of N_w of words in dense and in sparse regions (Figures 2 to 5), by
the distance to the nearest word: at one epsilon for all lambdas, and where means are equal.

``texts`` prints Figures 6 and 7: spam and disasters, recognized in perturbed texts. Each repetition
has noise and a split of its own, which serves every epsilon and lambda. The data are
``sms_spam/sms_spam.parquet`` (``label`` is ham or spam, ``text``) and
``disaster_tweets/train.parquet`` (``target`` is 0 or 1, ``text``).
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final, TypeAlias

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import stats
from scipy.interpolate import PchipInterpolator
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.text.policies import stop_words
from scripts.experiments import shared
from scripts.experiments.shared import FOLDER, Floats, Mean, WordRows, Words

RUNS: Final = 100
WORDS: Final = 5000
BLOCKS: Final = 50  # of words that share their noise
REPETITIONS: Final = 5  # noises and splits
LEVEL: Final = 0.001
CLAIMED: Final = (5.0, 10.0, 20.0)
EPSILONS: Final = (1.0, *CLAIMED, 40.0)
# Means over words of 100 runs, GloVe, by lambda (keys) and epsilon.
PAPER: Final = {
    "N_w": {
        0.0: (0.16, 23.71, 65.29, 94.49, 99.81),
        0.25: (0.11, 13.82, 44.83, 83.17, 98.22),
        0.5: (0.09, 10.20, 34.91, 73.78, 95.85),
        0.75: (0.08, 8.16, 28.97, 66.29, 93.26),
        1.0: (0.08, 6.81, 24.90, 60.27, 90.60),
    },
    "S_w": {
        0.0: (99.46, 73.20, 28.56, 5.18, 1.16),
        0.25: (99.45, 84.30, 46.08, 12.12, 2.21),
        0.5: (99.38, 88.39, 56.07, 17.96, 3.55),
        0.75: (99.30, 90.71, 62.69, 23.11, 4.94),
        1.0: (99.24, 92.17, 67.45, 27.51, 6.39),
    },
}
LAMBDAS: Final = tuple(PAPER["N_w"])

TEXT_LAMBDAS: Final = (0.0, 1.0)
TEXT_EPSILONS: Final = (10.0, 15.0, 20.0)
BETWEEN: Final = (5.0, 7.5, 12.5, 17.5)
"""More of them for lambda = 0, to compare at equal shares of words that stay."""

Statistics: TypeAlias = dict[str, Floats]
Cells: TypeAlias = dict[tuple[float, float], dict[str, Mean]]
"""Kept, accuracy and recall by lambda and epsilon."""


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/xu-2020.md."""


# Tables 1 to 4


@main.command()
@click.argument("bundle", type=FOLDER)
def statistics(bundle: Path) -> None:
    """Print N_w and S_w, the tested orderings, and the paper's epsilons translated."""
    embedding = Embedding.open(bundle)
    words = shared.evenly(WORDS, len(embedding.words))
    with threadpool_limits(1):
        by_lambda = {}
        for mixing in LAMBDAS:
            by_lambda[mixing] = measured(embedding, mixing, EPSILONS, words, BLOCKS, 0)
        click.echo(
            f"{len(words):,} of {len(embedding.words):,} words, {RUNS} runs each. "
            "Means over words:\n"
        )
        rows = []
        for (place, epsilon), mixing in product(enumerate(EPSILONS), LAMBDAS):
            row: list[object] = [f"{epsilon:g}", f"{mixing:g}"]
            for of_paper, here in (("N_w", "n_w"), ("S_w", "s_w")):
                row.append(PAPER[of_paper][mixing][place])
                row.append(f"{by_lambda[mixing][here][place].mean():.2f}")
            rows.append(row)
        columns = ("ε", "λ", "N_w, paper", "N_w, here", "S_w, paper", "S_w, here")
        click.echo(shared.markdown(columns, rows))
        click.echo("\n".join(orderings(by_lambda)))
        click.echo(translated(embedding, words[:: -(-len(words) // 400)]))


def measured(
    embedding: Embedding,
    mixing: float,
    epsilons: Sequence[float],
    words: Words,
    blocks: int,
    seed: int,
) -> Statistics:
    """Measure N_w and S_w at one lambda, as counts of RUNS, each float64 (epsilons, words)."""
    mechanisms = shared.by_epsilon(f"mahalanobis:lambda={mixing:g}", epsilons)
    statistics = shared.staying(mechanisms, embedding, words, runs=RUNS, seed=seed, blocks=blocks)
    return {"n_w": RUNS * statistics["n_w"], "s_w": statistics["s_w"]}


def orderings(by_lambda: dict[float, Statistics]) -> Iterator[str]:
    """Test every ordering against lambda = 0 that the paper calls significant."""
    level = LEVEL / (2 * len(CLAIMED) * (len(LAMBDAS) - 1))
    rows = []
    holds = 0
    signs = (("n_w", -1.0), ("s_w", 1.0))
    for (name, sign), epsilon, mixing in product(signs, CLAIMED, LAMBDAS[1:]):
        place = EPSILONS.index(epsilon)
        gains = sign * (by_lambda[mixing][name][place] - by_lambda[0.0][name][place])
        means = np.array([gains[block::BLOCKS].mean() for block in range(BLOCKS)])
        p = float(stats.ttest_1samp(means, 0.0, alternative="greater").pvalue)
        result = "does not hold"
        if p < level:
            result = "holds"
            holds += 1
        difference = f"{sign * gains.mean():+.2f}"
        rows.append((name, f"{epsilon:g}", f"{mixing:g}", difference, f"{p:.1e}", result))
    yield (
        f"Lower N_w, higher S_w than at λ = 0: {holds} of {len(rows)} hold, p < {level:.1e} each.\n"
    )
    yield shared.markdown(("statistic", "ε", "λ", "difference", "p", ""), rows)


def translated(embedding: Embedding, words: Words) -> str:
    """Return at which epsilon the mean N_w is the paper's, by a power of the paper's epsilon."""
    grid = np.geomspace(2.0, 80.0, 24)
    logs = []
    for mixing, means in PAPER["N_w"].items():
        here = measured(embedding, mixing, grid.tolist(), words, 8, 1)["n_w"].mean(axis=1)
        logs.append(np.interp(means[1 : 1 + len(CLAIMED)], here, np.log(grid)))
    papers = np.tile(np.log(CLAIMED), (len(LAMBDAS), 1))
    slope, offset = np.polyfit(papers.ravel(), np.array(logs).ravel(), 1)
    worst = np.abs(np.expm1(np.array(logs) - slope * papers - offset)).max()
    power = f"{np.exp(offset):.2f} (paper's ε)^{slope:.2f}"
    return f"Equal N_w: ε here = {power}, within {worst:.1%}, for its ε from 5 to 20."


# Figures 2 to 5

SPARSITY_WORDS: Final = 2000
SPARSITY_EPSILON: Final = 10.0
SPARSITY_LAMBDAS: Final = (0.0, 0.5, 1.0)
GROUPS: Final = {"densest tenth": (0.0, 0.1), "middle": (0.45, 0.55), "sparsest tenth": (0.9, 1.0)}
"""Ranks of words, as shares, by the distance to their nearest word."""
SEARCHED: Final = tuple(np.geomspace(SPARSITY_EPSILON, 20.0, 8).tolist())
"""Among which lambda > 0 has the mean N_w of lambda = 0 at ``SPARSITY_EPSILON``."""


@main.command()
@click.argument("bundle", type=FOLDER)
def sparsity(bundle: Path) -> None:
    """Print percentiles of N_w by sparsity, at equal epsilon and at equal mean N_w."""
    embedding = Embedding.open(bundle)
    words = shared.evenly(SPARSITY_WORDS, len(embedding.words))
    with threadpool_limits(1):
        click.echo(shared.markdown(*by_sparsity(embedding, words)))


def by_sparsity(embedding: Embedding, words: Words) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows: a row for each lambda at equal epsilon, and at equal mean N_w."""
    nearest = nearest_distances(embedding, words)
    ranks = stats.rankdata(nearest, method="ordinal") - 1.0
    ranks /= len(words)
    columns = ["equal", "λ", "ε", "mean N_w"]
    for name, (low, high) in GROUPS.items():
        distance = np.median(nearest[(ranks >= low) & (ranks < high)])
        columns.append(f"{name} ({distance:.2g})")

    def n_w(mixing: float, epsilons: Sequence[float]) -> Floats:
        return measured(embedding, mixing, epsilons, words, BLOCKS, 0)["n_w"]

    def row(equal: str, mixing: float, epsilon: float) -> list[str]:
        (stays,) = n_w(mixing, [epsilon])
        cells = [equal, f"{mixing:g}", f"{epsilon:.3g}", f"{stays.mean():.1f}"]
        for low, high in GROUPS.values():
            of_group = stays[(ranks >= low) & (ranks < high)]
            percentiles = np.quantile(of_group, (0.05, 0.5, 0.95))
            cells.append(" / ".join(f"{value:.0f}" for value in percentiles))
        return cells

    rows = [row("ε", mixing, SPARSITY_EPSILON) for mixing in SPARSITY_LAMBDAS]
    mean = n_w(0.0, [SPARSITY_EPSILON]).mean()
    for mixing in SPARSITY_LAMBDAS[1:]:
        means = n_w(mixing, SEARCHED).mean(axis=1)
        logs = np.interp(mean, means, np.log(SEARCHED))
        rows.append(row("mean N_w", mixing, float(np.exp(logs))))
    return columns, rows


def nearest_distances(embedding: Embedding, words: Words) -> Floats:
    """Compute the distance of each word to the nearest other word: float64 (words,)."""
    metric = embedding.space.metric()
    nearest = np.empty(len(words))
    for start in range(0, len(words), 100):
        part = words[start : start + 100]
        nearest[start : start + 100] = np.partition(metric.to_all(part), 1, axis=1)[:, 1]
    return nearest


# Figures 6 and 7


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="The folder of both data sets.")
def texts(bundle: Path, data: Path) -> None:
    """Print how well spam and disasters are recognized in perturbed texts."""
    large = Embedding.open(bundle)
    sms = pq.read_table(data / "sms_spam" / "sms_spam.parquet").to_pydict()
    tweets = pq.read_table(data / "disaster_tweets" / "train.parquet").to_pydict()
    spam = np.array(sms["label"]) == "spam"
    disasters = np.array(tweets["target"]) == 1
    tasks = {"SMS": (sms["text"], spam), "tweets": (cleaned(tweets["text"]), disasters)}
    # The words that these texts have, as in the paper. No release should do this.
    parts = [WordRows.of(lines, large).words for lines, _ in tasks.values()]
    word_ids = np.unique(np.concatenate(parts))
    word_ids = word_ids[word_ids >= 0]
    with tempfile.TemporaryDirectory() as folder:
        words = large.words.take(pa.array(word_ids)).to_pylist()
        embedding = shared.made_embedding(words, large.vectors[word_ids], Path(folder, "own"))
        for name, (lines, labels) in tasks.items():
            cells = classified(lines, labels, embedding)
            majority = max(labels.mean(), 1.0 - labels.mean())
            click.echo(f"## {name}: {len(lines):,} rows; the larger class has {majority:.3f}\n")
            click.echo(table_of(cells))


def cleaned(tweets: Sequence[str]) -> list[str]:
    """Return tweets without links, users and stop words: the paper has 7.3 words a tweet."""
    stop = stop_words()
    lines = []
    for tweet in tweets:
        line = re.sub(r"https?://\S+|@\w+", " ", tweet.lower())
        words = re.findall(r"\w+(?:'\w+)?", line)
        lines.append(" ".join(word for word in words if word not in stop))
    return lines


def table_of(cells: Cells) -> str:
    """Write the scores of all settings, by epsilon and lambda."""
    rows = []
    for mixing, epsilon in sorted(cells, key=lambda key: key[::-1]):
        cell = cells[mixing, epsilon]
        setting = ("no noise", "")
        if epsilon != np.inf:
            setting = (f"{epsilon:g}", f"{mixing:g}")
        scores = (f"{cell['kept'].mean:.3f}", f"{cell['accuracy']:.3f}", f"{cell['recall']:.3f}")
        difference = f"{at_equal_change(cells, cell):+.3f}" if mixing else ""
        rows.append((*setting, *scores, difference))
    columns = ("ε", "λ", "words that stay", "accuracy", "recall")
    return shared.markdown((*columns, "accuracy less that of λ = 0 where as many stay"), rows)


def classified(texts: Sequence[str], labels: NDArray[np.bool_], embedding: Embedding) -> Cells:
    """Score every setting by (lambda, epsilon); (0, infinity) is without noise.

    A bag of words is trained on 70 % of the rows; accuracy and recall are those of the rest.
    """
    original = WordRows.of(texts, embedding)

    def measure(repetition: tuple[int, WordRows]) -> dict[str, float]:
        """Score one repetition."""
        seed, texts = repetition
        model = make_pipeline(TfidfTransformer(), LogisticRegression(C=10.0, max_iter=300))
        features = shared.bag_of_words(texts, embedding)
        tested = shared.drawn(labels, seed)
        accuracy = shared.scored(model, features, labels, tested)
        recall = recall_score(labels[tested], model.predict(features[tested]))
        return {"kept": texts.kept(original), "accuracy": accuracy, "recall": float(recall)}

    cells = {(0.0, np.inf): shared.repeated(measure, enumerate([original] * REPETITIONS))}
    for number, mixing in enumerate(TEXT_LAMBDAS):
        grid = TEXT_EPSILONS if mixing else sorted({*TEXT_EPSILONS, *BETWEEN})
        mechanisms = shared.by_epsilon(f"mahalanobis:lambda={mixing:g}", grid)
        released = shared.releases(
            original, mechanisms, embedding, repetitions=REPETITIONS, seed=1 + number
        )
        for epsilon, outputs in zip(grid, released, strict=True):
            cells[mixing, epsilon] = shared.repeated(measure, enumerate(outputs))
    return cells


def at_equal_change(cells: Cells, here: Mapping[str, Mean]) -> Mean:
    """Return accuracies less those that lambda = 0 has where as many words stay."""
    base = [cells[key] for key in sorted(cells) if key[0] == 0.0]
    shares = [cell["kept"].mean for cell in base]
    values = np.stack([cell["accuracy"].repetitions for cell in base])
    accuracy = PchipInterpolator(shares, values, axis=0)
    return here["accuracy"] - Mean(accuracy(here["kept"].mean))


if __name__ == "__main__":
    main()
