"""Break things under a job on a standalone cluster, and check what came of it.

    scripts/chaos

The outcome of each fault must be the complete output, byte for byte that of a run without it, or none and an
error in one line. A fault counts only if it is shown to have happened: in Spark's own event log, or in the
processes. After each one all files but the table's are searched for a word that is in every text of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from tests.helpers.canaries import found, text_forms
from tests.helpers.cluster import QUICK_JAVA, Cluster, Wrong, expect, wait_for
from tests.helpers.comparison import content, settled

ROOT: Final = Path(__file__).resolve().parents[2]
PRIVATIZE: Final = ROOT / "jobs" / "privatize.py"
SHUFFLED: Final = ROOT / "scripts" / "cluster" / "shuffled_release.py"
FILES: Final = 6
COPIES: Final = 12  # of the demo's queries in each file: some seconds, so that a fault finds the job at work
CANARY: Final = "qzcanaryword"  # in every text; unknown to the bundle
PATIENCE: Final = 1200.0
DISK: Final = "500k"

SETTINGS: Final = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    # One task for each file.
    "spark.sql.files.maxPartitionBytes": "8m",
    "spark.sql.files.openCostInBytes": "8m",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    # Nothing compressed: what is left behind is searched for the canary.
    "spark.eventLog.compress": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.broadcast.compress": "false",
}

_RELEASE: Final = (
    "--mechanism",
    "laplace",
    "--epsilon",
    "10",
    "--text",
    "text",
    "--id",
    "id",
    "--keep",
    "id",
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A submitted job.

    Attributes:
        process: spark-submit, which is the driver's JVM.
        folder: A folder of its own, with its log and Spark's event log.
        output: The table that it is to write.
    """

    process: subprocess.Popen[Any]
    folder: Path
    output: Path

    def hidden(self) -> list[Path]:
        """What lies beside the output under a hidden name."""
        return list(self.output.parent.glob(f".{self.output.name}.*"))

    def at_work(self) -> None:
        """Wait until a task's rows are written, and others' are not."""
        self.wait_for(lambda: [p for d in self.hidden() for p in d.glob("table/_temporary/0/task_*")])

    def started(self) -> None:
        """Wait until the driver has read its options and has its Spark session."""
        self.wait_for(lambda: any((self.folder / "events").iterdir()))

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds; the job must be at work until then."""

        def met() -> object:
            expect(self.process.poll() is None, f"the job ended before the fault:\n{self.log()}")
            return condition()

        try:
            wait_for(met, "too late", PATIENCE)
        except TimeoutError:
            raise Wrong(f"the job did not come to where the fault belongs:\n{self.log()}") from None

    def end(self) -> int:
        """Wait for the end; gives the exit code."""
        return int(self.process.wait(PATIENCE))

    def log(self) -> str:
        """What the driver printed."""
        return (self.folder / "driver.log").read_text(errors="replace")

    @cached_property
    def message(self) -> str:
        """The error in one line."""
        found = re.findall(r"^dptext privatize: (.+)$", self.log(), re.MULTILINE)
        expect(len(found) == 1, f"no error in one line, but:\n{self.log()}")
        return str(found[0])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Events of a kind in Spark's own log of the run, up to where it ends."""
        (file,) = (self.folder / "events").iterdir()
        lines = file.read_text(errors="replace").splitlines()
        return [event for line in lines if f'"SparkListener{kind}"' in line for event in [json.loads(line)]]

    def task_ends(self) -> Counter[str]:
        """How tasks ended, with Spark's names for it."""
        return Counter(event["Task End Reason"]["Reason"] for event in self.events("TaskEnd"))


