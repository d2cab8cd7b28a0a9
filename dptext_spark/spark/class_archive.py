"""Java's classes, kept in a file of the Python environment, so that Spark starts in two thirds of the time.

    python -m dptext_spark.spark.class_archive

Each JVM reads, checks and links thousands of Spark's classes before it does anything. An archive of them (JEP
350, Java 17) is mapped instead. It serves the Java and the Spark that it was made with; Java looks at that
itself, and starts without it where they are others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import click

from dptext_spark.embedding.build import build_embedding
from dptext_spark.errors import DptextError, JobError
from dptext_spark.spark.java import ensure_java

SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"


def archive_path() -> Path:
    """Say where this environment's archive lies, if it has one: what can be written there is code."""
    return Path(sys.prefix, "share", "dptext-spark", "spark-classes.jsa")


def archive_option() -> str:
    """Give the option with which Java uses the archive; empty where there is none, or one is being made."""
    if not archive_path().is_file() or "ArchiveClassesAtExit" in os.environ.get(SUBMIT_OPTIONS, ""):
        return ""
    return f'"-XX:SharedArchiveFile={archive_path()}"'


def make_archive() -> int:
    """Make the archive of what a release of the demo's queries loads; give its bytes, 0 if Java made none.

    Raises:
        DptextError: There is no Java, the release fails, or the environment cannot be written to.
    """
    ensure_java()
    place = archive_path()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            unfinished = Path(scratch, place.name)
            _release(Path(scratch), {SUBMIT_OPTIONS: f'"-XX:ArchiveClassesAtExit={unfinished}"'})
            if not unfinished.is_file():
                return 0
            os.replace(unfinished, place)
    except OSError as error:
        raise JobError("The archive could not be written", got=f"{place}: {error.strerror}") from None
    return place.stat().st_size


def _release(folder: Path, environment: dict[str, str]) -> None:
    """Run a release, and wait until its JVM has ended, which is later."""
    demo = files("dptext_spark") / "demo"
    with as_file(demo / "glove.6B.50d.subset.txt.gz") as glove, as_file(demo / "queries.parquet") as queries:
        build_embedding(glove, folder / "bundle", limit=1000)
        # With --verbose the JVM has this pipe too, which ends when it does.
        release = subprocess.run(
            [
                *(sys.executable, "-m", "dptext_spark", "privatize", "--mechanism", "laplace"),
                *("--epsilon", "10", "--text", "text", "--id", "id", "--keep", "intent", "--verbose"),
                *("--input", queries, "--embedding", folder / "bundle", "--output", folder / "out"),
            ],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    if release.returncode:
        said = release.stderr.decode(errors="replace").strip().splitlines()
        raise JobError("A release of the demo's queries failed", got=said[-1] if said else "")


@click.command()
def main() -> None:
    """Keep the classes that Spark loads in this Python environment, so that it starts sooner."""
    try:
        size = make_archive()
    except DptextError as error:
        raise click.ClickException(str(error)) from None
    if size:
        click.echo(f"{archive_path()}: {size / 1e6:.0f} MB of Java's classes")
    else:
        click.echo("This Java keeps no classes: Spark starts as before. Java 17 does")


if __name__ == "__main__":
    main()
