"""Random projection: the cache of its largest stretch, and the mechanism's guarantee."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.projection import (
    RandomProjection,
    distortion_probability,
    gaussian_projection,
    spectral_constant,
    vocabulary_constant,
)
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import Projection, mechanism, projected
from dptext_spark.mechanisms.projected import stretch_constant
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import largest_stretch, line_outputs

# The cache


@pytest.fixture
def bundle(tmp_path: Path) -> Embedding:
    return worlds.build(tmp_path, worlds.uneven(50, 10))


@pytest.fixture
def project() -> RandomProjection:
    return RandomProjection(gaussian_projection(0, 4, 10))


def constant_of(embedding: Embedding, project: RandomProjection) -> float:
    """The constant as a later run finds it: of a bundle that is opened anew."""
    return stretch_constant(Embedding.open(embedding.path), project, "vocabulary")


def forbid_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(*args: object) -> float:
        raise RuntimeError("computed again")

    for name in ("vocabulary_constant", "spectral_constant"):
        monkeypatch.setattr(projected, name, computed)


def test_the_constant_is_computed_once(
    bundle: Embedding, project: RandomProjection, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = constant_of(bundle, project)
    assert constant == vocabulary_constant(bundle.vectors, project)
    (file,) = (bundle.path / "parts").iterdir()
    assert file.name.startswith("projection-")
    assert json.loads(file.read_bytes())["values"] == {"constant": constant}
    forbid_computing(monkeypatch)
    assert constant_of(bundle, project) == constant
    with pytest.raises(RuntimeError):  # another matrix
        constant_of(bundle, RandomProjection(gaussian_projection(1, 4, 10)))


def test_a_damaged_constant_is_computed_again(
    bundle: Embedding, project: RandomProjection, tmp_path: Path
) -> None:
    """Rejects a Delta that a broken disk, or another bundle's file, made smaller."""
    constant = constant_of(bundle, project)
    (file,) = (bundle.path / "parts").iterdir()
    whole = file.read_bytes()
    (tmp_path / "other").mkdir()
    other = worlds.build(tmp_path / "other", worlds.uneven(50, 10, seed=2))
    assert constant_of(other, project) != constant
    foreign = next((other.path / "parts").iterdir()).read_bytes()
    halved = whole.replace(b'"constant": 1', b'"constant": 0')
    for damaged in (b"", foreign, halved, whole[:-20], b"\xff\xfe", b"[1]", b'{"constant": Infinity}'):
        assert damaged != whole
        file.write_bytes(damaged)
        assert constant_of(bundle, project) == constant and file.read_bytes() == whole


def test_more_dimensions_than_the_embedding_has_are_refused(plane: Embedding) -> None:
    for configured in (Projection(epsilon=1.0), Projection(epsilon=1.0, dimension=3)):
        for refused in (
            configured.prepare,
            configured.guarantee,
            lambda e, c=configured: c.bind(e, among(2)),
        ):
            with pytest.raises(ConfigError, match=r"more dimensions.*1 to 2 dimensions.*Give dimension, 2"):
                refused(plane)
    assert Projection(epsilon=1.0, dimension=2).bind(plane, among(2)).image.projection.matrix.shape == (2, 2)


@pytest.mark.parametrize("sensitivity", ["vocabulary", "spectral", "paper"])
def test_workers_are_told_the_constant(
    bundle: Embedding, sensitivity: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the bundle's folder keeps nothing; rejects workers that each compute it for minutes."""
    configured = Projection(epsilon=2.0, dimension=4, sensitivity=sensitivity)
    configured.prepare(bundle)
    expected = configured.bind(bundle, among(50)).image.scale
    shutil.rmtree(bundle.path / "parts", ignore_errors=True)
    forbid_computing(monkeypatch)
    sent = Embedding.open(bundle.path).adopt(pickle.loads(pickle.dumps(bundle.parts)))
    assert configured.bind(sent, among(50)).image.scale == expected
    assert configured.bind(pickle.loads(pickle.dumps(bundle)), among(50)).image.scale == expected


def test_the_guarantee_says_what_it_stands_on(small: Embedding) -> None:
    """Rejects a guarantee of epsilon where the known matrix stretches words by more than 1 + beta."""
    by_words, by_all, tight, wide = (
        mechanism(f"projection:{parameters}", epsilon=2.0).guarantee(small)
        for parameters in (
            "dimension=20",
            "dimension=20,sensitivity=spectral",
            "dimension=20,sensitivity=paper,beta=0.05",
            "dimension=49,sensitivity=paper,beta=0.99",
        )
    )
    matrix = gaussian_projection(0, 20, 50)
    largest, exact = (largest_stretch(small.vectors, m) for m in (matrix, gaussian_projection(0, 49, 50)))
    assert (by_words.epsilon, by_all.epsilon, wide.epsilon) == (2.0, 2.0, 2.0)
    assert tight.epsilon == pytest.approx(2.0 * largest / 1.05) and tight.epsilon > 2.0 and exact < 1.99
    assert by_words.metric == tight.metric == "Euclidean distance of their vectors"
    # A claim with the paper's delta would be met by whatever the code does.
    assert {guarantee.delta for guarantee in (by_words, by_all, tight, wide)} == {0.0}
    projected_to = "50 dimensions are projected to 20 by the public matrix of seed 0; the noise is scaled by "
    proven = (
        f"stretched {rounded_up(largest, 4)} times, so that epsilon {rounded_up(tight.epsilon, 4)} is proven"
    )
    for guarantee, said in (
        (by_words, f"{projected_to}{largest:.4g}"),
        (by_all, f"scaled by {spectral_constant(matrix):.4g}"),
        (tight, proven),
        (wide, f"the noise is {1.99 / exact - 1:.0%} larger"),
        (wide, f"up to a probability of {distortion_probability(49, 50, 0.99):.2g} over"),
    ):
        assert said in guarantee.describe()


# The guarantee itself, after a projection to a line: there the noise is the Laplace law


def excess(world: Embedding, seed: int, scale: float) -> float:
    """The largest of log P[M(x) = y] / P[M(x') = y] - |x - x'|, epsilon being 1."""
    points = world.vectors.astype(np.float64)
    positions = points @ gaussian_projection(seed, 1, points.shape[1])[0]
    losses = np.log(line_outputs(positions, scale))
    worst = (losses[:, None] - losses[None]).max(axis=2)
    return float((worst - np.linalg.norm(points[:, None] - points[None], axis=2)).max())


@pytest.mark.parametrize("seed", range(8))
def test_the_loss_after_projecting_to_a_line(plane: Embedding, seed: int) -> None:
    """Rejects Delta below the largest stretch by 1 %, also 1, and the paper's where the matrix denies it."""
    scales = {}
    for sensitivity in ("vocabulary", "spectral", "paper"):
        configured = Projection(epsilon=1.0, dimension=1, seed=seed, sensitivity=sensitivity)  # type: ignore[arg-type]
        scales[sensitivity] = configured.bind(plane, among(6)).image.scale
        assert excess(plane, seed, scales[sensitivity] * configured.guarantee(plane).epsilon) <= 1e-12
    largest = largest_stretch(plane.vectors, gaussian_projection(seed, 1, 2))
    assert scales["vocabulary"] == pytest.approx(largest, abs=1e-8)
    assert excess(plane, seed, 0.99 * largest) > 0
