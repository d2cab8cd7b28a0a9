"""Embedding bundles that many tests share; each is built once per session."""

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits
from xdist.scheduler import LoadScopeScheduling

from dptext_spark.demo import GLOVE
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.lists import make_lists
from tests.helpers import worlds
from tests.helpers.bundles import glove

pytest_plugins = ["tests.helpers.spark_fixtures"]

SESSIONS = {
    "tests/situations/test_terminal.py::test_our_line": "processes",
    "tests/spark/test_connect.py": "processes",
    "tests/spark/test_processes.py": "processes",
    "tests/test_documents.py::test_a_command_and_a_notebook": "processes",
    "tests/tables/": "tables",
    "tests/jobs/": "jobs",
    "tests/spark/": "jobs",
    "tests/situations/": "tables",
    "tests/test_documents.py": "jobs",
}
"""Where tests with Spark are, and the group whose one session they share; processes have their own."""


class BySession(LoadScopeScheduling):
    """Gives each group to one process, and all other tests one by one to whichever has room.

    The mark ``xdist_group`` would say the same, but xdist 3.8 cannot read it under pytest 9.
    """

    def _split_scope(self, nodeid):
        return next((group for place, group in SESSIONS.items() if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Use it for ``--dist loadgroup``."""
    return BySession(config, log) if config.getoption("dist") == "loadgroup" else None


settings.register_profile("untimed", deadline=None)  # no test fails because the machine is busy
settings.load_profile("untimed")
threadpool_limits(1)  # several processes run tests: two threads each would wait for one another


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory):
    """8,000 GloVe words in 50 dimensions, lower case."""
    return build_embedding(GLOVE, tmp_path_factory.mktemp("demo") / "glove-50d")


@pytest.fixture(scope="session")
def line(tmp_path_factory):
    """Five words on a line."""
    return worlds.build(tmp_path_factory.mktemp("line"), [[-1.0], [-0.25], [0.5], [0.75], [2.0]])


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    """Six words in the plane, spread three times wider along a slanted axis than across it."""
    points = [[1.2, 0.9], [-1.1, -0.7], [0.4, -0.3], [-0.2, 0.6], [1.9, 1.6], [-0.9, 0.1]]
    return worlds.build(tmp_path_factory.mktemp("plane"), points)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """300 words in 50 dimensions of uneven variance; only the first 200 may be released."""
    folder = tmp_path_factory.mktemp("small")
    return worlds.build(folder, worlds.uneven(300, 50), release_words=200)


@pytest.fixture(scope="session")
def indexed(tmp_path_factory):
    """300 words in 50 dimensions, the first 200 released, with an index of 8 lists."""
    folder = tmp_path_factory.mktemp("indexed")
    bundle = worlds.build(folder, worlds.uneven(300, 50), release_words=200)
    make_lists(bundle, 8)
    return bundle


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """700 words in 300 dimensions of uneven variance."""
    return worlds.build(tmp_path_factory.mktemp("large"), worlds.uneven(700, 300))


@pytest.fixture(scope="session")
def flat(tmp_path_factory):
    """Words of a plane inside a space of three dimensions: their covariance is singular."""
    points = np.random.default_rng(3).standard_normal((20, 3))
    points[:, 2] = 0.0
    return worlds.build(tmp_path_factory.mktemp("flat"), points)


@pytest.fixture(scope="session")
def ball(tmp_path_factory):
    """Points of the Poincaré ball."""
    points = np.random.default_rng(4).uniform(-0.5, 0.5, (20, 2))
    return worlds.build(tmp_path_factory.mktemp("ball"), points, geometry="poincare")


@pytest.fixture
def bundle(tmp_path):
    """Seven words in three dimensions, in a folder that the test may damage."""
    return build_embedding(glove(tmp_path / "g.txt"), tmp_path / "bundle").path
