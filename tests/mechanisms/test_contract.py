"""One contract for all mechanisms, and the guarantee checked where it can be computed."""

import json
import math
import pickle

import numpy as np
import pytest
from pydantic import ValidationError

from dptext_spark.accounting.laws import (
    BoundedRange,
    LebesgueLaw,
    LebesgueRange,
    SphericalLaplace,
    VolumeLaw,
)
from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.spaces import EuclideanSpace
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import rounded_up
from dptext_spark.mechanisms import (
    LEAST_EPSILON,
    MECHANISMS,
    Hyperbolic,
    HyperbolicIcdm,
    mechanism,
)
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among

T = "select=vickrey,t=0.4"
PARAMETERS = f"""
exponential exponential:truncate=0.5 hyperbolic hyperbolic:{T} hyperbolic-icdm hyperbolic-icdm:{T}
hyperbolic-lebesgue hyperbolic-lebesgue:{T}
laplace laplace:{T} mahalanobis:lambda=0 mahalanobis:lambda=0.3 mahalanobis:lambda=1
mahalanobis:lambda=0.3,{T} projection:dimension=20 projection:dimension=20,{T}
projection:dimension=20,sensitivity=spectral projection:dimension=20,sensitivity=paper,beta=0.6,seed=3
""".split()
"""Every mechanism with parameters that the contract is checked with."""
# Other values, to see that the law names a parameter.
CHANGED = {"beta": 0.77, "seed": 77, "dimension": 21, "sensitivity": "vocabulary"}
contract = pytest.mark.parametrize("spec", PARAMETERS)


@pytest.fixture
def world(spec, small, ball):
    """A bundle that the mechanism works on."""
    return small if EuclideanSpace in mechanism(spec, epsilon=2.0).spaces else ball


def uniforms_for(configured, embedding, count):
    return np.random.default_rng(0).random(
        (count, configured.uniforms_per_token(embedding.dimension))
    )


def test_every_mechanism_is_under_contract():
    assert MECHANISMS.keys() == {spec.partition(":")[0] for spec in PARAMETERS}


@contract
def test_outputs_are_released_words_and_a_function_of_their_input(spec, world):
    """Rejects a state that is carried from batch to batch, and `noise @ root` by BLAS, which follows it."""
    configured, release_words = mechanism(spec, epsilon=2.0), world.releasable // 2
    inputs = np.arange(600) % len(world.words)  # words that may not be released come in, too
    uniforms = uniforms_for(configured, world, len(inputs))

    def drawn(bound, size):
        """Outputs, and the noisy points to the last bit where there are any."""
        cuts = [slice(i, i + size) for i in range(0, len(inputs), size)]
        points = [
            bound.points(inputs[c], uniforms[c, :-1].copy())
            for c in cuts
            if hasattr(bound, "points")
        ]
        outputs = [bound(inputs[cut], uniforms[cut].copy()) for cut in cuts]
        return np.concatenate(outputs), b"".join(part.tobytes() for part in points)

    first, again = (configured.bind(world, among(release_words)) for _ in range(2))
    outputs, points = drawn(first, 600)
    assert outputs.dtype == np.int64 and outputs.shape == inputs.shape
    assert outputs.min() >= 0 and outputs.max() < release_words and len(np.unique(outputs)) > 1
    for bound, size in ((again, 600), (first, 1), (first, 7)):
        same, bits = drawn(bound, size)
        assert same.tolist() == outputs.tolist() and bits == points
    assert first(inputs[:0], uniforms[:0]).shape == (0,)


