"""Searches for the nearest word of noisy points: ours, exact and in lists, and those of faiss.

    python -m scripts.benchmarks.searches --data DATA

Every search takes turns with the exact one, in one thread, on the same noisy points; time is the processor's.
Recall is the share of points for which the exact nearest word is found.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import NoisySample, sample_of, search_for, zipf_words
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import InvertedLists, made, make_lists
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import POINT_BLOCK, ExactSearch
from dptext_spark.search.ivf import IvfSearch
from scripts.benchmarks.estimator_speed import epsilons
from scripts.benchmarks.large_vocabulary import SMALL, made_words
from scripts.benchmarks.section import Given, section

STAYS: Final = (0.1, 0.5, 0.9)
RECALL: Final = 0.98
ROUNDS: Final = 3
WIDTHS: Final = (16, 32, 64, 128, 256, 512, 1024)
JITTERED: Final = 400_000
NUMBERS: Final = 200 * POINT_BLOCK
"""Coordinates of all points at once: with fewer faiss's flat search takes a path six to ten times as slow."""
FEW: Final = 512
"""Points that efSearch is chosen with."""

Find = Callable[[np.ndarray], np.ndarray]


def jittered(given: Given) -> Embedding:
    """Build a large bundle of 300 dimensions, of words that are made."""
    folder = given.bundles / "jittered-300d"
    if not folder.exists():
        with TemporaryDirectory() as place:
            source = made_words(given, Path(place), SMALL if given.small else JITTERED)
            make_lists(build_embedding(source, folder))
    return Embedding.open(folder, verify=False)


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def sgemm_rate(turn: float) -> float:
    """Operations in a second of processor time: products of large square matrices."""
    a, b = np.ones((2, 2048, 2048), dtype=np.float32)
    out = np.empty_like(a)
    np.matmul(a, b, out=out)
    done, taken = 0, 0.0
    while taken < turn:
        taken += processor_seconds(lambda: np.matmul(a, b, out=out))
        done += 1
    return done * 2 * 2048**3 / taken


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """A search, how it is set, and points for about a turn of it."""

    name: str
    setting: str
    find: Find
    points: np.ndarray

    @classmethod
    def of(cls, name: str, setting: str, find: Find, points: np.ndarray, turn: float) -> Competitor:
        """Take as many whole blocks of points as fit into a turn of so many seconds, and enough for faiss."""
        least = -(-NUMBERS // (points.shape[1] * POINT_BLOCK)) * POINT_BLOCK
        few = points[:least]
        each = processor_seconds(lambda: find(few)) / len(few)
        count = int(np.clip(turn / max(each, 1e-9), len(few), len(points)))
        count -= count % POINT_BLOCK
        return cls(name=name, setting=setting, find=find, points=points[:count])

    def seconds(self) -> float:
        """Processor time of a point."""
        return processor_seconds(lambda: self.find(self.points)) / len(self.points)


class Faiss:
    """The indexes of faiss over a bundle's words; its lists are the bundle's, to the centroid."""

    def __init__(self, embedding: Embedding) -> None:
        space = embedding.space
        if not isinstance(space, EuclideanSpace):
            raise TypeError
        vectors = np.ascontiguousarray(space.vectors[: embedding.releasable])
        dimension = vectors.shape[1]
        self.flat = faiss.IndexFlatL2(dimension)
        self.flat.add(vectors)
        (lists,) = made(embedding)
        centroids = faiss.IndexFlatL2(dimension)
        centroids.add(np.ascontiguousarray(InvertedLists.open(embedding, lists).centroids))
        self.ivf = faiss.IndexIVFFlat(centroids, dimension, lists)
        self.ivf.is_trained = True
        self.ivf.add(vectors)
        self._centroids = centroids  # the index does not own it
        self.hnsw = faiss.IndexHNSWFlat(dimension, 32)
        faiss.omp_set_num_threads(len(os.sched_getaffinity(0)))
        self.hnsw.add(vectors)
        faiss.omp_set_num_threads(1)

    @staticmethod
    def find(index: Any) -> Find:
        """Search an index for the nearest word."""
        return lambda points: index.search(points.astype(np.float32), 1)[1][:, 0]

    def width(self, sample: NoisySample) -> int:
        """Find the least efSearch that reaches the recall, else the one with the best."""
        best = 0.0, WIDTHS[0]
        for width in WIDTHS:
            self.hnsw.hnsw.efSearch = width
            found = self.find(self.hnsw)(sample.points[:FEW])
            best = max(best, (float((found == sample.nearest[:FEW]).mean()), width))
            if best[0] >= RECALL:
                break
        return best[1]


def competitors(sample: NoisySample, ours: IvfSearch, others: Faiss, turn: float) -> Iterator[Competitor]:
    """Set up every search for the points of a sample, the exact one first."""
    embedding, points = sample.embedding, sample.points
    lists = f"{ours.probes} of {ours.lists} lists"
    others.ivf.nprobe = ours.probes
    width = others.width(sample)
    others.hnsw.hnsw.efSearch = width
    for name, setting, find in (
        ("exact, ours", "", ExactSearch.over(embedding).of_words(embedding)),
        ("ivf, ours", lists, ours.of_words(embedding)),
        ("IndexFlatL2, faiss", "", others.find(others.flat)),
        ("IVF,Flat, faiss", lists, others.find(others.ivf)),
        ("HNSW32, faiss", f"efSearch {width}", others.find(others.hnsw)),
    ):
        yield Competitor.of(name, setting, find, points, turn)


def compared(
    embedding: Embedding, others: Faiss, stays: float, epsilon: float, turn: float
) -> Iterator[dict[str, Any]]:
    """Compare all searches at an epsilon, by turns."""
    laplace = Laplace(epsilon=epsilon)
    ours = search_for(laplace, embedding, embedding.releasable, RECALL).search
    drawn = sample_of(laplace, embedding, embedding.releasable)
    order = np.random.default_rng(0).permutation(len(drawn.points))
    words, points, nearest = drawn.words[order], drawn.points[order], drawn.nearest[order]
    sample = replace(drawn, words=words, points=points, nearest=nearest)
    every = [*competitors(sample, ours, others, turn)]
    speed = sgemm_rate(turn)
    seconds = np.array([[each.seconds() for each in every] for _ in range(ROUNDS)])
    multiples = np.median(seconds[:, :1] / seconds, axis=0)
    for each, taken, multiple in zip(every, np.median(seconds, axis=0), multiples, strict=True):
        count = len(each.points)
        row = {
            "embedding": f"{embedding.releasable:,} x {embedding.dimension}",
            "noise": f"N_w near {stays}",
            "search": each.name,
            "setting": each.setting,
            "multiple of exact": float(multiple),
            "recall": float((each.find(each.points) == nearest[:count]).mean()),
            "share of sgemm": None,
            "words/s": 1.0 / float(taken),
            "epsilon": epsilon,
            "N_w of the points": float((nearest == words).mean()),
        }
        if not each.setting:  # looks at all words
            row["share of sgemm"] = 2.0 * embedding.releasable * embedding.dimension / float(taken) / speed
        yield row


@section
def main(given: Given) -> dict[str, Any]:
    """Compare searches for the nearest word of noisy points."""
    turn = 0.01 if given.small else 1.0
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for embedding in (
            given.bundle("glove-300d", lists=True),
            given.bundle("glove-50d", lists=True),
            jittered(given),
        ):
            others = Faiss(embedding)
            some = zipf_words(embedding.inputs, 48)
            for stays, epsilon in zip(STAYS, epsilons(embedding, "laplace", {}, some, STAYS), strict=True):
                rows += compared(embedding, others, stays, round(float(epsilon), 2), turn)
    return {
        "title": "Searches for the nearest word",
        "rows": rows,
        "notes": [
            "One thread, processor time, searches by turns on the same noisy points of `laplace`, words by "
            f"Zipf's law; multiples are medians of {ROUNDS} rounds. Recall: how often the exact nearest word "
            "is found.",
            f"Lists: as many are looked at as recall {RECALL} needs. Those of faiss have the same centroids, "
            "and as many are looked at, so that both look at the same words. HNSW32 takes the least efSearch "
            f"of {', '.join(map(str, WIDTHS))} with that recall on {FEW} of the points, or the best one; its "
            "graph is made with the efConstruction that faiss has.",
            "The largest table is made: words of GloVe 840B again and again, each moved by half the distance "
            "of near words.",
        ],
    }


if __name__ == "__main__":
    main()
