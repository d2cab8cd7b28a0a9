"""Random projection of words and of vectors: its largest stretch, found once, and its guarantee."""

import math
import pickle
import re
import shutil
from itertools import product

import numpy as np
import pytest
from scipy import stats

from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.projection import (
    PublicProjection,
    gaussian_projection,
    spectral_constant,
)
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import Projection, mechanism, projected
from dptext_spark.mechanisms.projected import vocabulary_stretch
from dptext_spark.mechanisms.vectors import ProjectedVectors
from dptext_spark.options import VectorsOptions
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


def noise_of(length=300, **parameters):
    return ProjectedVectors(**{"epsilon": 10.0} | parameters).of_length(length)


@pytest.mark.parametrize(
    ("length", "parameters", "expected"),
    [
        (300, {}, 54),
        (10, {}, 10),
        (300, {"dimension": 7}, 7),
        (300, {"sensitivity": "paper"}, 54),
        (300, {"dimension": 301}, None),
        (300, {"dimension": 53, "sensitivity": "paper"}, None),
        (10, {"sensitivity": "paper"}, None),
    ],
)
def test_the_dimension_is_the_papers_and_never_above_the_inputs(length, parameters, expected):
    if expected:
        assert noise_of(length, **parameters).dimension == expected
        return
    with pytest.raises(
        ConfigError, match=f"does not suit vectors of length {length}.* at most {length}"
    ):
        noise_of(length, **parameters)


def test_the_papers_constant_holds_for_a_fixed_pair_but_for_delta():
    """The tail of m |Phi z|^2, chi-square of m degrees, by scipy.stats; Proposition 5 alone is vague."""
    for n, beta, delta in product(
        (2, 20, 300, 3000), (0.3, 0.9, 0.999), (0.5, 1e-3, 1e-30, 1e-300)
    ):
        least = ProjectedVectors(epsilon=1.0, beta=beta, delta=delta).rows(n)
        assert least == n or stats.chi2(least).sf(least * (1 + beta) ** 2) <= delta


@pytest.mark.parametrize("sensitivity", ["spectral", "paper"])
def test_the_guarantee_of_vectors_holds_for_the_worst_pair_and_says_so(sensitivity):
    """Log-ratios of the noise densities along the direction that Phi stretches most."""
    used = noise_of(sensitivity=sensitivity)
    image = used.projection.matrix @ np.linalg.svd(used.projection.matrix)[2][0]
    points = np.linspace(-3, 3, 61)[:, None] * image
    ratios = np.linalg.norm(points - image, axis=1) - np.linalg.norm(points, axis=1)
    loss, guarantee, texts = (
        np.abs(ratios).max() / used.scale,
        used.guarantee(),
        used.guarantee("f" * 64),
    )
    assert (
        0.9999 * guarantee.loss(1.0) < loss <= guarantee.loss(1.0)
    )  # no more is given away than is needed
    assert guarantee.delta_num > rounded_vector_distance(54, 0.0)  # the grid's steps count
    said = guarantee.describe()
    if sensitivity == "paper":
        assert loss > 1.5 * used.parameters.epsilon  # what the paper states
        strongest = re.search(r"what is proven is epsilon ([\d.]+)\.", said)
        assert strongest and loss <= float(strongest[1]) <= 1.001 * loss
        assert "up to a probability of 1e-06 over the draw of the projection" in said
    for part in (
        "Euclidean distance of input vectors",
        "Vectors of 300 numbers become 54",
        "seed 0",
        "2^-",
    ):
        assert part in said
    assert ("moves the text by d / l" in texts.describe(), "d / l" in said) == (True, False)


@pytest.mark.parametrize("epsilon", [1e-12, 777.0, 1e24])
def test_the_grid_is_fine_against_the_noise_and_exact_in_float32(epsilon):
    used = noise_of(epsilon=epsilon)
    size = used.scale * math.sqrt(used.dimension)
    assert size / 512 < used.grid <= size / 256 and math.log2(used.grid).is_integer()
    for steps in (1.0, 2.0**23 - 1):
        assert float(np.float32(steps * used.grid)) == steps * used.grid
    # The noise at the largest uniform, and the longest vector where Phi stretches most.
    tail = stats.gamma(used.dimension, scale=used.scale).isf(2.0**-53)
    assert tail + used.longest * used.stretch < 2.0**23 * used.grid


def test_good_options():
    """Rejects parameters of the noise that the public report does not have, and the path of a key."""
    given = {"input": "in", "output": "out/", "epsilon": 5.0, "vector": ("v",), "seed": 3}
    options = VectorsOptions.of(given | {"key-file": "/secret/place", "name": "s"})
    assert options.mechanism == ProjectedVectors(epsilon=5.0, seed=3)
    assert options.projection_path == "out.projection.json"
    assert options.published >= {"vector", *ProjectedVectors.model_fields}
    assert options.to_json()["key"] == "file" and "/secret/place" not in str(options.to_json())
