"""Noisy projected vectors: their dimension, main axes and grid, and their guarantee."""

import math
import pickle
import re
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.accounting.resolution import rounded_vector_distance
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms.mechanism import PUBLIC_WORDS
from dptext_spark.mechanisms.vectors import (
    ProjectedVectors,
    PublicPrior,
    VectorSetting,
    projected_vectors,
)
from dptext_spark.options import VectorsOptions
from dptext_spark.text.tokens import PLAIN
from tests.helpers import worlds


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


def prior_of(embedding, words=10):
    return PublicPrior.of(embedding.space, words=words)


def test_axes_are_those_of_the_public_embedding(small, tmp_path):
    """Rejects axes learned from the private vectors, and noise that two matrices share."""
    used = ProjectedVectors(epsilon=5.0, dimension=4).of_length(small.dimension, prior_of(small))
    covariance = np.cov(small.vectors.astype(float).T)
    matrix = used.projection.matrix
    strongest = np.linalg.eigh(covariance)[1][:, ::-1][:, :4].T
    assert np.abs(np.abs((matrix * strongest).sum(axis=1)) - 1.0).max() < 1e-5
    assert np.array(used.to_json()["matrix"]).tobytes() == matrix.tobytes()
    # A worker has no other source than this value.
    assert pickle.loads(pickle.dumps(used)).projection.matrix.tobytes() == matrix.tobytes()
    shape = (len(small.words), small.dimension)
    turned = worlds.build(tmp_path, worlds.uneven(*shape, seed=9))
    another = ProjectedVectors(epsilon=5.0, dimension=4).of_length(50, prior_of(turned))
    # Their constants may be equal.
    contexts = [{**noise.noise_parameters(), "constant": 1.0} for noise in (used, another)]
    assert contexts[0] != contexts[1]
    assert used.noise_parameters()["projection"] == "main-axes"
    assert PUBLIC_WORDS in used.guarantee().assumptions


def test_the_noise_of_main_axes_covers_their_stretch(small):
    """Rejects Delta = 1 for rows that rounding left a little longer, and rows of another length."""
    for dimension in (1, 7, 50):
        setting = ProjectedVectors(epsilon=5.0, dimension=dimension)
        used = setting.of_length(50, prior_of(small))
        stretch = float(np.linalg.svd(used.projection.matrix)[1][0])
        assert stretch <= used.sensitivity <= 1.0 + 2.0**-20
        assert used.guarantee().loss(1.0) == pytest.approx(5.0, rel=1e-9)


@pytest.mark.parametrize(
    ("parameters", "has_prior", "expected"),
    [
        ({}, False, "random"),
        ({}, True, "main-axes"),
        ({"projection": "random"}, True, "random"),
        ({"sensitivity": "paper"}, True, "random"),
        ({"projection": "main-axes", "sensitivity": "paper"}, True, "no --sensitivity paper"),
        ({"projection": "main-axes"}, False, "Got: none"),
        ({"dimension": 51}, True, "at most 50"),
    ],
)
def test_which_projection_is_taken(small, parameters, has_prior, expected):
    prior = prior_of(small) if has_prior else None
    setting = ProjectedVectors(**{"epsilon": 30.0, "dimension": 50} | parameters)
    if expected in ("random", "main-axes"):
        assert VectorSetting(noise=setting.of_length(50, prior)).name == expected
        return
    with pytest.raises(ConfigError, match=expected):
        setting.of_length(50, prior)


def test_axes_of_another_length_are_refused(small):
    with pytest.raises(ConfigError, match=r"an --embedding of 7 dimensions.*Got: 50"):
        ProjectedVectors(epsilon=1.0).of_length(7, prior_of(small))


def test_what_noise_leaves_is_what_a_regression_finds(small):
    """Rejects noise of variance m / epsilon² a coordinate, and covariances of words for texts."""
    prior = prior_of(small, words=4)
    used = ProjectedVectors(epsilon=3.0, dimension=3).of_length(50, prior)
    rng = np.random.default_rng(0)
    words = small.vectors[rng.integers(0, len(small.words), (40_000, 4))].astype(float)
    texts = words.mean(axis=1)
    uniforms = rng.random((len(texts), 4))
    released = np.column_stack([used(texts.copy(), uniforms), np.ones(len(texts))])
    rest = texts - released @ np.linalg.lstsq(released, texts, rcond=None)[0]
    variance = np.square(texts - texts.mean(axis=0)).sum()
    assert used.spread.variance == pytest.approx(1 - np.square(rest).sum() / variance, abs=0.01)
    pairs = np.linalg.norm(texts[::2] - texts[1::2], axis=1)
    assert used.spread.distance == pytest.approx(np.sqrt(np.square(pairs).mean()), rel=0.02)


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 500.0])
def test_the_default_dimension_keeps_nearly_most_of_the_prior(small, epsilon):
    """Rejects a number of axes that ignores epsilon, and one axis more than is needed."""
    prior = prior_of(small)
    setting = ProjectedVectors(epsilon=epsilon)
    parts = []
    for dimension in range(1, 51):
        of_dimension = ProjectedVectors(epsilon=epsilon, dimension=dimension)
        parts.append(of_dimension.of_length(50, prior).spread.variance)
    best = setting.of_length(50, prior)
    assert best.spread.variance >= 0.969 * max(parts)
    assert all(part < 0.971 * max(parts) for part in parts[: best.dimension - 1])
    assert best.spread.is_useless == (best.spread.variance < 0.1)
    assert ("WARNING" in best.spread.describe()) == best.spread.is_useless


