"""The run of all benchmarks: its results have what was measured, and what failed."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np

SIZES = {"glove_840b_300d_33k": (600, 12), "glove_6b_50d": (900, 8)}


def run(data: Path, results: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.benchmarks", "--data", str(data), "--output", str(results)]
    return subprocess.run([*command, "--small", *options], capture_output=True, text=True, check=False)


def test_one_run(tmp_path: Path) -> None:
    """Rejects a failure that ends the run or hides, one that forgets other sections, and mixed machines.

    There are made embeddings and no novels, so that one section succeeds and one cannot.
    """
    data, results, rng = tmp_path / "data", tmp_path / "results.json", np.random.default_rng(0)
    for name, size in SIZES.items():
        (data / name).mkdir(parents=True)
        np.save(data / name / "vectors.npy", rng.standard_normal(size).astype(np.float16))
        (data / name / "vocab.txt").write_text("".join(f"word{row}\n" for row in range(size[0])))
    assert run(data, results, "--only", "mechanisms", "--only", "job").returncode == 1
    text = results.read_text()
    before = json.loads(text)
    done, failed = (before["sections"][name] for name in ("mechanisms", "job"))
    assert before["small"] and done["rows"] and "failed" not in done
    assert "FileNotFoundError" in failed["failed"] and "rows" not in failed
    assert not any(name in text for name in (str(tmp_path), platform.node()))

    assert run(data, results, "--only", "searches", "--seconds", "0.01").returncode == 1
    after = json.loads(results.read_text())
    assert after["sections"].pop("searches")["failed"] == "not done after 0.01 s"
    assert after == before

    results.write_text(json.dumps({**before, "machine": {"processor": "another"}}))
    refused = run(data, results, "--only", "searches")
    assert refused.returncode == 2 and "another machine" in refused.stderr
