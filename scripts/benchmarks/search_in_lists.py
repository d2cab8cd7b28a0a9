"""Search in lists against the exact search, whole kernels in one thread, at several epsilons.

    python -m scripts.benchmarks.search_in_lists BUNDLE [--epsilon 5 --epsilon 10] [--recall 0.98]

The bundle needs an index (``dptext embedding --index ivf``). Words are those of Zipf's law; the kernel turns
words and uniforms into words: noise and search. Both searches take turns, and the median of the rounds'
ratios is reported. Prints JSON: report the ratios, the seconds belong to the machine.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import search_for, zipf_words
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch

WORDS = 12_288  # a chunk of a job at 50 dimensions
EXACT_WORDS = 1_024  # the exact search takes blocks of as many


@click.command()
@click.argument("bundle", type=click.Path(exists=True, path_type=Path))
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=(5.0, 10.0, 20.0))
@click.option("--recall", default=0.98, show_default=True)
@click.option("--rounds", default=5, show_default=True)
def main(bundle: Path, epsilons: tuple[float, ...], recall: float, rounds: int) -> None:
    """Measure both searches."""
    embedding = Embedding.open(bundle, verify=False)
    rng = np.random.default_rng(0)
    words = rng.permutation(zipf_words(embedding.inputs, WORDS))
    found = []
    with threadpool_limits(1):
        for epsilon in epsilons:
            laplace = mechanism("laplace", epsilon=epsilon)
            chosen = search_for(laplace, embedding, embedding.releasable, recall)
            uniforms = rng.random((WORDS, laplace.uniforms_per_token(embedding.dimension)))
            exact = laplace.bind(embedding, ExactSearch.over(embedding))
            lists = laplace.bind(embedding, chosen.search)
            ratios = []
            for _ in range(rounds + 1):
                start = time.perf_counter()
                exact(words[:EXACT_WORDS], uniforms[:EXACT_WORDS].copy())
                middle = time.perf_counter()
                lists(words, uniforms.copy())
                end = time.perf_counter()
                ratios.append(((middle - start) / EXACT_WORDS) / ((end - middle) / WORDS))
            found.append(
                {
                    "epsilon": epsilon,
                    **chosen.to_json(),
                    "ivf / exact": round(float(np.median(ratios[1:])), 1),
                    "of rounds": [round(ratio, 1) for ratio in sorted(ratios[1:])],
                }
            )
    click.echo(
        json.dumps({"bundle": f"{embedding.releasable:,} x {embedding.dimension}", "found": found}, indent=2)
    )


if __name__ == "__main__":
    main()
