"""Runs all benchmarks on one machine and writes what was measured as JSON, Markdown and figures.

    python -m scripts.benchmarks --data DATA --output docs/benchmarks [--only NAME ...] [--small] [--render]

A section is a module of this folder, named in ``SECTIONS`` below. It runs in a process of its own, as
``python -m scripts.benchmarks.NAME --data DATA --bundles FOLDER [--small]`` (``section.py`` makes that
command of a function), and prints one JSON object on stdout; stderr is free. With ``--small`` it ends in
seconds. The object::

    {"title": "Searches compared",
     "rows": [{"embedding": "33,860 x 300", "what": "faiss", "multiple of exact": 0.9}, ...],
     "plots": [{"title": "...", "x": "words", "y": ["rate"], "by": "what", "where": {"column": "value"},
                "log": "xy"}],
     "notes": ["One thread, processor time; ..."]}

``rows`` become one table, its columns in the order in which they are first seen: ratios before rates. A
value is a string, a number (written with three significant digits, from 1,000 on whole), true, false or null
(a dash); a column that a row lacks is empty. Strings and column names have no ``|``.
``plots`` is optional: a figure draws the columns ``y`` over ``x`` (lines where x is a number, bars where it
is a string), one line for each value of the column ``by``, of the rows in which columns have the values of
``where``; ``log`` names the logarithmic axes: "", "x", "y" or "xy". Only ``x`` and ``y`` are needed.
``notes`` are sentences in Markdown: how it was measured, what failed within the section.

A section that fails or takes too long stays in the page, with the reason. Results are kept as they come.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click
import psutil
from threadpoolctl import threadpool_info

from scripts.benchmarks.page import write_page
from scripts.benchmarks.section import reason

SECTIONS: Final = (
    "kernel_and_job",
    "job_start",
    "searches",
    "search_in_lists",
    "throughput",
    "exponential_lane",
    "ladder",
    "growth",
    "scaling",
    "large_vocabulary",
    "calibration_job",
    "executor_memory",
    "rivals",
)
"""Modules of this folder, in the order of the page."""

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARIES: Final = ("dptext-spark", "numpy", "faiss-cpu", "pyarrow", "pyspark", "scipy")


def machine() -> dict[str, Any]:
    """Say what tells one machine from another, without its name."""
    blas = [
        f"{pool['internal_api']} {pool['version']}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    ]
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory, GB": round(psutil.virtual_memory().total / 1e9),
        "system": platform.system(),
        "BLAS": ", ".join(sorted(set(blas))) or None,
        "Python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }


def processor() -> str:
    """Name the processor's model."""
    try:
        facts = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        facts = ""
    found = re.search(r"^model name\s*:\s*(.+)$", facts, re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.processor() or platform.machine()


def measured(name: str, data: Path, folder: Path, *, small: bool, limit: float) -> dict[str, Any]:
    """Run a section in a process of its own; give what it printed, or why there is nothing."""
    command = [sys.executable, "-m", f"scripts.benchmarks.{name}", "--data", str(data)]
    command += ["--bundles", str(folder / "bundles"), *(["--small"] if small else [])]
    environment = os.environ | {"TMPDIR": str(folder)}  # nothing stays behind of one that is killed
    began = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "load before": round(os.getloadavg()[0], 1)}
    start = time.monotonic()
    with (folder / f"{name}.log").open("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=limit)
            errors.seek(0)
            found = outcome(process.returncode, printed, errors.read())
        except subprocess.TimeoutExpired:
            found = {"failed": f"not done after {limit:g} s"}
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with all that it started
            process.wait()
    return began | {"seconds": round(time.monotonic() - start)} | found


def outcome(code: int, printed: str, said: str) -> dict[str, Any]:
    """Read what a section printed, or say why there is nothing."""
    if code:
        click.echo(said[-4000:], err=True)
        return {"failed": reason(said) or f"exit code {code}"}
    try:
        found = json.loads(printed)
        rows = found["rows"]
        if isinstance(found["title"], str) and rows and all(isinstance(row, dict) for row in rows):
            return found
    except (ValueError, KeyError, TypeError):
        pass
    return {"failed": "printed no JSON object with title and rows"}


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Folder of the data.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--only", multiple=True, type=click.Choice(SECTIONS), help="Replace these sections; repeatable."
)
@click.option("--small", is_flag=True, help="Try all of it quickly; the figures mean nothing.")
@click.option("--render", is_flag=True, help="Write the page again, from the results that are there.")
@click.option("--seconds", "limit", default=3600.0, show_default=True, help="that a section may take")
def main(
    data: Path | None, output: Path, only: tuple[str, ...], small: bool, render: bool, limit: float
) -> None:
    """Measure, and write results.json, README's neighbour results.md and its figures into OUTPUT."""
    file = output / "results.json"
    if render:
        write_page(json.loads(file.read_text(encoding="utf-8")), output)
        return
    if data is None:
        raise click.UsageError("Give --data, the folder of the data, or --render.")
    results: dict[str, Any] = {"machine": machine(), "small": small, "sections": {}}
    if only and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if {**before, "sections": {}} != results:
            raise click.UsageError(
                "The results that are there are of another machine or size: run all sections."
            )
        results = before
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dptext-benchmarks-") as folder:
        for name in only or SECTIONS:
            click.echo(f"{name} ...", err=True)
            found = measured(name, data.resolve(), Path(folder), small=small, limit=limit)
            results["sections"][name] = found
            ordered = {each: results["sections"][each] for each in SECTIONS if each in results["sections"]}
            results["sections"] = ordered
            click.echo(f"    {found.get('failed', 'done')} ({found['seconds']} s)", err=True)
            file.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            write_page(results, output)
    if any("failed" in results["sections"][name] for name in only or SECTIONS):
        sys.exit(1)


if __name__ == "__main__":
    main()
