"""Random projection: the cache of its largest stretch, and the mechanism's guarantee."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
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
from dptext_spark.mechanisms import Projection, projected
from dptext_spark.mechanisms.projected import stretch_constant
from tests.helpers import worlds
from tests.helpers.stretches import stretches
from tests.helpers.worlds import among
from tests.statistical.oracles import line_outputs

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
    def computed(*args: object, **options: object) -> float:
        raise RuntimeError("computed again")

    monkeypatch.setattr(projected, "vocabulary_constant", computed)


def test_the_constant_is_computed_once(
    bundle: Embedding, project: RandomProjection, monkeypatch: pytest.MonkeyPatch
) -> None:
    constant = constant_of(bundle, project)
    assert constant == vocabulary_constant(bundle.vectors, project)
    (file,) = (bundle.path / "parts").iterdir()
    assert file.name.startswith("projection-") and json.loads(file.read_bytes())["values"] == {
        "constant": constant
    }
    forbid_computing(monkeypatch)
    assert constant_of(Embedding.open(bundle.path), project) == constant
    with pytest.raises(RuntimeError):  # another matrix
        constant_of(bundle, RandomProjection(gaussian_projection(1, 4, 10)))


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[:-20],
    "no JSON": lambda content: b"\xff\xfe",
    "a list": lambda content: b"[1]",
    "another number": lambda content: content.replace(b'"constant": ', b'"constant": 0'),
    "halved": lambda content: content.replace(b'"constant": 1', b'"constant": 0'),
    "infinite": lambda content: b'{"constant": Infinity}',
}


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
    for damaged in (b"", foreign, *(damage(whole) for damage in DAMAGES.values())):
        assert damaged != whole
        file.write_bytes(damaged)
        assert constant_of(bundle, project) == constant and file.read_bytes() == whole
    shutil.rmtree(bundle.path / "parts")
    (bundle.path / "parts").write_bytes(b"a file where the folder should be")
    assert constant_of(bundle, project) == constant


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
    monkeypatch.setattr(projected, "spectral_constant", None)
    sent = Embedding.open(bundle.path).adopt(pickle.loads(pickle.dumps(bundle.parts)))
    assert configured.bind(sent, among(50)).image.scale == expected
    assert configured.bind(pickle.loads(pickle.dumps(bundle)), among(50)).image.scale == expected


def test_the_guarantee_says_what_it_stands_on(small: Embedding) -> None:
    """Rejects a guarantee of epsilon where the known matrix stretches words by more than 1 + beta."""
    by_words, by_all, tight, wide = (
        Projection(epsilon=2.0, **parameters).guarantee(small)  # type: ignore[arg-type]
        for parameters in (
            {"dimension": 20},
            {"dimension": 20, "sensitivity": "spectral"},
            {"dimension": 20, "sensitivity": "paper", "beta": 0.05},
            {"dimension": 49, "sensitivity": "paper", "beta": 0.99},
        )
    )
    matrix = gaussian_projection(0, 20, 50)
    largest = float(stretches(small.vectors, matrix).max())
    assert (
        "50 dimensions are projected to 20 by the public matrix of seed 0; the noise is scaled by "
        + (f"{largest:.4g}")
        in by_words.describe()
    )
    assert f"scaled by {spectral_constant(matrix):.4g}" in by_all.describe()
    assert (by_words.epsilon, by_all.epsilon, wide.epsilon) == (2.0, 2.0, 2.0)
    assert by_words.metric == tight.metric == "Euclidean distance of their vectors"
    # A claim with the paper's delta would be met by whatever the code does.
    assert {guarantee.delta for guarantee in (by_words, by_all, tight, wide)} == {0.0}
    assert tight.epsilon == pytest.approx(2.0 * largest / 1.05) and tight.epsilon > 2.0
    proven = (
        f"stretched {rounded_up(largest, 4)} times, so that epsilon {rounded_up(tight.epsilon, 4)} is proven"
    )
    assert proven in tight.describe()
    exact = float(stretches(small.vectors, gaussian_projection(0, 49, 50)).max())
    assert exact < 1.99 and f"the noise is {1.99 / exact - 1:.0%} larger" in wide.describe()
    assert f"up to a probability of {distortion_probability(49, 50, 0.99):.2g} over" in wide.describe()


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
    by_words, by_all, by_paper = (
        Projection(epsilon=1.0, dimension=1, seed=seed, sensitivity=s)
        for s in ("vocabulary", "spectral", "paper")
    )
    exact = by_words.bind(plane, among(6)).image.scale
    for configured in (by_words, by_all, by_paper):
        pure = configured.guarantee(plane).epsilon
        assert excess(plane, seed, configured.bind(plane, among(6)).image.scale * pure) <= 1e-12
    largest = float(stretches(plane.vectors, gaussian_projection(seed, 1, 2)).max())
    assert exact == pytest.approx(largest, abs=1e-8)
