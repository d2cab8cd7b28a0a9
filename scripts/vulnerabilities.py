"""Known vulnerabilities of locked packages: as an index answers, or as a file has them offline.

    python scripts/vulnerabilities.py LOCK...
    python scripts/vulnerabilities.py --advisories requirements/advisories.json LOCK...
    python scripts/vulnerabilities.py --renew FOLDER

The exit code is 1 if a package has a vulnerability. What was not audited is said, with how many
packages it is of, and is no failure: a machine without an index can run this too. ``--renew`` makes
the file anew, for all locks, from a checkout of github.com/pypa/advisory-database in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements"
ADVISORIES: Final = REQUIREMENTS / "advisories.json"
ACCEPTED: Final = {
    "PYSEC-2021-427": ("1.3.0", "mpmath 1.3.0 has the fix; the advisory names only its commit"),
}
"""Advisories that are no fault from a version on, and why."""

EVENTS: Final = ("fixed", "introduced", "last_affected")
"""In the order in which they take effect at one version."""


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


def audit_offline(lock: str, advisories: dict[str, Any]) -> dict[str, Any]:
    """Return what a file of advisories says of a lock, as pip-audit would answer."""
    packages = []
    for name, version in locked_versions(Path(lock)).items():
        package: dict[str, Any] = {"name": name, "version": version}
        if name in advisories["packages"]:
            package["vulns"] = [
                {"id": record["id"], "fix_versions": record.get("fixed", "").split()}
                for record in advisories["packages"][name]
                if is_affected(version, record)
            ]
        packages.append(package)
    return {"dependencies": packages, "reason": "it locks nothing", "as_of": advisories["as_of"]}


def locked_versions(lock: Path) -> dict[str, str]:
    """Read the versions of a lock, by names as an index has them."""
    pairs = re.findall(r"^([\w.-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pairs}


def is_affected(locked: str, record: dict[str, Any]) -> bool:
    """Return whether a version is one of a record, or in its range."""
    if "versions" in record:
        return canonicalize_version(locked) in map(canonicalize_version, record["versions"])
    version = Version(locked)
    if version < Version(record["introduced"]):
        return False
    if "fixed" in record:
        return version < Version(record["fixed"])
    return "last_affected" not in record or version <= Version(record["last_affected"])


def lines_of(lock: str, answer: dict[str, Any]) -> tuple[list[str], bool]:
    """Return what is said of a lock, and whether a package of it is vulnerable."""
    packages = answer["dependencies"]
    if not packages:
        return [f"{lock}: SKIPPED, not audited: {answer['reason']}"], False
    source = "the index"
    date = f"on {datetime.now(UTC).date()}"
    if "as_of" in answer:
        source = "the file"
        date = f"as of {answer['as_of']}"
    faults = []
    accepted = []
    for package in packages:
        for fault in package.get("vulns", []):
            fixed = ", ".join(fault["fix_versions"]) or "no version yet"
            line = f"{lock}: {package['name']} {package['version']} has {fault['id']}"
            mended, reason = ACCEPTED.get(fault["id"], (None, ""))
            if mended and Version(package["version"]) >= Version(mended):
                accepted.append(f"{line}, accepted: {reason}")
            else:
                faults.append(f"{line}, mended in {fixed}")
    lines = [*faults, *accepted]
    unknown = [package["name"] for package in packages if "vulns" not in package]
    if unknown:
        lines.append(
            f"{lock}: SKIPPED, not audited: {len(unknown)} of {len(packages)} packages, of which "
            f"{source} knows nothing: {', '.join(unknown)}"
        )
    audited = len(packages) - len(unknown)
    if audited and not faults:
        adjective = "other known" if accepted else "known"
        lines.append(f"{lock}: {audited} packages audited {date}: no {adjective} vulnerability")
    return lines, bool(faults)


def renewed(checkout: Path, locks: list[Path]) -> dict[str, Any]:
    """Return what a checkout of the advisory database knows of all packages of locks."""
    try:
        yaml = import_module("yaml")
    except ImportError:
        sys.exit("vulnerabilities: the database is in YAML; to read it: pip install pyyaml")
    texts = [file.read_text(encoding="utf-8") for file in checkout.glob("vulns/*/*.yaml")]
    if not texts:
        sys.exit(f"vulnerabilities: {checkout} must be a checkout, with vulns/PACKAGE/*.yaml")
    date = re.compile(r"^\W*(?:modified|published)\W+(\d{4}-\d\d-\d\d)", re.MULTILINE)
    packages: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(set().union(*map(locked_versions, locks))):
        packages[name] = []
        for file in sorted(checkout.glob(f"vulns/{name}/*.yaml")):
            advisory = yaml.safe_load(file.read_text(encoding="utf-8"))
            packages[name] += records_of(advisory, name)
    return {
        "source": "PyPA advisory database (CC-BY-4.0), github.com/pypa/advisory-database",
        "as_of": max(date.findall("\n".join(texts))),
        "locks": sorted(lock.stem for lock in locks),
        "packages": packages,
    }


def records_of(advisory: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a record for each range of a package's versions that an advisory names."""
    records: list[dict[str, Any]] = []
    facts = {"id": advisory["id"], "aliases": sorted(advisory.get("aliases", []))}
    if "withdrawn" in advisory:
        return records
    for affected in advisory["affected"]:
        if canonicalize_name(affected["package"]["name"]) != name:
            continue
        bounds: list[dict[str, Any]] = []
        for span in affected.get("ranges", []):
            if span["type"] == "ECOSYSTEM":
                bounds += bounds_of(span["events"])
        bounds = bounds or [{"versions": affected["versions"]}]
        records += [{**facts, **bound} for bound in bounds]
    return records


def bounds_of(events: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return where versions begin to be affected and where they end, in order."""
    pairs = [pair for event in events for pair in event.items() if pair[0] in EVENTS]
    bounds: list[dict[str, str]] = []
    for kind, version in sorted(pairs, key=lambda pair: (Version(pair[1]), EVENTS.index(pair[0]))):
        is_open = bool(bounds) and len(bounds[-1]) == 1
        if kind == "introduced" and not is_open:
            bounds.append({kind: version})
        elif kind != "introduced" and is_open:
            bounds[-1][kind] = version
    return bounds


def text_of(advisories: dict[str, Any]) -> str:
    """Return advisories as the file has them."""
    return json.dumps(advisories, indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Audit each lock, or make the file of advisories anew."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--advisories", metavar="FILE", type=Path)
    parser.add_argument("--renew", metavar="FOLDER", type=Path)
    parser.add_argument("locks", metavar="LOCK", nargs="*")
    options = parser.parse_args()
    if options.renew:
        locks = {*REQUIREMENTS.glob("*.txt")} - {REQUIREMENTS / "tested.txt"}
        ADVISORIES.write_text(text_of(renewed(options.renew, sorted(locks))), encoding="utf-8")
        return
    advisories = None
    if options.advisories:
        advisories = json.loads(options.advisories.read_text(encoding="utf-8"))
    is_vulnerable = False
    for lock in options.locks:
        answer = audit(lock) if advisories is None else audit_offline(lock, advisories)
        lines, has_faults = lines_of(lock, answer)
        is_vulnerable |= has_faults
        print(*lines, sep="\n", flush=True)
    sys.exit(is_vulnerable)


if __name__ == "__main__":
    main()
