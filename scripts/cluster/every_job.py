"""Submit every job to a standalone cluster, and compare its output with that of ``dptext`` on this machine.

    scripts/test-cluster

Master and two workers run on loopback. The driver has the package as a zip, its libraries as a
packed environment and an empty working folder; the workers get both through Spark. All see the
folders of input and output; for the workers the driver's folder (bundle, key, package), the
checkout's and each other's are empty.

Every command runs twice with the same words, as ``dptext JOB ...`` and as ``spark-submit
jobs/JOB.py ...``: reports name their paths, and must be equal to the byte as well.
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
JOBS: Final = {
    "embedding": "{own}/{glove} --output {own}/embedding/glove-50d",
    "privatize": "{table} --output {shared}/privatize/table",
    "vectors": "{table} --output {shared}/vectors/table",
    "calibrate": "{bundle} --words 200 --runs 200 --output {shared}/calibrate/tables",
    "poincare": "--pairs {shared}/{mammals} --epochs 20 --output {own}/poincare/mammals",
}
"""Options beside those of their configuration files, in an order in which the jobs can run."""

# What `dptext` sets on one machine, and what decides how many files a table has.
_SPLITTING: Final = {
    "spark.sql.files.minPartitionNum": str(8 * (os.cpu_count() or 1)),
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
}


def fill(own: Path, shared: Path) -> None:
    """Put package, key and input into the driver's own folder, and into the one that all hosts see."""
    shutil.copytree(ROOT / "dist" / "cluster", own)
    shutil.copy(GLOVE, own)
    (own / "environment").mkdir()
    subprocess.run(
        ["tar", "-xzf", own / "environment.tar.gz", "-C", own / "environment"], check=True
    )
    write_key(own / "release.key")
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
    job: str, own: Path, shared: Path, cluster: Cluster | None
) -> subprocess.CompletedProcess[str]:
    """Run a job on this machine, or with spark-submit."""
    bundle = f"--embedding {own}/embedding/glove-50d"
    table = f"{bundle} --input {shared}/queries --key-file {own}/release.key --name queries"
    places = {"own": own, "shared": shared, "glove": GLOVE.name, "mammals": MAMMALS.name}
    options = JOBS[job].format(bundle=bundle, table=table, **places).split()
    arguments = ["--config", f"{own}/conf/{job}.toml", *options]
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
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": f"{own}/environment/bin/python",
    }
    settings = f"--properties-file {own}/conf/spark-defaults.conf"
    sent = f"--py-files {own}/dptext_spark.zip --archives {own}/environment.tar.gz#environment"
    return cluster.submit(*f"{settings} {sent} {own}/jobs/{job}.py".split(), *arguments, conf=conf)


def is_equal(job: str, own: Path, shared: Path, cluster: Cluster, aside: Path) -> bool:
    """Run a job here, take away what it wrote, run it on the cluster, and print what differs."""
    output = (own if job in ("embedding", "poincare") else shared) / job
    for where in (None, cluster):
        output.mkdir()
        done = run(job, own, shared, where)
        if done.returncode != 0:
            click.echo(f"{job} FAILED\n{shlex.join(done.args)}\n{done.stdout}{done.stderr}")
            return False
        if where is None:
            output.rename(aside)
    different, said = compared(aside, output)
    verdict = "DIFFERENT" if different else "equal"
    click.echo("\n  ".join([f"{job:<12}{said}: {verdict}", *different]))
    return not different


@click.command()
@click.argument("jobs", nargs=-1, type=click.Choice(list(JOBS)))
def main(jobs: Sequence[str]) -> None:
    """Submit JOBS (all by default) and compare; the exit code is 1 where anything differs."""
    # Ended by a signal, everything is stopped all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="dptext-test-cluster-")).resolve()
    own, shared, local = folder / "submit", folder / "shared", folder / "local"
    if not can_hide(folder):
        raise click.ClickException(
            "The driver's files cannot be hidden from the workers: unshare --mount is refused here. "
            "Run as root, or where user namespaces are allowed."
        )
    fill(own, shared)
    local.mkdir()
    hidden = [own, local, *(ROOT / name for name in ("dptext_spark", "jobs", "dist"))]
    hidden.append(Path(sys.executable).parent)
    quick = {"JAVA_TOOL_OPTIONS": QUICK_JAVA}
    with Cluster(
        folder / "cluster", workers=2, cores=1, memory="1g", hidden=hidden, env=quick
    ) as cluster:
        chosen = [job for job in JOBS if not jobs or job in (*jobs, "embedding")]
        equal = [is_equal(job, own, shared, cluster, local / job) for job in chosen]
        for host in cluster.hosts:
            copies = sum(
                p.is_dir() for p in (host / "tmp" / f"dptext-spark-{os.getuid()}").iterdir()
            )
            click.echo(f"{host.name}: bundle in {copies} copies")
        left = sorted(path.name for path in cluster.driver.iterdir())
    if left or not all(equal):
        click.echo(
            f"Drivers left: {', '.join(left) or 'nothing'}. All files are in {folder}.", err=True
        )
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
