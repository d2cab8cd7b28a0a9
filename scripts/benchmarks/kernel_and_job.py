"""Measures the job against its search kernel and the machine's sgemm rate, all in one run.

    python -m scripts.benchmarks.kernel_and_job [--words 13900000] [--embedding small] [--epsilon 15]

Takes the novels and the 33,860 x 300 embedding, or with ``--embedding small`` the first 20,000 words of that
of 50 dimensions, from $DPTEXT_DATA (default ../shared/data). Rates are sums over one single-threaded process
per core, as Spark runs them; kernel and sgemm are measured before and after the job, and so is a bare Spark
session, whose time the job's rate is also given without. Prints JSON: report its ratios, the seconds belong
to the machine; ratios of processor time hardly depend on what else it does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dptext_spark import Embedding, Laplace, NoiseKey, build_embedding
from dptext_spark.noise import ReleaseNoise, to_uniform
from dptext_spark.privatizer import CHUNK
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.java import ensure_java
from dptext_spark.text.token_columns import Tokens
from scripts.benchmarks.job_start import BARE, pieces

DATA = Path(os.environ.get("DPTEXT_DATA", "../shared/data"))
CORES = len(os.sched_getaffinity(0))
SECONDS = 20.0
EMBEDDINGS = {"large": ("glove_840b_300d_33k", None), "small": ("glove_6b_50d", 20_000)}
"""Folders of the data, and how many words are taken."""


def paragraphs(target: Path, words: int | None) -> int:
    """Write the novels as one row a paragraph; give the number of words as the job counts them."""
    novels = pq.read_table(DATA / "novels_98" / "novels_98.parquet", columns=["text"])["text"]
    texts = pc.list_flatten(pc.split_pattern_regex(novels.combine_chunks(), r"\r?\n(?:\r?\n)+"))
    texts = texts.filter(pc.greater(pc.utf8_length(texts), 0)).cast(pa.string())
    counts = np.concatenate(
        [np.diff(Tokens.of(texts[i : i + 5000]).offsets) for i in range(0, len(texts), 5000)]
    )
    rows = len(texts) if words is None else int(np.searchsorted(np.cumsum(counts), words)) + 1
    target.mkdir()
    # Several files, so that every core has partitions to read.
    for part, start in enumerate(range(0, rows, -(-rows // (8 * CORES)))):
        stop = min(start + -(-rows // (8 * CORES)), rows)
        table = pa.table({"id": pa.array(range(start, stop)), "text": texts[start:stop]})
        pq.write_table(table, target / f"part-{part:03}.parquet")
    return int(counts[:rows].sum())


def _repeat(step: Callable[[], int], seconds: float, clock: Callable[[], float] = time.perf_counter) -> float:
    """Run a step for some seconds; give its work per second of a clock."""
    with threadpool_limits(1):
        step()
        done, start = 0, clock()
        while clock() - start < seconds:
            done += step()
        return done / (clock() - start)


def sgemm_flops(seconds: float) -> float:
    """Single-threaded sgemm rate of large square matrices, flop/s."""
    a, b = np.ones((2, 2048, 2048), dtype=np.float32)
    out = np.empty_like(a)

    def step() -> int:
        np.matmul(a, b, out=out)
        return 2 * 2048**3

    return _repeat(step, seconds)


def kernel_tokens(
    bundle: Path, epsilon: float, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Single-threaded rate of the search kernel alone, tokens/s, on points noisy as in the job."""
    embedding = Embedding.open(bundle, verify=False)
    points = _points(embedding, epsilon)
    search = Laplace(epsilon=epsilon).bind(embedding, ExactSearch.over(embedding)).search

    def step() -> int:
        search(points)
        return len(points)

    return _repeat(step, seconds, clock)


def noise_tokens(bundle: Path, epsilon: float, seconds: float) -> float:
    """Single-threaded rate of drawing noise alone, tokens/s: cipher, normals, radius; no search."""
    embedding = Embedding.open(bundle, verify=False)

    def step() -> int:
        return len(_points(embedding, epsilon))

    return _repeat(step, seconds)


def _points(embedding: Embedding, epsilon: float) -> np.ndarray[Any, Any]:
    mechanism = Laplace(epsilon=epsilon)
    law = mechanism.law(embedding.dimension)
    release = ReleaseNoise.of(NoiseKey(b"b" * 32), salt="", law=law, fingerprint=embedding.fingerprint)
    per_word = mechanism.uniforms_per_token(embedding.dimension)
    column = release.column("text", purpose="word", uint64s_per_token=per_word)
    words = np.empty((CHUNK, per_word), dtype=np.uint64)
    for row in range(0, CHUNK, 64):  # rows of 64 words: about a paragraph
        column.fill(words[row : row + 64], column.row_key(str(row).encode(), (b"",)), 0)
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    return bound.points(np.arange(CHUNK) * 13 % embedding.releasable, to_uniform(words)[:, :-1])


def on_all_cores(function: Callable[..., float], *arguments: Any) -> float:
    """Run a rate in one process per core at once; give the sum of the rates."""
    with ProcessPoolExecutor(CORES, mp_context=get_context("spawn")) as pool:
        return sum(future.result() for future in [pool.submit(function, *arguments) for _ in range(CORES)])


