"""privatize(df, ...) on Spark Connect, against a real server in a process of its own."""

import importlib.util
import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptext_spark import Laplace
from dptext_spark.spark.java import ensure_java
from dptext_spark.tables.ledger_folder import LedgerFolder
from dptext_spark.tables.storage import LocalFiles
from tests.helpers.canaries import found as traces
from tests.helpers.canaries import key_forms
from tests.helpers.cluster import spark_home, wait_for
from tests.helpers.tables import ROOT, command, hashes, spark_environment, texts, write_table
from tests.helpers.worlds import KEY, LABEL, release, sanitizer

MISSING = [
    name for name in ("grpc", "grpc_status", "zstandard") if importlib.util.find_spec(name) is None
]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.skipif(
        bool(MISSING), reason=f"Spark Connect needs {MISSING}: pip install 'pyspark[connect]'"
    ),
]

MECHANISM = Laplace(epsilon=1.0)
CLIENT_PATH = {"PYTHONPATH": os.pathsep.join(map(str, [ROOT, *sys.path]))}

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
out = privatize(df, text=["text", "turns[].text"], keep="id", counts=counts, **options)
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
def server(tmp_path_factory):
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
    environment = spark_environment() | {"TMPDIR": str(folder / "host")}
    environment["PYTHONPATH"] = str(ROOT)  # the server's workers import the package
    with (folder / "log").open("wb") as log:
        process = psutil.Popen(
            [*line, "spark-internal"], stdout=log, stderr=log, cwd=folder, env=environment
        )

    def port():
        assert process.poll() is None, (folder / "log").read_text()
        found = re.search(r"server started at: 127\.0\.0\.1:(\d+)", (folder / "log").read_text())
        return found[1] if found else ""

    try:
        url = f"sc://127.0.0.1:{wait_for(port, 'the server did not start')}"
        yield Server(url=url, process=process, folder=folder)
    finally:
        end(process)


def end(process):
    if process.is_running():
        for member in [*process.children(recursive=True), process]:
            member.kill()
        process.wait()