@dataclass(kw_only=True)
class World:
    """A cluster, and the table, bundle and key of the jobs.

    Attributes:
        folder: Where all of it lies.
        cluster: Two hosts with an executor each.
    """

    folder: Path
    cluster: Cluster
    runs: int = 0

    @property
    def bundle(self) -> Path:
        """The embedding bundle, on the driver."""
        return self.folder / "bundle"

    @property
    def table(self) -> Path:
        """The private table."""
        return self.folder / "table"

    @property
    def disk(self) -> Path:
        """A small file system."""
        return self.folder / "disk"

    def fill(self) -> None:
        """Write table, bundle and key."""
        queries = pq.read_table(QUERIES, columns=["id", "text"])
        self.table.mkdir()
        for number in range(FILES):
            rows = pa.concat_tables([queries] * COPIES)
            first = number * len(rows)
            texts = [f"{text} {CANARY}" for text in rows["text"].to_pylist()]
            rows = pa.table({"id": range(first, first + len(rows)), "text": texts})
            pq.write_table(rows, self.table / f"{number}.parquet")
        build_embedding(GLOVE, self.bundle)
        key = self.folder / "release.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(32))
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "small", self.disk], check=True)

    def submit(
        self,
        output: str,
        *options: str,
        key: bool = True,
        script: Path = PRIVATIZE,
        **conf: str,
    ) -> Run:
        """Start a job; underscores in names of settings stand for dots."""
        self.runs += 1
        folder, goal = self.folder / f"run-{self.runs}", self.folder / output
        (folder / "events").mkdir(parents=True)
        settings = {**SETTINGS, "spark.eventLog.dir": f"file:{folder}/events"}
        settings |= {name.replace("_", "."): value for name, value in conf.items()}
        arguments: list[str | Path] = [script, *options]
        if script == PRIVATIZE:
            arguments += ["--input", self.table, "--embedding", self.bundle, *_RELEASE]
            arguments += ["--key-file", self.folder / "release.key", "--name", "faults"] if key else []
            arguments += ["--output"]
        with (folder / "driver.log").open("wb") as log:
            process = self.cluster.start(
                *arguments, goal, conf=settings, stdout=log, stderr=subprocess.STDOUT
            )
        return Run(process=process, folder=folder, output=goal)

    def check_left(self) -> None:
        """Check that no text of the table is anywhere but in the table."""
        places = [path for path in self.folder.iterdir() if path != self.table]
        hits = [str(file.relative_to(self.folder)) for file, _ in found(places, {"": text_forms(CANARY)})]
        expect(not hits, f"text was left behind in {hits}")

    def hosts_copies(self) -> list[Path]:
        """The copies of the bundle that hosts keep."""
        name = Embedding.open(self.bundle).fingerprint
        return [path for host in self.cluster.hosts for path in host.glob(f"tmp/dptext-spark-*/{name}")]

    @cached_property
    def undisturbed(self) -> tuple[dict[str, Any], Any]:
        """Bytes and counts of a run without a fault."""
        run = self.submit("undisturbed")
        expect(run.end() == 0, run.log())
        rows = pq.read_table(run.output)
        expect(sorted(rows["id"].to_pylist()) == list(range(rows.num_rows)), "rows are lost or doubled")
        expect(rows.num_rows == pq.read_table(self.table).num_rows, "rows are lost")
        return _bytes(run.output), _counts(run)

    def complete(self, run: Run) -> str:
        """Check that a run wrote what a run without a fault did, all of it, and left nothing else."""
        code = run.end()
        expect(code == 0, f"exit code {code}:\n{run.log()}")
        undisturbed, counts = self.undisturbed
        expect(_bytes(run.output) == undisturbed, "the output is not that of the undisturbed run")
        expect(_counts(run) == counts, f"the report counts {_counts(run)}, without the fault {counts}")
        expect(not run.hidden(), f"left behind: {run.hidden()}")
        return "complete: the undisturbed run's bytes and counts"

    def none(self, run: Run, message: str, *, output: bool = False) -> str:
        """Check that a run wrote nothing, left nothing and said why."""
        code = run.end()
        expect(code in (1, 2), f"exit code {code}:\n{run.log()}")
        expect(message in run.message, f"the message is: {run.message}")
        if not output:
            places = [
                run.output.with_name(f"{run.output.name}{e}") for e in ("", ".release.json", ".private")
            ]
            left = [place.name for place in places if place.exists()]
            expect(not left, f"there is an output, or a report: {left}")
            expect(not run.hidden(), f"left behind: {run.hidden()}")
        return f'none, exit code {code}: "{_short(run.message)}"'


