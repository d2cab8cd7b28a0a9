"""Search in lists against the exact search, whole kernels in one thread, at several epsilons.

    python -m scripts.benchmarks.search_in_lists --data DATA [--epsilon 5 --epsilon 10] [--recall 0.98]

At 400,000 x 50. Words are those of Zipf's law; the kernel turns words and uniforms into words: noise and
search. Both searches take turns, time is the processor's, and a multiple is the median of the rounds'.
"""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import RECALL, search_for, zipf_words
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace, Perturbation
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.section import Given, section

WORDS = 12_288  # a chunk of a job at 50 dimensions
EXACT_WORDS = 1_024  # the exact search takes blocks of as many


@section
@click.option(
    "--epsilon", "epsilons", type=float, multiple=True, default=(5.0, 10.0, 20.0), show_default=True
)
@click.option("--recall", default=RECALL, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(given: Given, epsilons: tuple[float, ...], recall: float, rounds: int) -> dict[str, Any]:
    """Measure both searches."""
    embedding = given.bundle("glove-50d", lists=True)
    words = np.random.default_rng(0).permutation(zipf_words(embedding.inputs, WORDS))
    if given.small:
        words, rounds = words[:EXACT_WORDS], 1
    with threadpool_limits(1):
        rows = [row_of(embedding, Laplace(epsilon=epsilon), words, recall, rounds) for epsilon in epsilons]
    return {
        "title": "Search in lists",
        "rows": rows,
        "notes": [
            "Whole kernels: noise, search, nearest word. One thread, processor time, words by Zipf's law, "
            f"{len(words):,} at once; multiples are medians of {rounds} rounds by turns. Recall by rank: of "
            "the words that were perturbed, on the points that the number of lists was found with."
        ],
    }


def row_of(
    embedding: Embedding, laplace: Laplace, words: NDArray[np.int64], recall: float, rounds: int
) -> dict[str, Any]:
    """Compare both searches at an epsilon."""
    found = search_for(laplace, embedding, embedding.releasable, recall)
    uniforms = np.random.default_rng(1).random((len(words), laplace.uniforms_per_token(embedding.dimension)))
    exact, lists = (laplace.bind(embedding, s) for s in (ExactSearch.over(embedding), found.search))

    def seconds(kernel: Perturbation, count: int) -> float:
        drawn, start = uniforms[:count].copy(), time.process_time()
        kernel(words[:count], drawn)
        return (time.process_time() - start) / count

    turns = [(seconds(exact, EXACT_WORDS), seconds(lists, len(words))) for _ in range(rounds + 1)]
    return {
        "embedding": f"{embedding.releasable:,} x {embedding.dimension}",
        "ε": laplace.epsilon,
        "multiple of exact": float(np.median([whole / part for whole, part in turns[1:]])),
        "lists": found.search.lists,
        "looked at": found.search.probes,
        "share of words": found.looked_at,
        "recall": found.recall,
        **{f"recall, rank {name}": share for name, (_, share) in found.bands.items()},
        "N_w, exact": found.staying[0],
        "N_w, in lists": found.staying[1],
    }


if __name__ == "__main__":
    main()
