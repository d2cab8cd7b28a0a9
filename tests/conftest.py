"""Embedding bundles that many tests share; each is built once per session."""

import logging
import signal

import numpy as np
import pytest
from hypothesis import settings
from threadpoolctl import threadpool_limits
from xdist.scheduler import LoadScopeScheduling

from dptext_spark.demo import GLOVE
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.lists import make_lists
from dptext_spark.interrupts import SIGNALS
from tests.helpers import worlds
from tests.helpers.bundles import glove
from tests.helpers.tables import RING_WORDS

pytest_plugins = ["tests.helpers.spark_fixtures"]


def pytest_addoption(parser):
    """For tests/test_documents.py."""
    help_text = "write what commands print now into the pages that show it"
    parser.addoption("--rewrite", action="store_true", help=help_text)


@pytest.fixture
def rewrites(request):
    """Whether pages are to be rewritten."""
    return request.config.getoption("rewrite")


SESSIONS = {
    "tests/spark/test_connect.py": "processes",
    "tests/spark/test_processes.py": "processes",
    "tests/test_documents.py::test_a_command_and_a_notebook": "processes",
    "tests/tables/": "tables",
    "tests/jobs/test_embedding.py": "embedding",
    "tests/jobs/": "jobs",
    "tests/channel/test_on_spark.py": "jobs",
    "tests/evaluation/test_classify.py": "jobs",
    "tests/calibration/test_measure.py": "jobs",
    "tests/poincare/test_pairs.py": "jobs",
    "tests/estimates/test_on_spark.py": "jobs",
    "tests/evaluation/test_learned_on_spark.py": "jobs",
    "tests/evaluation/test_own_attackers.py::test_workers_try": "jobs",
    "tests/evaluation/test_simulate.py": "jobs",
    "tests/spark/": "jobs",
    "tests/test_documents.py": "jobs",
}
"""Where tests with Spark are, and the group whose one session they share; processes have their own."""


class BySession(LoadScopeScheduling):
    """Gives each group to one process, and all other tests one by one to whichever has room.

    The mark ``xdist_group`` would say the same, but xdist 3.8 cannot read it under pytest 9.
    """

    def _split_scope(self, nodeid):
        return next(
            (group for place, group in SESSIONS.items() if nodeid.startswith(place)), nodeid
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Use it for ``--dist loadgroup``."""
    return BySession(config, log) if config.getoption("dist") == "loadgroup" else None


ANGLES = 2 * np.pi * np.arange(len(RING_WORDS)) / len(RING_WORDS)

settings.register_profile("untimed", deadline=None)  # no test fails because the machine is busy
settings.load_profile("untimed")
threadpool_limits(1)  # several processes run tests: two threads each would wait for one another


@pytest.fixture(scope="session")
def demo_bundle(tmp_path_factory):
    """8,000 GloVe words in 50 dimensions, lower case."""
    return build_embedding(GLOVE, tmp_path_factory.mktemp("demo") / "glove-50d")


def world(vectors, **options):
    """A bundle of these vectors."""

    @pytest.fixture(scope="session")
    def built(tmp_path_factory):
        return worlds.build(tmp_path_factory.mktemp("world"), vectors, **options)

    return built


line = world([[-1.0], [-0.25], [0.5], [0.75], [2.0]])

plane = world([[1.2, 0.9], [-1.1, -0.7], [0.4, -0.3], [-0.2, 0.6], [1.9, 1.6], [-0.9, 0.1]])
"""Spread three times wider along a slanted axis than across it."""

small = world(worlds.uneven(300, 50), release_words=200)
"""Of uneven variance."""

large = world(worlds.uneven(700, 300))

flat = world(np.random.default_rng(3).standard_normal((20, 3)) * [1.0, 1.0, 0.0])
"""A plane inside a space of three dimensions: the covariance is singular."""

ball = world(np.random.default_rng(4).uniform(-0.5, 0.5, (20, 2)), geometry="poincare")

ring = world(np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1), names=RING_WORDS)
"""64 words evenly on the unit circle: at a tiny epsilon every output word has chance 1/64."""


@pytest.fixture(scope="session")
def indexed(tmp_path_factory):
    """300 words in 50 dimensions, the first 200 released, with an index of 8 lists."""
    folder = tmp_path_factory.mktemp("indexed")
    bundle = worlds.build(folder, worlds.uneven(300, 50), release_words=200)
    make_lists(bundle, 8)
    return bundle


@pytest.fixture
def bundle(tmp_path):
    """Seven words in three dimensions, in a folder that the test may damage."""
    return build_embedding(glove(tmp_path / "g.txt"), tmp_path / "bundle").path


@pytest.fixture
def signals_as_before():
    """What nohup made this process ignore is heard here."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, old in before.items():
        signal.signal(number, signal.SIG_DFL if old is signal.SIG_IGN else old)
    yield
    for number, old in before.items():
        signal.signal(number, old)
    logging.disable(logging.NOTSET)