@contract
def test_a_mechanism_is_a_small_value_whose_law_names_what_shapes_the_noise(spec, world):
    """Rejects a law without epsilon, which lets two releases be combined into the input."""
    # Also equal laws whose noise is used differently, other noise for another choice between two words, and
    # equal uniforms for two vocabularies where a draw is no post-processing of a noisy point.
    configured = mechanism(spec, epsilon=2.5)
    assert (
        len(pickle.dumps(configured)) < 1000
        and pickle.loads(pickle.dumps(configured)) == configured
    )
    with pytest.raises(ValidationError):
        configured.epsilon = 3.0
    law, width = configured.noise_parameters(50), configured.uniforms_per_token(50)
    assert json.loads(json.dumps(law, allow_nan=False)) == law == configured.noise_parameters(50)
    assert law["epsilon"] == 2.5 and all(type(value) in (str, int, float) for value in law.values())
    given = configured.model_dump(by_alias=True, exclude_unset=True)
    is_choice = given.pop("select", None) and given.pop("t")
    for name in given:
        assert (
            type(configured)(**{**given, name: CHANGED.get(name, 0.71)}).noise_parameters(50) != law
        )
    if is_choice:
        for other in ({}, {"select": "vickrey", "t": 0.9}):
            chosen = type(configured)(**given, **other)
            assert (chosen.noise_parameters(50), chosen.uniforms_per_token(50)) == (law, width)
    twins = [
        m
        for other in PARAMETERS
        if T not in other and (m := mechanism(other, epsilon=2.5)).noise_parameters(50) == law
    ]
    inputs = np.arange(200) % len(world.words)
    outputs = [
        twin.bind(world, among(20))(inputs, uniforms_for(twin, world, 200)) for twin in twins
    ]
    assert twins and all((output == outputs[0]).all() for output in outputs)
    few, many = (
        configured.release_noise(worlds.KEY, salt="", embedding=world, search=among(n))
        for n in (10, 20)
    )
    assert (few != many) == (configured.name == "exponential") == configured.release_words_shape_law


@contract
def test_a_bundle_of_another_geometry_is_refused(spec, small, ball):
    """Rejects a guarantee that is stated for a bundle on which the mechanism does not even run."""
    configured = mechanism(spec, epsilon=1.0)
    for other in (
        other for other in (small, ball) if not isinstance(other.space, configured.spaces)
    ):
        for refused in (lambda e: configured.bind(e, among(2)), configured.guarantee):
            with pytest.raises(
                ConfigError, match=f"{configured.name} does not work on this embedding"
            ):
                refused(other)


@contract
def test_the_least_and_the_most_noise(spec, world):
    """Rejects noise not scaled by 1 / epsilon, a nearest word that is not the nearest, and overflow."""
    quiet = mechanism(spec, epsilon=1e9)
    inputs, search = np.tile(np.arange(world.releasable), 3), ExactSearch.over(world)
    outputs = quiet.bind(world, search)(inputs, uniforms_for(quiet, world, len(inputs)))
    np.testing.assert_array_equal(outputs, inputs)
    loud = mechanism(spec, epsilon=1 + 1e-9 if quiet.name == "hyperbolic" else LEAST_EPSILON)
    uniforms = uniforms_for(loud, world, 400)
    uniforms[:2] = [[2.0**-53], [1 - 2.0**-53]]
    uniforms[2::2, 0], uniforms[3::2, 0] = 2.0**-53, 1 - 2.0**-53
    with np.errstate(all="raise"):
        outputs = loud.bind(world, search)(np.arange(400) % len(world.words), uniforms)
    assert outputs.min() >= 0 and outputs.max() < world.releasable


@contract
def test_each_word_at_its_own_epsilon(spec, world):
    """Rejects epsilons that are mixed up, a factor upside down, and one epsilon for all."""
    configured, search = mechanism(spec, epsilon=9.0), ExactSearch.over(world)
    bound, rng, values = configured.bind(world, search), np.random.default_rng(8), (9.0, 4.0, 2.5)
    words, which = rng.integers(0, len(world.words), 900), rng.integers(0, 3, 900)
    uniforms = rng.uniform(1e-12, 1.0, (900, configured.uniforms_per_token(world.dimension)))
    if isinstance(configured, Hyperbolic | HyperbolicIcdm):
        with pytest.raises(ConfigError, match="one epsilon for all words"):
            bound(words, uniforms, np.array(values)[which])
        return
    alone = [
        configured.at(epsilon).bind(world, search)(words, uniforms.copy()) for epsilon in values
    ]
    together = bound(words, uniforms.copy(), np.array(values)[which])
    np.testing.assert_array_equal(together, np.choose(which, alone))
    for wrong in (alone[0], np.choose(2 - which, alone), np.choose((which + 1) % 3, alone)):
        assert (together != wrong).mean() > 0.005


