"""Measures what executors need of a host's memory while they sanitize a table.

    python -m scripts.benchmarks.executor_memory --data DATA [--words 33860 --words 400000] [--dimension 300]

A standalone cluster of one host runs two executors of one core, each with one Python worker. Embedding and
table are random, since only their sizes matter here. Peaks are in MB; the matrix's PSS (proportional set
size: a page that two map counts for each by half) is summed over the workers at one moment.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark import build_embedding
from scripts.benchmarks.section import Given, section
from tests.helpers.cluster import Cluster

ROOT: Final = Path(__file__).resolve().parents[2]
ROW_WORDS: Final = 20
SECONDS: Final = 0.5


def bundle(folder: Path, words: int, dimension: int) -> Path:
    """Build a bundle of random vectors."""
    source = folder / "source"
    source.mkdir(parents=True)
    generator = np.random.default_rng(0)
    np.save(source / "vectors.npy", generator.standard_normal((words, dimension), dtype=np.float32))
    (source / "vocab.txt").write_text("".join(f"w{row}\n" for row in range(words)))
    build_embedding(source / "vectors.npy", folder / "bundle")
    (source / "vectors.npy").unlink()
    return folder / "bundle"


def table(folder: Path, words: int, length: int) -> Path:
    """Write a table of random words, in as many files as there are tasks."""
    folder.mkdir()
    drawn = np.random.default_rng(1).integers(words, size=(length // ROW_WORDS, ROW_WORDS))
    texts = [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]
    for part in range(8):
        own = pa.table({"id": list(range(part, len(texts), 8)), "text": texts[part::8]})
        pq.write_table(own, folder / f"part-{part}.parquet")
    return folder


class Peaks:
    """The largest values seen, by name, in bytes."""

    def __init__(self) -> None:
        self.values: dict[str, float] = defaultdict(float)
        self.sharing = 0

    def sample(self, cluster: Cluster) -> None:
        """Look at the executors once."""
        for executor in cluster.executors():
            self._note("executor's JVM, RSS", executor.memory_info().rss)
        matrix = []
        for worker in cluster.python_workers():
            memory = worker.memory_full_info()
            maps = [part for part in worker.memory_maps(grouped=False) if part.path.endswith("vectors.npy")]
            if maps:
                self._note("Python worker, RSS", memory.rss)
                # Pages of the matrix count as private as long as no other worker has looked at them.
                mapped_alone = sum(part.private_clean + part.private_dirty for part in maps)
                self._note("Python worker, private (USS) but for the matrix", memory.uss - mapped_alone)
                self._note("the matrix in it, copied", sum(part.anonymous for part in maps))
                matrix.append(sum(part.pss for part in maps))
        if matrix:
            self.sharing = max(self.sharing, len(matrix))
            self._note("the matrix, PSS, sum over workers", sum(matrix))

    def _note(self, name: str, value: float) -> None:
        self.values[name] = max(self.values[name], value / 1e6)


def measure(folder: Path, words: int, dimension: int, length: int) -> Peaks:
    """Sanitize a table of ``length`` words and watch the executors."""
    embedding = bundle(folder, words, dimension)
    source = table(folder / "table", words, length)
    peaks = Peaks()
    options = f"--input {source} --output {folder}/out --embedding {embedding} --text text --id id --trust-id"
    conf = {"spark.executor.cores": "1", "spark.executor.memory": "1g"}
    with Cluster(folder / "cluster", workers=1, cores=2, memory="2g") as cluster:
        job = cluster.start(
            *("--properties-file", ROOT / "conf" / "spark-defaults.conf", ROOT / "jobs" / "privatize.py"),
            *options.split(),
            *["--mechanism", "laplace", "--epsilon", "15"],
            conf=conf,
            stdout=subprocess.DEVNULL,
        )
        while job.poll() is None:
            try:
                peaks.sample(cluster)
            except psutil.Error:
                continue  # one ended meanwhile
            time.sleep(SECONDS)
        if job.returncode:
            raise click.ClickException(f"the job failed with exit code {job.returncode}")
    return peaks


@section
@click.option("--words", type=int, multiple=True, default=(33_860, 400_000), help="vocabulary; repeatable")
@click.option("--dimension", default=300, show_default=True)
@click.option("--length", default=20_000, show_default=True, help="words of the table")
def main(given: Given, words: tuple[int, ...], dimension: int, length: int) -> dict[str, Any]:
    """Measure executors' peaks for each size of the vocabulary."""
    if given.small:
        words, dimension, length = (500,), 10, 400
    columns: dict[str, dict[str, float]] = {}
    for size in words:
        with tempfile.TemporaryDirectory(prefix="dptext-memory-") as folder:
            peaks = measure(Path(folder), size, dimension, length)
        columns[f"{size:,} x {dimension}"] = {
            "the matrix": size * dimension * 4 / 1e6,
            **peaks.values,
            "workers that map it at once": peaks.sharing,
        }
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [{"peak, MB": name} | {size: own.get(name) for size, own in columns.items()} for name in names]
    return {
        "title": "Memory of executors",
        "rows": rows,
        "notes": [
            "A standalone cluster of one host, two executors of one core, each with one Python worker."
        ],
    }


if __name__ == "__main__":
    main()