def test_a_connect_session_gives_the_words_of_the_privatizer(server, ring, tmp_path):
    """Rejects what the client lacks, sparkContext and JVM, and a bundle that is read at the client's path."""
    ids, turns = list(range(6)), [[{"text": text}] for text in texts(6)]
    source = write_table(
        tmp_path / "in.parquet", {"id": ids, "text": texts(6), "turns": turns, "extra": ids}
    )
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    for file in filter(Path.is_file, ring.path.iterdir()):
        (bundle / file.name).write_bytes(file.read_bytes())

    done = command(
        *[sys.executable, "-c", CLIENT, server.url, source, bundle], cwd=tmp_path, env=CLIENT_PATH
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    privatizer, rows = sanitizer(ring, MECHANISM, name=LABEL), pa.array(ids)
    flat = privatizer.sanitize(pa.array(texts(6)), rows, column="text").values.to_pylist()
    nested = {"column": "turns[].text", "positions": np.zeros((6, 1), dtype=np.int64)}
    said = privatizer.sanitize(pa.array(texts(6)), rows, **nested).values.to_pylist()
    assert found["client"].startswith("pyspark.sql.connect")
    assert found["rows"] == [
        {"id": i, "text": a, "turns": [{"text": b}]}
        for i, a, b in zip(ids, flat, said, strict=True)
    ]
    assert found["udf"] == found["sql"] == flat
    before, after = found["counts"]
    assert before.startswith("Nothing is counted yet.")
    assert after.startswith("Rows: 6\ntext: 48 words: ") and "\nturns[].text: 48 words: " in after
    assert re.match(r"InputError: The input table lacks columns.*Got: nope", found["refusals"][0])
    assert re.match(r"InputError: Column id cannot be the id.*6 duplicates", found["refusals"][1])
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
    events = b"".join(
        file.read_bytes() for file in (server.folder / "events").rglob("*") if file.is_file()
    )
    assert b"MapInArrow" in events
    (server.folder / "printed").write_text(f"{done.stdout}{done.stderr}")
    keys = (KEY.secret, release(MECHANISM, ring, salt=LABEL).key.secret)
    forms = {
        str(i): (*key_forms(key), "".join(f"\\{b:03o}" for b in key).encode())
        for i, key in enumerate(keys)
    }
    places = [server.folder / name for name in ("events", "log", "printed")]
    assert [*traces(places, forms)] == []


HEAD = """
import json, os, sys, threading, time
import psutil
from dptext_spark import DptextError, TextPolicy, privatize_table
from dptext_spark.tables.input_table import InputTable
from dptext_spark.spark import session
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import SparkConnectClient

url, source, bundle, key, folder, table, *others = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
spark.sql("CREATE DATABASE IF NOT EXISTS lake")
spark.read.parquet(source).write.saveAsTable(f"lake.{table}")
names = "spark.sql.ansi.enabled", "spark.sql.parquet.outputTimestampType", "spark.sql.runSQLOnFiles"
spark.conf.set("spark.sql.ansi.enabled", "false")

def state():
    return [*(spark.conf.get(name) for name in names), *map(id, spark.client.get_retry_policies())]

def release(output, **others):
    "The facts of a release, or its error; and whether the session is as it was."
    before = state()
    given = dict(
        input=f"lake.{table}", output=f"lake.{output}", format="table", reports=f"{folder}/{output}",
        embedding=bundle, mechanism="laplace", epsilon=1.0, text="text", id="id", keep=["id"], key=key,
        name=table,
    )
    try:
        said = privatize_table(**given | others).facts
    except (DptextError, KeyboardInterrupt) as error:
        said = f"{type(error).__name__}: {error}"
    return said, state() == before
"""

RUNS = """
spark.sql("CREATE VIEW lake.some AS SELECT * FROM lake.queries WHERE id < 3")
tables = [release("shown"), release("shown", reports=f"{folder}/other")]
for refused in (
    dict(input="lake.some"), dict(input="lake.absent"), dict(where="id < 3"), dict(output_format="parquet"),
    dict(mode="overwrite"), dict(reports="dbfs:/reports"),
):
    tables.append(release("other", **refused))
tables.append(spark.catalog.tableExists("lake.other"))

def interrupted(*_):
    raise KeyboardInterrupt

given = dict(ledger=f"{folder}/ledger", budget=1.5)
ledger = [release("out0", **given, dry_run=True), os.path.exists(f"{folder}/ledger")]
for n, other in enumerate((
    {}, {}, dict(epsilon=1.2), dict(epsilon=0.25, policy=TextPolicy(oov="fail")),
    dict(ledger="/proc/self/cwd/other"), dict(ledger="/proc/other"),  # each side's own; nobody's
), 1):
    ledger.append(release(f"out{n}", **given | other))
InputTable.check_rows = interrupted
print(json.dumps([tables, [*ledger, release("out9", **given)]]))
"""


@pytest.fixture(scope="module")
def client(server, ring, key_file):
    """Run code on texts in a table of the catalog, in a process of its own; gives what it prints."""

    def run(code, table, texts, folder, *others):
        source = write_table(folder / "in.parquet", {"id": [*range(len(texts))], "text": texts})
        arguments = (server.url, source, ring.path, key_file, folder, table, *others)
        done = command(sys.executable, "-c", HEAD + code, *arguments, cwd=folder, env=CLIENT_PATH)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


QUERIES = [*texts(5), "Unheardof"]


@pytest.fixture(scope="module")
def runs(client, tmp_path_factory):
    """What tables and ledgers came to, and the folder that both sides see."""
    folder = tmp_path_factory.mktemp("runs")
    return folder, *client(RUNS, "queries", QUERIES, folder)


@pytest.fixture
def dptext(server, ring, key_file, tmp_path):
    """``dptext privatize --remote`` in a process of its own."""

    def run(output):
        options = [
            "--input",
            "lake.queries",
            "--format",
            "table",
            "--embedding",
            ring.path,
            "--keep",
            "id",
        ]
        options += ["--id", "id", "--text", "text", "--mechanism", "laplace", "--epsilon", "1"]
        options += ["--key-file", key_file, "--name", LABEL, "--remote", server.url]
        options += ["--output", f"lake.{output}", "--reports", tmp_path / output]
        options += ["--spark-conf", "spark.sql.orc.columnarReaderBatchSize=16"]
        return command(
            *(sys.executable, "-m", "dptext_spark", "privatize", *options),
            cwd=tmp_path,
            env=CLIENT_PATH,
        )

    return run


def test_a_table_of_a_catalog_becomes_a_new_one_on_spark_connect(
    server, ring, tmp_path, runs, dptext
):
    """Rejects the JVM's file systems and plans, other words than on one machine, and faults as tracebacks."""
    (facts, _), *refusals, exists = runs[1]
    assert (facts["rows"], exists) == (6, False)
    for (refusal, is_restored), said in zip(
        refusals,
        (
            "The output table lake.shown exists",
            "The view lake.some can give different rows each time",
            "The input table lake.absent cannot be read",
            "Got: where.",
            "Got: output_format parquet.",
            "Got: mode='overwrite'.",
            "Got: reports='dbfs:/reports'.",
        ),
        strict=True,
    ):
        assert said in refusal and is_restored

    done = dptext("released")
    assert done.returncode == 0 and "on Spark Connect" in done.stdout, done.stderr
    report = json.loads((tmp_path / "released/private/report.json").read_text())
    assert report["rows"] == 6
    (changed,) = (each for each in report["private_scope"] if each.startswith("Changed in the "))
    # What the user sets stays, where it is no matter of what is read.
    assert "parquet.columnarReaderBatchSize" in changed and "orc.columnar" not in changed
    assert (tmp_path / "released/private").stat().st_mode & 0o777 == 0o700
    privatizer, ids = sanitizer(ring, MECHANISM, name=LABEL), pa.array(range(6))
    words = privatizer.sanitize(pa.array(QUERIES), ids, column="text").values
    written = pq.read_table(server.folder / "spark-warehouse" / "lake.db" / "released").sort_by(
        "id"
    )
    assert written.to_pydict() == {"id": ids.to_pylist(), "text": words.to_pylist()}


def test_a_ledger_on_spark_connect_adds_up_in_a_folder_that_both_sides_see(server, runs):
    """Rejects a ledger at one side alone, and a session that keeps what a run changed in it."""
    # Whatever ends the run: its end, a refusal, a failure at the server, Ctrl-C.
    folder, _, (dry, is_begun, *runs) = runs
    assert all(is_restored for _, is_restored in (dry, *runs))
    (first, again), (over, failed, other, denied, interrupted) = (
        [said["ledger"][0] for said, _ in runs[:2]],
        [said for said, _ in runs[2:]],
    )
    assert dry[0]["ledger"][0]["rows"]["new"] == first["rows"]["new"] == 6 and not is_begun
    assert (first["total"], again["requested"], again["rows"]["free"]) == (1.0, 0.0, 6)
    assert "has spent 1 and has 0.5 left" in over and "Got: 1.2 requested" in over
    assert failed.startswith("InputError: ") and interrupted == "KeyboardInterrupt: "
    for said, got in (
        (other, "PATH_NOT_FOUND"),
        (denied, "No such file or directory (/proc/other)"),
    ):
        assert "does not see the ledger /proc/" in said and f"Got: {got}." in said
    assert not (folder / "other").exists() and not (server.folder / "other").exists()
    entries = LedgerFolder(str(folder / "ledger"), LocalFiles()).read().entries
    assert [e.state for e in entries] == ["committed", "committed", "withdrawn", "unfinished"]
    assert [None if e.total is None else float(e.total) for e in entries] == [1.0, 1.0, None, 1.25]
    assert not [*folder.glob("ledger/.*")]  # what showed that both see it
    scope = json.loads((folder / "out1/private/report.json").read_text())["private_scope"]
    (said,) = (each for each in scope if each.startswith("Changed in the session, and put back: "))
    assert "spark.sql.ansi.enabled" in said and "spark.sql.files.ignoreMissingFiles" not in said
    public = (folder / "out1/release.json").read_text()
    assert "put back" not in public and "spark.sql" not in public


FAULTS = """
warehouse, pid = others
session._LATER = 2  # a minute else

def kill():
    server = psutil.Process(int(pid))
    server.suspend()  # a quick server would end the write while its workers are looked for
    for process in [*server.children(recursive=True), server]:
        process.kill()

def other(act):
    client = SparkConnectClient(f"{url}/;session_id={spark.session_id}")
    client.get_configs("spark.app.name")  # connected: a late fault would find a whole table
    return lambda: act(client)

def watch(act, place):
    while not os.path.exists(place):
        time.sleep(0.005)
    act()

def state():  # a lost server tells no settings
    return spark.client.get_retry_policies()

found = []
for n, fault in enumerate((
    other(SparkConnectClient.interrupt_all), other(SparkConnectClient.release_session), kill
)):
    place = f"{warehouse}/fault{n}/_temporary"
    threading.Thread(target=watch, args=(fault, place), daemon=True).start()
    found.append(release(f"fault{n}", **(dict(ledger=f"{folder}/faults") if fault is kill else {})))
    if n == 1:
        spark.stop()  # it was ended
        spark = SparkSession.builder.remote(url).create()
        tables = [spark.catalog.tableExists(f"lake.fault{n}") for n in range(2)]
print(json.dumps([*found, tables]), flush=True)
os._exit(0)  # a user's own session would look for the server for ten minutes
"""


@pytest.mark.long
def test_faults_of_a_server_are_one_sentence(server, tmp_path, client, dptext):
    """Rejects tracebacks, ten minutes of tries, a broken run's table, and a ledger that forgets the run."""
    # The last test of this server: it is killed while it writes.
    warehouse = server.folder / "spark-warehouse" / "lake.db"
    *runs, tables = client(
        FAULTS, "long", texts(30_000, 20), tmp_path, warehouse, str(server.process.pid)
    )
    (cancelled, ended, lost), restored = zip(*runs, strict=True)
    assert (
        "The run was cancelled at the server of Spark Connect. Got: OPERATION_CANCELED" in cancelled
    )
    assert (
        "The session at the server of Spark Connect was ended. Got: INVALID_HANDLE.SESSION_CLOSED"
        in ended
    )
    assert (
        "The server of Spark Connect was lost. Got: UNAVAILABLE" in lost
        and "run the same command" in lost
    )
    assert restored == (True, True, True) and tables == [False, False]
    (entry,) = LedgerFolder(str(tmp_path / "faults"), LocalFiles()).read().counted
    assert (entry.state, entry.total) == ("unfinished", 1)
    assert not [*tmp_path.glob("fault*/private")]  # no report of what is not there

    done = dptext("late")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "Spark Connect cannot be used" in done.stderr and not (tmp_path / "late").exists()
