"""What benchmarks share: their command, bundles, texts, turns, and a look at what a job's processes use."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
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
from dptext_spark.embedding.lists import made, make_lists
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from scripts.experiments.shared import staying

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = {"glove-300d": "glove_840b_300d_33k", "glove-50d": "glove_6b_50d"}
"""Bundles, and the folders of the data that they are built from."""

LENGTH: Final = 100
"""Tokens of a row."""

MOST: Final = 2_000 * LENGTH
"""Words of a turn."""


def sanitizer(embedding: Embedding, configured: Mechanism, search: Search | None = None) -> Sanitizer:
    """Open a release under a fresh key."""
    return Sanitizer.open(Release.open(embedding=embedding, mechanism=configured, search=search))


def seconds(work: Callable[[], object]) -> float:
    """Processor time of some work."""
    start = time.process_time()
    work()
    return time.process_time() - start


# The command of a section


@dataclass(frozen=True, kw_only=True)
class Given:
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
        """Open a bundle of ``SOURCES``; build it, and an index where one is wanted, if it is not there."""
        folder = self.bundles / name
        if not folder.exists():
            self.bundles.mkdir(parents=True, exist_ok=True)
            build_embedding(self.data / SOURCES[name] / "vectors.npy", folder)
        embedding = Embedding.open(folder, verify=False)
        if lists and not made(embedding):
            make_lists(embedding)
        return embedding


def section(measure: Callable[..., dict[str, Any]]) -> click.Command:
    """Make a command of a function that measures: it takes a :class:`Given` and options of its own."""

    @click.command()
    @click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
    @click.option("--bundles", type=click.Path(path_type=Path), help="Keep bundles there; else nowhere.")
    @click.option("--small", is_flag=True, help="Try it in seconds; the figures mean nothing.")
    @wraps(measure)
    def command(data: Path, bundles: Path | None, small: bool, **options: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="dptext-benchmark-") as folder:
            given = Given(data=data.resolve(), bundles=bundles or Path(folder), small=small)
            click.echo(json.dumps(measure(given, **options), indent=2))

    return command


def shape(embedding: Embedding) -> str:
    """Write how many words an embedding has, and how many dimensions."""
    return f"{embedding.releasable:,} x {embedding.dimension}"


# What processes use


class Use(threading.Thread):
    """Samples what a tree of processes uses, from outside: peaks of memory by role in MB, processor time.

    Where a job has all cores to itself, watching takes from it what it is measured by. To have the kernel
    count the pages of a process takes a tenth of a second, so that is done rarely.

    Attributes:
        peaks: ``JVM``, ``executor``, ``driver`` and ``worker`` (resident, or without mapped files), ``worker,
            private`` (without the matrix) and ``matrix`` (the proportional share of all processes together).
    """

    EVERY = 0.25
    RARELY = 10.0

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.peaks: dict[str, float] = defaultdict(float)
        self._root, self.stop = root, threading.Event()
        self._spent: dict[tuple[int, float], float] = {}

    @property
    def processor(self) -> float:
        """Seconds of all processes, less what each spent after its last sample."""
        return sum(self._spent.values())

    def run(self) -> None:
        due = time.monotonic() + 1.0
        while not self.stop.wait(self.EVERY):
            shares = time.monotonic() >= due
            due += self.RARELY * shares
            matrix, below = 0, []
            with suppress(psutil.Error):
                top = psutil.Process(self._root)
                below = [each for each in (top, *top.children(recursive=True)) if each.pid != os.getpid()]
            for process in below:
                with suppress(psutil.Error):  # it ended meanwhile
                    matrix += self._look(process, shares)
            self._peak("matrix", matrix)

    def _look(self, process: psutil.Process, shares: bool) -> int:
        """Note what a process uses; give the bytes of the matrix that it accounts for."""
        role = _role(process)
        with process.oneshot():
            times, memory, began = process.cpu_times(), process.memory_info(), process.create_time()
        self._spent[process.pid, began] = times.user + times.system
        self._peak(role, memory.rss)
        self._peak(f"{role}, without mapped files", memory.rss - memory.shared)
        if not shares or role not in ("driver", "worker"):
            return 0
        maps = [part for part in process.memory_maps(grouped=False) if part.path.endswith("vectors.npy")]
        if maps and role == "worker":
            # Pages of the matrix count as private as long as no other worker has looked at them.
            alone = sum(part.private_clean + part.private_dirty for part in maps)
            self._peak("worker, private", process.memory_full_info().uss - alone)
        return sum(part.pss for part in maps)

    def _peak(self, name: str, value: float) -> None:
        if value > 0:
            self.peaks[name] = max(self.peaks[name], value / 1e6)


def _role(process: psutil.Process) -> str:
    command = process.cmdline()
    if process.name() == "java":
        return "executor" if "CoarseGrainedExecutorBackend" in " ".join(command) else "JVM"
    if "pyspark.daemon" not in command:
        return "driver"
    parent = process.parent()
    return "worker" if parent is not None and "pyspark.daemon" in parent.cmdline() else "worker daemon"


def watch(job: subprocess.Popen[Any], root: int | None = None) -> tuple[float, Use]:
    """Wait for a job that was just started; give its seconds, and what it, or all below ``root``, used."""
    start, use = time.perf_counter(), Use(root or job.pid)
    use.start()
    if job.wait():
        raise click.ClickException(f"the job failed with exit code {job.returncode}")
    seconds = time.perf_counter() - start
    use.stop.set()
    use.join()
    return seconds, use


def run_job(command: Sequence[str]) -> tuple[float, Use]:
    """Run a job; give its seconds, and what it used."""
    return watch(subprocess.Popen(command, stdout=subprocess.DEVNULL))


# One thread, by turns


class Texts:
    """Token lists of words by Zipf's law: Zipf-Mandelbrot over the vocabulary's order."""

    def __init__(self, embedding: Embedding) -> None:
        self.words = embedding.words
        self.weights = np.cumsum(1.0 / (np.arange(len(embedding.words)) + 2.7))
        self.rng = np.random.default_rng(0)

    def ids(self, count: int) -> NDArray[np.int64]:
        """Draw word ids."""
        return np.searchsorted(self.weights, self.rng.random(count) * self.weights[-1])

    def sanitized(self, own: Sanitizer, count: int, times: int = 1) -> tuple[float, int]:
        """Draw rows of ``LENGTH`` words and sanitize them: least processor time, and words unchanged."""
        offsets = np.arange(0, count + 1, LENGTH, dtype=np.int32)
        rows = pa.ListArray.from_arrays(pa.array(offsets), self.words.take(pa.array(self.ids(count))))
        ids, best = pa.array(range(len(rows))), np.inf
        for _ in range(times):
            start = time.process_time()
            counts = own.sanitize(rows, ids, column="tokens").counts
            best = min(best, time.process_time() - start)
        return best, int(counts.unchanged.sum())


class Turns:
    """Sanitizes texts whose words follow Zipf's law, new ones every turn.

    Attributes:
        count: Words of a turn, as many as take about so many seconds of the processor.
        words, unchanged: Sanitized in all turns, and those of them that stayed.
    """

    def __init__(self, sanitizer: Sanitizer, *, seconds: float) -> None:
        self._sanitizer, self._texts = sanitizer, Texts(sanitizer.embedding)
        self.words = self.unchanged = 0
        self.count = LENGTH
        self.rate()  # pays for what is made once
        while self.count < (wanted := self.rate() * seconds) / 4 and self.count < MOST:
            self.count *= 2  # many, for a search in lists is slow for few
        self.count = LENGTH * max(1, round(min(wanted, MOST) / LENGTH))

    def rate(self) -> float:
        """Words a second of processor time, over one turn."""
        taken, unchanged = self._texts.sanitized(self._sanitizer, self.count)
        self.words += self.count
        self.unchanged += unchanged
        return self.count / taken

    def multiple(self, reference: Turns) -> float:
        """Take two turns, each between two of the reference: the mean multiple of its rate."""
        rates = [reference.rate(), self.rate(), reference.rate(), self.rate(), reference.rate()]
        return rates[1] / (rates[0] + rates[2]) + rates[3] / (rates[2] + rates[4])


def epsilons(embedding: Embedding, stays: Sequence[float]) -> NDArray[np.float64]:
    """Find the epsilons of ``laplace`` at which words stay that often on average, from a grid of 24."""
    words = np.linspace(0, len(embedding.words) - 1, 48, dtype=np.int64)
    norm = float(np.sqrt(np.square(embedding.vectors[words], dtype=np.float64).sum(axis=1)).mean())
    grid = np.geomspace(0.1, 3.0, 24) * embedding.dimension / norm
    laplace = [mechanism("laplace", epsilon=e) for e in grid]
    return np.interp(stays, staying(laplace, embedding, words, runs=100)["n_w"].mean(axis=1), grid)
