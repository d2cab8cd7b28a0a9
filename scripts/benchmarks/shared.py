"""What benchmarks share: their command, bundles, texts, turns, and what a job's processes use."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import psutil
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import list_counts, make_lists
from dptext_spark.mechanisms import Mechanism
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from scripts.experiments.shared import by_epsilon, staying

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = {"glove-300d": "glove_840b_300d_33k", "glove-50d": "glove_6b_50d"}
"""Bundles, and the folders of the data that they are built from."""

LENGTH: Final = 100
"""Tokens of a row."""

MOST: Final = 2_000 * LENGTH
"""Words of a turn."""

EVERY: Final = 0.25
RARELY: Final = 10.0
"""Seconds between looks at a job's processes, and at their pages."""


def sanitizer(
    embedding: Embedding, configured: Mechanism, search: Search | None = None
) -> Sanitizer:
    """Open a release under a fresh key."""
    return Sanitizer.open(Release.open(embedding=embedding, mechanism=configured, search=search))


def seconds(work: Callable[[], object]) -> float:
    """Measure the processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


# The command of a section


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a section measures with.

    Attributes:
        data: Folder of the data.
        bundles: Folder of bundles, each built once.
        small: Whether the section is only tried: in seconds, on whatever size the data has.
    """

    data: Path
    bundles: Path
    small: bool

    def bundle(self, name: str, *, lists: bool = False) -> Embedding:
        """Open a bundle of ``SOURCES``; build it, and an index for lists, if it is not there."""
        folder = self.bundles / name
        if not folder.exists():
            self.bundles.mkdir(parents=True, exist_ok=True)
            build_embedding(self.data / SOURCES[name] / "vectors.npy", folder)
        embedding = Embedding.open(folder, verify=False)
        if lists and not list_counts(embedding):
            make_lists(embedding)
        return embedding


def section(measure: Callable[..., dict[str, Any]]) -> click.Command:
    """Return the command of a function that measures by a :class:`Setup` and by own options."""

    @click.command()
    @click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
    @click.option(
        "--bundles", type=click.Path(path_type=Path), help="Keep bundles there; else nowhere."
    )
    @click.option("--small", is_flag=True, help="Try it in seconds; the figures mean nothing.")
    @wraps(measure)
    def command(data: Path, bundles: Path | None, small: bool, **options: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="dptext-benchmark-") as folder:
            setup = Setup(data=data.resolve(), bundles=bundles or Path(folder), small=small)
            click.echo(json.dumps(measure(setup, **options), indent=2))

    return command


def shape(embedding: Embedding) -> str:
    """Return how large an embedding is."""
    return f"{embedding.releasable:,} x {embedding.dimension}"


# What processes use


@dataclass
class Use:
    """What a job took: its seconds, those of processors, and peaks of memory in MB.

    Peaks are of an ``executor`` (its JVM), a ``worker``, or else a ``driver``, and of each
    ``without mapped files``; of a ``worker, private`` without the matrix; and of the ``matrix``, in
    all processes together.
    """

    seconds: float
    # By process; what it spent after its last sample is missing.
    spent: dict[tuple[int, float], float]
    peaks: dict[str, float]


def watch(job: subprocess.Popen[Any], root: int | None = None) -> Use:
    """Wait for a job that was just started, and measure what it, or all below ``root``, uses.

    Where a job has all cores to itself, watching takes from it what it is measured by. To have the
    kernel count the pages of a process takes a tenth of a second, so that is done rarely.
    """
    start = time.perf_counter()
    use = Use(0.0, {}, defaultdict(float))
    due = start + 1.0
    while True:
        with suppress(subprocess.TimeoutExpired):
            if job.wait(EVERY):
                raise click.ClickException(f"the job failed with exit code {job.returncode}")
            use.seconds = time.perf_counter() - start
            return use
        with_pages = time.perf_counter() >= due
        if with_pages:
            due += RARELY
        processes = []
        with suppress(psutil.Error):
            top = psutil.Process(root or job.pid)
            processes = [top, *top.children(recursive=True)]
        shares = 0
        for process in processes:
            with suppress(psutil.Error):  # it ended meanwhile
                if process.pid != os.getpid():
                    shares += _look(process, use, with_pages)
        _peak(use, "matrix", shares)


