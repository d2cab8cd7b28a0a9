"""Made embeddings where the benchmarks look for the real ones, and what a section finds with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.helpers.worlds import uneven, words

ROOT: Final = Path(__file__).parents[2]
SHAPES: Final = {"glove_840b_300d_33k": (3_000, 40), "glove_6b_50d": (12_000, 50)}


def made_embeddings(folder: Path) -> Path:
    """Write embeddings of ``SHAPES`` as the benchmarks' data has them."""
    for name, (count, dimension) in SHAPES.items():
        (folder / name).mkdir(parents=True)
        np.save(folder / name / "vectors.npy", uneven(count, dimension).astype(np.float16))
        (folder / name / "vocab.txt").write_text("".join(f"{word}\n" for word in words(count)))
    return folder


def tried(section: str, data: Path, *options: str) -> dict[str, Any]:
    """Run a section of the benchmarks as small as it can be; give what it prints."""
    command = [sys.executable, "-m", f"scripts.benchmarks.{section}", "--data", str(data), "--small"]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
