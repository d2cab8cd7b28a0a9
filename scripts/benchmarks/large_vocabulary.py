"""What a large vocabulary takes: to build, to open, to share between workers, and to search.

    python -m scripts.benchmarks.large_vocabulary --data DATA [--words 3000000] [--epsilon 15 --epsilon 30]

The words are made: each is one of those of GloVe 840B, moved by half the distance to its nearest word, so
that near words come in clusters. At 3,000,000 x 300 the source and the bundle need 3.6 GB each, and the index
as much.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import psutil
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import RECALL, search_for
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import VECTORS, write_header
from dptext_spark.geometry.metric import EuclideanMetric
from dptext_spark.guarantee import Distances
from dptext_spark.mechanisms import Laplace
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.processes import run_job
from scripts.benchmarks.section import Given, section
from scripts.benchmarks.turns import Turns, compared

CHUNK: Final = 1 << 16
WORKERS: Final = 2
SMALL: Final = 4_000


def made_words(given: Given, folder: Path, words: int, dimension: int = 300) -> Path:
    """Write words around those of the 300-dimensional embedding; give the matrix's file."""
    vectors = np.asarray(given.bundle("glove-300d").vectors)[:, :dimension]
    dimension = vectors.shape[1]
    # A step of half the distance of near words, all dimensions together.
    step = Distances.measure(EuclideanMetric(vectors=vectors)).nearest / 2.0 / np.sqrt(dimension)
    source = folder / "vectors.npy"
    with source.open("wb") as file, (folder / "vocab.txt").open("w") as names:
        write_header(file, np.dtype(np.float32), (words, dimension))
        for start in range(0, words, CHUNK):
            rows = np.arange(start, min(start + CHUNK, words))
            drawn = np.random.default_rng(start).standard_normal((len(rows), dimension), np.float32)
            drawn *= np.float32(step)
            drawn += vectors[rows % len(vectors)]
            file.write(drawn.data)
            names.writelines(f"w{row}\n" for row in rows.tolist())
    return source


def opened(bundle: Path, verify: bool) -> dict[str, float]:
    """Open a bundle in a process that has opened none: processor time, and the memory that it takes more."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before, start = psutil.Process().memory_info().rss, time.process_time()
    Embedding.open(bundle, verify=verify)
    seconds = time.process_time() - start
    peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return {"processor seconds": seconds, "MB": (int(peak[1]) * 1024 - before) / 2**20 if peak else np.nan}


_held: list[Any] = []  # what a worker keeps while it lives


def map_all(bundle: Path) -> int:
    """Open a bundle in a worker and look at all of its matrix; give the process."""
    embedding = Embedding.open(bundle, verify=False)
    search = ExactSearch.over(embedding).of_words(embedding)
    search(np.asarray(embedding.vectors[:1], dtype=np.float64))
    _held[:] = [embedding, search]
    time.sleep(0.5)  # so that another worker takes the next bundle
    return os.getpid()


def shared(bundle: Path) -> float:
    """Memory that the matrix takes in all workers together, as a multiple of its size."""
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        workers = set(pool.map(map_all, [bundle] * WORKERS))
        maps = [part for worker in workers for part in psutil.Process(worker).memory_maps(grouped=False)]
    if len(workers) != WORKERS:
        raise click.ClickException("one worker did the work of two")
    held = sum(part.pss for part in maps if part.path == str(bundle / VECTORS))
    return held / (bundle / VECTORS).stat().st_size


def alone(function: Any, *arguments: Any) -> Any:
    """Call a function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


@section
@click.option("--words", default=3_000_000, show_default=True)
@click.option("--dimension", default=300, show_default=True, help="the first so many coordinates")
@click.option("--epsilon", "epsilons", type=float, multiple=True, default=(15.0, 30.0), show_default=True)
@click.option("--recall", default=RECALL, show_default=True)
@click.option("--rounds", default=2, show_default=True)
def main(
    given: Given, words: int, dimension: int, epsilons: tuple[float, ...], recall: float, rounds: int
) -> dict[str, Any]:
    """Build, open and search a bundle of so many words."""
    words, seconds = (SMALL, 0.1) if given.small else (words, 10.0)
    with tempfile.TemporaryDirectory(prefix="dptext-large-") as place:
        source, bundle = made_words(given, Path(place), words, dimension), Path(place, "bundle")
        build = [sys.executable, "-m", "dptext_spark", "embedding", str(source), "--output", str(bundle)]
        taken, use = run_job([*build, "--index", "ivf"])
        source.unlink()
        size = (bundle / VECTORS).stat().st_size / 2**20
        rows = [
            {
                "what": "build, with an index",
                "seconds": taken,
                "processor seconds": use.processor,
                "MB": use.peaks["driver RSS but for mapped files"],
            },
            {"what": "open, verified", **alone(opened, bundle, True)},
            {"what": "open", **alone(opened, bundle, False)},
            {"what": f"the matrix in {WORKERS} workers together / its size", "multiple": shared(bundle)},
        ]
        embedding = Embedding.open(bundle, verify=False)
        rows += searches(embedding, epsilons, recall, rounds, seconds)
    shape = f"{embedding.releasable:,} x {embedding.dimension}"
    return {
        "title": "A large vocabulary",
        "rows": [{"embedding": shape, **row} for row in rows],
        "notes": [
            f"The matrix has {size:,.0f} MB. Its words are those of GloVe 840B, each many times: moved in a "
            "random direction by half the distance to a nearest word.",
            "MB: what a process holds beside mapped files, at the peak of the build, and what opening a "
            "bundle adds at its peak.",
            f"Searches: one thread, processor time, words of Zipf's law, `laplace`, {rounds} rounds by "
            "turns; a multiple is that of the exact search's rate.",
        ],
    }


def searches(
    embedding: Embedding, epsilons: tuple[float, ...], recall: float, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Compare the search in lists with the exact one."""
    for epsilon in epsilons:
        laplace = Laplace(epsilon=epsilon)
        start = time.process_time()
        chosen = search_for(laplace, embedding, embedding.releasable, recall)
        sampled = time.process_time() - start
        make = partial(Sanitizer, embedding=embedding, mechanism=laplace)
        with threadpool_limits(1):
            exact = Turns(make, seconds=seconds)
            lists = Turns(partial(make, search=chosen.search), seconds=seconds)
            found = compared(exact, lists, rounds)
        yield {
            "what": "search in lists",
            "ε": epsilon,
            "multiple": found.multiple,
            "words/s": found.words,
            "recall": chosen.recall,
            "lists": chosen.search.lists,
            "looked at": chosen.search.probes,
            "share of words": chosen.looked_at,
            "N_w": lists.unchanged / lists.words,
        }
        yield {"what": "finding how many lists to look at", "ε": epsilon, "processor seconds": sampled}


if __name__ == "__main__":
    main()
