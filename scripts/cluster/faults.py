"""Break things under a job on a standalone cluster, and check what came of it.

    scripts/chaos

The outcome of each fault must be the complete output, byte for byte that of a run without it, or
none and an error in one line. A fault counts only if it is shown to have happened: in Spark's own
event log, or in the processes. After each one all files but the table's are searched for a word
that is in every text of it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import click
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from scripts.cluster.left_behind import SETTINGS, a_cluster
from tests.helpers.canaries import found, text_forms
from tests.helpers.cluster import Cluster, Wrong, expect, wait_for, write_key
from tests.helpers.comparison import content, settled

ROOT: Final = Path(__file__).resolve().parents[2]
PRIVATIZE: Final = ROOT / "jobs" / "privatize.py"
SHUFFLED: Final = ROOT / "scripts" / "cluster" / "shuffled_release.py"
FILES: Final = 6
COPIES: Final = 12  # of the demo's queries in each file: seconds, so that a job is still at work
CANARY: Final = "qzcanaryword"  # in every text; unknown to the bundle
PATIENCE: Final = 1200.0
DISK: Final = "500k"
OVERWRITE: Final = ("--mode", "overwrite")
RELEASE: Final = (
    "--mechanism laplace --epsilon 10 --text text --id id --keep id --write-option compression=none"
)
# One task for each file.
SPLITTING: Final = {
    "spark.sql.files.maxPartitionBytes": "8m",
    "spark.sql.files.openCostInBytes": "8m",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    process: subprocess.Popen[Any]  # spark-submit, which is the driver's JVM
    folder: Path  # of its own, with its log and Spark's event log
    output: Path  # the table that it is to write

    def hidden(self) -> list[Path]:
        """Return what lies next to the output under a hidden name."""
        return list(self.output.parent.glob(f".{self.output.name}.*"))

    def wait_for(self, pattern: str) -> Run:
        """Wait until the folders of run and output hold such a file, the job being at work."""

        def met() -> object:
            """Return the files that are there."""
            expect(self.process.poll() is None, f"the job ended before the fault:\n{self.log()}")
            return [*self.folder.glob(pattern), *self.output.parent.glob(pattern)]

        try:
            wait_for(met, "too late", PATIENCE)
        except TimeoutError:
            raise Wrong(f"the job did not come to where the fault belongs:\n{self.log()}") from None
        return self

    def at_work(self) -> Run:
        """Wait until a task's rows are written, and others' are not."""
        return self.wait_for(f".{self.output.name}.*/table/_temporary/0/task_*")

    def log(self) -> str:
        """Read the driver's log."""
        return (self.folder / "driver.log").read_text(errors="replace")

    def ended(self, *codes: int) -> None:
        """Check that the run ended with one of these exit codes."""
        code = int(self.process.wait(PATIENCE))
        expect(code in codes, f"exit code {code}:\n{self.log()}")

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Read events of a kind in Spark's own log of the run, up to where it ends."""
        (file,) = (self.folder / "events").iterdir()
        lines = file.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if f'"SparkListener{kind}"' in line]

    def check_tasks(self, reason: str) -> None:
        """Check that a task ended for this reason."""
        ends = {event["Task End Reason"]["Reason"] for event in self.events("TaskEnd")}
        expect(reason in ends, f"tasks ended with {ends}")

    def content(self) -> tuple[dict[str, Any], Any]:
        """Read the output's bytes by file, and the report's counts."""
        report = self.output.with_name(f"{self.output.name}.private") / "report.json"
        facts = json.loads(report.read_text())
        files = {name: content(file) for name, file in settled(self.output).items()}
        return files, {"rows": facts["rows"], **facts["columns"]}


