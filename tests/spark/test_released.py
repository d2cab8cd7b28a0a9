"""Golden bytes of the jobs: what Spark writes is what the Python classes release, and stays so."""

import json

import pytest

from tests.helpers.released import RELEASED, bundles, jobs

pytestmark = pytest.mark.spark


@pytest.mark.versions
def test_jobs_release_the_same_words(spark, tmp_path):
    """And ledgers keep the same contexts. A change here needs a line under Privacy in the changelog."""
    golden = json.loads(RELEASED.read_text(encoding="utf-8"))
    found = jobs(bundles(tmp_path), tmp_path / "jobs")
    assert found["text, text"] == golden["released"]["laplace, text"]
    assert found == golden["jobs"]