def _look(process: psutil.Process, use: Use, with_pages: bool) -> int:
    """Note what a process uses; return a worker's bytes of the matrix, if pages are counted."""
    role = _role(process)
    with process.oneshot():
        times = process.cpu_times()
        memory = process.memory_info()
        began = process.create_time()
    use.spent[process.pid, began] = times.user + times.system
    _peak(use, role, memory.rss)
    _peak(use, f"{role}, without mapped files", memory.rss - memory.shared)
    if not with_pages or role != "worker":
        return 0
    share = 0
    alone = 0
    maps = 0
    for part in process.memory_maps(grouped=False):
        if part.path.endswith("vectors.npy"):
            maps += 1
            with suppress(OSError):
                _peak(use, "bundle", _size_of(Path(part.path).parent))
            share += part.pss
            alone += part.private_clean + part.private_dirty
    if maps:
        # Pages of the matrix count as private as long as no other worker has looked at them.
        _peak(use, "worker, private", process.memory_full_info().uss - alone)
    return share


def _size_of(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _role(process: psutil.Process) -> str:
    """Return what a process is in a job."""
    command = process.cmdline()
    parent = process.parent()
    if any("CoarseGrainedExecutorBackend" in part for part in command):
        return "executor"
    if parent is not None and "pyspark.daemon" in command and "pyspark.daemon" in parent.cmdline():
        return "worker"
    return "driver"


def _peak(use: Use, name: str, value: float) -> None:
    """Note a number of bytes that may be the most so far."""
    use.peaks[name] = max(use.peaks[name], value / 1e6)


def run_job(command: Sequence[str]) -> Use:
    """Run a command, and measure what it uses."""
    return watch(subprocess.Popen(command, stdout=subprocess.DEVNULL))


# One thread, by turns


class Texts:
    """Token lists of words by Zipf's law: Zipf-Mandelbrot over the vocabulary's order."""

    def __init__(self, embedding: Embedding) -> None:
        self.words = embedding.words
        self.weights = np.cumsum(1.0 / (np.arange(len(embedding.words)) + 2.7))
        self.rng = np.random.default_rng(0)

    def ids(self, count: int) -> NDArray[np.int64]:
        """Draw words."""
        return np.searchsorted(self.weights, self.rng.random(count) * self.weights[-1])

    def sanitized(self, sanitizer: Sanitizer, count: int, times: int = 1) -> tuple[float, int]:
        """Sanitize drawn rows of ``LENGTH`` words: least processor time, and words unchanged."""
        offsets = np.arange(0, count + 1, LENGTH, dtype=np.int32)
        words = self.words.take(pa.array(self.ids(count)))
        rows = pa.ListArray.from_arrays(pa.array(offsets), words)
        ids = pa.array(range(len(rows)))
        best = np.inf
        for _ in range(times):
            start = time.process_time()
            counts = sanitizer.sanitize(rows, ids, column="tokens").counts
            best = min(best, time.process_time() - start)
        return best, int(counts.unchanged.sum())


class Turns:
    """Sanitizes texts whose words follow Zipf's law, new ones every turn.

    Attributes:
        count: Words of a turn, as many as take about so many seconds of the processor.
        words, unchanged: Sanitized in all turns, and those of them that stayed.
    """

    def __init__(self, sanitizer: Sanitizer, *, seconds: float) -> None:
        self._sanitizer = sanitizer
        self._texts = Texts(sanitizer.embedding)
        self.words = self.unchanged = 0
        self.count = LENGTH
        self.rate()  # pays for what is made once
        words = self.rate() * seconds
        while self.count < words / 4 and self.count < MOST:
            self.count *= 2  # many, for a search in lists is slow for few
            words = self.rate() * seconds
        self.count = LENGTH * max(1, round(min(words, MOST) / LENGTH))

    def rate(self) -> float:
        """Measure words a second of processor time, over one turn."""
        seconds, unchanged = self._texts.sanitized(self._sanitizer, self.count)
        self.words += self.count
        self.unchanged += unchanged
        return self.count / seconds

    def multiple(self, reference: Turns) -> float:
        """Measure two turns, each between two of the reference: the mean multiple of its rate."""
        rates = [reference.rate(), self.rate(), reference.rate(), self.rate(), reference.rate()]
        return rates[1] / (rates[0] + rates[2]) + rates[3] / (rates[2] + rates[4])


def epsilons(embedding: Embedding, stays: Sequence[float]) -> NDArray[np.float64]:
    """Compute the epsilons of ``laplace`` at which words stay that often on average.

    They are interpolated on a grid of 24.
    """
    words = np.linspace(0, len(embedding.words) - 1, 48, dtype=np.int64)
    norm = float(np.sqrt(np.square(embedding.vectors[words], dtype=np.float64).sum(axis=1)).mean())
    grid = np.geomspace(0.1, 3.0, 24) * embedding.dimension / norm
    laplace = by_epsilon("laplace", grid)
    means = staying(laplace, embedding, words, runs=100)["n_w"].mean(axis=1)
    return np.interp(stays, means, grid)