class Use(threading.Thread):
    """Samples what a tree of processes uses: memory, as peaks by role in MB, and processor time."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.root, self.stop = root, threading.Event()
        self.peaks: dict[str, float] = defaultdict(float)
        self._spent: dict[tuple[int, float], float] = {}

    @property
    def processor(self) -> float:
        """Processor time of all processes, seconds, less what each spent after its last sample."""
        return sum(self._spent.values())

    def run(self) -> None:
        while not self.stop.wait(2.0):
            root = psutil.Process(self.root)
            maps = [size for p in [root, *root.children(recursive=True)] if (size := self._sample(p))]
            if maps:
                self._peak(f"matrix PSS, sum over driver and workers, {len(maps)} in all", sum(maps))

    def _sample(self, process: psutil.Process) -> int:
        """Note a process's memory; give the bytes of the matrix that it accounts for, if it maps it."""
        try:
            role, memory, times = _role(process), process.memory_full_info(), process.cpu_times()
            parts = process.memory_maps(grouped=False) if role in ("driver", "worker") else []
        except psutil.Error:  # it ended meanwhile
            return 0
        self._spent[process.pid, process.create_time()] = times.user + times.system
        self._peak(f"{role} RSS", memory.rss)
        self._peak(f"{role} PSS", memory.pss)
        matrix = [part for part in parts if part.path.endswith("vectors.npy")]
        if role == "worker":
            self._peak("worker USS (private)", memory.uss)
            self._peak("matrix private per worker", sum(part.private_dirty for part in matrix))
        return sum(part.pss for part in matrix)

    def _peak(self, name: str, value: float) -> None:
        self.peaks[name] = max(self.peaks[name], value / 2**20)


def _role(process: psutil.Process) -> str:
    if process.name() == "java":
        return "JVM"
    command = process.cmdline()
    if "pyspark.daemon" not in command:
        return "driver"
    parent = process.parent()
    return "worker" if parent is not None and "pyspark.daemon" in parent.cmdline() else "worker daemon"


def run_job(command: list[str]) -> tuple[float, Use]:
    """Run a job; give its seconds, and what it used."""
    start = time.perf_counter()
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    use = Use(job.pid)
    use.start()
    if job.wait():
        sys.exit(f"the job failed with exit code {job.returncode}")
    seconds = time.perf_counter() - start
    use.stop.set()
    use.join()
    return seconds, use


def beside_the_job(bundle: Path, epsilon: float) -> tuple[float, ...]:
    """Rates of sgemm and kernel, the kernel's in processor time, and a bare session's seconds, also in it."""
    kernel = partial(on_all_cores, kernel_tokens, bundle, epsilon, SECONDS)
    session = pieces([])[BARE]
    return on_all_cores(sgemm_flops, SECONDS), kernel(), kernel(time.process_time) / CORES, *session


@click.command()
@click.option("--words", type=int, help="take about that many words; default: all of the novels")
@click.option("--embedding", "size", type=click.Choice([*EMBEDDINGS]), default="large", show_default=True)
@click.option("--epsilon", default=15.0)
@click.argument("options", nargs=-1)
def main(words: int | None, size: str, epsilon: float, options: tuple[str, ...]) -> None:
    """Measure the job against the search kernel under laplace noise, and that against sgemm.

    OPTIONS, after --, go to the job: -- --mechanism exponential --truncate 4. Default: --mechanism laplace.
    """
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    source, limit = EMBEDDINGS[size]
    with tempfile.TemporaryDirectory() as folder:
        bundle, table, output = (Path(folder, name) for name in ("bundle", "novels", "sanitized"))
        embedding = build_embedding(DATA / source / "vectors.npy", bundle, limit=limit)
        flops = 2 * embedding.releasable * embedding.dimension
        tokens = paragraphs(table, words)
        command = [
            *(sys.executable, "-m", "dptext_spark.cli", "privatize", "--input", str(table)),
            *("--output", str(output), "--embedding", str(bundle), "--text", "text", "--id", "id"),
            *("--epsilon", str(epsilon), *(options or ("--mechanism", "laplace"))),
        ]
        noise = on_all_cores(noise_tokens, bundle, epsilon, SECONDS)
        before = beside_the_job(bundle, epsilon)
        seconds, use = run_job(command)
        beside = [before, beside_the_job(bundle, epsilon)]
        report = json.loads(Path(f"{output}.private/report.json").read_text())["columns"]["text"]
        perturbed = report["replaced"] + report["unchanged"]
        matrix = embedding.vectors.nbytes / 2**20
    sgemm, kernel, of_processor, bare, bare_processor = np.mean(beside, axis=0).tolist()
    # Sampled while workers start, shares are of different moments: take those of all processes.
    shares = [v for k, v in sorted(use.peaks.items()) if k.startswith("matrix PSS, sum")]
    result = {
        "embedding": f"{embedding.releasable:,} x {embedding.dimension}",
        "cores": CORES,
        "words": tokens,
        "perturbed words": perturbed,
        "sgemm, Gflop/s, before and after": [round(each[0] / 1e9, 1) for each in beside],
        "kernel, tokens/s, before and after": [round(each[1]) for each in beside],
        "kernel, tokens in a second of processor time, before and after": [round(each[2]) for each in beside],
        "bare Spark session, seconds, before and after": [round(each[3], 1) for each in beside],
        "job, all words/s end to end with Spark's start": round(tokens / seconds),
        "job, perturbed words/s": round(perturbed / seconds),
        "job (perturbed words) / kernel": round(perturbed / seconds / kernel, 3),
        "job without a bare session's time / kernel": round(perturbed / (seconds - bare) / kernel, 3),
        "job / kernel, processor time": round(perturbed / use.processor / of_processor, 3),
        "job without a bare session's / kernel, processor time": round(
            perturbed / (use.processor - bare_processor) / of_processor, 3
        ),
        "kernel / sgemm": round(kernel * flops / sgemm, 3),
        "noise / whole token": round(perturbed / seconds / noise, 3),
        "matrix, MB": round(matrix, 1),
        "matrix PSS over all processes / matrix": round(shares[-1] / matrix, 3) if shares else None,
        "peak memory, MB": {name: round(value, 1) for name, value in sorted(use.peaks.items())},
    }
    click.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
