"""Words a second of every mechanism, as a multiple of ``laplace`` in the same run.

One process and one thread sanitize token lists whose words follow Zipf's law, without Spark; time
is the processor's. Each turn lies between two turns of ``laplace``, for machines are never quite
idle. The Poincaré bundle is the same matrix shrunk into the ball: it shows speed, and has no
meaning. ``exponential`` makes a list of near words for each distinct word once: counted are all
lists that so many tokens need, then a batch whose lists are there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.shared import (
    LENGTH,
    SOURCES,
    Setup,
    Texts,
    Turns,
    sanitizer,
    section,
    shape,
)
from scripts.experiments.shared import made_embedding

EPSILON: Final = 15.0
SAMPLE: Final = 200  # words whose N_w is computed
LAPLACE_WORDS: Final = 4_000
EXPONENTIAL: Final = (
    ("glove-300d", 2.0, "exponential"),
    ("glove-300d", 3.0, "exponential"),
    ("glove-300d", 4.0, "exponential"),
    ("glove-50d", 10.0, "exponential:truncate=1.9"),
)
"""From hardly any word that stays to nearly all."""


@section
@click.option("--tokens", default=14_000_000, show_default=True, help="words of exponential")
def main(setup: Setup, tokens: int) -> dict[str, Any]:
    """Measure every mechanism against ``laplace``."""
    turn = 2.0
    batch = 400 * LENGTH
    if setup.small:
        turn = 0.05
        tokens = 800
        batch = 400
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for name in SOURCES:
            rows += noise(setup.bundle(name), turn)
        for name, epsilon, spec in EXPONENTIAL:
            rows.append(exponential(setup.bundle(name), epsilon, spec, tokens, batch))
    notes = [
        f"One thread, processor time, words of Zipf's law; turns of {turn:g} s and of `laplace`. "
        "Hyperbolic mechanisms have the same matrix, shrunk into the ball.",
        f"`exponential`: {tokens:,} words, then {batch:,} whose lists are there; "
        f"N_w of {SAMPLE} words.",
    ]
    return {"title": "Mechanisms compared", "rows": rows, "notes": notes}


def noise(embedding: Embedding, turn: float) -> Iterator[dict[str, Any]]:
    """Yield the rates of mechanisms that add noise, as multiples of that of ``laplace``."""
    n = embedding.dimension
    matrix = np.asarray(embedding.vectors, dtype=np.float64)
    matrix = matrix * (0.95 / np.sqrt(np.square(matrix).sum(axis=1).max()))
    reference = Turns(sanitizer(embedding, mechanism("laplace", epsilon=EPSILON)), seconds=turn)
    with tempfile.TemporaryDirectory() as folder:
        ball = made_embedding(embedding.words.to_pylist(), matrix, Path(folder, "ball"), "poincare")
        for space, spec, epsilon in (
            (embedding, "laplace:select=vickrey,t=0.5", EPSILON),
            (embedding, "mahalanobis:lambda=0.5", EPSILON),
            (embedding, f"projection:sensitivity=spectral,dimension={min(54, n // 2)}", EPSILON),
            (ball, "hyperbolic", 2.0 * n),
            (ball, "hyperbolic-icdm", 2.0 * n),
        ):
            turns = Turns(sanitizer(space, mechanism(spec, epsilon=epsilon)), seconds=turn)
            yield {
                "embedding": shape(embedding),
                "mechanism": spec,
                "ε": epsilon,
                "multiple of laplace": turns.multiple(reference),
            }


def exponential(
    embedding: Embedding, epsilon: float, spec: str, tokens: int, batch: int
) -> dict[str, Any]:
    """Compare ``exponential``, its lists included and its lists made."""
    texts = Texts(embedding)
    configured = mechanism(spec, epsilon=epsilon)
    with_lists = sanitizer(embedding, configured)
    laplace = sanitizer(embedding, mechanism("laplace", epsilon=epsilon))
    before, _ = texts.sanitized(laplace, LAPLACE_WORDS)
    turns = [texts.sanitized(with_lists, batch)[0] for _ in range(-(-tokens // batch))]
    again, _ = texts.sanitized(with_lists, batch, times=4)
    after, _ = texts.sanitized(laplace, LAPLACE_WORDS)
    of_word = (before + after) / 2.0 / LAPLACE_WORDS
    sample = np.unique(texts.ids(SAMPLE))
    law: Any = configured.bind(embedding, ExactSearch.over(embedding))
    stays = law.probabilities(sample)[np.arange(len(sample)), sample]
    return {
        "embedding": shape(embedding),
        "mechanism": spec,
        "ε": epsilon,
        "N_w": float(stays.mean()),
        "multiple of laplace": of_word * len(turns) * batch / sum(turns),
        "multiple of laplace, lists made": of_word * batch / again,
    }


if __name__ == "__main__":
    main()
