"""The arrays of the two geometries: norms, covariance and coordinates, and points that are refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dptext_spark.embedding import spaces
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.spaces import LARGEST_BALL_RADIUS
from dptext_spark.errors import BundleError
from tests.helpers.bundles import (
    POINCARE_FILES,
    WORDS,
    ball_of,
    content_of,
    glove,
    poincare_bundle,
    vectors_of,
)


def test_half_norms_and_covariance(tmp_path):
    rows = (vectors_of(5000, 120) + np.linspace(0, 3, 120)).astype(np.float32)
    source = glove(tmp_path / "g.txt", [f"w{i}" for i in range(5000)], rows)
    space, wide = build_embedding(source, tmp_path / "b").space, rows.astype(np.float64)
    np.testing.assert_allclose(space.half_norms, (wide**2).sum(axis=1) / 2, rtol=6e-8)
    covariance = np.cov(wide, rowvar=False)
    covariance *= 120 / np.trace(covariance)
    values, vectors = space.covariance_values, space.covariance_vectors
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(values.sum(), 120, rtol=1e-12)
    np.testing.assert_allclose((vectors * values) @ vectors.T, covariance, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(120), atol=1e-12)
    assert (vectors.max(axis=0) == np.abs(vectors).max(axis=0)).all()  # the sign is settled
    # Fewer words than dimensions: no negative value.
    few = build_embedding(glove(tmp_path / "few.txt", WORDS, vectors_of(n=20)), tmp_path / "few")
    values = few.space.covariance_values
    assert values.min() >= 0 and np.count_nonzero(values > 1e-9) == len(WORDS) - 1


def test_unit_normalization(tmp_path):
    rows = vectors_of() * np.float32(1e-20) ** (
        np.arange(len(WORDS), dtype=np.float32)[:, None] / 6
    )
    embedding = build_embedding(
        glove(tmp_path / "g.txt", WORDS, rows), tmp_path / "b", normalize="unit"
    )
    wide = rows.astype(np.float64)
    expected = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    np.testing.assert_array_max_ulp(np.asarray(embedding.vectors), expected, maxulp=1)
    assert embedding.manifest.normalization == "unit"
    np.testing.assert_allclose(embedding.space.half_norms, 0.5, atol=1e-6)


def test_poincare_keeps_float64_and_has_lorentz_coordinates(tmp_path, monkeypatch):
    points = np.vstack([np.zeros(7), ball_of(1000, 7)])
    embedding = poincare_bundle(tmp_path, points)
    assert sorted(content_of(embedding.path)) == POINCARE_FILES
    assert (embedding.vectors.dtype, embedding.vectors.tolist()) == (np.float64, points.tolist())
    rim = np.array([float(1 - sum(Fraction(x) ** 2 for x in point)) for point in points.tolist()])
    np.testing.assert_allclose(embedding.space.lorentz_time, 2 / rim - 1, rtol=1e-7)
    np.testing.assert_allclose(embedding.space.lorentz_space, 2 * points / rim[:, None], rtol=1e-7)
    monkeypatch.setattr(spaces, "_BLOCK_FLOATS", 7 * 13)  # many blocks
    assert content_of(poincare_bundle(tmp_path, points).path) == content_of(embedding.path)
    within = math.tanh(LARGEST_BALL_RADIUS / 2)
    assert len(poincare_bundle(tmp_path, np.array([[0, 0], [0, within]])).words) == 2
    with pytest.raises(
        BundleError, match=r"row 2.*not inside the Poincaré ball, up to a radius of 14.6"
    ):
        poincare_bundle(tmp_path, np.array([[0, 0], [math.nextafter(within, 1) + 1e-12, 0]]))
