"""What scripts/package says of known vulnerabilities, by answers of pip-audit."""

import pytest

from scripts.vulnerabilities import audit, lines_of

SAFE = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNKNOWN = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI"}
VULNERABLE = {
    "name": "pillow",
    "version": "9.0",
    "vulns": [{"id": "PYSEC-2022-10", "fix_versions": ["9.0.1"]}],
}


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
