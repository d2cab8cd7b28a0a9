"""Words a second of ``exponential`` as a multiple of ``laplace``, making its lists and with its lists made.

    python -m scripts.benchmarks.exponential_lane --data DATA [--epsilon 2 --epsilon 3] [--truncate 1.9]

One process and one thread run the privatizer, without Spark, on token lists whose words follow Zipf's law.
``laplace`` has a turn before and after each mechanism. Time is the processor's, for machines are never quite
idle. The first figure counts all lists of near words that so many tokens need, none of them made before; the
second repeats the last batch, whose lists are kept where the memory for them suffices.
"""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.section import Given, section

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


@section
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=(2.0, 3.0, 4.0), show_default=True)
@click.option("--truncate", type=float, default=None)
@click.option("--tokens", default=400_000, show_default=True)
def main(given: Given, epsilons: tuple[float, ...], truncate: float | None, tokens: int) -> dict[str, Any]:
    """Measure each epsilon."""
    embedding = given.bundle("glove-300d")
    batch_tokens = 400 if given.small else BATCH
    batches = 1 if given.small else -(-tokens // BATCH)
    rows = []
    with threadpool_limits(1):
        for epsilon in epsilons:
            texts, mechanism = Texts(embedding), Exponential(epsilon=epsilon, truncate=truncate)
            laplace = Privatizer(embedding=embedding, mechanism=Laplace(epsilon=epsilon))
            lane = Privatizer(embedding=embedding, mechanism=mechanism)
            reference = [seconds_of(laplace, texts.rows(LAPLACE_TOKENS))]
            taken, batch = 0.0, texts.rows(LENGTH)
            for _ in range(batches):
                batch = texts.rows(batch_tokens)
                taken += seconds_of(lane, batch)
            again = min(seconds_of(lane, batch) for _ in range(3))
            reference.append(seconds_of(laplace, texts.rows(LAPLACE_TOKENS)))
            each = float(np.mean(reference)) / LAPLACE_TOKENS
            sample = np.unique(texts.ids(SAMPLE))
            law = mechanism.bind(embedding, ExactSearch.over(embedding)).probabilities(sample)
            rows.append(
                {
                    "epsilon": epsilon,
                    "truncate": truncate,
                    "N_w": float(law[np.arange(len(law)), sample].mean()),
                    "multiple of laplace, lists included": each * batches * batch_tokens / taken,
                    "multiple of laplace, lists made": each * batch_tokens / again,
                    "laplace after / before": reference[1] / reference[0],
                }
            )
    note = (
        f"{embedding.releasable:,} words x {embedding.dimension}, {batches * batch_tokens:,} words by Zipf's "
        f"law, one thread, processor time; N_w is the mean of {SAMPLE} of them."
    )
    return {"title": "`exponential` beside `laplace`", "rows": rows, "notes": [note]}


if __name__ == "__main__":
    main()
