"""Rows as vectors and likely words."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.channel.matrix import UNKNOWN
from dptext_spark.estimates.features import LIKELIEST, OutputFeatures
from tests.helpers.made_releases import MadeRelease

MATRIX = MadeRelease().matrix
VECTORS = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
NAMES = pa.array([f"w{number}" for number in range(60)])


def test_features_are_posterior_means():
    """Rejects likelihoods without the shares, marks that count, and unknown words with a vector."""
    matrix = MATRIX.with_unknown(0.3)
    shares = np.random.default_rng(1).dirichlet(np.ones(61)).astype(np.float32)
    features = OutputFeatures.of(matrix, shares, VECTORS)
    outputs, offsets = np.array([5, -1, 9, 5, -1]), np.array([0, 3, 4, 5])
    table = features.rows(outputs, offsets, NAMES)
    joint = MATRIX.table[:, [5, 9]] * shares[:60, None]
    posterior = joint / joint.sum(axis=0)
    means = posterior.T @ VECTORS
    assert matrix.words[-1] == UNKNOWN
    vectors = table["vector"].to_pylist()
    assert vectors[0] == pytest.approx(means.mean(axis=0).tolist(), abs=1e-5)
    assert vectors[1] == pytest.approx(means[0].tolist(), abs=1e-5) and vectors[2] is None
    weights = posterior.sum(axis=1)
    likeliest = np.argsort(-weights)[:LIKELIEST]
    assert table["words"][0].as_py() == [f"w{place}" for place in likeliest]
    assert table["weights"][0].as_py() == pytest.approx(weights[likeliest].tolist(), abs=1e-5)
    assert table["words"][2].as_py() == []