def _bytes(output: Path) -> dict[str, Any]:
    return {name: content(file) for name, file in settled(output).items()}


def _counts(run: Run) -> Any:
    report = json.loads((run.output.with_name(f"{run.output.name}.private") / "report.json").read_text())
    return {"rows": report["rows"], **report["columns"]}


def _short(message: str) -> str:
    return re.sub(r"/\S*/", "", message)


def python_worker(world: World) -> tuple[str, str]:
    return _kill_one(world, "python-worker", world.cluster.python_workers, "ExceptionFailure", "task failed")


def executor(world: World) -> tuple[str, str]:
    return _kill_one(world, "executor", world.cluster.executors, "ExecutorLostFailure", "task lost with it")


def _kill_one(
    world: World, output: str, processes: Callable[[], list[psutil.Process]], reason: str, said: str
) -> tuple[str, str]:
    run = world.submit(output)
    run.at_work()
    victim = _busiest(processes())
    victim.kill()
    result = world.complete(run)
    ends = run.task_ends()
    expect(ends[reason] >= 1, f"tasks ended with {dict(ends)}")
    return f"process {_gone(victim)}; {ends[reason]} {said} and ran again", result


def _busiest(processes: list[psutil.Process]) -> psutil.Process:
    """The process that computes the most in a moment: not one that waits for its next task."""

    def seconds(process: psutil.Process) -> float:
        times = process.cpu_times()
        return float(times.user + times.system)

    before = [seconds(process) for process in processes]
    time.sleep(0.5)
    spent = [seconds(process) - start for process, start in zip(processes, before, strict=True)]
    return processes[spent.index(max(spent))]


def worker_daemon(world: World) -> tuple[str, str]:
    run = world.submit("worker-daemon")
    run.at_work()
    victim = world.cluster.workers[1]
    victim.kill()
    victim.wait()
    result = world.complete(run)
    removed = run.events("ExecutorRemoved")
    expect(removed, "no executor was removed")
    world.cluster.workers[1] = world.cluster.start_worker(2)
    return (
        f"process {victim.pid} is gone; {len(removed)} executor removed: {removed[0]['Removed Reason'][:40]}",
        result,
    )


def driver(world: World) -> tuple[str, str]:
    """Kill all of it at once, as a host that goes down does."""
    run = world.submit("driver")
    run.at_work()
    victim = psutil.Process(run.process.pid)
    family = [victim, *victim.children(recursive=True)]
    for process in family:  # none may see another one's end
        process.suspend()
    _end_driver(world, run, family)
    left = run.hidden()
    expect(len(left) == 1, f"left behind: {left}")
    world.check_left()
    again = world.submit("driver")
    refused = world.none(again, "was killed while it did", output=True)
    expect(not run.output.exists() and run.hidden() == left, "the refused run changed something")
    over = world.submit("driver", "--mode", "overwrite")
    result = world.complete(over)
    return (
        f"process {victim.pid} is gone, and its executors; left: 1 hidden folder of sanitized rows",
        f"none; the same command: {refused}; with --mode overwrite {result}, the folder is gone",
    )


def _end_driver(world: World, run: Run, victims: list[psutil.Process]) -> None:
    children = psutil.Process(run.process.pid).children(recursive=True)
    for process in victims:
        process.kill()
    run.end()
    psutil.wait_procs(children, PATIENCE)
    wait_for(lambda: not world.cluster.executors(), "executors outlive their driver", PATIENCE)
    expect(not run.output.exists(), "a killed driver left an output")


