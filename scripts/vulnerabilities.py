"""Known vulnerabilities of locked packages, as pip-audit has them from an index.

    python scripts/vulnerabilities.py LOCK...

The exit code is 1 if a package has a vulnerability. What no index answered for is said, with how
many packages it is of, and is no failure: a machine without an index can run this too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any


def audit(lock: str) -> dict[str, Any]:
    """Return what pip-audit answers about a lock, or why it has no answer."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = {}
    with suppress(json.JSONDecodeError):
        answer = json.loads(process.stdout)
    if answer.get("dependencies"):
        return answer
    reasons = process.stderr.splitlines() or ["pip-audit printed nothing"]
    return {"dependencies": [], "reason": reasons[-1]}


def lines_of(lock: str, answer: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what is said of a lock, and whether a package of it is vulnerable."""
    packages = answer["dependencies"]
    if not packages:
        return [f"{lock}: SKIPPED, not audited: {answer['reason']}"], False
    skipped = [package for package in packages if "vulns" not in package]
    faults = []
    for package in packages:
        for fault in package.get("vulns", []):
            fixed = ", ".join(fault["fix_versions"]) or "no version yet"
            name = f"{package['name']} {package['version']}"
            faults.append(f"{lock}: {name} has {fault['id']}, mended in {fixed}")
    lines = [*faults]
    if skipped:
        lines.append(
            f"{lock}: SKIPPED, not audited: {len(skipped)} of {len(packages)} packages, of which "
            "the index knows nothing"
        )
    audited = len(packages) - len(skipped)
    if audited and not faults:
        today = datetime.now(UTC).date()
        lines.append(f"{lock}: {audited} packages audited on {today}: no known vulnerability")
    return lines, bool(faults)


def main() -> None:
    """Audit each lock."""
    is_vulnerable = False
    for lock in sys.argv[1:]:
        lines, has_faults = lines_of(lock, audit(lock))
        is_vulnerable |= has_faults
        print(*lines, sep="\n", flush=True)
    sys.exit(is_vulnerable)


if __name__ == "__main__":
    main()