LAWS = {
    "hyperbolic": lambda n, epsilon, _: VolumeLaw(dimension=n, epsilon=epsilon),
    "hyperbolic-icdm": lambda n, epsilon, _: LebesgueLaw(dimension=n, epsilon=epsilon - n),
    # Two dimensions: a constant changes by 2 nats at most.
    "hyperbolic-lebesgue": lambda n, epsilon, _: LebesgueRange(dimension=n, epsilon=epsilon - 2),
    "exponential": lambda _, epsilon, truncate: BoundedRange(epsilon=epsilon, truncation=truncate),
    "projection": lambda n, epsilon, _: SphericalLaplace(dimension=20, epsilon=epsilon),
}
"""Of losses, by dimension, proven epsilon and truncation; Laplace's in all other mechanisms."""


@contract
def test_guarantees_are_complete(spec, world):
    """Rejects a guarantee of real numbers alone, and one that forgets the choice between two words."""
    # And the paper's epsilon for its noise in the ball, which costs more, and losses of another dimension.
    configured = mechanism(spec, epsilon=2.5)
    guarantee, truncate = configured.guarantee(world), getattr(configured, "truncate", None)
    assert (guarantee.mechanism, guarantee.configured_epsilon) == (configured.name, 2.5)
    assert guarantee.fingerprint == world.fingerprint
    assert guarantee.epsilon >= 2.5  # a proof may give less than was asked for, never more
    law = LAWS.get(configured.name, lambda n, e, _: SphericalLaplace(dimension=n, epsilon=e))
    assert guarantee.law == law(world.dimension, guarantee.epsilon, truncate)
    for far in (0.0, 0.3, 7.0):
        counted = min(far, truncate or math.inf)
        assert guarantee.loss(far) == pytest.approx(guarantee.epsilon * counted, rel=1e-15)
        assert guarantee.law.bound(far) == pytest.approx(guarantee.loss(far), rel=1e-12)
    assert 0.0 < guarantee.delta_num < 1e-8 and 10 <= guarantee.noise_bits <= 52
    described, bound = guarantee.describe(), f"exp({rounded_up(guarantee.epsilon, 6)} x distance)"
    arithmetic = (
        f"delta_num = {rounded_up(guarantee.delta_num)} of",
        f"at least {guarantee.noise_bits} bits",
    )
    for part in (configured.name, "epsilon 2.5", bound, guarantee.metric, *arithmetic):
        assert part in described
    assert ("epsilon + 2" in described) == (configured.name == "hyperbolic-icdm")
    if T in spec:
        other = mechanism(spec.replace(T, "").strip(":,"), epsilon=2.5).guarantee(world).delta_num
        assert other is not None and other < guarantee.delta_num


def test_the_row_epsilons_of_a_mechanism(small, ball):
    """Its law is the guarantee's: rejects epsilons by the Euclidean distance where another one counts."""
    budget = RowBudget(loss=5.0, within=2.0)
    for spec in (
        "laplace",
        "mahalanobis:lambda=0.9",
        "projection:dimension=6",
        "exponential:truncate=0.5",
    ):
        configured = mechanism(spec, epsilon=100.0)
        epsilons = configured.row_epsilons(budget, small)
        for words in (1, 3, 50):
            at = configured.at(epsilons.epsilon(words))
            assert 0.8 * 5.0 < words * at.guarantee(small).loss(2.0) <= 5.0
    for kind in (Hyperbolic, HyperbolicIcdm):
        with pytest.raises(
            ConfigError, match=f"{kind.name} cannot be used with a row budget.*exponential"
        ):
            kind(epsilon=9.0).row_epsilons(budget, ball)
    assert mechanism("exponential", epsilon=9.0).row_epsilons(budget, ball).epsilon(5) == 0.5
