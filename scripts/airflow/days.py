"""Run the DAG of scripts/airflow/dag.py for days that end well and days that must not.

    scripts/test-airflow

Every run is `airflow dags test` with a database, a home and data of its own in a temporary folder;
Spark is this project's, in local mode. Bytes are compared under names without the random part that
Spark gives files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from tests.helpers.cluster import PATIENCE, Wrong, environment, expect, wait_for, write_key
from tests.helpers.comparison import content, settled

ROOT: Final = Path(__file__).resolve().parents[2]
DAG: Final = "dptext_privatize"
SETTINGS: Final = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
# The DAG's parameters that are places.
PLACES: Final = {
    "reports": "reports",
    "bundle": "bundle",
    "evaluations": "evaluations",
    "ledger": "ledger",
    "input": "messages",
    "output": "sanitized",
    "properties": "spark.conf",
    "key_file": "release.key",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of the DAG: its exit code, its log, and the state of every task."""

    code: int
    log: str
    states: dict[str, str]

    def ended(self, states: set[str]) -> None:
        """Check that it ended well, with no other states of tasks than these."""
        expect(self.code == 0, self.log)
        expect({*self.states.values()} <= states, f"states {self.states}")

    def stopped(self, why: str, **states: str) -> None:
        """Check that it failed with these states of tasks, and why a check stopped it."""
        expect(self.code != 0, "airflow said that all is well")
        expect(self.states.items() >= states.items(), f"states {self.states}")
        expect("AirflowFailException" in self.log and why in self.log, self.log)