@pytest.mark.parametrize("epsilon", [0.5, 5.0, 20.0, 1e4])
def test_the_places_of_bags_err_least(epsilon):
    """Rejects noise of variance m / epsilon² a number, or of one bag; the error is one of products."""
    errors = {}
    for m in range(1, 4097):
        noise = (m + 1) / epsilon**2
        errors[m] = 1 / m + 2 * noise + m * noise**2
    used = ProjectedVectors(epsilon=epsilon, kgrams=2).of_bags()
    assert used.dimension == min(errors, key=errors.get) == used.input_dimension
    deviation = f"{math.sqrt(errors[used.dimension]):.3g}"
    assert f"standard deviation of {deviation}." in used.guarantee().describe()


def test_products_of_released_bags_err_by_that_much():
    """The formula by simulation: unrelated bags of many grams, noised at the default dimension."""
    used = ProjectedVectors(epsilon=20.0, kgrams=1).of_bags()
    rng = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 10**6, 12)) for _ in range(8000)]
    vectors = used.bags(PLAIN).read(pa.array(texts), "t").vectors.toarray()
    released = used(vectors, rng.random((len(texts), used.dimension + 1)))
    products = (released[::2] * released[1::2]).sum(axis=1)
    m, noise = used.dimension, (used.dimension + 1) / 400
    assert np.square(products).mean() == pytest.approx(
        1 / m + 2 * noise + m * noise**2, rel=0.15
    )  # nearly 4 standard errors


def test_bags_have_sensitivity_1_and_random_projections_their_stretch():
    """Rejects a matrix where none is, and the dimension of vectors that are not sparse."""
    direct = ProjectedVectors(epsilon=20.0, kgrams=2).of_bags()
    facts = direct.to_json()
    assert (facts["projection"], facts["Delta"], facts["matrix"]) == ("none", 1.0, None)
    assert "costs at most 40 nats" in direct.guarantee().describe()
    assert pickle.loads(pickle.dumps(direct)) == direct
    contexts = [
        ProjectedVectors(epsilon=20.0, dimension=11, kgrams=kgrams).of_bags().noise_parameters()
        for kgrams in (1, 2)
    ]
    assert contexts[0] != contexts[1]
    setting = ProjectedVectors(epsilon=20.0, kgrams=2, projection="random")
    random = setting.of_bags()
    width = math.sqrt(9 * math.log(4096 / 9)) + math.sqrt(math.log(1e6))
    assert random.dimension == math.ceil(width**2 / 0.81)
    largest = np.linalg.norm(random.projection.matrix, 2)
    assert largest <= random.sensitivity <= largest * (1 + 1e-6) and random.spread.is_useless
    assert not direct.spread.is_useless
    paper = setting.model_copy(update={"sensitivity": "paper"}).of_bags()
    assert paper.sensitivity == 1.9 and paper.guarantee().epsilon > 20 * 1.9


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("main-axes:dimension=4", "--projection main-axes --dimension 4 --epsilon 20"),
        ("bags", "--kgrams 1 --dimension 11 --epsilon 20"),
        ("bags:kgrams=2,dimension=32", "--kgrams 2 --dimension 32 --epsilon 20"),
        ("bags:projection=random", "--kgrams 1 --projection random --dimension 163 --epsilon 20"),
        ("axes", "main-axes or bags. Got: 'axes'"),
        ("bags:projection=main-axes", "have no main axes"),
        ("bags:sensitivity=paper", "after a random projection alone"),
        ("bags:kgrams=11", "Parameter kgrams of bags"),
        ("bags:dimension=4097", "at most 4096; got 4097"),
    ],
)
def test_settings_are_the_options_that_choose_them(small, spec, options):
    """Rejects options that dptext vectors would read as another release."""
    if not options.startswith("--"):
        with pytest.raises(ConfigError, match=options):
            projected_vectors(spec, epsilon=20.0)
        return
    setting = projected_vectors(spec, epsilon=20.0)
    noise = setting.of_length(50, prior_of(small)) if setting.kgrams is None else setting.of_bags()
    assert VectorSetting(noise=noise).options == options


@pytest.mark.parametrize("projection", [None, "random"])
def test_no_matrix_travels_to_workers(projection):
    """Rejects a matrix of up to 134 MB in each task; what arrives is the same mechanism."""
    noise = ProjectedVectors(epsilon=20.0, kgrams=1, dimension=256, projection=projection).of_bags()
    matrix = noise.projection.matrix
    sent = pickle.dumps(noise)
    arrived = pickle.loads(sent)
    assert len(sent) < 10_000
    assert arrived == noise
    np.testing.assert_array_equal(arrived.projection.matrix, matrix)
