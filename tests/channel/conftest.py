"""Worlds that several modules look at; each is built once per session."""

import numpy as np
import pytest

from dptext_spark.embedding.lists import make_lists
from tests.helpers import worlds


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Worlds of a few words: in 3 and 5 dimensions, on a line, and in the ball, out to near its edge."""
    rng = np.random.default_rng(5)
    far = rng.standard_normal((12, 2))
    far *= (np.linspace(0.1, 0.97, 12) / np.linalg.norm(far, axis=1))[:, None]
    vectors = {
        "space": rng.standard_normal((10, 3)) * [1.5, 1.0, 0.6],
        "wide": rng.standard_normal((8, 5)),
        "line": np.sort(rng.uniform(-10.0, 10.0, 60))[:, None],
        "ball": far,
    }
    made = {}
    for name, points in vectors.items():
        folder = tmp_path_factory.mktemp(name)
        geometry = "poincare" if name == "ball" else "euclidean"
        made[name] = worlds.build(folder, points, geometry=geometry)
    make_lists(made["space"], 4)
    return made
