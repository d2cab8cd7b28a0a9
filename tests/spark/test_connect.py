"""privatize(df, ...) on Spark Connect, against a real server in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from dptext_spark import Embedding, Laplace
from dptext_spark.spark.java import ensure_java
from tests.helpers.canaries import found as traces
from tests.helpers.canaries import key_forms
from tests.helpers.cluster import spark_home, wait_for
from tests.helpers.tables import ROOT, command, hashes, spark_environment, texts, write_table
from tests.helpers.worlds import KEY, LABEL, release, sanitizer

MISSING = [name for name in ("grpc", "grpc_status", "zstandard") if importlib.util.find_spec(name) is None]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.skipif(
        bool(MISSING), reason=f"Spark Connect needs {MISSING}: pip install 'pyspark[connect]'"
    ),
]

MECHANISM = Laplace(epsilon=1.0)

CLIENT = """
import json, shutil, sys
from dptext_spark import DptextError, Laplace, NoiseKey, ReleaseCounts, privatize, privatize_udf, register_udf
from pyspark.sql import SparkSession

url, table, bundle = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
sends, send = [], type(spark).addArtifacts
type(spark).addArtifacts = lambda self, *paths, **kinds: sends.append(paths) or send(self, *paths, **kinds)
df = spark.read.parquet(table)
options = dict(embedding=bundle, mechanism=Laplace(epsilon=1.0), id="id")
options |= dict(key=NoiseKey(bytes(range(32))), name="tests")

def refusal(frame, **columns):
    try:
        privatize(frame, **options, **columns)
    except DptextError as error:
        return f"{type(error).__name__}: {error}"

counts = ReleaseCounts()
out = privatize(df, text=["text", "turns[].text"], keep=["id", "turns[].who"], counts=counts, **options)
words = {name: value for name, value in options.items() if name != "id"} | dict(column="text")
udf = privatize_udf(**words)
register_udf(spark, "clean", **words)
df.createOrReplaceTempView("t")

def told():
    try:
        return counts.describe()
    except DptextError as error:
        return str(error)

