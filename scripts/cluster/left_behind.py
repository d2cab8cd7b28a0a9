"""Search all that runs of ``dptext privatize`` leave for canaries, and show that this finds them.

    scripts/leaks

Jobs run on a standalone cluster, their logs at DEBUG and nothing compressed, and Python workers are
looked at for sockets of the network: one that ends well for
each format of the output, one that fails over a private word, and one that leaks in each place by
options and settings not meant for it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
import duckdb
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from dptext_spark.demo import GLOVE, QUERIES
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.noise import NoiseKey
from dptext_spark.search.exact import ExactSearch
from tests.helpers.canaries import found, key_forms, text_forms
from tests.helpers.cluster import QUICK_JAVA, Cluster, wait_for, write_key

ROOT: Final = Path(__file__).resolve().parents[2]
WORD: Final = "qzcanaryword"
ID: Final = "qzcanaryid"
OTHER: Final = "qzcanaryother"
COMMENT: Final = "qzcanarycomment"
PLANTED: Final = "qzplanted"
LABEL: Final = "leaks"
FORMATS: Final = ("parquet", "orc", "delta", "iceberg")
SENTENCE: Final = "please play the quiet canary song about seven lonely lighthouses in march"

LOGGING: Final = """\
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c: %m%n%ex
logger.footers.name = org.apache.parquet.format.converter.ParquetMetadataConverter
logger.footers.level = info
"""
"""DEBUG, without the Parquet reader's print of the input's footers, which quote rows."""

UNIX_SOCKETS: Final = "spark.python.unix.domain.socket.enabled"
SETTINGS: Final = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    # Nothing compressed: what is left is searched.
    "spark.eventLog.compress": "false",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.rdd.compress": "false",
    "spark.broadcast.compress": "false",
    # From Spark 4.1 on rows go to Python workers through sockets of the file system.
    UNIX_SOCKETS: "true",
}
SOCKETS: Final = "sockets of Python workers"
BLOOM: Final = "output's Bloom filters"
PROBES: Final = 100
FALSE_HITS: Final = 20  # of them; a filter has one in a hundred
SPARKS_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"


@contextmanager
def a_cluster(purpose: str) -> Iterator[Cluster]:
    """Start a cluster of two hosts with an executor each, in a temporary folder."""
    env = {"JAVA_TOOL_OPTIONS": QUICK_JAVA, "PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryDirectory(prefix=f"dptext-{purpose}-") as folder,
        Cluster(Path(folder, "cluster"), workers=2, cores=1, memory="1g", env=env) as cluster,
    ):
        yield cluster


class Scene:
    """A cluster of two hosts with an executor each, what its jobs leave, and the release's key."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        """Write key, bundle and a table with canaries in every row, and in each column's schema."""
        self.folder = folder
        self.cluster = cluster
        self.key = NoiseKey.generate()
        self.table = folder / "private" / "table.parquet"
        self.bundle = folder / "private" / "bundle"
        self.table.parent.mkdir()
        write_key(self.table.with_name("release.key"), self.key.secret)
        build_embedding(GLOVE, self.bundle)
        table = pq.read_table(QUERIES, columns=["id", "text"])
        ids = [f"{ID}-{number}" for number in table["id"].to_pylist()]
        texts = [f"{text} {WORD} {SENTENCE}" for text in table["text"].to_pylist()]
        other_values = [f"{OTHER} {number}" for number in range(len(table))]
        columns = {"id": ids, "text": texts, "other": other_values}
        self.private_values = {name: values[:PROBES] for name, values in columns.items()}
        about = {"type": "string", "nullable": True, "metadata": {"comment": COMMENT}}
        schema = {"type": "struct", "fields": [{"name": name, **about} for name in columns]}
        rows = pa.table(columns).replace_schema_metadata({SPARKS_SCHEMA: json.dumps(schema)})
        pq.write_table(rows, self.table)
        (folder / "log4j2.properties").write_text(LOGGING)

    def places(self, name: str) -> dict[str, list[Path]]:
        """Return where a run leaves something."""
        run = self.folder / name
        logs: list[Path] = []
        working: list[Path] = []
        temporary = [run / "tmp", self.cluster.driver]
        for host in self.cluster.hosts:
            logs += host.glob("work/*/*/std*")
            working += host.glob("work/*/*/")
            temporary.append(host / "tmp")
        places = {
            "output": [run / "out"],
            "reports": [run / "reports"],
            "driver's log (DEBUG)": [run / "driver.log"],
            "executors' logs (DEBUG)": logs,
            "daemons' logs": sorted(self.cluster.folder.glob("*.log")),
        }
        places["event log"] = [run / "events"]
        places["UI's environment page"] = [run / "pages"]
        places["temporary folders"] = temporary
        places["working folders"] = working
        places[SOCKETS] = [run / "sockets"]
        places[BLOOM] = sorted((run / "out").glob("*.parquet"))
        return places

    def run(
        self,
        name: str,
        *options: str,
        format: str = "parquet",
        label: str = LABEL,
        conf: Mapping[str, str] | None = None,
    ) -> int:
        """Run a job that writes this format, and keep its pages of the UI; return the exit code."""
        run = self.folder / name
        for part in ("events", "pages", "tmp"):
            (run / part).mkdir(parents=True)
        (run / "sockets").touch()
        java = f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"
        settings = {
            **SETTINGS,
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            "spark.logConf": "true",
            "spark.local.dir": str(run / "tmp"),
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.dir": f"file:{run}/events",
            **(conf or {}),
        }
        output = f"{run}/out"
        env = {"TMPDIR": str(run / "tmp")}
        if format == "iceberg":
            uri = f"sqlite:///{run}/catalog.db"
            SqlCatalog("lake", uri=uri, warehouse=f"file://{output}").create_namespace("db")
            env["PYICEBERG_CATALOG__LAKE__URI"] = uri
            env["PYICEBERG_CATALOG__LAKE__WAREHOUSE"] = f"file://{output}"
            output = "lake.db.out"
        key = self.table.with_name("release.key")
        arguments = f"--input {self.table} --embedding {self.bundle} --key-file {key}"
        arguments += " --mechanism laplace --epsilon 1 --text text --id id"
        arguments += f" --output-format {format} --write-option compression=none"
        if format == "parquet":
            arguments += " --write-option parquet.bloom.filter.enabled=true"
        arguments += f" --output {output} --reports {run}/reports"
        with (run / "driver.log").open("wb") as log:
            process = self.cluster.start(
                ROOT / "jobs" / "privatize.py",
                *arguments.split(),
                "--name",
                label,
                *options,
                conf=settings,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._keep_pages(run, process)
        return int(process.wait(600))

    def _keep_pages(self, run: Path, process: subprocess.Popen[bytes]) -> None:
        """Fetch pages of the driver's UI until the job ends; the last that came stay.

        Sockets of the network that Python workers have meanwhile are noted.
        """
        log = run / "driver.log"

        def logged(pattern: str) -> str:
            """Return what the log has; ``none`` once the job ended without it."""
            match = re.search(pattern, log.read_text(errors="replace"))
            if match is not None:
                return match[1]
            return "" if process.poll() is None else "none"

        port = wait_for(
            lambda: logged(r"service 'SparkUI' on port (\d+)"), "the UI did not start", 600
        )
        root = f"http://127.0.0.1:{port}"
        network: set[str] = set()
        while process.poll() is None:
            network |= set(self._network_sockets())
            # The page's own script fetches what it shows of the environment.
            application = logged(r"\b(app-\d+-\d+)")
            facts = f"api/v1/applications/{application}/environment"
            for page in ("environment/", "executors/", "jobs/", "SQL/", facts):
                with suppress(OSError):
                    content = urllib.request.urlopen(f"{root}/{page}", timeout=10).read()
                    (run / "pages" / page.replace("/", "-")).write_bytes(content)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
        (run / "sockets").write_text("".join(f"{socket}\n" for socket in sorted(network)))

    def _network_sockets(self) -> Iterator[str]:
        """Yield the sockets of the network that Python workers have now."""
        for worker in self.cluster.python_workers():
            with suppress(psutil.Error):  # it ended meanwhile
                for connection in worker.net_connections("inet"):
                    yield f"{connection.status} at {connection.laddr.ip}"

    def secrets(self) -> dict[str, tuple[bytes, ...]]:
        """Return what no file may hold, in the forms that it may have there."""
        embedding = Embedding.open(self.bundle)
        release = Laplace(epsilon=1.0).release_noise(
            self.key, salt=LABEL, embedding=embedding, search=ExactSearch.over(embedding)
        )
        return {
            "a private word": text_forms(WORD),
            "a row's text": text_forms(SENTENCE),
            "a row's id": text_forms(ID),
            "another column": text_forms(OTHER),
            "a column's comment": text_forms(COMMENT),
            "the key": key_forms(self.key.secret),
            "the release's key": key_forms(release.key.secret),
        }

    def hits(self, name: str, secrets: Mapping[str, tuple[bytes, ...]]) -> dict[str, list[str]]:
        """Return what is in each place that a job left something in."""
        hits = {}
        for place, paths in self.places(name).items():
            files = found(paths, secrets)
            hits[place] = [f"{secret} in {file.relative_to(self.folder)}" for file, secret in files]
        hits[BLOOM] += self._bloom_hits(name)
        sockets = (self.folder / name / "sockets").read_text().splitlines()
        hits[SOCKETS] += [f"{name}: a socket of the network, {socket}" for socket in sockets]
        return hits

    def _bloom_hits(self, name: str) -> Iterator[str]:
        """Yield the columns of an output whose Bloom filters know private values."""
        for file in self.places(name)[BLOOM]:
            for column in {*pq.read_schema(file).names} & {*self.private_values}:
                hit_count = 0
                for value in self.private_values[column]:
                    query = "FROM parquet_bloom_probe($file, $column, $value)"
                    probe = {"file": str(file), "column": column, "value": value}
                    hit_count += not all(row[-1] for row in duckdb.execute(query, probe).fetchall())
                if hit_count > FALSE_HITS:
                    yield f"column {column} in {file.relative_to(self.folder)}"


def count_files(paths: Iterable[Path]) -> int:
    """Count files at paths and below."""
    count = 0
    for path in paths:
        count += sum(file.is_file() for file in (path, *path.rglob("*")))
    return count


@click.command()
def main() -> None:
    """Search what runs leave for canaries; the exit code is 1 on a hit, or on a plant not found."""
    with a_cluster("leaks") as cluster:
        scene = Scene(cluster.folder.parent, cluster)
        codes = {name: scene.run(name, format=name) for name in FORMATS}
        codes["failing"] = scene.run("failing", "--oov", "fail")
        secrets = scene.secrets()
        hits_of_runs = [scene.hits(run, secrets) for run in codes]
        # Then one that leaks wherever options and settings allow it, and files where they do not.
        java = f"-Dlog4j2.configurationFile={scene.folder}/log4j2.properties -Dnote={PLANTED}"
        conf = {
            "spark.note": PLANTED,
            "spark.executor.extraJavaOptions": java,
            UNIX_SOCKETS: "false",
        }
        codes["leaky"] = scene.run("leaky", "--keep", "other", label=PLANTED, conf=conf)
        for host in cluster.hosts:
            for folder in (host / "tmp", next(host.glob("work/*/*/"))):
                (folder / "forgotten").write_text(SENTENCE)
        faults = []
        for run, code in codes.items():
            expected = 2 if run == "failing" else 0
            if code != expected:
                faults.append(f"exit code {code} of {run}")
        click.echo(f"{'place':28}{'files':>6}  {f'left by {len(hits_of_runs)} runs':17}planted")
        plant = {"planted": text_forms(PLANTED)}
        for place, leaks in scene.hits("leaky", secrets | plant).items():
            hits = set()
            for of_run in hits_of_runs:
                hits.update(of_run[place])
            faults += sorted(hits)
            verdict = "found"
            if not leaks:
                faults.append(f"{place}: the planted canary was not found")
                verdict = "NOT FOUND"
            files = count_files(scene.places("leaky")[place])
            click.echo(f"{place:28}{files:6}  {f'{len(hits)} hits':17}{verdict}")
        click.echo("\n".join(["", f"{len(faults)} faults", *faults]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
