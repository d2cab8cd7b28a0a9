"""Run large and odd tables through jobs, and watch memory, files and the output.

    scripts/soak

Each case runs ``dptext privatize`` in processes of its own. Every second the memory, threads and
temporary files of all of them are counted. A case fails if one kind of process grows while it is at
work, if anything is left in the temporary folder, or if the output is not what it must be.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import LocalFiles
from scripts.cluster.left_behind import SETTINGS
from tests.helpers.cluster import Cluster, Wrong, environment, expect, wait_for, write_key

ROOT: Final = Path(__file__).resolve().parents[2]
PRIVATIZE: Final = ROOT / "jobs" / "privatize.py"
EXPONENTIAL: Final = ("--mechanism", "exponential", "--epsilon", "3")
LAPLACE: Final = ("--mechanism", "laplace", "--epsilon", "6")
EVERY: Final = 1.0  # seconds between two looks at the processes
AT_WORK: Final = 0.5  # of the most memory: from when a process has so much, it is at work
GROWTH: Final = 0.25  # of memory between the first and the last quarter of that time
LEAST_LOOKS: Final = 60  # at a process that is at work: in a shorter run workers come and go
NOISE_MB: Final = 150.0  # growth below it is none
# Java fills its heap before it looks for what may go: what is outside of the heap is bounded.
HEAP_MB: Final = 1024
OUTSIDE_MB: Final = 512
LONG_HEAP_MB: Final = 2048  # a page of Parquet's may have 1,024 texts, of half a MB
ROWS_AT_ONCE: Final = 200_000
MEMORY_OF: Final = ("driver", "java", "workers")

Case = Callable[["Soak"], None]
CASES: Final[dict[str, Case]] = {}


def case(run: Case) -> Case:
    """Register a case under its function's name."""
    CASES[run.__name__] = run
    return run


@dataclass(kw_only=True)
class Watched:
    """A run of ``privatize`` that has ended, with what its processes took over time."""

    name: str
    code: int
    log: str
    seconds: float
    processor: float  # seconds of all processes together
    times: list[float] = field(default_factory=list)
    memory: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # MB
    threads: list[int] = field(default_factory=list)
    files: list[int] = field(default_factory=list)  # in the temporary folder
    words: int = 0

    def growth(self, kind: str) -> float:
        """Return by how many MB the memory of a kind of process grew while it was at work."""
        values = np.array(self.memory[kind])
        at_work = np.flatnonzero(values >= AT_WORK * values.max(initial=1.0))
        if len(at_work) < LEAST_LOOKS:
            return 0.0
        values = values[at_work[0] : at_work[-1] + 1]
        quarter = len(values) // 4
        return float(np.median(values[-quarter:]) - np.median(values[:quarter]))

    def check_flat(self, heap_mb: int = HEAP_MB) -> None:
        """Check that driver and workers did not grow while at work, and Java within its heap."""
        java = max(self.memory["java"] or [0.0])
        expect(java <= heap_mb + OUTSIDE_MB, f"{self.name}: java has {java:.0f} MB")
        for kind in ("driver", "workers"):
            settled = float(np.median(self.memory[kind] or [0.0]))
            limit = max(NOISE_MB, GROWTH * settled)
            grown = self.growth(kind)
            expect(grown <= limit, f"{self.name}: {kind} grew by {grown:.0f} MB of {settled:.0f}")


