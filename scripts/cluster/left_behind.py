"""Look for canaries in all that runs of ``dptext privatize`` leave, and show that the look finds them.

    scripts/leaks

Jobs run on a standalone cluster, their logs at DEBUG and nothing compressed: one that ends well for
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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import click
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
"""DEBUG, but for the Parquet reader's print of the input's footers, which quote comments and rows."""

SETTINGS: Final = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    # Nothing compressed: what is left is searched.
    **{
        f"spark.{what}.compress": "false"
        for what in ("eventLog", "shuffle", "shuffle.spill", "rdd", "broadcast")
    },
}
SPARKS_SCHEMA: Final = "org.apache.spark.sql.parquet.row.metadata"


@contextmanager
def a_cluster(purpose: str) -> Iterator[Cluster]:
    """A cluster of two hosts with an executor each, in a temporary folder with room for more."""
    env = {"JAVA_TOOL_OPTIONS": QUICK_JAVA, "PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryDirectory(prefix=f"dptext-{purpose}-") as folder,
        Cluster(Path(folder, "cluster"), workers=2, cores=1, memory="1g", env=env) as cluster,
    ):
        yield cluster


class Scene:
    """A cluster of two hosts with an executor each, where its jobs leave something, and the release's key."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        """Write key, bundle and a table with canaries in every row, and in Spark's schema of each column."""
        self.folder, self.cluster, self.key = folder, cluster, NoiseKey.generate()
        self.table, self.bundle = (
            folder / "private" / "table.parquet",
            folder / "private" / "bundle",
        )
        self.table.parent.mkdir()
        write_key(self.table.with_name("release.key"), self.key.secret)
        build_embedding(GLOVE, self.bundle)
        table = pq.read_table(QUERIES, columns=["id", "text"])
        columns = {
            "id": [f"{ID}-{number}" for number in table["id"].to_pylist()],
            "text": [f"{text} {WORD} {SENTENCE}" for text in table["text"].to_pylist()],
            "other": [f"{OTHER} {number}" for number in range(len(table))],
        }
        about = {"type": "string", "nullable": True, "metadata": {"comment": COMMENT}}
        schema = {"type": "struct", "fields": [{"name": name, **about} for name in columns]}
        rows = pa.table(columns).replace_schema_metadata({SPARKS_SCHEMA: json.dumps(schema)})
        pq.write_table(rows, self.table)
        (folder / "log4j2.properties").write_text(LOGGING)

    def places(self, name: str) -> dict[str, list[Path]]:
        hosts, run = self.cluster.hosts, self.folder / name
        return {
            "output": [run / "out"],
            "reports": [run / "reports"],
            "driver's log (DEBUG)": [run / "driver.log"],
            "executors' logs (DEBUG)": [f for host in hosts for f in host.glob("work/*/*/std*")],
            "daemons' logs": sorted(self.cluster.folder.glob("*.log")),
            "event log": [run / "events"],
            "UI's environment page": [run / "pages"],
            "temporary folders": [
                run / "tmp",
                self.cluster.driver,
                *(host / "tmp" for host in hosts),
            ],
            "working folders": [f for host in hosts for f in host.glob("work/*/*") if f.is_dir()],
        }

    def run(
        self,
        name: str,
        *options: str,
        format: str = "parquet",
        label: str = LABEL,
        conf: Mapping[str, str] | None = None,
    ) -> int:
        """Run a job that writes this format, and keep its pages of the UI; gives the exit code."""
        run = self.folder / name
        for part in ("events", "pages", "tmp"):
            (run / part).mkdir(parents=True)
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
        lake = {}
        if format == "iceberg":
            lake = {"URI": f"sqlite:///{run}/catalog.db", "WAREHOUSE": f"file://{run}/out"}
            SqlCatalog("lake", uri=lake["URI"], warehouse=lake["WAREHOUSE"]).create_namespace("db")
        with (run / "driver.log").open("wb") as log:
            process = self.cluster.start(
                *(
                    ROOT / "jobs" / "privatize.py",
                    "--input",
                    self.table,
                    "--embedding",
                    self.bundle,
                ),
                *("--mechanism", "laplace", "--epsilon", "1", "--text", "text", "--id", "id"),
                *("--key-file", self.table.with_name("release.key"), "--name", label),
                *("--output-format", format, "--write-option", "compression=none"),
                *("--output", "lake.db.out" if lake else f"{run}/out"),
                *("--reports", f"{run}/reports", *options),
                conf=settings,
                env={"TMPDIR": str(run / "tmp")}
                | {f"PYICEBERG_CATALOG__LAKE__{key}": value for key, value in lake.items()},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._keep_pages(run, process)
        return int(process.wait(600))

    def _keep_pages(self, run: Path, process: subprocess.Popen[bytes]) -> None:
        """Fetch pages of the driver's UI until the job ends; the last that came stay."""
        log = run / "driver.log"

        def found(pattern: str) -> str:
            match = re.search(pattern, log.read_text(errors="replace"))
            return match[1] if match else "none" * (process.poll() is not None)

        port = wait_for(
            lambda: found(r"service 'SparkUI' on port (\d+)"), "the UI did not start", 600
        )
        root = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            # The page's own script fetches what it shows of the environment.
            application = found(r"\b(app-\d+-\d+)")
            own = f"api/v1/applications/{application}/environment"
            for page in ("environment/", "executors/", "jobs/", "SQL/", own):
                with suppress(OSError):
                    content = urllib.request.urlopen(f"{root}/{page}", timeout=10).read()
                    (run / "pages" / page.replace("/", "-")).write_bytes(content)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)

    def secrets(self) -> dict[str, tuple[bytes, ...]]:
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
        """What was found in each place that a job left something in."""
        return {
            place: [
                f"{secret} in {file.relative_to(self.folder)}"
                for file, secret in found(files, secrets)
            ]
            for place, files in self.places(name).items()
        }


