"""The README's commands run as they stand, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cluster import QUICK_JAVA

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", README.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.e2e
@pytest.mark.spark
def test_commands_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """On a machine without Java; rejects a notebook that does not call ensure_java()."""
    shell = "\n".join(code for kind, code in BLOCKS if kind == "sh")
    python = [code for kind, code in BLOCKS if kind == "python"]
    no_java = tmp_path_factory.mktemp("bin") / "java"
    no_java.write_text("#!/bin/sh\nexit 127\n")
    no_java.chmod(0o755)
    environment = os.environ | {
        "PATH": f"{no_java.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,
    }
    environment.pop("JAVA_HOME", None)  # the tests' own Spark leaves one behind
    for command in (["bash", "-euo", "pipefail", "-c", shell], *([sys.executable, "-c", c] for c in python)):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    assert shell and python
    assert (tmp_path / "sanitized" / "_SUCCESS").exists()
