"""Mechanisms at equal success of the attack.

For each mechanism the epsilon is searched at which the strongest attacker recovers a given share of
the words of some rows of a table; attackers learn from all other rows of it. With ``--ball``,
embeddings are restricted to the words in common, and similarity is measured by the Euclidean
vectors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from dptext_spark.channel.channel import Channel
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import CANDIDATES
from dptext_spark.evaluation.comparison import Comparison
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import Risk, Sums
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER, Floats, WordRows

EUCLIDEAN: Final = (
    "laplace",
    "laplace:select=vickrey,t=0.5",
    "mahalanobis:lambda=0.5",
    "exponential",
    "exponential:truncate=4",
)
ROWS: Final = 1000
RELEASE_WORDS: Final = 5000
SUCCESS: Final = 0.2  # share of words that is recovered
IN_THE_BALL: Final = ("hyperbolic", "hyperbolic-icdm", "hyperbolic-lebesgue", "exponential")

Interval = tuple[float, float, float]
"""A value and its 95 % interval, over rows."""


@dataclass(frozen=True, kw_only=True)
class World:
    texts: Sequence[str]
    labels: Sequence[str]
    embedding: Embedding
    judge: Embedding  # has the same words in the same order; by its vectors similarity is measured
    release_words: int  # how many may come out
    corpus: Sequence[str]  # what attackers learn from
    candidates: int = CANDIDATES

    def attacked(self, configured: Mechanism) -> Comparison:
        """Attack a simulated release of the rows."""
        return evaluate(
            self.texts,
            list(range(len(self.texts))),
            embedding=self.embedding,
            mechanisms=[configured],
            corpus=self.corpus,
            search=ExactSearch.over(self.embedding, self.release_words),
            candidates=self.candidates,
        )

    @cached_property
    def original(self) -> WordRows:
        return WordRows.of(self.texts, self.embedding)

    def released(self, configured: Mechanism | None) -> WordRows:
        """Return the rows after a mechanism; for None random words in place of all known ones."""
        words = self.release_words
        rows = self.original
        if configured is not None:
            return shared.releases(rows, [configured], self.embedding, release_words=words)[0][0]
        drawn = np.random.default_rng(0).integers(words, size=len(rows.words))
        return rows.having(np.where(rows.known, drawn, -1))

    @cached_property
    def prior(self) -> Floats:
        """Shares of words in the corpus, (V,)."""
        words = WordRows.of(self.corpus, self.embedding)
        counts = np.bincount(words.words[words.known], minlength=len(self.embedding.words))
        shares: Floats = counts / counts.sum()
        return shares

    def expected_vectors(self, rows: WordRows, channel: Channel | None) -> Floats:
        """Average, row by row, the vectors that its words had on average: float64 (rows, n).

        Without a channel, those of its words as they are.
        """
        if channel is None:
            return shared.mean_vectors(rows, self.judge)
        words = np.flatnonzero(self.prior)
        vectors = np.asarray(self.judge.vectors[words], dtype=np.float64)
        outputs, of_token = np.unique(rows.words[rows.known], return_inverse=True)
        expected = np.empty((len(outputs), vectors.shape[1]))
        for block in np.array_split(np.arange(len(outputs)), 1 + len(outputs) // 500):
            posterior = channel.table(outputs[block], words) * self.prior[words]
            expected[block] = posterior @ vectors / posterior.sum(axis=1, keepdims=True)
        sums = np.zeros((rows.count, vectors.shape[1]))
        np.add.at(sums, rows.rows[rows.known], expected[of_token])
        counts = np.bincount(rows.rows[rows.known], minlength=rows.count)
        means: Floats = sums / np.maximum(counts, 1)[:, None]
        return means

    def classified(self, features: Any) -> Interval:
        """Measure classes right, where each half of the rows is learned from the other."""
        labels = np.array(self.labels)
        halves = PredefinedSplit(np.arange(len(labels)) % 2)
        model = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=1000))
        guessed = cross_val_predict(model, features, labels, cv=halves)
        return over_rows(guessed == labels, np.ones(len(labels)))

    def kept(self, rows: WordRows, channel: Channel | None) -> dict[str, Interval]:
        """Measure classes by counts and by expected vectors, similarity, and words that stay."""
        original = self.original
        before = shared.mean_vectors(original, self.judge)
        after = shared.mean_vectors(rows, self.judge)
        lengths = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        cosines = (before * after).sum(axis=1) / np.maximum(lengths, 1e-12)
        same = original.known & (original.words == rows.words)
        words = np.bincount(original.rows[original.known], minlength=original.count)
        same_words = np.bincount(original.rows[same], minlength=original.count)
        with_words = words > 0
        counts = shared.bag_of_words(rows, self.embedding)
        ones = np.ones(with_words.sum())
        return {
            "counted": self.classified(counts),
            "expected": self.classified(self.expected_vectors(rows, channel)),
            "similarity": over_rows(cosines[with_words], ones),
            "kept": over_rows(same_words, words),
        }


def over_rows(values: NDArray[Any], sizes: NDArray[Any]) -> Interval:
    """Return the ratio of two sums over independent rows, with its 95 % interval."""
    ratio = float(values.sum() / sizes.sum())
    half = 1.96 * float(np.sqrt(np.square(values - ratio * sizes).sum())) / float(sizes.sum())
    return ratio, ratio - half, ratio + half


def recovered(sums: Sums) -> float:
    """Return the share of words that the strongest attacker recovers."""
    return float(Risk().totals(sums).ratio[0])


def matched(
    world: World, spec: str, success: float, *, near: float, start: float = 4.0
) -> tuple[Mechanism, Comparison]:
    """Search the epsilon of a success: log-odds are linear in its logarithm between two ends.

    Of ``hyperbolic`` it is searched above the least, n - 1.
    """
    least = world.embedding.dimension - 1.0 if spec == "hyperbolic" else 0.0
    below: tuple[float, float] | None = None  # the largest logarithm that misses, with log-odds
    above: tuple[float, float] | None = None  # and the smallest that is beyond
    log_epsilon = float(np.log(start))
    while True:
        configured = mechanism(spec, epsilon=least + float(np.exp(log_epsilon)))
        comparison = world.attacked(configured)
        share = recovered(comparison.outcomes[0].sums)
        if abs(share - success) <= near:
            return configured, comparison
        odds = float(logit(np.clip(share, 1e-3, 1 - 1e-3)) - logit(success))
        if odds < 0 and (below is None or log_epsilon > below[0]):
            below = (log_epsilon, odds)
        if odds > 0 and (above is None or log_epsilon < above[0]):
            above = (log_epsilon, odds)
        if below is None:
            log_epsilon -= 0.5
        elif above is None:
            log_epsilon += 0.5
        else:
            part = -below[1] / (above[1] - below[1])
            log_epsilon = below[0] + (above[0] - below[0]) * float(np.clip(part, 0.1, 0.9))


def compared(
    world: World, curved: Embedding | None, specs: Sequence[str], success: float
) -> tuple[list[Sequence[str]], float]:
    """Return the table's rows, and what is recovered without any output."""
    worlds = dict.fromkeys(specs, world)
    if curved is not None:
        worlds = dict.fromkeys(("laplace", "exponential"), world)
        for spec in IN_THE_BALL:
            worlds[f"{spec}, in the ball"] = replace(world, embedding=curved)
    rows: list[Sequence[str]] = []
    floor = 0.0
    for label, of_label in worlds.items():
        spec = label.removesuffix(", in the ball")
        configured, comparison = matched(of_label, spec, success, near=0.01)
        floor = comparison.floor_of(Risk())
        numbers = of_label.kept(of_label.released(configured), comparison.outcomes[0].channel)
        figures = [
            f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in numbers.values()
        ]
        rows.append((label, f"{configured.epsilon:.3g}", *figures))
    rows.sort(key=lambda row: row[3], reverse=True)
    for label, texts in (("random words", world.released(None)), ("original", world.original)):
        numbers = world.kept(texts, None)
        rows.append((label, "", *(f"{value:.3f}" for value, *_ in numbers.values())))
    return rows, floor


