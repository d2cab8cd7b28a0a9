"""Mechanisms: one contract for all of them, and the guarantee checked where it can be computed."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import special
from scipy.spatial import distance

from dptext_spark import mechanisms
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import MECHANISMS, Mahalanobis, Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among
from tests.statistical.oracles import line_outputs, mixture_root

# For every mechanism the parameters beside epsilon that the contract is checked with; one case at least.
VICKREY = {"select": "vickrey", "t": 0.4}
PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "exponential": [{}, {"truncate": 0.5}],
    "hyperbolic": [{}, VICKREY],
    "hyperbolic-icdm": [{}, VICKREY],
    "laplace": [{}, VICKREY],
    "mahalanobis": [{"lambda": 0.0}, {"lambda": 0.3}, {"lambda": 1.0}, {"lambda": 0.3, **VICKREY}],
    "vectors": [{"dimension": 20}, {"sensitivity": "paper", "seed": 3}],
    "projection": [
        {"dimension": 20},
        {"dimension": 20, "sensitivity": "vocabulary", **VICKREY},
        {"dimension": 20, "sensitivity": "paper"},
        {"dimension": 20, "sensitivity": "paper", "beta": 0.6, "seed": 3},
    ],
}
# The least epsilon that a mechanism takes on these worlds, where that is not what all take.
LEAST = {"hyperbolic": 1 + 1e-9}
# Other values, to see that the law names a parameter.
CHANGED: dict[str, Any] = {
    "lambda": 0.77,
    "truncate": 0.77,
    "dimension": 21,
    "sensitivity": "spectral",
    "beta": 0.77,
    "seed": 77,
}
POST_PROCESSING = {"select", "t"}
N = 50
CASES = [
    pytest.param(name, parameters, id="-".join([name, *map(str, parameters.values())]))
    for name in sorted(MECHANISMS)
    for parameters in PARAMETERS.get(name, [])
]
contract = pytest.mark.parametrize(("name", "parameters"), CASES)


@pytest.fixture
def world(name: str, small: Embedding, ball: Embedding) -> Embedding:
    """A bundle that the mechanism works on."""
    return small if EuclideanSpace in MECHANISMS[name].spaces else ball


@pytest.fixture
def wrong_world(name: str, small: Embedding, ball: Embedding) -> Embedding:
    return ball if EuclideanSpace in MECHANISMS[name].spaces else small


def uniforms_for(configured: Mechanism, embedding: Embedding, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, configured.uniforms_per_token(embedding.dimension)))


def test_every_mechanism_is_under_contract() -> None:
    missing = sorted(MECHANISMS.keys() - PARAMETERS.keys())
    assert not missing, f"add parameters of {', '.join(missing)} to PARAMETERS in {__name__}"


@contract
def test_outputs_are_released_words_and_a_function_of_their_input(
    name: str, parameters: dict[str, Any], world: Embedding
) -> None:
    configured = mechanism(name, epsilon=2.0, **parameters)
    release_words = world.releasable // 2
    perturb = configured.bind(world, among(release_words))
    inputs = np.arange(600) % len(world.words)  # words that may not be released come in, too
    uniforms = uniforms_for(configured, world, len(inputs))
    outputs = perturb(inputs, uniforms.copy())
    assert outputs.dtype == np.int64 and outputs.shape == inputs.shape
    assert outputs.min() >= 0 and outputs.max() < release_words
    assert len(np.unique(outputs)) > 1
    np.testing.assert_array_equal(
        configured.bind(world, among(release_words))(inputs, uniforms.copy()), outputs
    )
    for size in (1, 7):  # rejects a state that is carried from batch to batch
        cuts = [slice(i, i + size) for i in range(0, len(inputs), size)]
        parts = [perturb(inputs[cut], uniforms[cut].copy()) for cut in cuts]
        np.testing.assert_array_equal(np.concatenate(parts), outputs)
    assert perturb(inputs[:0], uniforms[:0]).shape == (0,)


@contract
def test_the_law_names_all_that_shapes_the_noise(name: str, parameters: dict[str, Any]) -> None:
    """Rejects a law without epsilon, which lets two releases be combined into the input."""
    configured = mechanism(name, epsilon=2.5, **parameters)
    law = configured.law(N)
    assert json.loads(json.dumps(law, allow_nan=False)) == law
    assert all(type(value) in (str, int, float) for value in law.values())
    assert law["epsilon"] == 2.5
    assert configured.law(N) == law
    others = [mechanism(name, epsilon=2.6, **parameters)]
    named = parameters.keys() - POST_PROCESSING
    others += [mechanism(name, epsilon=2.5, **(parameters | {key: CHANGED[key]})) for key in named]
    assert all(other.law(N) != law for other in others)
    if "t" in parameters:
        assert mechanism(name, epsilon=2.5, **(parameters | {"t": 0.9})).law(N) == law


@contract
def test_mechanisms_are_small_values(name: str, parameters: dict[str, Any]) -> None:
    configured = mechanism(name, epsilon=2.5, **parameters)
    pickled = pickle.dumps(configured)
    assert len(pickled) < 1000
    assert pickle.loads(pickled) == configured
    with pytest.raises(ValidationError):
        configured.epsilon = 3.0  # type: ignore[misc]


@contract
def test_impossible_epsilons_and_unknown_parameters_are_refused(
    name: str, parameters: dict[str, Any]
) -> None:
    wrong: list[Any] = [0, -1, 1e-13, math.nan, math.inf, -math.inf, "x", "1", True, None]
    for given in (*({"epsilon": epsilon} for epsilon in wrong), {}, {"epsilon": 1.0, "unheard_of": 1.0}):
        with pytest.raises(ConfigError):
            mechanism(name, **given, **parameters)


@contract
def test_the_metric_is_one(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    """Rejects distances that are not symmetric, or not 0 from a word to itself, or two that disagree."""
    metric = mechanism(name, epsilon=2.5, **parameters).metric(world)
    assert metric.words == len(world.words)
    rows, others = np.divmod(np.arange(400), 20)
    between = metric.between(rows, others)
    assert (between[rows == others] == 0).all() and (between[rows != others] > 0).all()
    np.testing.assert_allclose(between.reshape(20, 20), between.reshape(20, 20).T, rtol=1e-12)
    every = metric.to_all(np.arange(20))
    assert every.shape == (20, metric.words)
    np.testing.assert_allclose(every[:, :20], between.reshape(20, 20), atol=1e-6 * every.max())
    assert every.max() <= metric.largest() * (1 + 1e-12)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [case for case in CASES if len(MECHANISMS[str(case.values[0])].spaces) == 1],
)
def test_a_bundle_of_another_geometry_is_refused(
    name: str, parameters: dict[str, Any], wrong_world: Embedding
) -> None:
    """Rejects a guarantee that is stated for a bundle on which the mechanism does not even run."""
    configured = mechanism(name, epsilon=1.0, **parameters)
    with pytest.raises(ConfigError, match=f"{name} does not work on this embedding bundle"):
        configured.bind(wrong_world, among(2))
    with pytest.raises(ConfigError):
        configured.guarantee(wrong_world)


@contract
def test_little_noise_gives_the_word_itself(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    """Rejects noise that is not scaled by 1 / epsilon, and a nearest word that is not the nearest."""
    configured = mechanism(name, epsilon=1e9, **parameters)
    inputs = np.tile(np.arange(world.releasable), 3)
    outputs = configured.bind(world, ExactSearch.over(world))(
        inputs, uniforms_for(configured, world, len(inputs))
    )
    np.testing.assert_array_equal(outputs, inputs)


@contract
def test_the_most_noise_is_finite(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    configured = mechanism(name, epsilon=LEAST.get(name, mechanisms.LEAST_EPSILON), **parameters)
    uniforms = uniforms_for(configured, world, 400)
    uniforms[:2] = [[2.0**-53], [1 - 2.0**-53]]
    uniforms[2::2, 0], uniforms[3::2, 0] = 2.0**-53, 1 - 2.0**-53
    with np.errstate(all="raise"):
        outputs = configured.bind(world, ExactSearch.over(world))(np.arange(400) % len(world.words), uniforms)
    assert outputs.min() >= 0 and outputs.max() < world.releasable


@contract
@pytest.mark.parametrize("release_words", [20, 15])
def test_the_release_vocabulary_is_in_the_noise_where_it_shapes_the_law(
    name: str, parameters: dict[str, Any], world: Embedding, release_words: int
) -> None:
    """Rejects equal uniforms for two vocabularies where a draw is no post-processing of a noisy point."""
    configured = mechanism(name, epsilon=2.0, **parameters)
    noises = [
        configured.release_noise(worlds.KEY, salt="", embedding=world, search=among(words))
        for words in (release_words, 10)
    ]
    assert (noises[0] == noises[1]) == (name != "exponential")


@contract
def test_equal_laws_make_equal_noise(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    """Two releases whose noise comes from one context must not differ in how they use it."""
    configured = mechanism(name, epsilon=2.0, **parameters)
    twins = [
        other
        for kind in MECHANISMS
        for case in PARAMETERS.get(kind, [])
        if (other := mechanism(kind, epsilon=2.0, **case)).law(N) == configured.law(N)
        and all(getattr(other, p, None) == getattr(configured, p, None) for p in POST_PROCESSING)
    ]
    assert configured in twins
    inputs = np.arange(200) % len(world.words)
    outputs = [twin.bind(world, among(20))(inputs, uniforms_for(twin, world, 200)) for twin in twins]
    for output in outputs:
        np.testing.assert_array_equal(output, outputs[0])


# What is promised


@contract
def test_guarantees_are_complete(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    guarantee = mechanism(name, epsilon=2.5, **parameters).guarantee(world)
    title = MECHANISMS[name].title
    assert (guarantee.mechanism, guarantee.configured_epsilon) == (title, 2.5)
    assert guarantee.epsilon >= 2.5  # a proof may give less than was asked for, never more
    assert guarantee.delta == 0.0
    assert guarantee.fingerprint == world.fingerprint
    for far in (0.0, 0.3, 1.0, 7.0):
        counted = min(far, parameters.get("truncate", math.inf))
        assert guarantee.loss(far) == pytest.approx(guarantee.epsilon * counted, rel=1e-15)
        assert guarantee.law.bound(far) == pytest.approx(guarantee.loss(far), rel=1e-12)
    stored = json.loads(json.dumps(guarantee.to_json(), allow_nan=False))
    assert stored["words"] == guarantee.describe()
    for part in (
        title,
        "epsilon 2.5",
        f"exp({rounded_up(guarantee.epsilon, 6)} x distance)",
        guarantee.metric,
    ):
        assert part in guarantee.describe()
    assert all(assumption in guarantee.describe() for assumption in guarantee.assumptions)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.999, 1.0])
def test_the_euclidean_equivalent(small: Embedding, weight: float) -> None:
    """Rejects a covariance that is not scaled to trace n, and the largest eigenvalue instead of the least."""
    least = np.linalg.eigvalsh(mixture_root(small.vectors, weight))[0]
    guarantee = Mahalanobis(epsilon=2.0, **{"lambda": weight}).guarantee(small)
    assert guarantee.euclidean_epsilon == pytest.approx(2.0 / least, rel=1e-6)
    said = f"the proven epsilon is {rounded_up(guarantee.euclidean_epsilon, 6)}" in guarantee.describe()
    assert said == (weight > 0)


@contract
def test_what_arithmetic_changes_is_stated(name: str, parameters: dict[str, Any], world: Embedding) -> None:
    """Rejects a guarantee of real numbers alone, and one that forgets the choice between two words."""
    guarantee = mechanism(name, epsilon=2.5, **parameters).guarantee(world)
    assert 0.0 < guarantee.delta_num < 1e-8 and 10 <= guarantee.noise_bits <= 52
    assert f"delta_num = {rounded_up(guarantee.delta_num)} of" in guarantee.describe()
    assert f"at least {guarantee.noise_bits} bits along" in guarantee.describe()
    stored = guarantee.to_json()
    assert (stored["delta_num"], stored["noise_bits"]) == (guarantee.delta_num, guarantee.noise_bits)
    if "t" in parameters:
        plain = {key: value for key, value in parameters.items() if key not in POST_PROCESSING}
        assert mechanism(name, epsilon=2.5, **plain).guarantee(world).delta_num < guarantee.delta_num


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """600 words in 300 dimensions, whose covariance has one eigenvalue of 10^-9."""
    n, rng = 300, np.random.default_rng(3)
    points = rng.standard_normal((2 * n, n))
    points = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[0] * math.sqrt(2 * n)
    points[:, 0] *= math.sqrt(1.05e-9)
    axes = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return worlds.build(tmp_path_factory.mktemp("thin"), (points @ axes).astype(np.float32))


@pytest.mark.parametrize(("kind", "epsilon"), [("sphere", 10.0), ("half", 1e9), ("weakest", 10.0)])
def test_noise_keeps_the_bits_that_are_stated(thin: Embedding, kind: str, epsilon: float) -> None:
    """Against 64 bits; rejects "at least 30" where an eigenvalue is 10^-9, and where noise is short."""
    n, world, rng = 300, thin, np.random.default_rng(3)
    configured = Mahalanobis(
        epsilon=epsilon, **{"lambda": {"sphere": 0.0, "half": 0.5, "weakest": 1.0}[kind]}
    )
    uniforms = rng.random((400, n + 1))
    uniforms[:, 0] = 0.5
    words = np.arange(400)
    found = configured.bind(world, ExactSearch.over(world)).points(words, uniforms.copy())
    # The same noise in the axes of the covariance, over its deviations there, in extended precision.
    normals = special.ndtri(uniforms[:, 1:]).astype(np.longdouble)
    normals /= np.sqrt(np.square(normals).sum(axis=1))[:, None]
    if configured.mixing:
        assert isinstance(world.space, EuclideanSpace)
        basis = np.asarray(world.space.covariance_vectors).astype(np.longdouble)
        values = np.asarray(world.space.covariance_values).astype(np.longdouble)
        deviations = np.sqrt(configured.mixing * values + (1 - np.longdouble(configured.mixing)))
    else:
        basis, deviations = np.eye(n, dtype=np.longdouble), np.ones(n, dtype=np.longdouble)
    length = np.longdouble(special.gammaincinv(n, 0.5)) / np.longdouble(epsilon)
    noise = (found.astype(np.longdouble) - world.vectors[words].astype(np.longdouble)) @ basis / deviations
    errors = np.sqrt(np.square(noise / length - normals @ basis).sum(axis=1)).astype(np.float64)
    bits = -math.log2(errors.max() * math.sqrt(n))
    stated = configured.claim(world).noise_bits
    assert stated <= bits <= stated + 10
    assert (bits < 30) == (kind == "weakest" or epsilon == 1e9)


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_the_distances_count_in_the_metric_of_epsilon(
    plane: Embedding, small: Embedding, weight: float
) -> None:
    """Rejects Euclidean distances where epsilon counts in another norm, and a word as its own neighbour."""
    for world in (plane, small):
        points = world.vectors[:].astype(np.float64)
        whitened = np.linalg.solve(mixture_root(points, weight), points.T).T
        stated = Mahalanobis(epsilon=2.0, **{"lambda": weight}).guarantee(world).distances
        step = -(-len(points) // 256)
        between = distance.squareform(distance.pdist(whitened))
        ordered = np.sort(between, axis=1)[::step]
        assert stated.sample == len(ordered)
        for rank, given in ((1, stated.nearest), (10, stated.tenth), (100, stated.hundredth)):
            expected = np.median(ordered[:, min(rank, len(points) - 1)])
            assert given == pytest.approx(expected, rel=1e-9)
        assert between.max() <= stated.largest * (1 + 1e-12) <= 2 * between.max()


def test_a_singular_covariance_cannot_be_the_whole_noise(flat: Embedding) -> None:
    """Words of a plane would stay in it: their third coordinate is released as it is."""
    whole = Mahalanobis(epsilon=1.0, **{"lambda": 1.0})
    for refused in (lambda: whole.bind(flat, among(2)), lambda: whole.guarantee(flat)):
        with pytest.raises(ConfigError, match=r"without noise.*Lower lambda"):
            refused()
    assert Mahalanobis(epsilon=1.0, **{"lambda": 0.5}).bind(flat, among(2)).root is not None


# The guarantee itself, on a line: there the noise is the Laplace law and a word's cell is an interval.


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("name", ["laplace", "mahalanobis"])
def test_the_loss_on_a_line_is_exactly_the_promised_one(line: Embedding, name: str, epsilon: float) -> None:
    """Rejects a promise below the truth and, the bound being reached, one above it."""
    parameters = {"lambda": 0.6} if name == "mahalanobis" else {}
    guarantee = mechanism(name, epsilon=epsilon, **parameters).guarantee(line)
    assert guarantee.euclidean_epsilon == pytest.approx(epsilon)  # on a line A = 1
    positions = line.vectors[:, 0].astype(np.float64)
    losses = np.log(line_outputs(positions, 1 / epsilon))
    worst = (losses[:, None, :] - losses[None, :, :]).max(axis=2)
    allowed = np.vectorize(guarantee.loss)(np.abs(positions[:, None] - positions[None, :]))
    assert (worst <= allowed + 1e-12).all()
    inner = slice(1, -1)  # words that have another one behind them, whose cell is beyond both words of a pair
    np.testing.assert_allclose(worst[inner], allowed[inner], atol=1e-12)
