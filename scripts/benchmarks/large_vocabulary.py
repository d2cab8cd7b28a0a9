"""What a large vocabulary takes: to build, to open, and to search.

The words are made: each is one of those of GloVe 840B, moved by half the distance to its nearest
word, so that near words come in clusters. At 3,000,000 x 300 the source and the bundle need 3.6 GB
each, and the index as much.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import RECALL, chosen_search, recall_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import write_array
from dptext_spark.mechanisms import Laplace
from dptext_spark.text.policies import WORDS_ALONE
from scripts.benchmarks.shared import Setup, Turns, run_job, sanitizer, seconds, section, shape
from scripts.experiments.shared import evenly

CHUNK: Final = 1 << 16
WORDS: Final = 3_000_000
SMALL: Final = 4_000


@section
def main(setup: Setup) -> dict[str, Any]:
    """Measure the build of a large bundle, and searches in it."""
    words = WORDS
    turn = 10.0
    if setup.small:
        words = SMALL
        turn = 0.1
    with tempfile.TemporaryDirectory(prefix="dptext-large-") as place:
        source = made_words(setup, Path(place), words)
        bundle = Path(place, "bundle")
        options = ["embedding", str(source), "--output", str(bundle), "--index", "ivf"]
        use = run_job([sys.executable, "-m", "dptext_spark", *options])
        source.unlink()
        opening = seconds(lambda: Embedding.open(bundle, verify=False))
        verifying = seconds(lambda: Embedding.open(bundle))
        built: dict[str, Any] = {
            "what": "build, with an index",
            "processor seconds": sum(use.spent.values()),
            "MB": use.peaks["driver, without mapped files"],
            "to open": opening,
            "to open, verified": verifying,
        }
        embedding = Embedding.open(bundle, verify=False)
        rows = [built, *searches(embedding, turn)]
        size = embedding.vectors.nbytes / 1e6
    notes = [
        f"The matrix has {size:,.0f} MB. Its words are those of GloVe 840B, each many times: "
        "moved in a random direction by half the distance to a nearest word.",
        "MB: what the build holds besides mapped files, at its peak.",
        "Searches: one thread, processor time, words by Zipf's law, `laplace`, by turns.",
    ]
    rows = [{"embedding": shape(embedding), **row} for row in rows]
    return {"title": "A large vocabulary", "rows": rows, "notes": notes}


def made_words(setup: Setup, folder: Path, words: int) -> Path:
    """Write words around those of the 300-dimensional embedding; return the matrix's file."""
    embedding = setup.bundle("glove-300d")
    vectors = np.asarray(embedding.vectors)
    distances = embedding.space.metric().to_all(evenly(500, len(vectors)))
    # A step of half the distance of near words, all dimensions together.
    nearest = np.partition(distances, 1, axis=1)[:, 1]
    step = np.median(nearest) / 2.0 / np.sqrt(vectors.shape[1])

    def blocks() -> Iterator[NDArray[np.float32]]:
        """Yield the matrix, block by block."""
        for start in range(0, words, CHUNK):
            rows = np.arange(start, min(start + CHUNK, words))
            rng = np.random.default_rng(start)
            moves = rng.standard_normal((len(rows), vectors.shape[1]), np.float32)
            yield vectors[rows % len(vectors)] + moves * np.float32(step)

    (folder / "vocab.txt").write_text("".join(f"w{row}\n" for row in range(words)))
    write_array(folder / "vectors.npy", "<f4", (words, vectors.shape[1]), blocks())
    return folder / "vectors.npy"


def searches(embedding: Embedding, turn: float) -> Iterator[dict[str, Any]]:
    """Yield how fast lists are, and what they find, by epsilon."""
    for epsilon in (15.0, 30.0):
        laplace = Laplace(epsilon=epsilon)
        search = chosen_search(f"ivf:recall={RECALL}", embedding, [laplace], policy=WORDS_ALONE)
        with threadpool_limits(1):
            exact = Turns(sanitizer(embedding, laplace), seconds=turn)
            lists = Turns(sanitizer(embedding, laplace, search), seconds=turn)
            multiple = lists.multiple(exact)
        facts = recall_of(search, laplace, embedding) or {}
        yield {
            "what": "search in lists / exact search",
            "ε": epsilon,
            "multiple": multiple,
            "recall": facts["recall"],
            "N_w": lists.unchanged / lists.words,
        }


if __name__ == "__main__":
    main()
