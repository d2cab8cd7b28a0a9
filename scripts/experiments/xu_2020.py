"""Mahalanobis noise against Laplace noise, after Xu et al. 2020.

``statistics`` prints N_w and S_w of Tables 1 to 4. Words of a block share their noise, at all
epsilons; two blocks, or two lambdas, share none. Each ordering that the paper calls significant is
tested: the words' differences between lambda and 0 are averaged over each block, and the averages
enter a one-sided Student test. All claims together have a false-alarm rate of at most LEVEL
(Bonferroni).

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
from typing import Final

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
from dptext_spark.mechanisms import mechanism
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

TEXT_LAMBDAS: Final = (0.0, 0.5, 1.0)
TEXT_EPSILONS: Final = (5.0, 10.0, 15.0, 20.0)
BETWEEN: Final = (7.5, 12.5, 17.5)
"""More of them for lambda = 0, to compare at equal shares of words that stay."""

Statistics = dict[str, Floats]
Cells = dict[
    tuple[float, float], dict[str, Mean]
]  # kept, accuracy and recall by lambda and epsilon


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
        found = {each: measured(embedding, each, EPSILONS, words, BLOCKS, 0) for each in LAMBDAS}
        click.echo(
            f"{len(words):,} of {len(embedding.words):,} words, {RUNS} runs each. Means over words:\n"
        )
        rows = []
        for (place, epsilon), mixing in product(enumerate(EPSILONS), LAMBDAS):
            glove, sizes = (means[mixing][place] for means in PAPER.values())
            n_w, s_w = (f"{values[place].mean():.2f}" for values in found[mixing].values())
            rows.append((f"{epsilon:g}", f"{mixing:g}", glove, n_w, sizes, s_w))
        columns = ("ε", "λ", "N_w, paper", "N_w, here", "S_w, paper", "S_w, here")
        click.echo(shared.markdown(columns, rows))
        click.echo("\n".join(orderings(found)))
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
    mechanisms = [
        mechanism(f"mahalanobis:lambda={mixing:g}", epsilon=epsilon) for epsilon in epsilons
    ]
    found = shared.staying(mechanisms, embedding, words, runs=RUNS, seed=seed, blocks=blocks)
    return {"n_w": RUNS * found["n_w"], "s_w": found["s_w"]}


def orderings(found: dict[float, Statistics]) -> Iterator[str]:
    """Test every ordering against lambda = 0 that the paper calls significant."""
    level = LEVEL / (2 * len(CLAIMED) * (len(LAMBDAS) - 1))
    rows = []
    for (name, sign), epsilon, mixing in product(
        (("n_w", -1.0), ("s_w", 1.0)), CLAIMED, LAMBDAS[1:]
    ):
        place = EPSILONS.index(epsilon)
        gains = sign * (found[mixing][name][place] - found[0.0][name][place])
        means = np.array([gains[block::BLOCKS].mean() for block in range(BLOCKS)])
        p = float(stats.ttest_1samp(means, 0.0, alternative="greater").pvalue)
        said = "holds" if p < level else "does not hold"
        rows.append(
            (name, f"{epsilon:g}", f"{mixing:g}", f"{sign * gains.mean():+.2f}", f"{p:.1e}", said)
        )
    held = sum(row[-1] == "holds" for row in rows)
    yield f"Lower N_w, higher S_w than at λ = 0: {held} of {len(rows)} hold, p < {level:.1e} each.\n"
    yield shared.markdown(("statistic", "ε", "λ", "difference", "p", ""), rows)


def translated(embedding: Embedding, words: Words) -> str:
    """Say at which epsilon the mean N_w here is the paper's, by a power of the paper's epsilon."""
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


# Figures 6 and 7


@main.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FOLDER, required=True, help="The folder of both data sets.")
def texts(bundle: Path, data: Path) -> None:
    large, stop = Embedding.open(bundle), stop_words()
    sms = pq.read_table(data / "sms_spam" / "sms_spam.parquet").to_pydict()
    tweets = pq.read_table(data / "disaster_tweets" / "train.parquet").to_pydict()
    # Tweets come without links, names of users and stop words: the paper has 7.3 words a tweet.
    raw = [re.sub(r"https?://\S+|@\w+", " ", text.lower()) for text in tweets["text"]]
    clean = [
        " ".join(w for w in re.findall(r"\w+(?:'\w+)?", text) if w not in stop) for text in raw
    ]
    spam, disasters = np.array(sms["label"]) == "spam", np.array(tweets["target"]) == 1
    tasks = {"SMS": (sms["text"], spam), "tweets": (clean, disasters)}
    # The words that these texts have, as in the paper. No release should do this.
    used = np.unique(np.concatenate([WordRows.of(own, large).words for own, _ in tasks.values()]))
    used = used[used >= 0]
    columns = ("ε", "λ", "words that stay", "accuracy", "recall")
    with tempfile.TemporaryDirectory() as folder:
        words = large.words.take(pa.array(used)).to_pylist()
        embedding = shared.made_embedding(words, large.vectors[used], Path(folder, "own"))
        for name, (own, labels) in tasks.items():
            cells = classified(own, labels, embedding)
            majority = max(labels.mean(), 1.0 - labels.mean())
            click.echo(f"## {name}: {len(own):,} rows; the larger class has {majority:.3f}\n")
            rows = []
            for (mixing, epsilon), cell in sorted(cells.items(), key=lambda item: item[0][::-1]):
                setting = ("no noise", "") if epsilon == np.inf else (f"{epsilon:g}", f"{mixing:g}")
                scores = (
                    f"{cell['kept'].mean:.3f}",
                    f"{cell['accuracy']:.3f}",
                    f"{cell['recall']:.3f}",
                )
                rows.append(
                    (*setting, *scores, f"{at_equal_change(cells, cell):+.3f}" if mixing else "")
                )
            click.echo(
                shared.markdown((*columns, "accuracy less that of λ = 0 where as many stay"), rows)
            )


def classified(texts: Sequence[str], labels: NDArray[np.bool_], embedding: Embedding) -> Cells:
    """Score every setting by (lambda, epsilon); (0, infinity) is without noise.

    A bag of words is trained on 70 % of the rows; accuracy and recall are those of the rest.
    """
    original = WordRows.of(texts, embedding)

    def measure(repetition: tuple[int, WordRows]) -> dict[str, float]:
        seed, texts = repetition
        model = make_pipeline(TfidfTransformer(), LogisticRegression(C=10.0, max_iter=300))
        features, tested = shared.bag_of_words(texts, embedding), shared.drawn(labels, seed)
        accuracy = shared.scored(model, features, labels, tested)
        recall = recall_score(labels[tested], model.predict(features[tested]))
        return {"kept": texts.kept(original), "accuracy": accuracy, "recall": float(recall)}

    cells = {(0.0, np.inf): shared.repeated(measure, enumerate([original] * REPETITIONS))}
    for number, mixing in enumerate(TEXT_LAMBDAS):
        grid = TEXT_EPSILONS if mixing else sorted({*TEXT_EPSILONS, *BETWEEN})
        mechanisms = [
            mechanism(f"mahalanobis:lambda={mixing:g}", epsilon=epsilon) for epsilon in grid
        ]
        drawn = shared.releases(
            original, mechanisms, embedding, repetitions=REPETITIONS, seed=1 + number
        )
        for epsilon, outputs in zip(grid, drawn, strict=True):
            cells[mixing, epsilon] = shared.repeated(measure, enumerate(outputs))
    return cells


def at_equal_change(cells: Cells, here: Mapping[str, Mean]) -> Mean:
    """Accuracies less those that lambda = 0 has where as many words stay."""
    base = [cells[key] for key in sorted(cells) if key[0] == 0.0]
    shares = [each["kept"].mean for each in base]
    values = np.stack([each["accuracy"].repetitions for each in base])
    return here["accuracy"] - Mean(PchipInterpolator(shares, values, axis=0)(here["kept"].mean))


if __name__ == "__main__":
    main()