class World:
    """A cluster of two hosts with an executor each, and the table, bundle and key of the jobs."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self.runs = 0
        self.bundle = folder / "bundle"
        self.table = folder / "table"
        self.disk = folder / "disk"
        queries = pa.concat_tables([pq.read_table(QUERIES, columns=["text"])] * COPIES)
        texts = [f"{text} {CANARY}" for text in queries["text"].to_pylist()]
        self.table.mkdir()
        for number in range(FILES):
            ids = range(number * len(texts), (number + 1) * len(texts))
            pq.write_table(pa.table({"id": ids, "text": texts}), self.table / f"{number}.parquet")
        build_embedding(GLOVE, self.bundle)
        write_key(folder / "release.key")
        self.disk.mkdir()
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "small", self.disk], check=True
        )

    def submit(self, output: str, *options: str, key: bool = True, **conf: str) -> Run:
        """Start ``privatize``; underscores in names of settings stand for dots."""
        arguments = ["--input", str(self.table), "--embedding", str(self.bundle), *RELEASE.split()]
        if key:
            arguments += ["--key-file", str(self.folder / "release.key"), "--name", "faults"]
        return self.start(output, PRIVATIZE, *arguments, *options, "--output", **conf)

    def start(self, output: str, script: Path, *arguments: str, **conf: str) -> Run:
        """Start a script whose last argument is its output."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        goal = self.folder / output
        (folder / "events").mkdir(parents=True)
        settings = {**SETTINGS, **SPLITTING, "spark.eventLog.dir": f"file:{folder}/events"}
        for name, value in conf.items():
            settings[name.replace("_", ".")] = value
        with (folder / "driver.log").open("wb") as log:
            process = self.cluster.start(
                script, *arguments, goal, conf=settings, stdout=log, stderr=subprocess.STDOUT
            )
        return Run(process=process, folder=folder, output=goal)

    def check_left(self) -> None:
        """Check that no text of the table is anywhere but in the table."""
        places = [path for path in self.folder.iterdir() if path != self.table]
        files = found(places, {"": text_forms(CANARY)})
        hits = [str(file.relative_to(self.folder)) for file, _ in files]
        expect(not hits, f"text was left in {hits}")

    @cached_property
    def undisturbed(self) -> tuple[dict[str, Any], Any]:
        """Content of a run without a fault."""
        run = self.submit("undisturbed")
        run.ended(0)
        ids = pq.read_table(self.table)["id"].to_pylist()
        released_ids = pq.read_table(run.output)["id"].to_pylist()
        expect(sorted(released_ids) == sorted(ids), "rows are lost or doubled")
        return run.content()

    def complete(self, run: Run) -> None:
        """Check that a run wrote what a run without a fault did, all of it, and nothing else."""
        run.ended(0)
        files, counts = run.content()
        expected, expected_counts = self.undisturbed
        expect(files == expected, "the output is not that of the undisturbed run")
        difference = f"the report counts {counts}, without the fault {expected_counts}"
        expect(counts == expected_counts, difference)
        expect(not run.hidden(), f"left: {run.hidden()}")

    def none(self, run: Run, message: str, *, output: bool = False) -> None:
        """Check that a run wrote nothing and said why.

        It left nothing either, unless another's ``output`` is there.
        """
        run.ended(1, 2)
        errors = re.findall(r"^dptext privatize: (.+)$", run.log(), re.MULTILINE)
        is_one = len(errors) == 1 and message in errors[0]
        expect(is_one, f"no error in one line, but:\n{run.log()}")
        if output:
            return
        name = run.output.name
        paths = [run.output, *run.hidden()]
        ends = (".release.json", ".release.html", ".private")
        paths += [run.output.with_name(f"{name}{end}") for end in ends]
        remnants = [path.name for path in paths if path.exists()]
        expect(not remnants, f"there is an output, a report, or what a run removes: {remnants}")

    def end_driver(self, run: Run, victims: list[psutil.Process]) -> None:
        """Kill processes of a driver, and wait until none of it, and no executor, is left."""
        children = psutil.Process(run.process.pid).children(recursive=True)
        for process in victims:
            process.kill()
        run.process.wait(PATIENCE)
        psutil.wait_procs(children, PATIENCE)
        wait_for(lambda: not self.cluster.executors(), "executors outlive their driver", PATIENCE)
        expect(not run.output.exists(), "a killed driver left an output")


def busiest(processes: list[psutil.Process]) -> psutil.Process:
    """Return the process that computes the most in a moment: not one that waits for its task."""
    for process in processes:
        process.cpu_percent()
    time.sleep(0.5)
    return max(processes, key=psutil.Process.cpu_percent)