def jvm_of_driver(world: World) -> tuple[str, str]:
    """Kill the JVM alone: Python is left, and clears up."""
    run = world.submit("jvm")
    run.at_work()
    _end_driver(world, run, [psutil.Process(run.process.pid)])
    expect(not run.hidden(), f"left behind: {run.hidden()}")
    result = world.complete(world.submit("jvm"))
    return f"process {run.process.pid} is gone, and its executors", f"none; the same command: {result}"


def speculation(world: World) -> tuple[str, str]:
    run = world.submit(
        "speculation",
        spark_speculation="true",
        spark_speculation_quantile="0.5",
        spark_speculation_multiplier="1.1",
    )
    run.at_work()
    straggler = _busiest(world.cluster.python_workers())
    straggler.suspend()
    try:
        result = world.complete(run)
    finally:
        with suppress(psutil.NoSuchProcess):
            straggler.kill()
    copies = [e for e in run.events("TaskStart") if e["Task Info"]["Speculative"]]
    expect(copies, "Spark started no speculative copy")
    return f"a Python worker was stopped; speculative copies: {len(copies)}", result


def lost_shuffle(world: World) -> tuple[str, str]:
    run = world.submit("shuffle", str(world.table), str(world.bundle), script=SHUFFLED)
    done = run.output / "_temporary" / "0"
    run.wait_for(lambda: list(done.glob("task_*")))
    victim = world.cluster.executors()[0]
    victim.kill()
    code = run.end()
    expect(code == 0, run.log())
    retries = [e for e in run.events("StageSubmitted") if e["Stage Info"]["Stage Attempt ID"] > 0]
    fetches = run.task_ends()["FetchFailed"]
    expect(retries and fetches, f"{len(retries)} stages ran again, {fetches} tasks missed their input")
    rows = pq.read_table(run.output)
    ids = Counter(rows["id"].to_pylist())
    pairs = set(zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    expect(set(ids.values()) == {2}, "rows are lost or doubled")
    expect(len(pairs) == len(ids), f"{len(pairs) - len(ids)} texts were released with two noises")
    return (
        f"{fetches} tasks missed their input; {len(retries)} stages ran again",
        f"complete: every row in both branches, all {len(ids):,} texts the same in both (fresh key)",
    )


def full_disk(world: World) -> tuple[str, str]:
    run = world.submit("disk/out")
    result = world.none(run, "No space left on device")
    left = sum(file.stat().st_size for file in run.output.parent.rglob("*") if file.is_file())
    expect(left == 0, f"{left} bytes are left on the disk")
    return (
        f"a file system of {DISK}: {run.task_ends()['ExceptionFailure']} tasks failed",
        f"{result}; the disk is empty",
    )


def bundle_altered_before(world: World) -> tuple[str, str]:
    run = world.submit("altered-before")
    run.started()
    with _altered(world.bundle / "vectors.npy"):
        result = world.none(run, "The embedding bundle changed")
    return "vectors.npy altered between submission and the first task", result


def bundle_removed_before(world: World) -> tuple[str, str]:
    run = world.submit("removed-before")
    run.started()
    with _moved_away(world.bundle):
        result = world.none(run, "The embedding bundle changed")
    return "the driver's folder moved away between submission and the first task", result


def bundle_removed(world: World) -> tuple[str, str]:
    run = world.submit("removed")
    run.at_work()
    with _moved_away(world.bundle):
        victim = world.cluster.executors()[0]
        victim.kill()
        result = world.complete(run)
    return (
        f"the driver's folder moved away and an executor killed ({_gone(victim)}) while tasks ran",
        f"{result}: hosts keep verified copies",
    )


def copy_altered(world: World) -> tuple[str, str]:
    run = world.submit("copy-altered")
    run.at_work()
    copies = world.hosts_copies()
    expect(len(copies) == 2, f"hosts have {copies}")
    for copy in copies:
        _alter(copy / "vectors.npy")
    result = world.none(run, "bundle")
    for copy in copies:
        shutil.rmtree(copy)
    again = world.submit("copy-altered")
    return (
        "vectors.npy of both hosts altered in place while tasks ran",
        f"{result}; with those folders removed {world.complete(again)}",
    )


def two_runs(world: World) -> tuple[str, str]:
    first = world.submit("two-runs", spark_cores_max="1")
    first.at_work()
    second = world.submit("two-runs", key=False, spark_cores_max="1")
    refused = world.none(second, "Another run is writing the output", output=True)
    expect(first.process.poll() is None, "the first run was not at work any more")
    return "the second started while the first wrote", f"second: {refused}; first: {world.complete(first)}"


def two_runs_overwrite(world: World) -> tuple[str, str]:
    first = world.submit("two-overwrite", "--mode", "overwrite", "--trust-id", key=False, spark_cores_max="1")
    first.at_work()
    second = world.submit("two-overwrite", "--mode", "overwrite", "--trust-id", spark_cores_max="1")
    beaten = world.none(first, "Another run took over the output", output=True)
    expect(second.process.poll() is None, "the second run was not at work any more")
    return (
        "the second, with another key, started while the first wrote",
        f"first: {beaten}; second: {world.complete(second)}",
    )


def _gone(process: psutil.Process) -> str:
    expect(not process.is_running(), f"process {process.pid} runs on")
    return f"{process.pid} is gone"


def _alter(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-4, os.SEEK_END)
        opened.write(b"\xff\xff\xff\xff")


@contextmanager
def _altered(file: Path) -> Iterator[None]:
    """A file that is altered in place for a while."""
    content = file.read_bytes()
    _alter(file)
    try:
        yield
    finally:
        file.write_bytes(content)


@contextmanager
def _moved_away(folder: Path) -> Iterator[None]:
    """A folder that bears another name for a while."""
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        yield
    finally:
        away.rename(folder)


FAULTS: Final[dict[str, Callable[[World], tuple[str, str]]]] = {
    "kill -9 of a Python worker": python_worker,
    "kill -9 of an executor": executor,
    "kill -9 of a worker daemon": worker_daemon,
    "kill -9 of the driver": driver,
    "kill -9 of the driver's JVM": jvm_of_driver,
    "speculation": speculation,
    "a lost shuffle after the noise": lost_shuffle,
    "a full disk at write": full_disk,
    "bundle altered after submission": bundle_altered_before,
    "bundle removed after submission": bundle_removed_before,
    "bundle removed while tasks run": bundle_removed,
    "hosts' copies of the bundle altered": copy_altered,
    "two runs at once": two_runs,
    "two runs at once with --mode overwrite": two_runs_overwrite,
}


@click.command()
@click.argument("words", nargs=-1)
def main(words: tuple[str, ...]) -> None:
    """Try the faults whose names have one of these words, all without any; the exit code is 1 on any loss."""
    chosen = {name: f for name, f in FAULTS.items() if not words or any(word in name for word in words)}
    losses = 0
    with tempfile.TemporaryDirectory(prefix="dptext-chaos-") as name:
        folder = Path(name)
        env = {"JAVA_TOOL_OPTIONS": QUICK_JAVA, "PYTHONPATH": str(ROOT)}
        with Cluster(folder / "cluster", workers=2, cores=1, memory="1g", env=env) as cluster:
            world = World(folder=folder, cluster=cluster)
            world.fill()
            counts = world.undisturbed[1]
            click.echo(f"undisturbed: {counts['rows']:,} rows, {counts['text']['tokens']:,} words\n")
            for fault, attempt in chosen.items():
                try:
                    happened, outcome = attempt(world)
                    world.check_left()
                except (Wrong, TimeoutError, subprocess.TimeoutExpired, psutil.Error) as error:
                    losses += 1
                    happened, outcome = "", f"LOSS: {error}"
                click.echo(f"{fault}\n    {happened}\n    {outcome}")
        subprocess.run(["umount", world.disk], check=True)
    click.echo(f"\n{len(chosen)} faults, {losses} losses")
    sys.exit(losses > 0)


if __name__ == "__main__":
    main()