before = told()
refusals = [refusal(df, text="nope"), refusal(df.union(df), text="text")]
shutil.rmtree(bundle)  # it is at the server
found = {
    "client": type(spark).__module__,
    "schema": out.schema.simpleString(),
    "rows": [row.asDict(recursive=True) for row in out.orderBy("id").collect()],
    "udf": [row[0] for row in df.orderBy("id").select(udf("id", "text")).collect()],
    "sql": [row[0] for row in spark.sql("SELECT clean(id, text) FROM t ORDER BY id").collect()],
    "counts": [before, told()],
    "refusals": refusals,
    "sends": len(sends),
}
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Server:
    """A server of Spark Connect: where it listens, its process, and the folder of all that it leaves."""

    url: str
    process: psutil.Process
    folder: Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It listens on loopback alone, where by default it would listen on every address."""
    folder = tmp_path_factory.mktemp("connect") / "server"
    for name in ("events", "host"):
        (folder / name).mkdir(parents=True)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    line = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    line += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    line += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    ensure_java()
    environment = spark_environment() | {"JAVA_HOME": os.environ["JAVA_HOME"], "TMPDIR": str(folder / "host")}
    environment["PYTHONPATH"] = str(ROOT)  # the server's workers import the package
    with (folder / "log").open("wb") as log:
        process = psutil.Popen([*line, "spark-internal"], stdout=log, stderr=log, cwd=folder, env=environment)

    def port() -> str:
        assert process.poll() is None, (folder / "log").read_text()
        found = re.search(r"server started at: 127\.0\.0\.1:(\d+)", (folder / "log").read_text())
        return found[1] if found else ""

    try:
        url = f"sc://127.0.0.1:{wait_for(port, 'the server did not start')}"
        yield Server(url=url, process=process, folder=folder)
    finally:
        end(process)


def end(process: psutil.Process) -> None:
    if process.is_running():
        for member in [*process.children(recursive=True), process]:
            member.kill()
        process.wait()


def test_a_connect_session_gives_the_words_of_the_privatizer(
    server: Server, ring: Embedding, tmp_path: Path
) -> None:
    """Rejects what the client lacks, sparkContext and JVM, and a bundle that is read at the client's path."""
    listening = {c.laddr.ip for c in server.process.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    ids = list(range(6))
    turns = [[{"who": "me", "text": text}, {"who": "you", "text": text}] for text in texts(6)]
    source = write_table(tmp_path / "in.parquet", {"id": ids, "text": texts(6), "turns": turns, "extra": ids})
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in filter(Path.is_file, ring.path.iterdir()):
        (bundle / file.name).write_bytes(file.read_bytes())

    done = command(
        *[sys.executable, "-c", CLIENT, server.url, source, bundle],
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    privatizer = sanitizer(ring, MECHANISM, name=LABEL)
    flat = privatizer.sanitize(pa.array(texts(6)), pa.array(ids), column="text").values.to_pylist()
    said = privatizer.sanitize(
        pa.array(np.repeat(texts(6), 2).tolist()),
        pa.array(np.repeat(ids, 2)),
        column="turns[].text",
        positions=np.tile([[0], [1]], (6, 1)),
    ).values.to_pylist()
    pairs = [
        [{"who": "me", "text": a}, {"who": "you", "text": b}]
        for a, b in zip(said[::2], said[1::2], strict=True)
    ]
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["schema"] == "struct<id:bigint,text:string,turns:array<struct<who:string,text:string>>>"
    assert found["rows"] == [
        {"id": i, "text": text, "turns": pair} for i, text, pair in zip(ids, flat, pairs, strict=True)
    ]
    assert found["udf"] == found["sql"] == flat
    before, after = found["counts"]
    assert before.startswith("Nothing is counted yet.")
    assert after.startswith("Rows: 6\ntext: 48 words: ") and "\nturns[].text: 96 words: " in after
    assert re.match(r"InputError: The input table lacks columns.*Got: nope", found["refusals"][0])
    assert re.match(r"InputError: Column id does not name the rows.*6 duplicates", found["refusals"][1])
    assert found["sends"] == 1  # of a session's calls the first alone sends the bundle
    # The server has the bundle once, and shows no key.
    (root,) = (server.folder / "host").glob("dptext-spark-*")
    assert {path.name for path in root.iterdir()} == {ring.fingerprint, f"{ring.fingerprint}.lock"}
    # Other tests with this bundle may have made parts of it, before the server got it or afterwards.
    sent, kept = (
        {name: digest for name, digest in hashes(folder).items() if not name.startswith("parts/")}
        for folder in (root / ring.fingerprint, ring.path)
    )
    assert sent == kept and len(sent) == 6
    events = b"".join(file.read_bytes() for file in (server.folder / "events").rglob("*") if file.is_file())
    assert b"MapInArrow" in events
    (server.folder / "printed").write_text(f"{done.stdout}{done.stderr}")
    keys = (KEY.secret, release(MECHANISM, ring, salt=LABEL).key.secret)
    forms = {
        str(i): (*key_forms(key), "".join(f"\\{b:03o}" for b in key).encode()) for i, key in enumerate(keys)
    }
    places = [server.folder / name for name in ("events", "log", "printed")]
    assert [*traces(places, forms)] == []


TABLES = """
import json, sys
from dptext_spark import DptextError, privatize_table
from pyspark.sql import SparkSession

url, source, bundle, reports = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS lake")
spark.read.parquet(source).write.saveAsTable("lake.queries")
spark.sql("CREATE VIEW lake.some AS SELECT * FROM lake.queries WHERE id < 3")

def release(**others):
    given = dict(
        input="lake.queries", output="lake.shown", format="table", reports=reports, embedding=bundle,
        mechanism="laplace", epsilon=1.0, text="text", id="id", keep=["id"],
    )
    try:
        return privatize_table(**given | others).facts["rows"]
    except DptextError as error:
        return str(error)

settings = "spark.sql.parquet.outputTimestampType", "spark.sql.limit.initialNumPartitions"
before = [spark.conf.get(name) for name in settings]
found = [release(), spark.table("lake.shown").count(), [spark.conf.get(name) for name in settings] == before]
others = dict(output="lake.other", reports=f"{reports}-other")
found += [
    release(reports=f"{reports}-other"), release(**others, input="lake.some"),
    release(**others, input="lake.absent"), release(**others, where="id < 3"),
    release(**others, output_format="parquet"), release(**others, ledger="ledger"),
    release(**others, mode="append"),
]
print(json.dumps([*found, spark.catalog.tableExists("lake.other")]))
"""

READ = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
print(json.dumps([list(row) for row in spark.table(sys.argv[2]).orderBy("id").collect()]))
"""


def test_a_table_of_a_catalog_becomes_a_new_one_on_spark_connect(
    server: Server, ring: Embedding, tmp_path: Path
) -> None:
    """Rejects the JVM's file systems and plans, other words than on one machine, and faults as tracebacks."""
    ids = list(range(6))
    source = write_table(tmp_path / "in.parquet", {"id": ids, "text": texts(6)})
    path = {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}

    def python(*arguments: str | Path) -> Any:
        return command(sys.executable, *arguments, cwd=tmp_path, env=path)

    made = python("-c", TABLES, server.url, source, ring.path, tmp_path / "shown")
    assert made.returncode == 0, made.stderr
    rows, written, is_restored, *refusals, exists = json.loads(made.stdout)
    assert (rows, written, is_restored, exists) == (6, 6, True, False)
    for refusal, said in zip(
        refusals,
        (
            "The output table lake.shown exists",
            "The view lake.some can give other rows each time",
            "The input table lake.absent cannot be read",
            *(
                f"Got: {each}."
                for each in ("--where", "--output-format parquet", "--ledger", "--mode append")
            ),
        ),
        strict=True,
    ):
        assert said in refusal

    (tmp_path / "key").write_text(bytes(range(32)).hex())
    (tmp_path / "key").chmod(0o600)
    options = ["--input", "lake.queries", "--format", "table", "--embedding", ring.path, "--keep", "id"]
    options += ["--id", "id", "--text", "text", "--mechanism", "laplace", "--epsilon", "1"]
    options += ["--key-file", "key", "--name", "tests", "--remote", server.url]
    run = ("-m", "dptext_spark", "privatize", *options)
    done = python(*run, "--output", "lake.released", "--reports", tmp_path / "released")
    assert done.returncode == 0 and "on Spark Connect" in done.stdout, done.stderr
    assert json.loads((tmp_path / "released/private/report.json").read_text())["rows"] == 6
    assert (tmp_path / "released/private").stat().st_mode & 0o777 == 0o700
    privatizer = sanitizer(ring, MECHANISM, name=LABEL)
    words = privatizer.sanitize(pa.array(texts(6)), pa.array(ids), column="text").values.to_pylist()
    released = python("-c", READ, server.url, "lake.released")
    assert json.loads(released.stdout) == [[i, text] for i, text in zip(ids, words, strict=True)]

    end(server.process)
    done = python(*run, "--output", "lake.late", "--reports", tmp_path / "late")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "Spark Connect cannot be used" in done.stderr and not (tmp_path / "late").exists()