@click.command()
@click.argument("bundle", type=FOLDER)
@click.option("--data", type=FILE, required=True, help="Parquet table, such as Snips, 2017.")
@click.option("--text", default="text", show_default=True, help="Its column of texts.")
@click.option("--label", default="intent", show_default=True, help="Its column of classes.")
@click.option("--mechanism", "specs", multiple=True, default=EUCLIDEAN, help="Repeatable.")
@click.option("--success", default=SUCCESS, show_default=True, help="Share of words recovered.")
@click.option("--ball", type=FOLDER, help="Bundle of a ball to compare with.")
def main(
    bundle: Path,
    data: Path,
    text: str,
    label: str,
    specs: Sequence[str],
    success: float,
    ball: Path | None,
) -> None:
    table = pq.read_table(data, columns=[text, label]).rename_columns(["text", "label"])
    flat = Embedding.open(bundle)
    rows = table.take(shared.evenly(ROWS, len(table)))
    attacked = {*rows["text"].to_pylist()}
    corpus = [line for line in table["text"].to_pylist() if line not in attacked]
    with tempfile.TemporaryDirectory() as name:
        curved = None
        if ball is not None:
            flat, curved = shared.in_common(Path(name), flat, Embedding.open(ball))
        world = World(
            texts=rows["text"].to_pylist(),
            labels=[str(value) for value in rows["label"].to_pylist()],
            corpus=corpus,
            embedding=flat,
            judge=flat,
            release_words=RELEASE_WORDS,
        )
        is_known = world.original.known
        click.echo(
            f"{len(is_known):,} words, {is_known.mean():.0%} of them among the "
            f"{len(flat.words):,}.\n"
        )
        lines, floor = compared(world, curved, specs, success)
    click.echo(
        f"Recovered by the strongest attacker: {success:.0%}, to within a point; "
        f"without any output {floor:.1%}.\n"
    )
    columns = (
        *("mechanism", "ε", "classes, by counts", "by expected vectors"),
        *("similarity of texts", "words that stay"),
    )
    click.echo(shared.markdown(columns, lines))


if __name__ == "__main__":
    main()
