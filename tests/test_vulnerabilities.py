"""What is said of known vulnerabilities, by answers of pip-audit and by the file of advisories."""

import json
import sys
import warnings
from types import SimpleNamespace

import pytest

from scripts import vulnerabilities
from scripts.vulnerabilities import (
    ACCEPTED,
    ADVISORIES,
    REQUIREMENTS,
    audit,
    audit_offline,
    bounds_of,
    is_affected,
    lines_of,
    locked_versions,
    main,
    text_of,
)

SAFE = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNKNOWN = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {
    "name": "pillow",
    "version": "9.0",
    "vulns": [{"id": "PYSEC-2022-10", "fix_versions": ["9.0.1"]}],
}
LOCKS = ("cluster", "dev", "local", "spark-4.0", "spark-4.1", "spark-4.2")
"""Those that are judged; ``spark-3.5`` and ``lowest`` hold the oldest versions on purpose."""

KNOWN = json.loads(ADVISORIES.read_text(encoding="utf-8"))


def ids_of(lock):
    """The advisories that concern a lock, accepted or not."""
    packages = audit_offline(str(REQUIREMENTS / f"{lock}.txt"), KNOWN)["dependencies"]
    return {fault["id"] for package in packages for fault in package.get("vulns", [])}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the script, and return its exit code and what it prints."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["vulnerabilities.py", *map(str, arguments)])
        try:
            main()
        except SystemExit as end:
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

    return run


@pytest.mark.parametrize("lock", LOCKS)
def test_no_locked_package_has_a_known_vulnerability(lock):
    """As of the file's date. A package that it does not know is said, in a warning."""
    lines, fails = lines_of(lock, audit_offline(str(REQUIREMENTS / f"{lock}.txt"), KNOWN))
    for line in lines:
        if "SKIPPED" in line:
            warnings.warn(line, stacklevel=1)
    assert not fails, lines
    assert f"packages audited as of {KNOWN['as_of']}: no " in lines[-1]


def test_what_is_accepted_is_needed():
    """Rejects an exception that no lock needs any more."""
    assert set().union(*map(ids_of, LOCKS)) == ACCEPTED.keys()


def test_the_file_of_advisories_is_one_that_the_script_writes_and_its_age_is_told():
    text = ADVISORIES.read_text(encoding="utf-8")
    assert text == text_of(KNOWN)
    assert "https:" not in text
    locks = {file.stem for file in REQUIREMENTS.glob("*.txt")} - {"tested"}
    assert KNOWN["locks"] == sorted(locks)
    assert f"as of {KNOWN['as_of']}" in (REQUIREMENTS.parent / "SECURITY.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("lines", "said", "is_vulnerable"),
    [
        (["pillow==10.0.1"], "1 packages audited as of", False),
        (
            ["Pillow==9.5.0 \\", "    --hash=sha256:0"],
            "9.5.0 has PYSEC-2023-175, mended in 10.0.1",
            True,
        ),
        (["mpmath==1.3.0"], "mpmath 1.3.0 has PYSEC-2021-427, accepted: ", False),
        (["mpmath==1.2.1"], "mpmath 1.2.1 has PYSEC-2021-427, mended in no version yet", True),
        (
            ["no_such.package==1"],
            "SKIPPED, not audited: 1 of 1 packages, of which the file knows",
            False,
        ),
        (
            ["numpy==2.4.6", "absent==1"],
            "1 of 2 packages, of which the file knows nothing: absent",
            False,
        ),
        ([], "SKIPPED, not audited: it locks nothing", False),
    ],
)
def test_a_lock_is_audited_without_network(run, tmp_path, lines, said, is_vulnerable):
    """Rejects a vulnerable lock that passes, and a package that is passed over in silence."""
    lock = tmp_path / "lock.txt"
    lock.write_text("\n".join(lines), encoding="utf-8")
    code, printed = run("--advisories", ADVISORIES, lock)
    assert code == is_vulnerable
    assert said in printed


@pytest.mark.parametrize(
    ("record", "affected", "safe"),
    [
        ({"introduced": "0", "fixed": "1.10"}, ["0.1", "1.9", "1.10rc1"], ["1.10", "1.10.0", "2"]),
        ({"introduced": "1.2", "last_affected": "1.4"}, ["1.2", "1.4.0"], ["1.1", "1.4.1"]),
        ({"introduced": "1"}, ["1", "1000"], ["0.9"]),
        ({"versions": ["1.0", "1.2"]}, ["1", "1.2.0"], ["1.1", "1.3"]),
    ],
)
def test_versions_are_compared_as_versions(record, affected, safe):
    """Rejects 1.9 that comes after 1.10."""
    assert all(is_affected(version, record) for version in affected)
    assert not any(is_affected(version, record) for version in safe)


@pytest.mark.parametrize(
    ("events", "bounds"),
    [
        (["introduced 2", "fixed 2.1", "introduced 0", "fixed 1.10"], ["0 1.10", "2 2.1"]),
        (["introduced 0", "fixed 3.1", "introduced 3.1", "fixed 3.2"], ["0 3.1", "3.1 3.2"]),
        (["introduced 1", "introduced 2", "fixed 3", "fixed 4"], ["1 3"]),
        (["introduced 1.2", "last_affected 1.2", "limit 9"], ["1.2 1.2"]),
        (["introduced 0"], ["0"]),
    ],
)
def test_events_become_ranges(events, bounds):
    """In the order of versions, in whatever order an advisory has them."""
    ranges = bounds_of([dict([event.split()]) for event in events])
    assert [" ".join(each.values()) for each in ranges] == bounds


