"""More than one process: a real standalone cluster, a killed worker."""

from __future__ import annotations

import os
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
from tests.helpers.cluster import PATIENCE, QUICK_JAVA, Cluster, python_workers, wait_for
from tests.helpers.tables import ROOT, by_id, rows_of, spark_settings, texts, write_table
from tests.helpers.worlds import KEY, LABEL

pytestmark = [pytest.mark.spark, pytest.mark.long]

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


def by_row(folder: Path) -> list[tuple[int, str]]:
    return sorted((row["id"], row["text"]) for row in rows_of(folder))


@pytest.mark.e2e
def test_a_cluster_gives_the_same_bytes_as_one_machine(
    spark: SparkSession, ring: Embedding, key_file: Path, tmp_path: Path
) -> None:
    """Of two executors on a worker, which map one copy of the bundle; logs show neither key nor words."""
    rows = {"id": list(range(400)), "text": [f"{text} Unheardof" for text in texts(400)]}
    table = write_table(tmp_path / "in" / "a.parquet", rows).parent
    write_table(table / "b.parquet", {"id": list(range(400, 800)), "text": texts(400)})
    options = [
        *("--input", table, "--embedding", ring.path, "--key-file", key_file, "--name", LABEL),
        *("--id", "id", "--keep", "id", "--mechanism", "laplace", "--epsilon", "1", "--text", "text"),
    ]
    conf = {"spark.executor.cores": "1", "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
    # One session may send the same bundle again, from its folder or from a copy of it.
    copy, script = tmp_path / "copy", tmp_path / "twice.py"
    copy.mkdir()
    for file in filter(Path.is_file, ring.path.iterdir()):
        (copy / file.name).write_bytes(file.read_bytes())
    script.write_text(TWICE)
    with Cluster(tmp_path / "cluster", workers=1, cores=2, env={"JAVA_TOOL_OPTIONS": QUICK_JAVA}) as cluster:
        job = ROOT / "jobs" / "privatize.py"
        done = cluster.submit(job, *options, "--output", tmp_path / "out", conf=conf)
        work, root = cluster.hosts[0] / "work", cluster.hosts[0] / "tmp" / f"dptext-spark-{os.getuid()}"
        executors = [path for path in work.glob("app-*/*") if path.is_dir()]
        again = cluster.submit(script, table, tmp_path / "twice", ring.path, ring.path, copy, conf=conf)
    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "Rows: 800" in done.stdout
    local = CliRunner().invoke(main, ["privatize", *map(str, options), "--output", str(tmp_path / "local")])
    assert local.exit_code == 0, local.output
    wanted = by_row(tmp_path / "local")
    assert len(wanted) == 800
    for output in ("out", "twice/0", "twice/1", "twice/2"):
        assert by_row(tmp_path / output) == wanted
    assert len(executors) == 2
    assert {path.name for path in root.iterdir()} == {ring.fingerprint, f"{ring.fingerprint}.lock"}
    logs = b"".join(path.read_bytes() for path in work.rglob("std*"))
    for printed in (done.stdout.encode(), done.stderr.encode(), logs):
        assert KEY.secret not in printed and KEY.secret.hex().encode() not in printed.lower()
        assert b"unheardof" not in printed.lower()
    assert list(cluster.driver.iterdir()) == []


def test_a_killed_python_worker_changes_nothing(spark: SparkSession, ring: Embedding, tmp_path: Path) -> None:
    """The workers of the first attempts are held mid-run, after some batches, and killed with SIGKILL."""
    rows, gate = 200, tmp_path / "gate"
    source = write_table(tmp_path / "in.parquet", {"id": list(range(rows)), "text": texts(rows)})
    waiting, held = str(tmp_path / "waiting"), str(gate)

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import time

        for number, batch in enumerate(batches):
            while number == 3 and not os.path.exists(held):
                open(waiting, "w").close()
                time.sleep(0.02)
            yield batch

    def sanitized(df: Any) -> dict[Any, str]:
        given: dict[str, Any] = {"embedding": ring, "mechanism": Laplace(epsilon=1.0), "id": "id"}
        return by_id(privatize(df, **given, text="text", keep="id", key=KEY, name=LABEL, trust_id=True))

    released: list[dict[Any, str]] = []
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=10):
        try:
            slow = spark.read.parquet(str(source)).mapInArrow(hold, "id long, text string")
            job = threading.Thread(target=lambda: released.append(sanitized(slow)))
            job.start()
            wait_for(lambda: os.path.exists(waiting), "no task came to the gate")
            workers = python_workers(psutil.Process().children(recursive=True))
            for worker in workers:
                worker.kill()
            psutil.wait_procs(workers, timeout=PATIENCE)
            gate.touch()
            job.join(PATIENCE)
        finally:
            gate.touch()
    assert len(workers) >= 2  # the one at the gate and the sanitizing one behind it
    executors = spark.sparkContext._jsc.sc().statusStore().executorList(False)
    assert sum(executors.apply(i).failedTasks() for i in range(executors.size())) >= 1
    assert released == [sanitized(spark.read.parquet(str(source)))] and len(released[0]) == rows
