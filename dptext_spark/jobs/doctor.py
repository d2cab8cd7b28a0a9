"""The job of ``dptext doctor``: whether this machine, and what is named, can make a release."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dptext_spark.display import rendered
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError, JobError
from dptext_spark.noise import NoiseKey
from dptext_spark.options import DoctorOptions
from dptext_spark.report.facts import Facts, Report, versions
from dptext_spark.report.text import missing_library
from dptext_spark.spark.failures import spark_errors
from dptext_spark.spark.java import ensure_java, machine_memory
from dptext_spark.spark.session import is_connect, session
from dptext_spark.tables.source import own_session
from dptext_spark.tables.storage import LocalFiles, Storage

LEAST_MEMORY: Final = 2 << 30
"""Bytes that Spark, a Python worker and a small bundle need."""

LEAST_DISK: Final = 1 << 30
"""Bytes for copies of the bundle and for what Spark shuffles."""

_PROBE: Final = ".dptext-doctor"


def run(options: DoctorOptions) -> Report:
    """Run ``dptext doctor``: try everything, and end with an error where something fails."""
    results: list[Facts] = []
    for name, check in _checks(options):
        try:
            finding = check()
            results.append({"check": name, "ok": True, "finding": finding})
        except DptextError as error:
            results.append({"check": name, "ok": False, "finding": str(error)})
    failed = [result["check"] for result in results if not result["ok"]]
    failure = None
    if failed:
        failure = JobError(
            f"{len(failed)} of {len(results)} checks failed",
            got=", ".join(failed),
            do="Do what their lines say, and run dptext doctor again",
        )
    words = {True: "ok", False: "FAILED"}
    rows = [[result["check"], words[result["ok"]], result["finding"]] for result in results]
    facts = {"checks": results, "versions": versions()}
    return Report(facts=facts, text=rendered([{"table": rows, "numbers": False}]), failure=failure)


def _checks(options: DoctorOptions) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield what is checked, by name: each returns what it found, or fails."""
    yield "versions", lambda: _listed(versions())
    yield "report pages", _check_report
    yield "memory", _check_memory
    yield "disk", _check_disk
    yield "Java", _check_java
    yield "Spark", _check_spark
    embedding = options.embedding
    if embedding is not None:
        yield "bundle", lambda: Embedding.open(embedding).manifest.describe().splitlines()[0]
    key_file = options.key_file
    if key_file is not None:
        yield "key file", lambda: _check_key(key_file)
    output = options.output
    if output is not None:
        yield "output", lambda: _check_output(output)


def _listed(names: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in names.items())


def _check_report() -> str:
    library = missing_library()
    if library:
        raise ConfigError(
            f"Figures and pages of evaluate and calibrate are not drawn: {library} is missing",
            do="Run: pip install 'dptext-spark[report]'",
        )
    return "jinja2 and matplotlib are installed"


def _check_memory() -> str:
    """Check the memory of this machine or container, where the system says how much it has."""
    total = machine_memory()
    if total is None:
        return "unknown"
    if total < LEAST_MEMORY:
        raise ConfigError(
            "There is little memory",
            allowed=f"{LEAST_MEMORY >> 30} GiB or more",
            got=f"{total / 2**30:.1f} GiB",
            do="Take a larger machine, or an embedding made with --limit",
        )
    return f"{total / 2**30:.1f} GiB, {os.cpu_count()} cores"


def _check_disk() -> str:
    """Check the room of the folder that bundles are copied into."""
    folder = os.environ.get("TMPDIR", "/tmp")
    free = shutil.disk_usage(folder).free
    if free < LEAST_DISK:
        raise ConfigError(
            f"The folder {folder} has little room",
            allowed=f"{LEAST_DISK >> 30} GiB or more",
            got=f"{free / 2**30:.1f} GiB",
            do="Free some, or set TMPDIR to a folder of another disk",
        )
    return f"{free / 2**30:.1f} GiB free in {folder}"


def _check_java() -> str:
    ensure_java()
    return f"found in {os.environ.get('JAVA_HOME', 'PATH')}"


def _check_spark() -> str:
    """Start a session, and run a task in a Python worker."""
    with spark_errors("Spark does not run a task"):
        spark = own_session(session("dptext doctor", on_connect=True))
        (row,) = spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
        place = "Spark Connect" if is_connect(spark) else spark.sparkContext.master
        return f"{spark.version} runs Python workers on {place}; {row['id'] + 1} task done"


def _check_key(path: Path) -> str:
    NoiseKey.read(path)
    return f"{path} has a key, open to its owner alone"


def _check_output(path: str) -> str:
    """Write a file next to an output, and remove it."""
    with spark_errors(f"Nothing can be written next to {path}"):
        spark = session("dptext doctor", on_connect=True)
        storage = LocalFiles() if is_connect(spark) else Storage(spark)
        probe = f"{path.rstrip('/')}{_PROBE}"
        storage.write(probe, "")
        storage.delete(probe)
        state = "is free"
        if storage.exists(path):
            state = "exists: --mode overwrite replaces it"
        return f"{path} {state}, and files can be written next to it"
