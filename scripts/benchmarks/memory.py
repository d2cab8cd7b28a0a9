"""What executors need of a host's memory while they sanitize a table.

A standalone cluster of one host runs two executors of one core, each with one Python worker.
Embedding and table are random, since only their sizes matter here.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from itertools import product
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.embedding.spaces import EuclideanSpace, Precision
from scripts.benchmarks.shared import ROOT, Setup, section, watch
from scripts.experiments.shared import made_embedding
from tests.helpers.cluster import Cluster

ROW_WORDS: Final = 20
PEAKS: Final = {
    "executor": "an executor's JVM, resident",
    "worker": "a Python worker, resident",
    "worker, private": "a Python worker, private memory without the matrix",
    "bundle": "the bundle with its codes, on the host's disk",
    "matrix": "of the matrix, in all workers together",
}


@section
@click.option("--vocabulary", type=int, multiple=True, default=(33_860, 400_000), help="repeatable")
@click.option(
    "--precision", type=click.Choice(["single", "half"]), multiple=True, default=("single",)
)
@click.option(
    "--words", type=int, multiple=True, default=(20_000,), help="of the table; repeatable"
)
def main(
    setup: Setup,
    vocabulary: tuple[int, ...],
    words: tuple[int, ...],
    precision: tuple[Precision, ...],
) -> dict[str, Any]:
    """Measure vocabularies and tables of these sizes."""
    dimension = 300
    if setup.small:
        dimension = 10
        vocabulary = (500,)
        words = (400, 8_000)
    rows: list[dict[str, Any]] = []
    for size, kind, length in product(vocabulary, precision, words):
        with tempfile.TemporaryDirectory(prefix="dptext-memory-") as folder:
            peaks = measured(Path(folder), size, dimension, length, kind)
        row: dict[str, Any] = {
            "vocabulary": size,
            "precision": kind,
            "words of the table": length,
            "the matrix": size
            * dimension
            * np.dtype(EuclideanSpace.precisions[kind]).itemsize
            / 1e6,
        }
        for key, name in PEAKS.items():
            row[name] = peaks.get(key)
        rows.append(row)
    notes = [
        "Peaks in MB; a standalone cluster of one host, two executors of one core, each with one "
        "Python worker. The matrix in all workers: the sum of their proportional shares (PSS) at "
        "one moment."
    ]
    return {"title": "Memory of executors", "rows": rows, "notes": notes}


def measured(
    folder: Path, vocabulary: int, dimension: int, words: int, precision: Precision
) -> dict[str, float]:
    """Run the job on a made table, and return peaks of memory."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((vocabulary, dimension), dtype=np.float32)
    names = [f"w{row}" for row in range(vocabulary)]
    bundle = made_embedding(names, vectors, folder / "embedding", precision=precision)
    word_ids = rng.integers(vocabulary, size=(words // ROW_WORDS, ROW_WORDS))
    texts = [" ".join(row) for row in np.array(names)[word_ids].tolist()]
    (folder / "table").mkdir()
    for part in range(8):  # as many files as tasks
        rows = pa.table({"id": list(range(part, len(texts), 8)), "text": texts[part::8]})
        pq.write_table(rows, folder / "table" / f"part-{part}.parquet")
    options = f"--input {folder}/table --output {folder}/out --embedding {bundle.path}"
    options += " --text text --id id --trust-id --mechanism laplace --epsilon 15"
    with Cluster(folder / "cluster", workers=1, cores=2, memory="2g") as cluster:
        job = cluster.start(
            "--properties-file",
            ROOT / "conf" / "spark-defaults.conf",
            ROOT / "jobs" / "privatize.py",
            *options.split(),
            conf={"spark.executor.cores": "1", "spark.executor.memory": "1g"},
            stdout=subprocess.DEVNULL,
        )
        return watch(job, os.getpid()).peaks


if __name__ == "__main__":
    main()
