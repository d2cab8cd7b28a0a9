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
from dptext_spark.text.policies import WORDS_ALONE
from scripts.benchmarks.large_vocabulary import SMALL, made_words
from scripts.benchmarks.shared import Setup, epsilons, seconds, section, shape

STAYS: Final = (0.1, 0.5, 0.9)
KERNELS: Final = (5.0, 10.0, 20.0)
"""Epsilons at which whole kernels are compared."""
ROUNDS: Final = 3
WIDTHS: Final = (16, 32, 64, 128, 256, 512, 1024)
JITTERED: Final = 400_000
NUMBERS: Final = 200 * POINT_BLOCK
"""Coordinates of all points at once: with fewer faiss's flat search is six to ten times as slow."""
FEW: Final = 512
"""Points that efSearch is chosen with."""
KERNEL_WORDS: Final = 12_288  # a chunk of a job at 50 dimensions
EXACT_WORDS: Final = 1_024  # the exact search takes blocks of as many

Find = Callable[[NDArray[np.float64]], NDArray[np.int64]]


@section
def main(setup: Setup) -> dict[str, Any]:
    """Measure all searches in three bundles, and whole kernels in one."""
    turn = 0.01 if setup.small else 1.0
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        flat = setup.bundle("glove-50d", lists=True)
        for embedding in (setup.bundle("glove-300d", lists=True), flat, jittered(setup)):
            indexes = indexes_of(embedding)
            for stays, epsilon in zip(STAYS, epsilons(embedding, STAYS), strict=True):
                laplace = Laplace(epsilon=round(float(epsilon), 2))
                noise = {"noise": f"N_w near {stays}"}
                rows += [noise | row for row in compared(embedding, indexes, laplace, turn)]
        rows += [kernels(flat, Laplace(epsilon=epsilon), setup.small) for epsilon in KERNELS]
    products = products_of(flat.releasable, flat.dimension)
    notes = [
        "One thread, processor time, by turns on the same noisy points of `laplace`, words by "
        f"Zipf's law; multiples are medians of {ROUNDS} rounds. Recall: how often the exact "
        "nearest word is found.",
        f"Lists: as many are looked at as recall {RECALL:g} needs; those of faiss have the same "
        f"centroids. HNSW32 takes the least efSearch with that recall on {FEW} of the points, or "
        "the best one.",
        "The largest table is made: words of GloVe 840B, each many times, moved by half the "
        "distance of near words.",
        f"Products: {products}; single precision without codes.",
        "Whole kernels: noise, search, nearest word; recall by rank is that of the perturbed "
        "words.",
    ]
    return {"title": "Searches for the nearest word", "rows": rows, "notes": notes}


def jittered(setup: Setup) -> Embedding:
    """Build a large bundle of 300 dimensions, of words that are made."""
    folder = setup.bundles / "jittered-300d"
    if not folder.exists():
        with TemporaryDirectory() as place:
            source = made_words(setup, Path(place), SMALL if setup.small else JITTERED)
            make_lists(build_embedding(source, folder))
    return Embedding.open(folder, verify=False)


def indexes_of(embedding: Embedding) -> tuple[Any, Any, Any]:
    """Build indexes of faiss over a bundle's words: flat, with the bundle's own lists, and HNSW."""
    vectors = np.ascontiguousarray(embedding.vectors[: embedding.releasable], dtype=np.float32)
    dimension = vectors.shape[1]
    flat = faiss.IndexFlatL2(dimension)
    flat.add(vectors)
    (lists,) = list_counts(embedding)
    centroids = faiss.IndexFlatL2(dimension)
    centroids.add(np.ascontiguousarray(InvertedLists.open(embedding, lists).centroids))
    ivf = faiss.IndexIVFFlat(centroids, dimension, lists)
    ivf.is_trained = True
    ivf.add(vectors)
    hnsw = faiss.IndexHNSWFlat(dimension, 32)
    faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
    hnsw.add(vectors)
    faiss.omp_set_num_threads(1)
    return flat, ivf, hnsw


def set_width(index: Any, points: NDArray[np.float64], nearest: NDArray[np.int64]) -> int:
    """Set the least efSearch of HNSW that reaches the recall, else the one with the best."""
    best = 0.0, WIDTHS[0]
    find = finder(index)
    for width in WIDTHS:
        index.hnsw.efSearch = width
        recall = float((find(points) == nearest).mean())
        best = max(best, (recall, width))
        if recall >= RECALL:
            break
    _, best_width = best
    index.hnsw.efSearch = best_width
    return best_width


