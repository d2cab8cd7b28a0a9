"""Words a second of ``exponential`` as a multiple of ``laplace``, making its lists and with its lists made.

    python -m scripts.benchmarks.exponential_lane --data DATA [--tokens 14000000]

One process and one thread run the privatizer, without Spark, on token lists whose words follow Zipf's law.
``laplace`` has a turn before and after each mechanism. Time is the processor's, for machines are never quite
idle. Counted are all lists of near words that so many tokens need, none of them made before, and those of the
first tokens alone; the last figure repeats a batch, whose lists are kept where the memory for them suffices.
"""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.section import Given, section
from scripts.benchmarks.turns import LENGTH, Texts, seconds_of

BATCH = 400 * LENGTH
LAPLACE_TOKENS = 4_000
SAMPLE = 200  # words whose N_w is computed
CASES = (
    ("glove-300d", 2.0, None),
    ("glove-300d", 3.0, None),
    ("glove-300d", 4.0, None),
    ("glove-50d", 10.0, 1.9),
)
"""Embedding, epsilon, truncation: from hardly any word that stays to nearly all."""


@section
@click.option("--tokens", default=14_000_000, show_default=True)
@click.option("--first", default=400_000, show_default=True, help="of them that count by themselves, too")
def main(given: Given, tokens: int, first: int) -> dict[str, Any]:
    """Measure each case."""
    tokens, first, batch = (800, 400, 400) if given.small else (tokens, first, BATCH)
    with threadpool_limits(1):
        rows = [
            measured(given.bundle(name), epsilon, truncate, tokens, first, batch)
            for name, epsilon, truncate in CASES
        ]
    notes = [
        f"{tokens:,} words by Zipf's law, the first {first:,} of them, and {batch:,} whose lists are there; "
        f"one thread, processor time; N_w is the mean of {SAMPLE} of them.",
    ]
    return {"title": "`exponential` beside `laplace`", "rows": rows, "notes": notes}


def measured(
    embedding: Embedding, epsilon: float, truncate: float | None, tokens: int, first: int, batch: int
) -> dict[str, Any]:
    """Compare the mechanisms at one epsilon."""
    texts, mechanism = Texts(embedding), Exponential(epsilon=epsilon, truncate=truncate)
    laplace = Sanitizer(embedding=embedding, mechanism=Laplace(epsilon=epsilon))
    lane = Sanitizer(embedding=embedding, mechanism=mechanism)
    reference = [seconds_of(laplace, texts.rows(LAPLACE_TOKENS))]
    taken = [seconds_of(lane, texts.rows(batch)) for _ in range(-(-tokens // batch))]
    rows = texts.rows(batch)
    again = min(seconds_of(lane, rows) for _ in range(4))
    reference.append(seconds_of(laplace, texts.rows(LAPLACE_TOKENS)))
    each = float(np.mean(reference)) / LAPLACE_TOKENS
    start = -(-first // batch)
    sample = np.unique(texts.ids(SAMPLE))
    law = mechanism.bind(embedding, ExactSearch.over(embedding)).probabilities(sample)
    return {
        "embedding": f"{embedding.releasable:,} x {embedding.dimension}",
        "epsilon": epsilon,
        "truncate": truncate,
        "N_w": float(law[np.arange(len(law)), sample].mean()),
        "multiple of laplace, all words": each * len(taken) * batch / sum(taken),
        "first words": each * start * batch / sum(taken[:start]),
        "lists made": each * batch / again,
        "laplace after / before": reference[1] / reference[0],
    }


if __name__ == "__main__":
    main()