@dataclass(frozen=True, kw_only=True)
class Airflow:
    """An Airflow of its own, and the DAG's data: its executable, and the folder for everything."""

    command: Path
    folder: Path

    @property
    def output(self) -> Path:
        return self.folder / "sanitized"

    def prepare(self) -> None:
        """Write DAG, settings, key and bundle, and create Airflow's database."""
        (self.folder / "dags").mkdir()
        shutil.copy(ROOT / "scripts" / "airflow" / "dag.py", self.folder / "dags")
        settings = [f"{name} {value}" for name, value in SETTINGS.items()]
        defaults = (ROOT / "conf" / "spark-defaults.conf").read_text()
        (self.folder / "spark.conf").write_text("\n".join([defaults, *settings, ""]))
        write_key(self.folder / "release.key")
        build_embedding(GLOVE, self.folder / "bundle")
        self._run("db", "migrate")

    def run(
        self,
        day: str,
        queries: pa.Table | None = None,
        meanwhile: Callable[[int], None] = lambda _: None,
        **params: Any,
    ) -> Run:
        """Run the DAG for a day, after putting its partition; no other day's partition may change.

        ``meanwhile`` is called with the process's id while it runs; ``params`` are more of the
        DAG's.
        """
        if queries is not None:
            file = self.folder / "messages" / f"dt={day}" / "part.parquet"
            file.parent.mkdir(parents=True)
            pq.write_table(queries, file)
        before = self._other_days(day)
        values: dict[str, Any] = {name: str(self.folder / place) for name, place in PLACES.items()}
        # Few rows: their limits are wide.
        attacked = {"evaluated_rows": 600, "target": "recovery(top1) <= 0.6"}
        values |= {"jobs": str(ROOT / "jobs"), **attacked, **params}
        log = self.folder / f"{day}.log"
        with log.open("wb") as printed:
            arguments = [str(self.command), "dags", "test", DAG, day, "--conf", json.dumps(values)]
            process = subprocess.Popen(
                arguments, env=self._environment(), stdout=printed, stderr=printed
            )
            try:
                meanwhile(process.pid)
                code = process.wait(timeout=1200)
            finally:
                for member in family(process.pid):
                    member.kill()
        expect(self._other_days(day) == before, "another day's partition changed")
        answer = self._run("tasks", "states-for-dag-run", DAG, day, "--output", "json")
        states = {task["task_id"]: task["state"] for task in json.loads(answer)}
        return Run(code=code, log=log.read_text(errors="replace"), states=states)

    def _run(self, *arguments: str) -> str:
        """Run a command of Airflow, and return what it prints."""
        command = [str(self.command), *arguments]
        result = subprocess.run(
            command, env=self._environment(), capture_output=True, text=True, check=False
        )
        printed = f"{result.stdout}{result.stderr}"
        expect(result.returncode == 0, f"airflow {' '.join(arguments)}:\n{printed}")
        return result.stdout

    def _environment(self) -> dict[str, str]:
        """Return this environment, with Airflow's home and connections, and no other Airflow's."""
        inherited = dict(environment())
        for name in [*inherited]:
            if name.startswith("AIRFLOW"):
                del inherited[name]
        spark = Path(sys.executable).parent  # where its spark-submit is
        # Four attempts of a task: with fewer, a Python worker that dies takes the job with it.
        connection = {"conn_type": "spark", "host": "local[2,4]"}
        return {
            **inherited,
            "PATH": f"{spark}:{inherited['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AIRFLOW_HOME": str(self.folder / "home"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
        }

    def partition(self, day: str) -> dict[str, Any]:
        """Read a day's files by name."""
        return {name: content(file) for name, file in settled(self.output / f"dt={day}").items()}

    def _other_days(self, day: str) -> dict[str, tuple[int, bytes]]:
        """Read time of change and content of every file of the table that is not of this day."""
        files = {}
        for path in self.output.rglob("*"):
            if path.is_file() and f"dt={day}" not in path.parts:
                files[str(path)] = (path.stat().st_mtime_ns, path.read_bytes())
        return files


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all below it; none where it ended."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        return [*process.children(recursive=True), process]
    return []


def queries(ids_from: int, copies: int = 1) -> pa.Table:
    """Return the demo's queries, the given number of times, with ids of their own."""
    table = pa.concat_tables([pq.read_table(QUERIES)] * copies)
    ids = pa.array(range(ids_from, ids_from + len(table)))
    return table.set_column(table.column_names.index("id"), "id", ids)


def with_unknown_words(table: pa.Table) -> pa.Table:
    """Return the same queries, spelt backwards."""
    place = table.column_names.index("text")
    return table.set_column(place, "text", pc.utf8_reverse(table["text"]))


def good_day(airflow: Airflow) -> None:
    """Run the first day: the bundle is new."""
    day = "2026-01-01"
    table = queries(0)
    airflow.run(day, table).ended({"success"})
    released = pq.read_table(airflow.output / f"dt={day}")
    ids = sorted(released["id"].to_pylist())
    expect(ids == table["id"].to_pylist(), "rows are not those of the input")
    public = json.loads((airflow.folder / "reports" / f"dt={day}" / "release.json").read_text())
    is_public = "columns" not in public and public["scope"]
    expect(is_public, "what goes with the day has counts, or no scope")
    same = pc.sum(pc.equal(released.sort_by("id")["text"], table["text"])).as_py()
    expect(same < len(table) / 2, f"{same} of {len(table)} texts are unchanged")


def bad_day(airflow: Airflow) -> None:
    """Run a day of words that the bundle lacks: the run fails, the other days stay."""
    run = airflow.run("2026-01-02", with_unknown_words(queries(10_000)))
    run.stopped("unknown words", evaluate="skipped", privatize="success", check_report="failed")


def killed_day(airflow: Airflow) -> None:
    """Run a day whose driver is killed in its first attempt, and that day once more."""
    day = "2026-01-03"

    def kill(airflow_process: int) -> None:
        """Kill the driver when a task of it writes."""

        def at_work() -> list[psutil.Process]:
            """Return the driver once a file is written."""
            if not [*airflow.output.glob(f".dt={day}.*.part/**/*.parquet")]:
                return []
            return [process for process in family(airflow_process) if process.name() == "java"]

        process = wait_for(at_work, "privatize did not come to its writing", 900)[0]
        process.kill()
        process.wait(PATIENCE)
        expect(not (airflow.output / f"dt={day}").exists(), "the killed attempt left an output")

    run = airflow.run(day, queries(20_000, copies=12), kill)
    run.ended({"success", "skipped"})
    attempts = run.log.count("starting task_id=privatize")
    expect(attempts == 2, f"{attempts} attempts")
    retried = airflow.partition(day)
    hidden = [path.name for path in airflow.output.iterdir() if not path.name.startswith("dt=")]
    expect(not hidden, f"left: {hidden}")
    airflow.run(day).ended({"success", "skipped"})
    is_equal = retried and airflow.partition(day) == retried
    expect(is_equal, "the retry and a run without a fault differ")


def weak_day(airflow: Airflow) -> None:
    """Run an epsilon at which attackers get back most words: nothing may be released."""
    day = "2026-01-04"
    run = airflow.run(day, queries(90_000), epsilon=40.0)
    run.stopped("recovery(top1", evaluate="success", check_risk="failed")
    expect(not (airflow.output / f"dt={day}").exists(), "the day was released")


DAYS: Final = {
    "a good day, and a new bundle": good_day,
    "a bad day": bad_day,
    "a retry": killed_day,
    "too little noise": weak_day,
}


@click.command()
@click.argument("airflow", type=click.Path(path_type=Path, exists=True, resolve_path=True))
def main(airflow: Path) -> None:
    """Run all days with this executable of Airflow; the exit code is 1 when one ends wrongly."""
    faults = 0
    with tempfile.TemporaryDirectory(prefix="dptext-airflow-") as folder:
        world = Airflow(command=airflow, folder=Path(folder))
        world.prepare()
        for name, run in DAYS.items():
            result = "as it should"
            try:
                run(world)
            except (Wrong, TimeoutError, subprocess.TimeoutExpired) as error:
                faults += 1
                result = f"WRONG: {error}"
            click.echo(f"{name:30} {result}")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
