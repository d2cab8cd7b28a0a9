"""Runs all benchmarks on one machine and writes what was measured as JSON.

    python -m scripts.benchmarks --data DATA --output docs/benchmarks/results.json [--only NAME ...]
    [--small]

A section is a module of this folder that runs in a process of its own, as ``python -m
scripts.benchmarks.NAME --data DATA --bundles FOLDER [--small]``, and prints one JSON object:
``title``, ``rows`` (one object for each line of a table) and ``notes`` (how it was measured). One
that fails ends the run; ``--only`` measures it and the others again.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import psutil
from threadpoolctl import threadpool_info

from scripts.benchmarks.shared import ROOT

SECTIONS: Final = ("job", "searches", "mechanisms", "large_vocabulary", "memory")
LIBRARIES: Final = (
    "dptext-spark",
    "numpy",
    "faiss-cpu",
    "onnxruntime",
    "pyarrow",
    "pyspark",
    "scipy",
)
FEATURES: Final = {"asimddp", "avx2", "avx512f", "avx_vnni", "avx512_vnni", "i8mm"}
"""Of processors: what products of floats and of 8-bit integers use."""


def machine() -> dict[str, Any]:
    """Return what distinguishes one machine from another, without its name."""
    file = Path("/proc/cpuinfo")
    cpu_info = file.read_text() if file.exists() else ""
    processor = platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", cpu_info, re.MULTILINE)
    if model is not None:
        processor = " ".join(model[1].split())
    blas = set()
    for pool in threadpool_info():
        if pool["user_api"] == "blas":
            blas.add(f"{pool['internal_api']} {pool['version']}")
    libraries = ", ".join(sorted(blas)) or None
    features = ", ".join(sorted(FEATURES & set(cpu_info.split())))
    facts: dict[str, Any] = {
        "processor": processor,
        "features": features,
        "cores": len(os.sched_getaffinity(0)),
        "memory, GB": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "BLAS": libraries,
        "Python": platform.python_version(),
    }
    for name in LIBRARIES:
        facts[name] = version(name)
    return facts


def measured(name: str, data: Path, folder: Path, *, small: bool) -> dict[str, Any]:
    """Run a section in a process of its own; return what it printed."""
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}", "--data", str(data)]
    command += ["--bundles", str(folder / "bundles")]
    if small:
        command.append("--small")
    load, _, _ = os.getloadavg()
    start = time.monotonic()
    environment = os.environ | {"TMPDIR": str(folder)}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
    ).stdout
    return {
        "machine": machine(),
        "small": small,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "load before": round(load, 1),
        "seconds": round(time.monotonic() - start),
        **json.loads(printed),
    }


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--output", "file", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--only", multiple=True, type=click.Choice(SECTIONS), help="Replace these; repeatable."
)
@click.option("--small", is_flag=True, help="Try all of it quickly; the figures mean nothing.")
def main(data: Path, file: Path, only: tuple[str, ...], small: bool) -> None:
    """Measure, and write the results, each section with its machine."""
    results = {}
    if only and file.exists():
        results = json.loads(file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="dptext-benchmarks-") as folder:
        for name in only or SECTIONS:
            click.echo(f"{name} ...", err=True)
            results[name] = measured(name, data.resolve(), Path(folder), small=small)
            text = json.dumps(results, indent=1, ensure_ascii=False)
            file.write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
