"""Noise in the Poincaré ball: epsilons that are too small for the dimension."""

import numpy as np
import pytest

from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import (
    Hyperbolic,
    HyperbolicIcdm,
)
from tests.helpers import worlds
from tests.helpers.worlds import among


@pytest.mark.parametrize(("epsilon", "dimensions"), [(1e-3, 1), (3.2, 4), (4.0, 4)])
def test_a_small_epsilon_is_refused_in_the_ball(tmp_path, epsilon, dimensions):
    """With the dimension that would do."""
    points = np.vstack([np.eye(dimensions + 1), -np.eye(dimensions + 1)]) / 2
    too_many = worlds.build(tmp_path, points, geometry="poincare")
    message = rf"epsilon {epsilon!r}\. .*at most {dimensions} dimensions, or hyperbolic-icdm, which takes any"
    for refused in (Hyperbolic.bind, lambda m, e, _: m.metric(e), lambda m, e, _: m.prepare(e)):
        with pytest.raises(ConfigError, match=message):
            refused(Hyperbolic(epsilon=epsilon), too_many, 2)
    HyperbolicIcdm(epsilon=epsilon).bind(too_many, among(2))
    (tmp_path / "fits").mkdir()
    fits = worlds.build(tmp_path / "fits", points[points[:, -1] == 0, :-1], geometry="poincare")
    Hyperbolic(epsilon=epsilon).bind(fits, among(2))
