"""More than one process: a real standalone cluster, a killed worker."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from dptext_spark import Embedding, Laplace, privatize
from dptext_spark.cli import main
from tests.helpers.cluster import PATIENCE, QUICK_JAVA, Cluster, wait_for
from tests.helpers.tables import ROOT, by_id, rows_of, spark_settings, texts, write_table
from tests.helpers.worlds import KEY, LABEL

pytestmark = [pytest.mark.spark, pytest.mark.long]


# A real cluster

TWICE = """
import sys
from dptext_spark import Laplace, NoiseKey, privatize
from pyspark.sql import SparkSession
table, output, *bundles = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
df = spark.read.parquet(table)
for number, bundle in enumerate(bundles):
    out = privatize(df, embedding=bundle, mechanism=Laplace(epsilon=1.0), id="id", text="text", keep="id",
                    key=NoiseKey(bytes(range(32))), name="tests")
    out.write.parquet(f"{output}/{number}")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Master and worker on loopback, the worker with room for two executors of one core."""
    quick = {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
    with Cluster(tmp_path / "cluster", workers=1, cores=2, memory="1g", env=quick) as started:
        yield started


@pytest.mark.e2e
def test_a_cluster_gives_the_same_bytes_as_one_machine(
    spark: SparkSession, cluster: Cluster, ring: Embedding, key_file: Path, tmp_path: Path
) -> None:
    rows = {"id": list(range(400)), "text": [f"{text} Unheardof" for text in texts(400)]}
    table = write_table(tmp_path / "in" / "a.parquet", rows).parent
    write_table(table / "b.parquet", {"id": list(range(400, 800)), "text": texts(400)})
    options = [
        *("--input", table, "--embedding", ring.path, "--key-file", key_file, "--name", LABEL),
        *("--id", "id", "--keep", "id", "--mechanism", "laplace", "--epsilon", "1", "--text", "text"),
    ]
    conf = {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}

    done = cluster.submit(ROOT / "jobs" / "privatize.py", *options, "--output", tmp_path / "out", conf=conf)
    assert done.returncode == 0, done.stderr
    assert "Rows: 800" in done.stdout
    local = CliRunner().invoke(main, ["privatize", *map(str, options), "--output", str(tmp_path / "local")])
    assert local.exit_code == 0, local.output
    by_row = [sorted((row["id"], row["text"]) for row in rows_of(tmp_path / o)) for o in ("out", "local")]
    assert by_row[0] == by_row[1]
    assert len(by_row[0]) == 800

    # Two executors mapped one copy, which lies in the executors' temporary folder.
    work = cluster.hosts[0] / "work"
    executors = [path for path in work.glob("app-*/*") if path.is_dir()]
    assert len(executors) == 2
    root = cluster.hosts[0] / "tmp" / f"dptext-spark-{os.getuid()}"
    assert {path.name for path in root.iterdir()} == {ring.fingerprint, f"{ring.fingerprint}.lock"}
    logs = b"".join(path.read_bytes() for path in work.rglob("std*"))
    for output in (done.stdout.encode(), done.stderr.encode(), logs):
        assert KEY.secret not in output
        assert KEY.secret.hex().encode() not in output.lower()
        assert b"unheardof" not in output.lower()

    # One session may send the same bundle again, from its folder or from a copy of it.
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in ring.path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    done = cluster.submit(script, table, tmp_path / "twice", ring.path, ring.path, copy, conf=conf)
    assert done.returncode == 0, done.stderr
    for number in range(3):
        found = rows_of(tmp_path / "twice" / str(number))
        assert sorted((row["id"], row["text"]) for row in found) == by_row[0]
    assert list(cluster.driver.iterdir()) == []


# A killed worker


def python_workers() -> list[psutil.Process]:
    """The Python workers of this process's JVM: children of the daemon that forks them."""
    workers = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            is_worker = (
                "pyspark.daemon" in process.cmdline() and "pyspark.daemon" in process.parent().cmdline()
            )
            workers += [process] * is_worker
    return workers


def test_a_killed_python_worker_changes_nothing(spark: SparkSession, ring: Embedding, tmp_path: Path) -> None:
    """The workers of the first attempts are held mid-run, after some batches, and killed with SIGKILL."""
    rows, gate = 200, tmp_path / "gate"
    table = pa.table({"id": list(range(rows)), "text": texts(rows)})
    source = write_table(tmp_path / "in.parquet", {name: table[name] for name in table.column_names})
    waiting = str(tmp_path / "waiting")
    held = str(gate)

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        for number, batch in enumerate(batches):
            while number == 3 and not os.path.exists(held):
                open(waiting, "w").close()
                time.sleep(0.02)
            yield batch

    def sanitized(df: Any) -> dict[Any, str]:
        out = privatize(
            df,
            embedding=ring,
            mechanism=Laplace(epsilon=1.0),
            id="id",
            text="text",
            keep="id",
            key=KEY,
            name=LABEL,
            trust_id=True,
        )
        return by_id(out)

    released: list[dict[Any, str]] = []
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=10):
        try:
            slow = spark.read.parquet(str(source)).mapInArrow(hold, "id long, text string")
            job = threading.Thread(target=lambda: released.append(sanitized(slow)))
            job.start()
            wait_for(lambda: os.path.exists(waiting), "no task came to the gate")
            workers = python_workers()
            for worker in workers:
                worker.send_signal(signal.SIGKILL)
            psutil.wait_procs(workers, timeout=PATIENCE)
            gate.touch()
            job.join(PATIENCE)
        finally:
            gate.touch()
    assert len(workers) >= 2  # the one at the gate and the sanitizing one behind it
    assert failed_tasks(spark) >= 1
    assert len(released) == 1
    assert len(released[0]) == rows
    assert released[0] == sanitized(spark.read.parquet(str(source)))


def failed_tasks(spark: SparkSession) -> int:
    """Tasks that failed so far in this session, as Spark counts them."""
    store = spark.sparkContext._jsc.sc().statusStore()
    executors = store.executorList(False)
    return sum(executors.apply(i).failedTasks() for i in range(executors.size()))