@contextmanager
def altered(bundle: Path) -> Iterator[None]:
    """Change the last bytes of a bundle's vectors for a while."""
    with (bundle / "vectors.npy").open("r+b") as opened:
        place = opened.seek(-4, os.SEEK_END)
        before = opened.read()
        os.pwrite(opened.fileno(), b"\xff" * 4, place)
        try:
            yield
        finally:
            os.pwrite(opened.fileno(), before, place)


@contextmanager
def moved_away(folder: Path) -> Iterator[None]:
    """Rename a folder for a while."""
    away = folder.with_name(f"{folder.name}-away")
    folder.rename(away)
    try:
        yield
    finally:
        away.rename(folder)


# Faults: each function returns where the fault happened and what came of it was right


def kill_one(world: World, output: str) -> None:
    """Kill the busiest Python worker, or the busiest executor."""
    run = world.submit(output).at_work()
    if output == "executor":
        processes = world.cluster.executors()
        reason = "ExecutorLostFailure"
    else:
        processes = world.cluster.python_workers()
        reason = "ExceptionFailure"
    victim = busiest(processes)
    victim.kill()
    world.complete(run)
    expect(not victim.is_running(), "the process runs on")
    run.check_tasks(reason)


def worker_daemon(world: World) -> None:
    """Kill a host's daemon, and start it again."""
    run = world.submit("worker-daemon").at_work()
    victim = world.cluster.workers[1]
    victim.kill()
    victim.wait()
    world.complete(run)
    expect(run.events("ExecutorRemoved"), "no executor was removed")
    world.cluster.workers[1] = world.cluster.start_worker(2)


def driver(world: World) -> None:
    """Kill all of it at once, as a host that goes down does."""
    run = world.submit("driver").at_work()
    victim = psutil.Process(run.process.pid)
    family = [victim, *victim.children(recursive=True)]
    for process in family:  # none may see another one's end
        process.suspend()
    world.end_driver(run, family)
    remnants = run.hidden()
    expect(len(remnants) == 1, f"left: {remnants}")
    world.check_left()
    world.none(world.submit("driver"), "was killed while it did", output=True)
    is_same = not run.output.exists() and run.hidden() == remnants
    expect(is_same, "the refused run changed something")
    world.complete(world.submit("driver", *OVERWRITE))


def jvm_of_driver(world: World) -> None:
    """Kill the JVM alone: Python is left, and clears up."""
    run = world.submit("jvm").at_work()
    world.end_driver(run, [psutil.Process(run.process.pid)])
    expect(not run.hidden(), f"left: {run.hidden()}")
    world.complete(world.submit("jvm"))


def speculation(world: World) -> None:
    """Stop a worker, so that Spark starts a copy of its task."""
    run = world.submit(
        "speculation",
        spark_speculation="true",
        spark_speculation_quantile="0.5",
        spark_speculation_multiplier="1.1",
    ).at_work()
    straggler = busiest(world.cluster.python_workers())
    straggler.suspend()
    try:
        world.complete(run)
    finally:
        with suppress(psutil.NoSuchProcess):
            straggler.kill()
    copies = [event for event in run.events("TaskStart") if event["Task Info"]["Speculative"]]
    expect(copies, "Spark started no speculative copy")


def lost_shuffle(world: World) -> None:
    """Kill an executor that has shuffled rows after the noise."""
    run = world.start("shuffle", SHUFFLED, str(world.table), str(world.bundle))
    run.wait_for("shuffle/_temporary/0/task_*")
    world.cluster.executors()[0].kill()
    run.ended(0)
    stages = run.events("StageSubmitted")
    attempts = [event["Stage Info"]["Stage Attempt ID"] for event in stages]
    expect(max(attempts, default=0) > 0, "no stage ran again")
    rows = pq.read_table(run.output)
    ids = Counter(rows["id"].to_pylist())
    pairs = {*zip(rows["id"].to_pylist(), rows["text"].to_pylist(), strict=True)}
    expect({*ids.values()} == {2}, "rows are lost or doubled")
    expect(len(pairs) == len(ids), f"{len(pairs) - len(ids)} texts were released with two noises")
    run.check_tasks("FetchFailed")