def finder(index: Any) -> Find:
    """Return a search in an index of faiss."""
    return lambda points: index.search(points.astype(np.float32), 1)[1][:, 0]


def compared(
    embedding: Embedding, indexes: tuple[Any, Any, Any], laplace: Laplace, turn: float
) -> Iterator[dict[str, Any]]:
    """Compare all searches at an epsilon, by turns of about this number of seconds."""
    recalling = chosen_search(f"ivf:recall={RECALL}", embedding, [laplace], policy=WORDS_ALONE)
    ours = cast(IvfSearch, recalling)
    sample = sample_of(laplace, embedding, ExactSearch.over(embedding))
    order = np.random.default_rng(0).permutation(len(sample.points))
    words = sample.words[order]
    points = sample.points[order]
    nearest = sample.nearest[order]
    flat, ivf, hnsw = indexes
    width = set_width(hnsw, points[:FEW], nearest[:FEW])
    ivf.nprobe = ours.probes
    least = -(-NUMBERS // (points.shape[1] * POINT_BLOCK)) * POINT_BLOCK
    exact = cast(EuclideanNearest, ExactSearch.over(embedding).of_words(embedding))
    lists = f"{ours.probes} of {ours.lists} lists"
    searches: list[tuple[str, str, Find]] = [
        ("exact, ours", "", exact),
        ("exact, ours, single precision", "", replace(exact, coarse=None)),
        ("ivf, ours", lists, ours.of_words(embedding)),
        ("IndexFlatL2, faiss", "", finder(flat)),
        ("IVF,Flat, faiss", lists, finder(ivf)),
        ("HNSW32, faiss", f"efSearch {width}", finder(hnsw)),
    ]
    parts = []
    for _, _, find in searches:
        # Whole blocks of points for about a turn, and enough for faiss.
        of_point = seconds(partial(find, points[:least])) / min(least, len(points))
        count = int(np.clip(turn / max(of_point, 1e-9), least, len(points)))
        parts.append(points[: count - count % POINT_BLOCK])
    times = np.empty((ROUNDS, len(searches)))
    for turn_number in range(ROUNDS):
        for number, (_, _, find) in enumerate(searches):
            part = parts[number]
            times[turn_number, number] = seconds(partial(find, part)) / len(part)
    multiples = np.median(times[:, :1] / times, axis=0)
    stays = float((nearest == words).mean())
    for number, (name, setting, find) in enumerate(searches):
        part = parts[number]
        recall = float((find(part) == nearest[: len(part)]).mean())
        yield {
            "embedding": shape(embedding),
            "search": name,
            "setting": setting,
            "multiple of exact": float(multiples[number]),
            "recall": recall,
            "ε": laplace.epsilon,
            "N_w": stays,
        }


def kernels(embedding: Embedding, laplace: Laplace, small: bool) -> dict[str, Any]:
    """Compare whole kernels at an epsilon: words and uniforms in, words out."""
    words = np.random.default_rng(0).permutation(zipf_words(embedding.inputs, KERNEL_WORDS))
    if small:
        words = words[:EXACT_WORDS]
    recalling = chosen_search(f"ivf:recall={RECALL}", embedding, [laplace], policy=WORDS_ALONE)
    search = cast(IvfSearch, recalling)
    facts = recall_of(search, laplace, embedding) or {}
    width = laplace.uniforms_per_token(embedding.dimension)
    uniforms = np.random.default_rng(1).random((len(words), width))
    exact = laplace.bind(embedding, ExactSearch.over(embedding))
    lists = laplace.bind(embedding, search)
    few_words = words[:EXACT_WORDS]
    few_uniforms = uniforms[:EXACT_WORDS]

    def multiple() -> float:
        """Measure processor time of a word in the exact search over that in lists."""
        of_exact = seconds(lambda: exact(few_words, few_uniforms.copy())) / EXACT_WORDS
        return of_exact / (seconds(lambda: lists(words, uniforms.copy())) / len(words))

    multiples = [multiple() for _ in range(ROUNDS + 1)]
    row = {
        "embedding": shape(embedding),
        "search": "whole kernel, in lists",
        "setting": f"{search.probes} of {search.lists} lists",
        "multiple of exact": float(np.median(multiples[1:])),
    }
    row["recall"] = facts["recall"]
    row["ε"] = laplace.epsilon
    row["N_w"] = facts["n_w"]["exact"]
    row["N_w, in lists"] = facts["n_w"]["ivf"]
    row["share of words"] = facts["words_looked_at"]
    for name, band in facts["recall_by_rank"].items():
        row[f"recall, rank {name}"] = band["recall"]
    return row


if __name__ == "__main__":
    main()
