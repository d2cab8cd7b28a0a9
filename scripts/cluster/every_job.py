"""Submit every job to a standalone cluster, and compare its output with that of ``dptext`` on this machine.

    scripts/test-cluster

Master and two workers run on loopback. The driver has the package as a zip, its libraries as a packed
environment and an empty working folder; the workers get both through Spark. All see the folders of input and
output; for the workers the driver's folder (bundle, key, package), the checkout's and each other's are empty.

Every command runs twice with the same words, as ``dptext JOB ...`` and as ``spark-submit jobs/JOB.py ...``:
reports name their paths, and must be equal to the byte as well.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import pyarrow.parquet as pq

from dptext_spark.demo import GLOVE, MAMMALS, QUERIES
from tests.helpers.cluster import QUICK_JAVA, Cluster, can_hide, environment, write_key
from tests.helpers.comparison import compared

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "dist" / "cluster"
FILES: Final = 8
JOBS: Final = ("embedding", "privatize", "vectors", "calibrate", "poincare")

# What `dptext` sets on one machine, and what decides how many files a table has.
_SPLITTING: Final = {
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things are.

    Attributes:
        driver: The submitting host's own folder.
        shared: What all hosts see: ``input`` and ``output``.
    """

    driver: Path
    shared: Path

    @property
    def undrawn(self) -> Path:
        """Stand-ins for what draws pages and pictures: the packed environment lacks it too."""
        return self.shared / "undrawn"

    def fill(self) -> None:
        """Put package, key and input where they belong."""
        self.undrawn.mkdir(parents=True)
        for name in ("jinja2", "matplotlib"):
            (self.undrawn / f"{name}.py").write_text(f"raise ModuleNotFoundError(name={name!r})\n")
        shutil.copytree(PACKAGE, self.driver)
        shutil.copy(GLOVE, self.driver)
        libraries = self.driver / "environment"
        libraries.mkdir()
        subprocess.run(["tar", "-xzf", f"{libraries}.tar.gz", "-C", libraries], check=True)
        write_key(self.driver / "release.key")
        queries, table = self.shared / "input" / "queries", pq.read_table(QUERIES)
        queries.mkdir(parents=True)
        shutil.copy(MAMMALS, self.shared / "input")
        for part in range(FILES):  # so that every worker has some to read
            own = table.take(list(range(part, len(table), FILES)))
            pq.write_table(own, queries / f"part-{part}.parquet")

    def jobs(self) -> Iterator[Job]:
        """Every job, in an order in which they can run."""
        own, input, output = self.driver, self.shared / "input", self.shared / "output"
        bundle = f"--embedding {own}/bundle/glove-50d"
        table = f"{bundle} --input {input}/queries --key-file {own}/release.key --name queries"
        words = f"{bundle} --words 200 --runs 200"
        yield Job("embedding", own / "bundle", f"{own}/{GLOVE.name} --output {own}/bundle/glove-50d")
        yield Job("privatize", output / "privatize", f"{table} --output {output}/privatize/table")
        yield Job("vectors", output / "vectors", f"{table} --output {output}/vectors/table")
        yield Job("calibrate", output / "calibrate", f"{words} --output {output}/calibrate/tables")
        pairs = f"--pairs {input}/{MAMMALS.name} --epochs 20"
        yield Job("poincare", own / "poincare", f"{pairs} --output {own}/poincare/mammals")


@dataclass(frozen=True)
class Job:
    """A command, the folder that it writes to, and its options beside those of its configuration file."""

    name: str
    output: Path
    options: str

    def run(self, places: Places, cluster: Cluster | None) -> subprocess.CompletedProcess[str]:
        """Run it on this machine, or with spark-submit."""
        own = places.driver
        arguments = ["--config", f"{own}/conf/{self.name}.toml", *self.options.split()]
        if cluster is None:
            command = [str(Path(sys.executable).with_name("dptext")), self.name, *arguments]
            env = environment() | {"JAVA_TOOL_OPTIONS": QUICK_JAVA, "PYTHONPATH": str(places.undrawn)}
            return subprocess.run(
                command, cwd=places.shared, env=env, capture_output=True, text=True, check=False
            )
        conf = _SPLITTING | {
            "spark.executor.memory": "512m",
            "spark.pyspark.python": "./environment/bin/python",
            "spark.pyspark.driver.python": f"{own}/environment/bin/python",
        }
        settings = f"--properties-file {own}/conf/spark-defaults.conf"
        sent = f"--py-files {own}/dptext_spark.zip --archives {own}/environment.tar.gz#environment"
        return cluster.submit(*f"{settings} {sent} {own}/jobs/{self.name}.py".split(), *arguments, conf=conf)

    def compare(self, places: Places, cluster: Cluster, aside: Path) -> bool:
        """Run it here, take away what it wrote, and run it on the cluster."""
        line = f"{self.name:<12}"
        for where, width in ((None, 7), (cluster, 9)):
            self.output.mkdir(parents=True)
            start = time.monotonic()
            done = self.run(places, where)
            if done.returncode != 0:
                click.echo(f"{self.name} FAILED\n{shlex.join(done.args)}\n{done.stdout}{done.stderr}")
                return False
            line += f"{time.monotonic() - start:{width - 2}.0f} s"
            if where is None:
                self.output.rename(aside)
        different, said = compared(aside, self.output)
        verdict = "DIFFERENT" if different else "equal"
        click.echo("\n  ".join([f"{line}  {said}: {verdict}", *different]))
        return not different


def compare_all(folder: Path, places: Places, names: Sequence[str]) -> bool:
    """Run the jobs of these names in both ways, print a line for each, and say whether all is equal."""
    hidden = [places.driver, folder / "local", *(ROOT / name for name in ("dptext_spark", "jobs", "dist"))]
    hidden.append(Path(sys.executable).parent)
    (folder / "local").mkdir()
    quick = {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
    with Cluster(folder / "cluster", workers=2, cores=1, memory="1g", hidden=hidden, env=quick) as cluster:
        click.echo(f"{'job':<12}{'local':>7}{'cluster':>9}  compared")
        jobs = [job for job in places.jobs() if not names or job.name in (*names, "embedding")]
        equal = [job.compare(places, cluster, folder / "local" / job.name) for job in jobs]
        click.echo()
        for host in cluster.hosts:
            executors = sum(path.is_dir() for path in (host / "work").glob("app-*/*"))
            copies = sum(path.is_dir() for path in (host / "tmp" / f"dptext-spark-{os.getuid()}").glob("*"))
            click.echo(f"{host.name}: {executors} executors, {copies} copy of the bundle")
        left = sorted(path.name for path in cluster.driver.iterdir())
        click.echo(f"drivers' working folder: {', '.join(left) or 'empty'}")
    return all(equal) and not left


@click.command()
@click.argument("jobs", nargs=-1, type=click.Choice(JOBS))
def main(jobs: Sequence[str]) -> None:
    """Submit JOBS (all by default) and compare; the exit code is 1 where anything differs."""
    # Ended by a signal, everything is stopped all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="dptext-test-cluster-")).resolve()
    keep = False
    try:
        if not can_hide(folder):
            raise click.ClickException(
                "The driver's files cannot be hidden from the workers: unshare --mount is refused here. "
                "Run as root, or where user namespaces are allowed."
            )
        places = Places(driver=folder / "submit", shared=folder / "shared")
        places.fill()
        keep = not compare_all(folder, places, jobs)
    finally:
        if not keep:
            shutil.rmtree(folder)
    if keep:
        click.echo(f"Not equal. All files are in {folder}.", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
