"""What ``dptext estimate`` gets from a release, against originals that an analyst does not have.

Simulated releases of a table: how often intervals of soft topics have the truth, how far shares by
group are from those of the lists, word frequencies in common, and classes from features. Next to
each is what counting the released words gives.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from dptext_spark.channel.matrix import ChannelMatrix, MatrixSource
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.estimates.cells import Cells, cluster_terms, row_values
from dptext_spark.estimates.features import OutputFeatures, RowPosterior
from dptext_spark.estimates.frames import rank_prior
from dptext_spark.estimates.frequencies import likeliest_frequencies
from dptext_spark.estimates.topics import SoftTopics
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER, Floats, WordRows, Words

TOPICS: Final = 200
WORDS_OF_TOPIC: Final = 8
SHARE: Final = 0.02  # from which on errors of shares are counted
CONFIDENCE: Final = 0.95
CLASSIFIED: Final = 2500  # rows whose classes are learned


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What an analyst has: the channel, and topics that are fitted to a table's size."""

    source: MatrixSource
    matrix: ChannelMatrix
    soft: SoftTopics

    def cells(self, released: WordRows, rows: Words) -> Cells:
        """Estimate from some rows of a release."""
        taken_rows = released.take(rows)
        has_word = taken_rows.known
        epsilons = np.zeros(taken_rows.count, dtype=np.int64)
        sums = np.zeros((6, 2 * len(self.soft.names)))
        values, sizes = row_values(
            taken_rows.words[has_word], taken_rows.rows[has_word], self.soft.weights[None], epsilons
        )
        sums += np.stack([term.sum(axis=0) for term in cluster_terms(values, sizes)])
        errors = np.concatenate([self.soft.error, self.soft.error])
        return Cells(columns=(), sums={(): sums}, errors=errors)

    def truth(self, original: WordRows, rows: Words, of_words: NDArray[Any]) -> Floats:
        """Return the mean of what topics count of each word, (k, T), over the words of rows."""
        taken_rows = original.take(rows)
        places = np.searchsorted(self.matrix.words, taken_rows.words[taken_rows.known])
        return np.asarray(of_words[places].mean(axis=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    texts: list[str]
    labels: NDArray[Any]
    embedding: Embedding
    public_texts: list[str]  # texts of the same kind, a public corpus

    @cached_property
    def original(self) -> WordRows:
        return WordRows.of(self.texts, self.embedding)

    @cached_property
    def prior(self) -> Floats:
        return rank_prior(self.embedding)

    def members(self, words: Words) -> Words:
        """Return lists of words near to one another, (k, T), around words of all frequencies."""
        vectors = np.asarray(self.embedding.vectors, dtype=np.float64)[words]
        counts = np.bincount(self.original.words[self.original.known], minlength=words.max() + 1)
        seeds = np.argsort(-counts[words], kind="stable")[20 : 20 + TOPICS]
        members = np.zeros((len(words), TOPICS), dtype=np.int64)
        for topic, seed in enumerate(seeds.tolist()):
            distances = np.linalg.norm(vectors - vectors[seed], axis=1)
            members[np.argsort(distances, kind="stable")[:WORDS_OF_TOPIC], topic] = 1
        return members

    def analysis(
        self, spec: str, epsilon: float, released: WordRows, cache: Path, seed: int = 0
    ) -> Analysis:
        """Fit topics to a release; the seed is that of a channel that is simulated."""
        counts = np.bincount(released.words[released.known], minlength=len(self.prior))
        source = MatrixSource(
            mechanism=mechanism(spec, epsilon=epsilon),
            embedding=self.embedding,
            search=ExactSearch.over(self.embedding),
            prior=self.prior,
            drawn=counts.astype(np.float64),
            seed=seed,
        )
        matrix, _ = source.matrix(cache)
        names = [str(topic) for topic in range(TOPICS)]
        of_group = int(released.known.sum()) / len({*self.labels.tolist()})
        outputs = {epsilon: counts[: matrix.outputs]}
        shares = likeliest_frequencies({epsilon: matrix}, outputs)
        members = self.members(matrix.words)
        soft = SoftTopics.fitted(source, matrix, names, members, words=of_group, shares=shares)
        return Analysis(source=source, matrix=matrix, soft=soft)


def coverage(world: World, analyses: list[Analysis], tables: int, rows: int) -> float:
    """Return the share of intervals that have the truth of all rows, of tables of so many rows.

    The rows of a table are drawn with replacement, and each gets its own noise. The channels take
    turns: topics that are estimated with one channel share its error.
    """
    everything = np.arange(world.original.count)
    hits = []
    for number in range(tables):
        analysis = analyses[number % len(analyses)]
        truth = analysis.truth(world.original, everything, analysis.soft.counted)
        taken_rows = np.random.default_rng(number).integers(world.original.count, size=rows)
        ((released,),) = shared.releases(
            world.original.take(taken_rows),
            [analysis.source.mechanism],
            world.embedding,
            seed=number,
        )
        estimates = analysis.cells(released, np.arange(rows)).rows(analysis.soft.names, CONFIDENCE)
        for row, share in zip(estimates, truth.tolist(), strict=True):
            hits.append(row["low"] <= share <= row["high"])
    return float(np.mean(hits))


def group_errors(
    world: World, analysis: Analysis, released: WordRows, rows: Words
) -> tuple[float, float]:
    """Return mean errors of shares by group over the share of the list: estimated, and counted."""
    estimated = []
    counted = []
    for label in sorted({*world.labels.tolist()}):
        of_group = rows[world.labels[rows] == label]
        truth = analysis.truth(world.original, of_group, analysis.soft.members)
        values, _, _ = analysis.cells(released, of_group).value(())
        outputs = analysis.truth(released, of_group, analysis.soft.members)
        large = truth > SHARE
        shares = truth[large]
        estimated += (np.abs(values[:TOPICS][large] - shares) / shares).tolist()
        counted += (np.abs(outputs[large] - shares) / shares).tolist()
    return float(np.mean(estimated)), float(np.mean(counted))


def overlaps(world: World, analysis: Analysis, released: WordRows) -> tuple[float, float]:
    """Return the word frequencies in common with the original: estimated, and counted."""
    original = np.bincount(world.original.words[world.original.known], minlength=len(world.prior))
    private = original / original.sum()
    outputs = np.bincount(released.words[released.known], minlength=len(world.prior))
    matrices = {0.0: analysis.matrix}
    counts = {0.0: outputs[: analysis.matrix.outputs]}
    shares = np.zeros(len(private))
    shares[analysis.matrix.words] = likeliest_frequencies(matrices, counts)
    counted = outputs / outputs.sum()
    return float(np.minimum(shares, private).sum()), float(np.minimum(counted, private).sum())


def classes(world: World, analysis: Analysis, released: WordRows) -> dict[str, float]:
    """Return the share of rows whose class is learned: from features, and from released words."""
    outputs = np.bincount(released.words[released.known], minlength=len(world.prior))
    counts = {0.0: outputs[: analysis.matrix.outputs]}
    shares = likeliest_frequencies({0.0: analysis.matrix}, counts)
    of_outputs = shares.astype(np.float32)
    features = OutputFeatures.of(analysis.matrix, of_outputs, world.embedding.vectors)
    rows = shared.evenly(CLASSIFIED, world.original.count)
    tested = shared.drawn(world.labels[rows], 0)
    few = released.take(rows)
    means = np.zeros((len(world.prior), world.embedding.dimension))
    means[: len(features.means)] = features.means
    words = shared.bag_of_words(few, world.embedding)[:, :-1]
    lengths = np.maximum(np.asarray(words.sum(axis=1)), 1.0)
    tried = {
        "features": words @ means / lengths,
        "in context": in_context(world, analysis, few, shares),
        "vectors of released words": shared.mean_vectors(few, world.embedding),
        "released words": words.astype(np.float64),
    }
    model = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=2000))
    return {
        name: shared.scored(model, matrix, world.labels[rows], tested)
        for name, matrix in tried.items()
    }