class Soak:
    """A folder with a bundle and a key, in which cases make tables and run jobs."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.folder = folder
        self.scale = scale
        self.runs: list[Watched] = []
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        build_embedding(GLOVE, folder / "bundle")
        write_key(folder / "release.key")
        queries = pq.read_table(QUERIES, columns=["text"])["text"]
        self.texts = pa.array(queries.to_pylist())
        lengths = pc.list_value_length(pc.utf8_split_whitespace(self.texts))
        self.words_of_row = float(np.mean(lengths.to_numpy()))

    def rows(self, words: float) -> int:
        """Return how many rows have so many words, at this scale."""
        return max(int(words * self.scale / self.words_of_row), 50)

    def table(self, name: str, rows: int, files: int = 8, first: int = 0) -> Path:
        """Write a table of the demo's queries, again and again."""
        table = self.folder / name
        table.mkdir(exist_ok=True)
        for number, ids in enumerate(np.array_split(np.arange(first, first + rows), files)):
            with pq.ParquetWriter(table / f"{first}-{number}.parquet", SCHEMA) as writer:
                for start in range(0, len(ids), ROWS_AT_ONCE):
                    writer.write_table(self._rows(ids[start : start + ROWS_AT_ONCE]))
        return table

    def _rows(self, ids: Any) -> pa.Table:
        texts = self.texts.take(pa.array(ids % len(self.texts)))
        return pa.table({"id": pa.array(ids), "text": texts}, schema=SCHEMA)

    def options(self, table: Path, output: str, *options: str | Path) -> list[str]:
        """Return the arguments of a release."""
        named = {
            "--input": table,
            "--output": self.folder / output,
            "--embedding": self.folder / "bundle",
            "--key-file": self.folder / "release.key",
            "--name": "soak",
            "--text": "text",
            "--id": "id",
            "--keep": "id",
        }
        pairs = [str(part) for pair in named.items() for part in pair]
        return [*pairs, *map(str, options)]

    def start(
        self, arguments: list[str], log: Path, heap_mb: int = HEAP_MB
    ) -> subprocess.Popen[Any]:
        """Start ``dptext privatize``."""
        heap = ["--spark-conf", f"spark.driver.memory={heap_mb}m"]
        variables = environment() | {"TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "dptext_spark", "privatize", *arguments, *heap],
                cwd=self.folder,
                env=variables,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def privatize(
        self, table: Path, output: str, *options: str | Path, heap_mb: int = HEAP_MB
    ) -> Watched:
        """Release a table, and watch the processes until the end."""
        log = self.folder / f"{output}.log"
        started = time.monotonic()
        process = self.start(self.options(table, output, *options), log, heap_mb)
        run = Watched(name=output, code=0, log="", seconds=0.0, processor=0.0)
        self.runs.append(run)
        processor: dict[int, float] = {}
        while process.poll() is None:
            self._look(process.pid, run, processor, started)
            time.sleep(EVERY)
        run.code = process.returncode
        run.log = log.read_text(errors="replace")
        run.seconds = time.monotonic() - started
        run.processor = sum(processor.values())
        expect(run.code == 0, f"{output}: exit code {run.code}:\n{run.log}")
        run.check_flat(heap_mb)
        self.check_nothing_left()
        return run

    def _look(self, pid: int, run: Watched, processor: dict[int, float], started: float) -> None:
        """Count what the processes of a run have now."""
        memory = dict.fromkeys(MEMORY_OF, 0.0)
        threads = 0
        for process in of_tree(pid):
            with suppress(psutil.Error):
                kind = "workers"
                if process.pid == pid:
                    kind = "driver"
                elif "java" in process.name():
                    kind = "java"
                memory[kind] += process.memory_full_info().uss / 2**20
                threads += process.num_threads()
                times = process.cpu_times()
                processor[process.pid] = times.user + times.system
        run.times.append(time.monotonic() - started)
        for kind, megabytes in memory.items():
            run.memory[kind].append(megabytes)
        run.threads.append(threads)
        run.files.append(sum(1 for _ in self.temporary.rglob("*")))

    def check_nothing_left(self) -> None:
        """Check that the temporary folder has the shared copy of the bundle and nothing else."""
        names = {path.name for path in self.temporary.iterdir() if "hsperfdata" not in path.name}
        leftovers = names - {f"dptext-spark-{os.getuid()}"}
        expect(not leftovers, f"left in the temporary folder: {leftovers}")

    def output(self, name: str) -> pa.Table:
        """Read an output by id."""
        released = ds.dataset(self.folder / name, format="parquet").to_table()
        return released.sort_by("id")

    def check_complete(self, name: str, rows: int, *, words: bool = True) -> None:
        """Check that each row is there once, and count the words of the run."""
        released = self.output(name)
        ids = released["id"].to_numpy()
        expect(np.array_equal(ids, np.arange(rows)), f"{name}: rows are lost or doubled")
        if words and self.runs:
            counts = pc.list_value_length(pc.utf8_split_whitespace(released["text"]))
            self.runs[-1].words = int(pc.sum(counts).as_py())


SCHEMA: Final = pa.schema([("id", pa.int64()), ("text", pa.string())])


def of_tree(pid: int) -> Iterator[psutil.Process]:
    """Yield a process and all below it."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        yield process
        yield from process.children(recursive=True)


@case
def exponential(soak: Soak) -> None:
    """100 million words by the exponential mechanism."""
    rows = soak.rows(1e8)
    soak.privatize(soak.table("exponential-in", rows, files=64), "exponential", *EXPONENTIAL)
    soak.check_complete("exponential", rows)


@case
def laplace(soak: Soak) -> None:
    """10 million words by Laplace noise, with the codes of the exact search."""
    rows = soak.rows(1e7)
    soak.privatize(soak.table("laplace-in", rows, files=16), "laplace", *LAPLACE)
    soak.check_complete("laplace", rows)


@case
def many_files(soak: Soak) -> None:
    """10,000 files of a few rows each."""
    files = max(int(10_000 * soak.scale), 20)
    rows = 5 * files
    soak.privatize(soak.table("files-in", rows, files=files), "files", *EXPONENTIAL)
    soak.check_complete("files", rows)


@case
def uneven(soak: Soak) -> None:
    """One file with nine tenths of the rows in one row group, and a row of a million words."""
    rows = soak.rows(1e7)
    table = soak.table("uneven-in", rows // 10, files=9)
    ids = np.arange(rows // 10, rows)
    texts = soak.texts.take(pa.array(ids % len(soak.texts))).to_pylist()
    longest = max(int(1e6 * soak.scale), 1000)
    texts[0] = " ".join(["play some jazz in boston"] * (longest // 5))
    most_rows = pa.table({"id": ids, "text": texts}, schema=SCHEMA)
    pq.write_table(most_rows, table / "most.parquet", row_group_size=len(ids))
    soak.privatize(table, "uneven", *EXPONENTIAL)
    soak.check_complete("uneven", rows)


@case
def long_texts(soak: Soak) -> None:
    """A row group of 2 GB: texts of half a MB, one in 20 of 100,000 words, others of long words."""
    letters = max(int(5e5 * soak.scale), 5000)
    text = " ".join(["play some jazz in boston"] * (letters // 25))
    long_words = " ".join(["x" * 999] * (letters // 1000))
    rows = max(int(2**31 * soak.scale / letters), 20)
    table = soak.folder / "long-in"
    table.mkdir()
    twenty = [pa.array([long_words])] * 19 + [pa.array([text])]
    texts = pa.chunked_array([twenty[row % 20] for row in range(rows)])
    row_group = pa.table({"id": np.arange(rows), "text": texts}, schema=SCHEMA)
    pq.write_table(row_group, table / "0.parquet", row_group_size=rows, use_dictionary=False)
    soak.privatize(table, "long", *EXPONENTIAL, heap_mb=LONG_HEAP_MB)
    soak.check_complete("long", rows)


@case
def batches(soak: Soak) -> None:
    """Ten batches of --incremental with late files: the words of one run; two runs at once."""
    batch = max(soak.rows(1e6), 100)
    table = soak.folder / "batches-in"
    checkpoint = ("--trust-id", "--incremental", soak.folder / "checkpoint")
    for number in range(10):
        soak.table("batches-in", batch, files=2, first=number * batch)
        if number:  # a file that comes late looks older than what was read
            late_file = table / f"{number * batch}-1.parquet"
            os.utime(late_file, (0, 0))
        soak.privatize(table, "batches", *EXPONENTIAL, *checkpoint)
    soak.check_complete("batches", 10 * batch, words=False)
    soak.privatize(table, "at-once", *EXPONENTIAL)
    expect(soak.output("batches").equals(soak.output("at-once")), "other words than of one run")
    soak.table("batches-in", batch, files=2, first=10 * batch)
    arguments = soak.options(table, "batches", *EXPONENTIAL, *checkpoint)
    logs = [soak.folder / f"both-{number}.log" for number in range(2)]
    processes = [soak.start(arguments, log) for log in logs]
    codes = [process.wait() for process in processes]
    expect(0 in codes, "both runs at once failed:\n" + "\n".join(log.read_text() for log in logs))
    for code, log in zip(codes, logs, strict=True):
        text = log.read_text()
        expect(code == 0 or "another run" in text.lower(), f"refused without its name:\n{text}")
    soak.check_complete("batches", 11 * batch, words=False)


@case
def killed_driver(soak: Soak) -> None:
    """The driver is killed after the ledger's reservation; the same release again costs nothing."""
    rows = soak.rows(1e6)
    table = soak.table("killed-in", rows)
    ledger = soak.folder / "ledger"
    arguments = soak.options(table, "killed", *EXPONENTIAL, "--ledger", ledger)
    process = soak.start(arguments, soak.folder / "killed.log")

    def entries() -> list[Any]:
        """Read the ledger's entries."""
        with suppress(Exception):
            return list(LedgerFolder(str(ledger), LocalFiles()).read().entries)
        return []

    wait_for(lambda: entries() or process.poll() is not None, "no reservation")
    expect(process.poll() is None, "the run ended before the fault")
    for member in of_tree(process.pid):
        with suppress(psutil.Error):
            member.send_signal(signal.SIGKILL)
    process.wait()
    shutil.rmtree(soak.temporary)
    soak.temporary.mkdir()
    expect(not (soak.folder / "killed").exists(), "a killed run left an output")
    soak.privatize(table, "killed", *EXPONENTIAL, "--ledger", ledger)
    soak.check_complete("killed", rows)
    (first, second) = entries()
    expect((first.state, second.state) == ("unfinished", "committed"), "the ledger's states")
    expect(second.total == 3, f"both runs of one release cost {second.total}, not its epsilon")
    soak.privatize(table, "undisturbed", *EXPONENTIAL)
    expect(soak.output("killed").equals(soak.output("undisturbed")), "other words")


@case
def cluster(soak: Soak) -> None:
    """Speculation and dynamic allocation on a standalone cluster: the words of a local run."""
    rows = soak.rows(1e6)
    table = soak.table("cluster-in", rows, files=24)
    soak.privatize(table, "local", *EXPONENTIAL)
    settings = {
        **{name: value for name, value in SETTINGS.items() if "eventLog" not in name},
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
    }
    with Cluster(soak.folder / "cluster") as standalone:
        arguments = soak.options(table, "on-cluster", *EXPONENTIAL)
        log = soak.folder / "cluster.log"
        with log.open("wb") as file:
            process = standalone.start(
                PRIVATIZE, *arguments, conf=settings, stdout=file, stderr=subprocess.STDOUT
            )
            code = process.wait()
    expect(code == 0, f"exit code {code}:\n{log.read_text(errors='replace')}")
    expect(
        soak.output("on-cluster").equals(soak.output("local")), "other words than of a local run"
    )


def plot(runs: list[Watched], file: Path) -> None:
    """Draw the memory of each kind of process over time, a panel for each run."""
    figure = Figure(figsize=(9, 2.2 * len(runs)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(runs), squeeze=False)[:, 0]
    for panel, run in zip(panels, runs, strict=True):
        for kind, megabytes in run.memory.items():
            panel.plot(run.times, megabytes, label=kind)
        panel.set_title(run.name, loc="left", fontsize=9)
        panel.set_ylabel("MB")
        panel.set_ylim(bottom=0)
    panels[0].legend(loc="upper right", fontsize=8)
    panels[-1].set_xlabel("seconds")
    figure.savefig(file)


def table_of(runs: list[Watched]) -> str:
    """Write what runs took as a table."""
    lines = [
        "| run | words | s | processor s | driver MB | Java MB | workers MB | threads | files |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        peaks = [f"{max(run.memory[kind] or [0.0]):.0f}" for kind in MEMORY_OF]
        cells = [run.name, f"{run.words:,}", f"{run.seconds:.0f}", f"{run.processor:.0f}", *peaks]
        cells += [str(max(run.threads or [0])), str(max(run.files or [0]))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextmanager
def working_folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder for tables and outputs, and remove it."""
    with tempfile.TemporaryDirectory(prefix="dptext-soak-", dir=parent) as name:
        yield Path(name)


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*CASES]))
@click.option("--scale", default=1.0, show_default=True, help="of the number of words and files")
@click.option("--output", type=click.Path(path_type=Path), help="folder for plot and table")
@click.option("--folder", type=click.Path(path_type=Path), help="where tables are made")
def main(names: tuple[str, ...], scale: float, output: Path | None, folder: Path | None) -> None:
    faults = []
    runs: list[Watched] = []
    for name in names or CASES:
        with working_folder(folder) as here:
            soak = Soak(here, scale)
            try:
                CASES[name](soak)
                click.echo(f"{name}: as it should be", err=True)
            except (Wrong, TimeoutError) as fault:
                faults.append(name)
                click.echo(f"{name}: {fault}", err=True)
            runs += soak.runs
    if output is not None and runs:
        output.mkdir(parents=True, exist_ok=True)
        plot(runs, output / "soak.png")
        (output / "soak.md").write_text(f"{table_of(runs)}\n")
    click.echo(table_of(runs))
    click.echo(f"{len(faults)} faults", err=True)
    if faults:
        sys.exit(1)


if __name__ == "__main__":
    main()
