"""Searches for the nearest word of noisy points: ours, exact and in lists, and those of faiss.

Every search takes turns with the exact one, in one thread, on the same noisy points; time is the
processor's. Recall is the share of points for which the exact nearest word is found. The last rows
compare whole kernels, noise included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

import faiss
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import RECALL, chosen_search, recall_of, sample_of, zipf_words
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists, list_counts, make_lists
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.code_files import products_of
from dptext_spark.search.exact import POINT_BLOCK, EuclideanNearest, ExactSearch
from dptext_spark.search.ivf import IvfSearch
from scripts.benchmarks.large_vocabulary import SMALL, made_words
from scripts.benchmarks.shared import Given, epsilons, seconds, section, shape

STAYS: Final = (0.1, 0.5, 0.9)
KERNELS: Final = (5.0, 10.0, 20.0)
"""Epsilons at which whole kernels are compared."""
ROUNDS: Final = 3
WIDTHS: Final = (16, 32, 64, 128, 256, 512, 1024)
JITTERED: Final = 400_000
NUMBERS: Final = 200 * POINT_BLOCK
"""Coordinates of all points at once: with fewer faiss's flat search takes a path six to ten times as slow."""
FEW: Final = 512
"""Points that efSearch is chosen with."""
KERNEL_WORDS: Final = 12_288  # a chunk of a job at 50 dimensions
EXACT_WORDS: Final = 1_024  # the exact search takes blocks of as many

Find = Callable[[NDArray[np.float64]], NDArray[np.int64]]


@section
def main(given: Given) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        flat = given.bundle("glove-50d", lists=True)
        for embedding in (given.bundle("glove-300d", lists=True), flat, jittered(given)):
            indexes = indexes_of(embedding)
            for stays, epsilon in zip(STAYS, epsilons(embedding, STAYS), strict=True):
                laplace = Laplace(epsilon=round(float(epsilon), 2))
                found = compared(embedding, indexes, laplace, 0.01 if given.small else 1.0)
                rows += [{"noise": f"N_w near {stays}", **row} for row in found]
        rows += [kernels(flat, Laplace(epsilon=epsilon), given.small) for epsilon in KERNELS]
    notes = [
        "One thread, processor time, by turns on the same noisy points of `laplace`, words by Zipf's "
        f"law; multiples are medians of {ROUNDS} rounds. Recall: how often the exact nearest word is found.",
        f"Lists: as many are looked at as recall {RECALL:g} needs; those of faiss have the same centroids. "
        f"HNSW32 takes the least efSearch with that recall on {FEW} of the points, or the best one.",
        "The largest table is made: words of GloVe 840B, each many times, moved by half the distance of near "
        "words.",
        f"Products: {products_of(flat.releasable, flat.dimension)}; single precision without codes.",
        "Whole kernels: noise, search, nearest word; recall by rank is that of the perturbed words.",
    ]
    return {"title": "Searches for the nearest word", "rows": rows, "notes": notes}


def jittered(given: Given) -> Embedding:
    """Build a large bundle of 300 dimensions, of words that are made."""
    folder = given.bundles / "jittered-300d"
    if not folder.exists():
        with TemporaryDirectory() as place:
            source = made_words(given, Path(place), SMALL if given.small else JITTERED)
            make_lists(build_embedding(source, folder))
    return Embedding.open(folder, verify=False)


def indexes_of(embedding: Embedding) -> tuple[Any, Any, Any]:
    """Make indexes of faiss over a bundle's words: flat, with the bundle's own lists, and HNSW."""
    vectors = np.ascontiguousarray(embedding.vectors[: embedding.releasable], dtype=np.float32)
    dimension, (lists,) = vectors.shape[1], list_counts(embedding)
    flat, centroids = faiss.IndexFlatL2(dimension), faiss.IndexFlatL2(dimension)
    flat.add(vectors)
    centroids.add(np.ascontiguousarray(InvertedLists.open(embedding, lists).centroids))
    ivf, hnsw = faiss.IndexIVFFlat(centroids, dimension, lists), faiss.IndexHNSWFlat(dimension, 32)
    ivf.is_trained = True
    ivf.add(vectors)
    faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
    hnsw.add(vectors)
    faiss.omp_set_num_threads(1)
    return flat, ivf, hnsw