def in_context(world: World, analysis: Analysis, few: WordRows, shares: Floats) -> Floats:
    """Return the vectors of rows by all of their outputs, with the language of other texts."""
    corpus = WordRows.of(world.public_texts, world.embedding)
    posterior = RowPosterior.of(
        analysis.matrix,
        shares,
        world.embedding.vectors,
        corpus=(corpus.words, corpus.offsets),
        released=(few.words, few.offsets),
    )
    click.echo(f"Trust in the corpus: {posterior.trust:.2f}")
    table = posterior.rows(few.words, few.offsets, world.embedding.words)
    vectors = np.zeros((few.count, world.embedding.dimension))
    for row, vector in enumerate(table["vector"].to_pylist()):
        if vector is not None:
            vectors[row] = vector
    return vectors


@click.command(help=__doc__)
@click.option("--embedding", type=FOLDER, required=True, help="bundle")
@click.option("--table", type=FILE, required=True, help="Parquet file of texts and classes")
@click.option("--text", default="text", show_default=True)
@click.option("--label", default="intent", show_default=True)
@click.option("--mechanism", "spec", default="exponential", show_default=True)
@click.option("--epsilon", type=float, default=2.6, show_default=True)
@click.option("--rows", default=10_000, show_default=True, help="rows of the table")
@click.option("--releases", default=10, show_default=True, help="tables for the coverage")
@click.option("--covered-rows", default=2000, show_default=True, help="rows of each of them")
@click.option("--channels", default=1, show_default=True, help="channels for the coverage")
def main(
    embedding: Path,
    table: Path,
    text: str,
    label: str,
    spec: str,
    epsilon: float,
    rows: int,
    releases: int,
    covered_rows: int,
    channels: int,
) -> None:
    rows_of_table = pq.read_table(table, columns=[text, label])
    places = shared.evenly(rows, len(rows_of_table))
    public_rows = np.setdiff1d(np.arange(len(rows_of_table)), places)
    public_texts = rows_of_table.take(public_rows)[text].to_pylist()
    rows_of_table = rows_of_table.take(places)
    world = World(
        texts=rows_of_table[text].to_pylist(),
        labels=np.array(rows_of_table[label].to_pylist()),
        embedding=Embedding.open(embedding),
        public_texts=public_texts,
    )
    configured = mechanism(spec, epsilon=epsilon)
    ((first,),) = shared.releases(world.original, [configured], world.embedding, seed=1_000_000)
    with tempfile.TemporaryDirectory() as cache:
        analysis = world.analysis(spec, epsilon, first, Path(cache))
        success = (analysis.matrix.prior[:, None] * analysis.matrix.table).max(axis=0).sum()
        errors = group_errors(world, analysis, first, np.arange(world.original.count))
        common = overlaps(world, analysis, first)
        learned = classes(world, analysis, first)
        other_channels = (
            world.analysis(spec, epsilon, first, Path(cache), n) for n in range(1, channels)
        )
        covered = coverage(world, [analysis, *other_channels], releases, covered_rows)
    click.echo(
        f"{configured}: {first.kept(world.original):.1%} of the words stay, "
        f"context-free success under the prior {success:.1%}, "
        f"mean sharpness {analysis.soft.sharpness.mean():.2f}, ridge {analysis.soft.ridge:.2g}\n"
    )
    figures = [
        ("coverage of 95 % intervals", f"{covered:.1%}", "-"),
        ("mean error of shares by group", f"{errors[0]:.1%}", f"{errors[1]:.1%}"),
        ("word frequencies in common", f"{common[0]:.2f}", f"{common[1]:.2f}"),
    ]
    counted = max(learned["released words"], learned["vectors of released words"])
    figures.append(("classes learned", f"{learned['features']:.3f}", f"{counted:.3f}"))
    figures.append(("the same, in context", f"{learned['in context']:.3f}", "-"))
    click.echo(shared.markdown(["", "estimated", "counted"], figures))


if __name__ == "__main__":
    main()
