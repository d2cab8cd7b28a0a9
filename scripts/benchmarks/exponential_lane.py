"""Words a second of ``exponential`` as a multiple of ``laplace``, making its lists and with its lists made.

    python -m scripts.benchmarks.exponential_lane BUNDLE --epsilon 2 --epsilon 3 [--truncate 1.9]

One process and one thread run the privatizer, without Spark, on token lists whose words follow Zipf's law.
``laplace`` has a turn before and after each mechanism. Time is the processor's, for machines are never quite
idle. The first figure counts all lists of near words that so many tokens need, none of them made before; the
second repeats the last batch, whose lists are kept where the memory for them suffices. Prints JSON: report
the ratios.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch

LENGTH = 100  # tokens of a row
BATCH = 400 * LENGTH
LAPLACE_TOKENS = 4_000
SAMPLE = 200  # words whose N_w is computed


class Texts:
    """Token lists of words by Zipf's law: Zipf-Mandelbrot over the vocabulary's order."""

    def __init__(self, embedding: Embedding) -> None:
        self.words = embedding.words
        self.weights = np.cumsum(1.0 / (np.arange(len(embedding.words)) + 2.7))
        self.rng = np.random.default_rng(0)

    def ids(self, count: int) -> np.ndarray:
        return np.searchsorted(self.weights, self.rng.random(count) * self.weights[-1])

    def rows(self, count: int) -> pa.Array:
        offsets = np.arange(0, count + 1, LENGTH, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), self.words.take(pa.array(self.ids(count))))


def seconds_of(privatizer: Privatizer, rows: pa.Array) -> float:
    """Processor time for rows."""
    start = time.process_time()
    privatizer.sanitize(rows, pa.array(range(len(rows))), column="tokens")
    return time.process_time() - start


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=(2.0, 3.0, 4.0), show_default=True)
@click.option("--truncate", type=float, default=None)
@click.option("--tokens", default=1_200_000, show_default=True)
def main(bundle: Path, epsilons: tuple[float, ...], truncate: float | None, tokens: int) -> None:
    """Measure each epsilon."""
    embedding = Embedding.open(bundle, verify=False)
    found = []
    with threadpool_limits(1):
        for epsilon in epsilons:
            texts, mechanism = Texts(embedding), Exponential(epsilon=epsilon, truncate=truncate)
            laplace = Privatizer(embedding=embedding, mechanism=Laplace(epsilon=epsilon))
            lane = Privatizer(embedding=embedding, mechanism=mechanism)
            reference = [seconds_of(laplace, texts.rows(LAPLACE_TOKENS))]
            taken, batch = 0.0, texts.rows(BATCH)
            for _ in range(0, tokens, BATCH):
                batch = texts.rows(BATCH)
                taken += seconds_of(lane, batch)
            again = min(seconds_of(lane, batch) for _ in range(3))
            reference.append(seconds_of(laplace, texts.rows(LAPLACE_TOKENS)))
            each = float(np.mean(reference)) / LAPLACE_TOKENS
            total = -(-tokens // BATCH) * BATCH
            sample = np.unique(texts.ids(SAMPLE))
            law = mechanism.bind(embedding, ExactSearch.over(embedding)).probabilities(sample[:SAMPLE])
            kept = law[np.arange(len(law)), sample] if len(sample) else np.zeros(0)
            found.append(
                {
                    "epsilon": epsilon,
                    "truncate": truncate,
                    "N_w, mean of the sample": round(float(kept.mean()), 3),
                    "tokens": total,
                    "multiple of laplace, lists included": round(each * total / taken, 1),
                    "multiple of laplace, lists made": round(each * BATCH / again, 1),
                    "laplace after / before": round(reference[1] / reference[0], 2),
                }
            )
    size = f"{embedding.releasable:,} x {embedding.dimension}"
    click.echo(json.dumps({"bundle": size, "found": found}, indent=2))


if __name__ == "__main__":
    main()