def full_disk(world: World) -> None:
    """Write to a disk that is too small."""
    run = world.submit("disk/out")
    world.none(run, "No space left on device")
    size = 0
    for file in run.output.parent.rglob("*"):
        if file.is_file():
            size += file.stat().st_size
    expect(size == 0, f"{size} bytes are left on the disk")
    run.check_tasks("ExceptionFailure")


def bundle_changed(
    world: World, harm: Callable[[Path], AbstractContextManager[None]], output: str
) -> None:
    """Alter or remove the bundle before the first task."""
    run = world.submit(output).wait_for("events/*")
    with harm(world.bundle):
        world.none(run, "The embedding bundle changed")


def bundle_removed(world: World) -> None:
    """Remove the bundle and kill an executor: the new one has the host's copy."""
    run = world.submit("removed").at_work()
    with moved_away(world.bundle):
        world.cluster.executors()[0].kill()
        world.complete(run)


def copy_altered(world: World) -> None:
    """Alter the copies of the bundle that hosts have."""
    run = world.submit("copy-altered").at_work()
    name = Embedding.open(world.bundle).fingerprint
    copies: list[Path] = []
    for host in world.cluster.hosts:
        copies += host.glob(f"tmp/dptext-spark-*/{name}")
    expect(len(copies) == 2, f"hosts have {copies}")
    with altered(copies[0]), altered(copies[1]):
        world.none(run, "bundle")
    for copy in copies:
        shutil.rmtree(copy)
    world.complete(world.submit("copy-altered"))


def two_runs(world: World, *overwrite: str, output: str, lost: str) -> None:
    """Start a second run, which is refused or takes over; the other one has another key."""
    first = world.submit(output, *overwrite, key=not overwrite, spark_cores_max="1").at_work()
    second = world.submit(output, *overwrite, key=bool(overwrite), spark_cores_max="1")
    winner = first
    loser = second
    if overwrite:
        winner = second
        loser = first
    world.none(loser, lost, output=True)
    expect(winner.process.poll() is None, "the other run was not at work any more")
    world.complete(winner)


def two_runs_overwriting(world: World) -> None:
    """Start a second run that takes over."""
    lost = "Another run took over the output"
    two_runs(world, *OVERWRITE, "--trust-id", output="two-overwrite", lost=lost)


FAULTS: Final[dict[str, Callable[[World], None]]] = {
    "kill -9 of a Python worker": partial(kill_one, output="python-worker"),
    "kill -9 of an executor": partial(kill_one, output="executor"),
    "kill -9 of a worker daemon": worker_daemon,
    "kill -9 of the driver": driver,
    "kill -9 of the driver's JVM": jvm_of_driver,
    "speculation": speculation,
    "a lost shuffle after the noise": lost_shuffle,
    "a full disk at write": full_disk,
    "bundle altered after submission": partial(
        bundle_changed, harm=altered, output="altered-before"
    ),
    "bundle removed after submission": partial(
        bundle_changed, harm=moved_away, output="removed-before"
    ),
    "bundle removed while tasks run": bundle_removed,
    "hosts' copies of the bundle altered": copy_altered,
    "two runs at once": partial(two_runs, output="two", lost="Another run is writing the output"),
    "two runs at once with --mode overwrite": two_runs_overwriting,
}


@click.command()
@click.argument("words", nargs=-1)
def main(words: tuple[str, ...]) -> None:
    """Try the faults whose names have one of these words, by default all.

    The exit code is 1 on any loss.
    """
    pattern = "|".join(map(re.escape, words))
    faults = [name for name in FAULTS if re.search(pattern, name)]
    losses = 0
    with a_cluster("chaos") as cluster:
        world = World(cluster.folder.parent, cluster)
        _, counts = world.undisturbed
        click.echo(f"undisturbed: {counts['rows']:,} rows, {counts['text']['tokens']:,} words\n")
        for fault in faults:
            outcome = "as it should"
            try:
                FAULTS[fault](world)
                world.check_left()
            except (Wrong, TimeoutError, subprocess.TimeoutExpired, psutil.Error) as error:
                losses += 1
                outcome = f"LOSS: {error}"
            click.echo(f"{fault:40} {outcome}")
        subprocess.run(["umount", world.disk], check=True)
    click.echo(f"\n{len(faults)} faults, {losses} losses")
    sys.exit(losses > 0)


if __name__ == "__main__":
    main()
