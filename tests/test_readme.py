"""The README's commands run as they stand, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.cluster import QUICK_JAVA

README = Path(__file__).parents[1] / "README.md"
# As it was before any test: the tests' own Spark leaves JAVA_HOME behind.
ENVIRONMENT = dict(os.environ)
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.e2e
@pytest.mark.spark
def test_commands_run(tmp_path: Path) -> None:
    shell = "\n".join(code for kind, code in BLOCKS if kind == "sh")
    python = [code for kind, code in BLOCKS if kind == "python"]
    environment = ENVIRONMENT | {
        "PATH": f"{Path(sys.executable).parent}:{ENVIRONMENT['PATH']}",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }
    for command in (["bash", "-euo", "pipefail", "-c", shell], *([sys.executable, "-c", c] for c in python)):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    assert shell and python
    assert (tmp_path / "sanitized" / "_SUCCESS").exists()