CHECKOUT = {
    "aa/PYSEC-2026-1": {
        "id": "PYSEC-2026-1",
        "aliases": ["CVE-2", "CVE-1"],
        "modified": "2026-02-03T00:00:00Z",
        "affected": [
            {
                "package": {"name": "Aa"},
                "versions": ["1.0"],
                "ranges": [
                    {"type": "GIT", "events": [{"introduced": "0"}, {"fixed": "c0ffee"}]},
                    {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]},
                ],
            },
            {"package": {"name": "another"}, "versions": ["7"]},
        ],
    },
    "aa/PYSEC-2026-2": {
        "id": "PYSEC-2026-2",
        "published": "2025-01-01T00:00:00Z",
        "affected": [{"package": {"name": "aa"}, "versions": ["2.0"]}],
    },
    "aa/PYSEC-2026-3": {"id": "PYSEC-2026-3", "withdrawn": "2026-02-04T00:00:00Z"},
    "zz/PYSEC-2026-4": {"id": "PYSEC-2026-4", "modified": "2026-02-05T00:00:00Z"},
}


@pytest.fixture
def requirements(monkeypatch, tmp_path):
    """A folder of locks in the place of the project's, with YAML that reads JSON, a part of it."""
    monkeypatch.setattr(vulnerabilities, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(vulnerabilities, "ADVISORIES", tmp_path / "advisories.json")
    monkeypatch.setitem(sys.modules, "yaml", SimpleNamespace(safe_load=json.loads))
    (tmp_path / "here.txt").write_text("aa==2.0.0\nbb==1\n", encoding="utf-8")
    (tmp_path / "tested.txt").write_text("zz==1\n", encoding="utf-8")
    return tmp_path


def test_the_file_is_made_anew_from_a_checkout(run, requirements):
    for name, advisory in CHECKOUT.items():
        file = requirements / "checkout" / "vulns" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(advisory, indent=1), encoding="utf-8")
    assert run("--renew", requirements / "checkout") == (0, "")
    made = json.loads((requirements / "advisories.json").read_text(encoding="utf-8"))
    assert made == {
        "source": KNOWN["source"],
        "as_of": "2026-02-05",
        "locks": ["here"],
        "packages": {
            "aa": [
                {
                    "id": "PYSEC-2026-1",
                    "aliases": ["CVE-1", "CVE-2"],
                    "introduced": "0",
                    "fixed": "1.1",
                },
                {"id": "PYSEC-2026-2", "aliases": [], "versions": ["2.0"]},
            ],
            "bb": [],
        },
    }
    code, printed = run("--advisories", requirements / "advisories.json", requirements / "here.txt")
    assert code == 1 and "aa 2.0.0 has PYSEC-2026-2, mended in no version yet" in printed


def test_no_checkout_and_no_yaml_are_said(run, requirements, monkeypatch):
    """Rejects a file that knows of no vulnerability as it was made from nothing."""
    code, _ = run("--renew", requirements)
    assert "must be a checkout, with vulns/PACKAGE/*.yaml" in code
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, _ = run("--renew", requirements)
    assert "pip install pyyaml" in code
    assert not (requirements / "advisories.json").exists()


def test_a_lock_is_read_by_the_names_of_an_index(tmp_path):
    lock = tmp_path / "lock.txt"
    lock.write_text("A_b.C==1.0 ; python_version < '4'\n    --hash=x==1\nd==2.post1 \\\n", "utf-8")
    assert locked_versions(lock) == {"a-b-c": "1.0", "d": "2.post1"}


@pytest.mark.parametrize(
    ("packages", "said", "is_vulnerable"),
    [
        ([SAFE], ["1 packages audited"], False),
        ([UNKNOWN, UNKNOWN], ["2 of 2 packages"], False),
        ([SAFE, UNKNOWN], ["1 of 2 packages", "1 packages audited"], False),
        ([VULNERABLE, SAFE], ["pillow 9.0 has PYSEC-2022-10, mended in 9.0.1"], True),
        ([VULNERABLE, UNKNOWN], ["PYSEC-2022-10", "1 of 2 packages"], True),
    ],
)
def test_what_was_not_audited_is_said_and_a_vulnerability_fails(packages, said, is_vulnerable):
    """Rejects pip-audit's own "No known vulnerabilities found" for packages that it skipped."""
    lines, fails = lines_of("local.txt", {"dependencies": packages})
    assert fails == is_vulnerable
    assert len(lines) == len(said)
    for line, words in zip(lines, said, strict=True):
        assert words in line


def test_no_answer_is_said():
    """Rejects a silent pass where no index is reached, or pip-audit fails."""
    answer = audit("no such file")
    assert answer["dependencies"] == [] and answer["reason"]
    lines, fails = lines_of("local.txt", answer)
    assert lines[0].startswith("local.txt: SKIPPED, not audited: ") and not fails
