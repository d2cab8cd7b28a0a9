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
    """Say what distinguishes one machine from another, without its name."""
    facts = Path("/proc/cpuinfo")
    known = facts.read_text() if facts.exists() else ""
    model = re.search(r"^model name\s*:\s*(.+)$", known, re.MULTILINE)
    blas = {
        f"{p['internal_api']} {p['version']}" for p in threadpool_info() if p["user_api"] == "blas"
    }
    return {
        "processor": " ".join(model[1].split()) if model else platform.machine(),
        "features": ", ".join(sorted(FEATURES & set(known.split()))),
        "cores": len(os.sched_getaffinity(0)),
        "memory, GB": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "BLAS": ", ".join(sorted(blas)) or None,
        "Python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def measured(name: str, data: Path, folder: Path, *, small: bool) -> dict[str, Any]:
    """Run a section in a process of its own; give what it printed."""
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}", "--data", str(data)]
    command += ["--bundles", str(folder / "bundles"), *(["--small"] if small else [])]
    load, start = os.getloadavg()[0], time.monotonic()
    environment = os.environ | {"TMPDIR": str(folder)}
    printed = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True
    ).stdout
    date, taken = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", round(time.monotonic() - start)
    about = {"machine": machine(), "small": small, "date": date, "load before": round(load, 1)}
    return about | {"seconds": taken} | json.loads(printed)


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--output", "file", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option(
    "--only", multiple=True, type=click.Choice(SECTIONS), help="Replace these; repeatable."
)
@click.option("--small", is_flag=True, help="Try all of it quickly; the figures mean nothing.")
def main(data: Path, file: Path, only: tuple[str, ...], small: bool) -> None:
    """Measure, and write the results, each section with its machine."""
    results = json.loads(file.read_text(encoding="utf-8")) if only and file.exists() else {}
    with tempfile.TemporaryDirectory(prefix="dptext-benchmarks-") as folder:
        for name in only or SECTIONS:
            click.echo(f"{name} ...", err=True)
            results[name] = measured(name, data.resolve(), Path(folder), small=small)
            file.write_text(
                json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
