"""dptext audit: a violation is an error, and a world without power says so.

The false-alarm rate of one audit is 0.001; the noise seed is fixed.
"""

import json

import pytest
from click.testing import CliRunner

from dptext_spark.cli import main
from dptext_spark.mechanisms import MECHANISMS, Laplace
from tests.helpers.audits import report

pytestmark = pytest.mark.statistical


def test_a_world_without_power_says_so(large):
    found = report(world=("bundle",), embedding=large.path)
    (facts,) = found.facts["worlds"]
    assert (facts["caught"], facts["pairs"]) == (None, 8)
    assert "nothing up to x 4" in found.describe()


class Doubled(Laplace):
    """Twice the epsilon that it claims."""

    def bind(self, embedding, search):
        return Laplace.bind(self.at(2 * self.epsilon), embedding, search)


def test_a_violation_is_reported_and_ends_with_an_error(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "laplace", Doubled)
    line = "audit --mechanism laplace --epsilon 2 --world line --runs 5000"
    result = CliRunner().invoke(main, line.split())
    written = json.loads(CliRunner().invoke(main, [*line.split(), "--json"]).stdout)
    (facts,) = written["worlds"]
    (one, other), (hits, misses) = facts["pair"], facts["hits"]
    assert (result.exit_code, written["format_version"], written["verdict"]) == (1, 3, "VIOLATION")
    assert "The running code breaks its guarantee. Got: violations in line" in result.output
    assert f"VIOLATION in line (euclidean): {one} becomes" in result.output
    assert f" {hits:,} times of 2,500, {other} {misses:,} times: a loss of" in result.output
