"""Submit every job to a standalone cluster, and compare its output with that of this machine.

    scripts/test-cluster

Master and two workers run on loopback. The driver has the package as a zip, its libraries as a
packed environment and an empty working folder; the workers get both through Spark. All see the
folders of input and output; for the workers the driver's folder (bundle, key, package), the
checkout's and each other's are empty.

Every command runs twice with the same words, as ``dptext JOB ...`` and as ``spark-submit
jobs/JOB.py ...``: reports name their paths, and must be equal to the byte as well, but for the time
and the name of the run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import pyarrow.parquet as pq

from dptext_spark.demo import GLOVE, MAMMALS, QUERIES
from tests.helpers.cluster import QUICK_JAVA, Cluster, can_hide, environment, write_key
from tests.helpers.comparison import compared

ROOT: Final = Path(__file__).resolve().parents[2]
FILES: Final = 8
SOCKETS: Final = "sockets"
"""A folder that each host has."""
JOBS: Final = {
    "embedding": "{driver}/{glove} --output {driver}/embedding/glove-50d",
    "privatize": "{table} --output {shared}/privatize/table",
    "vectors": "{table} --output {shared}/vectors/table",
    "calibrate": "{bundle} --words 200 --runs 200 --output {shared}/calibrate/tables",
    "poincare": "--pairs {shared}/{mammals} --epochs 20 --output {driver}/poincare/mammals",
}
"""Options besides those of their configuration files, in an order in which the jobs can run."""

# What `dptext` sets on one machine, and what decides how many files a table has.
_SPLITTING: Final = {
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}


def fill(driver: Path, shared: Path) -> None:
    """Write package, key and input into the driver's folder, and into the one that all see."""
    shutil.copytree(ROOT / "dist" / "cluster", driver)
    shutil.copy(GLOVE, driver)
    environment = driver / "environment"
    environment.mkdir()
    subprocess.run(["tar", "-xzf", f"{environment}.tar.gz", "-C", environment], check=True)
    write_key(driver / "release.key")
    (shared / "queries").mkdir(parents=True)
    shutil.copy(MAMMALS, shared)
    # Stand-ins for what draws pages and pictures: the packed environment lacks it too.
    (shared / "undrawn").mkdir()
    absent = 'import sys\nsys.modules["jinja2"] = sys.modules["matplotlib"] = None\n'
    (shared / "undrawn" / "sitecustomize.py").write_text(absent)
    table = pq.read_table(QUERIES)
    for part in range(FILES):  # so that every worker has some to read
        rows = table.take(list(range(part, len(table), FILES)))
        pq.write_table(rows, shared / "queries" / f"part-{part}.parquet")


def run(
    job: str, driver: Path, shared: Path, cluster: Cluster | None
) -> subprocess.CompletedProcess[str]:
    """Run a job on this machine, or with spark-submit."""
    bundle = f"--embedding {driver}/embedding/glove-50d"
    table = f"{bundle} --input {shared}/queries --key-file {driver}/release.key --name queries"
    places = {"driver": driver, "shared": shared, "glove": GLOVE.name, "mammals": MAMMALS.name}
    options = JOBS[job].format(bundle=bundle, table=table, **places).split()
    arguments = ["--config", f"{driver}/conf/{job}.toml", *options]
    if cluster is None:
        command = [str(Path(sys.executable).with_name("dptext")), job, *arguments]
        env = environment() | {
            "JAVA_TOOL_OPTIONS": QUICK_JAVA,
            "PYTHONPATH": str(shared / "undrawn"),
        }
        return subprocess.run(
            command, cwd=shared, env=env, capture_output=True, text=True, check=False
        )
    conf = _SPLITTING | {
        "spark.executor.memory": "512m",
        # As `dptext` does on one machine: a report names a run whose rows went through ports.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(driver.parent / SOCKETS),
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": f"{driver}/environment/bin/python",
    }
    settings = f"--properties-file {driver}/conf/spark-defaults.conf"
    archive = f"{driver}/environment.tar.gz#environment"
    settings += f" --py-files {driver}/dptext_spark.zip --archives {archive}"
    script = f"{driver}/jobs/{job}.py"
    return cluster.submit(*settings.split(), script, *arguments, conf=conf)


def is_equal(job: str, driver: Path, shared: Path, cluster: Cluster, aside: Path) -> bool:
    """Run a job here, take away what it wrote, run it on the cluster, and print what differs."""
    output = shared / job
    if job in ("embedding", "poincare"):
        output = driver / job
    for where in (None, cluster):
        output.mkdir()
        result = run(job, driver, shared, where)
        if result.returncode != 0:
            click.echo(f"{job} FAILED\n{shlex.join(result.args)}\n{result.stdout}{result.stderr}")
            return False
        if where is None:
            output.rename(aside)
    different, content = compared(aside, output)
    verdict = "DIFFERENT" if different else "equal"
    click.echo("\n  ".join([f"{job:<12}{content}: {verdict}", *different]))
    return not different


@click.command()
@click.argument("jobs", nargs=-1, type=click.Choice(list(JOBS)))
def main(jobs: Sequence[str]) -> None:
    """Submit JOBS (all by default) and compare; the exit code is 1 where anything differs."""
    # Ended by a signal, everything is stopped all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="dptext-test-cluster-")).resolve()
    driver = folder / "submit"
    shared = folder / "shared"
    local = folder / "local"
    if not can_hide(folder):
        raise click.ClickException(
            "The driver's files cannot be hidden from the workers: unshare --mount is refused "
            "here. Run as root, or where user namespaces are allowed."
        )
    fill(driver, shared)
    local.mkdir()
    (folder / SOCKETS).mkdir(mode=0o700)
    hidden = [driver, local, ROOT / "dptext_spark", ROOT / "jobs", ROOT / "dist"]
    hidden.append(Path(sys.executable).parent)
    quick = {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
    unequal = []
    with Cluster(
        folder / "cluster", workers=2, cores=1, memory="1g", hidden=hidden, env=quick
    ) as cluster:
        for job in JOBS:
            if jobs and job not in (*jobs, "embedding"):
                continue
            if not is_equal(job, driver, shared, cluster, local / job):
                unequal.append(job)
        for host in cluster.hosts:
            bundles = host / "tmp" / f"dptext-spark-{os.getuid()}"
            copies = sum(path.is_dir() for path in bundles.iterdir())
            click.echo(f"{host.name}: bundle in {copies} copies")
        remnants = sorted(os.listdir(cluster.driver))
    if remnants or unequal:
        names = ", ".join(remnants) or "nothing"
        click.echo(f"Drivers left: {names}. All files are in {folder}.", err=True)
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