@click.command()
def main() -> None:
    """Look for canaries in what runs leave; the exit code is 1 on a hit, or on a plant not found."""
    with a_cluster("leaks") as cluster:
        scene = Scene(cluster.folder.parent, cluster)
        codes = {name: scene.run(name, format=name) for name in FORMATS}
        codes["failing"] = scene.run("failing", "--oov", "fail")
        secrets, plant = scene.secrets(), {"planted": text_forms(PLANTED)}
        left = [scene.hits(run, secrets) for run in codes]
        # Then one that leaks wherever options and settings allow it, and files where they do not.
        java = f"-Dlog4j2.configurationFile={scene.folder}/log4j2.properties -Dnote={PLANTED}"
        conf = {"spark.note": PLANTED, "spark.executor.extraJavaOptions": java}
        codes["leaky"] = scene.run("leaky", "--keep", "other", label=PLANTED, conf=conf)
        for host in cluster.hosts:
            for folder in (host / "tmp", next(host.glob("work/*/*/"))):
                (folder / "forgotten").write_text(SENTENCE)
        faults = [
            f"exit code {code} of {run}"
            for run, code in codes.items()
            if code != 2 * (run == "failing")
        ]
        seen = {False: "NOT FOUND", True: "found"}
        click.echo(f"{'place':28}{'files':>6}  {f'left by {len(left)} runs':17}planted")
        for place, leaked in scene.hits("leaky", secrets | plant).items():
            paths = scene.places("leaky")[place]
            files = sum(file.is_file() for path in paths for file in (path, *path.rglob("*")))
            hits = sorted({hit for run in left for hit in run[place]})
            faults += hits + [f"{place}: the planted canary was not found"] * (not leaked)
            click.echo(f"{place:28}{files:6}  {f'{len(hits)} hits':17}{seen[bool(leaked)]}")
        click.echo("\n".join(["", f"{len(faults)} faults", *faults]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
