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
from scipy.spatial import distance

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
    "empty": lambda content: b"",
    "no JSON": lambda content: b"\xff\xfe",
    "a list": lambda content: b"[1]",
    "another number": lambda content: content.replace(b'"constant": ', b'"constant": 0'),
    "halved": lambda content: content.replace(b'"constant": 1', b'"constant": 0'),
    "infinite": lambda content: b'{"constant": Infinity}',
    "a text": lambda content: b'{"constant": "1.5"}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_constant_is_computed_again(
    bundle: Embedding, project: RandomProjection, damage: str
) -> None:
    """Rejects a Delta that a broken disk or a careless hand made smaller: noise would be too little."""
    constant = constant_of(bundle, project)
    (file,) = (bundle.path / "parts").iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    assert file.read_bytes() != whole
    assert constant_of(bundle, project) == constant
    assert file.read_bytes() == whole


def test_the_constant_of_another_bundle_is_not_taken(
    bundle: Embedding, project: RandomProjection, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = worlds.build(tmp_path / "other", worlds.uneven(50, 10, seed=2))
    constants = [constant_of(e, project) for e in (bundle, other)]
    first, second = (next((e.path / "parts").iterdir()) for e in (bundle, other))
    second.write_bytes(first.read_bytes())
    assert constants[0] != constants[1] == constant_of(other, project)


def test_a_folder_that_cannot_be_written_to(bundle: Embedding, project: RandomProjection) -> None:
    (bundle.path / "parts").write_bytes(b"a file where the folder should be")
    assert constant_of(bundle, project) == vocabulary_constant(bundle.vectors, project)


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


def test_the_guarantee_says_what_it_stands_on(large: Embedding) -> None:
    by_words, by_all, by_paper = (
        Projection(epsilon=2.0, sensitivity=s).guarantee(large) for s in ("vocabulary", "spectral", "paper")
    )
    matrix = gaussian_projection(0, 54, 300)
    points = large.vectors.astype(np.float64)
    largest = float((distance.pdist(points @ matrix.T) / distance.pdist(points)).max())
    assert (by_words.epsilon, by_words.delta) == (by_all.epsilon, by_all.delta) == (2.0, 0.0)
    assert f"projected to 54 by the public matrix of seed 0; the noise is scaled by {largest:.4g}" in (
        by_words.describe()
    )
    assert f"scaled by {spectral_constant(matrix):.4g}" in by_all.describe()
    assert (by_paper.epsilon, by_paper.delta) == (2.0, 0.0)
    assert by_paper.metric == by_words.metric == "Euclidean distance of their vectors"


def test_the_paper_s_claim_is_checked_against_the_matrix(small: Embedding) -> None:
    """Rejects a guarantee of epsilon where the known matrix stretches words by more than 1 + beta."""
    tight = Projection(epsilon=2.0, sensitivity="paper", dimension=20, beta=0.05).guarantee(small)
    largest = float(stretches(small.vectors, gaussian_projection(0, 20, 50)).max())
    assert tight.epsilon == pytest.approx(2.0 * largest / 1.05) and tight.epsilon > 2.0
    assert (
        f"stretched {rounded_up(largest, 4)} times, so that epsilon {rounded_up(tight.epsilon, 4)} is proven"
        in tight.describe()
    )
    wide = Projection(epsilon=2.0, sensitivity="paper", dimension=49, beta=0.99).guarantee(small)
    exact = float(stretches(small.vectors, gaussian_projection(0, 49, 50)).max())
    assert wide.epsilon == 2.0 and exact < 1.99
    assert f"the noise is {1.99 / exact - 1:.0%} larger" in wide.describe()
    assert f"up to a probability of {distortion_probability(49, 50, 0.99):.2g} over" in wide.describe()
    # A claim with the paper's delta would be met by whatever the code does.
    assert wide.delta == tight.delta == 0.0


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
