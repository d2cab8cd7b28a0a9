"""Random projection of words: its largest stretch, found once, and its guarantee."""

import pickle
import shutil

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.geometry.projection import (
    PublicProjection,
    gaussian_projection,
    spectral_constant,
)
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import Projection, mechanism, projected
from dptext_spark.mechanisms.projected import vocabulary_stretch
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import largest_stretch


def test_the_constant_is_computed_once_and_again_where_it_is_damaged(tmp_path, monkeypatch):
    """Rejects a Delta that a broken disk, or another bundle's or matrix's file, made smaller."""
    # And workers that each compute it for minutes, also where the bundle's folder keeps nothing.
    bundles = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        bundles.append(worlds.build(tmp_path / str(seed), worlds.uneven(50, 10, seed=seed)))

    def found(bundle, seed=0):
        """As a later run finds it: of a bundle that is opened anew."""
        project = PublicProjection(gaussian_projection(seed, 4, 10))
        return vocabulary_stretch(Embedding.open(bundle.path), project)

    constant, other = (found(bundle) for bundle in bundles)
    assert constant != other
    file, foreign = (next((bundle.path / "parts").iterdir()) for bundle in bundles)
    whole = file.read_bytes()
    halved = whole.replace(b'"constant": 1', b'"constant": 0')
    for damaged in (
        b"",
        foreign.read_bytes(),
        halved,
        whole[:-20],
        b"\xff\xfe",
        b'{"constant": Infinity}',
    ):
        assert damaged != whole
        file.write_bytes(damaged)
        assert found(bundles[0]) == constant and file.read_bytes() == whole
    configured, bundle = Projection(epsilon=2.0, dimension=4), Embedding.open(bundles[0].path)
    configured.prepare(bundle)
    monkeypatch.setattr(projected, "vocabulary_constant", None)
    assert found(bundle) == constant
    with pytest.raises(TypeError):
        found(bundle, seed=1)
    shutil.rmtree(bundle.path / "parts")
    sent = Embedding.open(bundle.path).adopt(pickle.loads(pickle.dumps(bundle.parts)))
    for there in (sent, pickle.loads(pickle.dumps(bundle))):
        assert configured.constant(there) == constant


def test_more_dimensions_than_the_embedding_has_are_refused(plane):
    for configured in (Projection(epsilon=1.0), Projection(epsilon=1.0, dimension=3)):
        for refused in (
            configured.prepare,
            configured.guarantee,
            lambda e, c=configured: c.bind(e, 2),
        ):
            with pytest.raises(
                ConfigError, match=r"more dimensions.*1 to 2 dimensions.*Give dimension, 2"
            ):
                refused(plane)
    assert Projection(epsilon=1.0, dimension=2).bind(plane, among(2))


def test_the_guarantee_says_what_it_stands_on(small):
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
    largest, exact = (
        largest_stretch(small.vectors, m) for m in (matrix, gaussian_projection(0, 49, 50))
    )
    assert (by_words.epsilon, by_all.epsilon, wide.epsilon) == (2.0, 2.0, 2.0)
    assert (
        tight.epsilon == pytest.approx(2.0 * largest / 1.05)
        and tight.epsilon > 2.0
        and exact < 1.99
    )
    to = "50 dimensions are projected to 20 by the public matrix of seed 0; the noise is scaled by "
    for guarantee, said in (
        (by_words, f"{to}{largest:.4g}"),
        (by_all, f"scaled by {spectral_constant(matrix):.4g}"),
        (
            tight,
            f"{rounded_up(largest, 4)} times at most: epsilon {rounded_up(tight.epsilon, 4)} holds",
        ),
        (wide, f"epsilon {rounded_up(2.0 * exact / 1.99, 4)} holds"),
    ):
        assert said in guarantee.describe()


def test_words_on_main_axes(small):
    """Rejects noise of a random matrix's length, and parameters that the projection does not have."""
    used = mechanism("projection:projection=main-axes,dimension=10", epsilon=4.0)
    assert used.spec == "projection:projection=main-axes,dimension=10"
    parameters = used.noise_parameters(50)
    assert parameters["projection"] == "main-axes" and "seed" not in parameters
    assert "projection" not in Projection(epsilon=4.0).noise_parameters(50)
    vectors = small.vectors.astype(float)
    axes = np.linalg.eigh(np.cov(vectors.T))[1][:, ::-1][:, :10].T
    assert used.constant(small) == pytest.approx(largest_stretch(vectors, axes), abs=1e-6)
    assert "10 main axes of the embedding" in used.guarantee(small).describe()
    for wrong in ("", ",dimension=10,sensitivity=paper"):
        with pytest.raises(ConfigError, match="needs"):
            mechanism(f"projection:projection=main-axes{wrong}", epsilon=4.0)


@pytest.mark.parametrize("constant", [0.01, float("inf"), "1.0", None])
def test_a_planted_constant_is_refused(tmp_path, constant):
    """Rejects less noise than is proven, because somebody wrote a smaller constant."""
    bundle = worlds.build(tmp_path, worlds.uneven(60, 8))
    projection = PublicProjection(gaussian_projection(0, 4, 8))
    right = vocabulary_stretch(bundle, projection)
    (record,) = (bundle.path / "parts").iterdir()
    assert vocabulary_stretch(Embedding.open(bundle.path), projection) == right
    again = Embedding.open(bundle.path)
    again.keep(record.stem, {"constant": constant})
    with pytest.raises(BundleError, match="stretched more than its constant says"):
        vocabulary_stretch(Embedding.open(bundle.path), projection)