def set_width(index: Any, points: NDArray[np.float64], nearest: NDArray[np.int64]) -> int:
    """Give HNSW the least efSearch that reaches the recall, else the one with the best."""
    best = 0.0, WIDTHS[0]
    for width in WIDTHS:
        index.hnsw.efSearch = width
        best = max(best, (float((finder(index)(points) == nearest).mean()), width))
        if best[0] >= RECALL:
            break
    index.hnsw.efSearch = best[1]
    return best[1]


def finder(index: Any) -> Find:
    return lambda points: index.search(points.astype(np.float32), 1)[1][:, 0]


def compared(
    embedding: Embedding, indexes: tuple[Any, Any, Any], laplace: Laplace, turn: float
) -> Iterator[dict[str, Any]]:
    """Compare all searches at an epsilon, by turns of about so many seconds."""
    ours = cast(IvfSearch, chosen_search(f"ivf:recall={RECALL}", embedding, [laplace]))
    drawn = sample_of(laplace, embedding, embedding.releasable)
    order = np.random.default_rng(0).permutation(len(drawn.points))
    words, points, nearest = drawn.words[order], drawn.points[order], drawn.nearest[order]
    flat, ivf, hnsw = indexes
    lists, width = (
        f"{ours.probes} of {ours.lists} lists",
        set_width(hnsw, points[:FEW], nearest[:FEW]),
    )
    ivf.nprobe = ours.probes
    least = -(-NUMBERS // (points.shape[1] * POINT_BLOCK)) * POINT_BLOCK
    every: list[tuple[str, str, Find, NDArray[np.float64]]] = []
    exact = cast(EuclideanNearest, ExactSearch.over(embedding).of_words(embedding))
    for name, setting, find in (
        ("exact, ours", "", exact),
        ("exact, ours, single precision", "", replace(exact, coarse=None)),
        ("ivf, ours", lists, ours.of_words(embedding)),
        ("IndexFlatL2, faiss", "", finder(flat)),
        ("IVF,Flat, faiss", lists, finder(ivf)),
        ("HNSW32, faiss", f"efSearch {width}", finder(hnsw)),
    ):
        # Whole blocks of points for about a turn, and enough for faiss.
        each = seconds(partial(find, points[:least])) / min(least, len(points))
        count = int(np.clip(turn / max(each, 1e-9), least, len(points)))
        every.append((name, setting, find, points[: count - count % POINT_BLOCK]))
    taken = [
        [seconds(partial(find, own)) / len(own) for *_, find, own in every] for _ in range(ROUNDS)
    ]
    multiples = np.median(np.array(taken)[:, :1] / np.array(taken), axis=0)
    for (name, setting, find, own), multiple in zip(every, multiples, strict=True):
        yield {
            "embedding": shape(embedding),
            "search": name,
            "setting": setting,
            "multiple of exact": float(multiple),
            "recall": float((find(own) == nearest[: len(own)]).mean()),
            "ε": laplace.epsilon,
            "N_w": float((nearest == words).mean()),
        }


def kernels(embedding: Embedding, laplace: Laplace, small: bool) -> dict[str, Any]:
    """Compare whole kernels at an epsilon: words and uniforms in, words out."""
    words = np.random.default_rng(0).permutation(zipf_words(embedding.inputs, KERNEL_WORDS))
    words = words[:EXACT_WORDS] if small else words
    search = cast(IvfSearch, chosen_search(f"ivf:recall={RECALL}", embedding, [laplace]))
    found = recall_of(search, laplace, embedding) or {}
    uniforms = np.random.default_rng(1).random(
        (len(words), laplace.uniforms_per_token(embedding.dimension))
    )
    exact, lists = (laplace.bind(embedding, s) for s in (ExactSearch.over(embedding), search))

    def multiple() -> float:
        """Processor time of a word in the exact search, as a multiple of that in lists."""
        whole = (
            seconds(lambda: exact(words[:EXACT_WORDS], uniforms[:EXACT_WORDS].copy())) / EXACT_WORDS
        )
        return whole / (seconds(lambda: lists(words, uniforms.copy())) / len(words))

    return {
        "embedding": shape(embedding),
        "search": "whole kernel, in lists",
        "setting": f"{search.probes} of {search.lists} lists",
        "multiple of exact": float(np.median([multiple() for _ in range(ROUNDS + 1)][1:])),
        "recall": found["recall"],
        "ε": laplace.epsilon,
        "N_w": found["n_w"]["exact"],
        "N_w, in lists": found["n_w"]["ivf"],
        "share of words": found["words_looked_at"],
        **{
            f"recall, rank {name}": band["recall"] for name, band in found["recall_by_rank"].items()
        },
    }


if __name__ == "__main__":
    main()
