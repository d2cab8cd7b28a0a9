"""Estimators against the mechanism itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import Estimator, estimator, estimators, rays, word_statistics
from dptext_spark.calibration.estimators import EuclideanRayEstimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.calibration_oracle import cells
from tests.helpers.worlds import among

VICKREY = {"select": "vickrey", "t": 0.3}


def grid(name: str, epsilons: tuple[float, ...], **parameters: Any) -> list[Mechanism]:
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


def make(world: Embedding, mechanisms: list[Mechanism], runs: int, name: str = "auto") -> Estimator:
    return estimator(mechanisms, world, search=ExactSearch.over(world), runs=runs, name=name)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """2,500 words in 20 dimensions in tight clusters, some at the same place, 2,400 to release."""
    rng = np.random.default_rng(5)
    points = np.repeat(rng.standard_normal((250, 20)), 10, axis=0)
    points += 0.05 * rng.standard_normal(points.shape)
    points[100:110] = points[0]  # exact ties
    points[200:210] = points[190] + 1e-6 * rng.standard_normal((10, 20))  # ties of single precision
    return worlds.build(tmp_path_factory.mktemp("clustered"), points.astype(np.float32), release_words=2400)


CASES = pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("laplace", {}),
        ("mahalanobis", {"lambda": 0.5}),
        ("laplace", VICKREY),
        ("mahalanobis", {"lambda": 0.5} | VICKREY),
    ],
    ids=["laplace", "mahalanobis", "laplace-vickrey", "mahalanobis-vickrey"],
)
EPSILONS = (1e9, 40.0, 15.0, 6.0, 1.0, 1e-6)


def shared_points(shared: EuclideanRayEstimator, word: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """The noisy points (epsilons, runs, n) of a word, and their coins, from the uniforms alone."""
    uniforms = shared._uniforms(str(block), slice(0, shared.runs))
    directions = shared.bound[0].directions(uniforms[:, 1:-1].copy())
    lengths = np.stack([bound.lengths(uniforms[:, 0]) for bound in shared.bound])
    return shared.bound[0].vectors[word] + lengths[..., None] * directions, uniforms[:, -1]


@CASES
def test_shared_rays_find_the_nearest_words(
    clustered: Embedding, name: str, parameters: dict[str, Any]
) -> None:
    """Against all distances in double precision, ties included; words that may not be released too."""
    shared = make(clustered, grid(name, EPSILONS, **parameters), runs=60)
    assert isinstance(shared, EuclideanRayEstimator)
    words = np.array([3, 105, 195, 1200, 2399, 2450])
    released = clustered.vectors[: clustered.releasable].astype(np.float64)
    with np.errstate(all="raise"):
        outputs = shared.draws(words, block=4)
    near_ties = 0
    for place, word in enumerate(words.tolist()):
        points, coins = shared_points(shared, word, 4)
        for epsilon in range(len(EPSILONS)):
            gaps = points[epsilon, :, None, :] - released
            distances = np.sqrt(np.square(gaps).sum(axis=2))
            order = np.argsort(distances, axis=1, kind="stable")[:, :2]
            best = np.take_along_axis(distances, order, axis=1)
            first = coins < vickrey_probability(parameters.get("t", 0.0), best)
            expected = np.where(first, order[:, 0], order[:, 1])
            differs = np.flatnonzero(outputs[epsilon, place] != expected)
            # Only words as near as that, but for rounding in double precision, may be exchanged.
            found = distances[differs, outputs[epsilon, place, differs]]
            wanted = distances[differs, expected[differs]]
            assert (np.abs(found - wanted) <= 1e-9 * wanted).all()
            near_ties += len(differs)
    print(f"{near_ties} of {outputs.size} draws differ, all at ties of double precision")


@CASES
def test_shared_rays_find_what_the_mechanism_finds(
    clustered: Embedding, name: str, parameters: dict[str, Any]
) -> None:
    """Equal to the last tie, by the mechanism itself on the same uniforms."""
    shared = make(clustered, grid(name, EPSILONS, **parameters), runs=100)
    words = np.arange(0, 2500, 61)
    outputs = shared.draws(words, block=2)
    uniforms = shared._uniforms("2", slice(0, 100))
    for epsilon, perturb in enumerate(shared.bound):
        inputs = np.repeat(words, 100)
        expected = perturb(inputs, np.tile(uniforms, (len(words), 1)))
        np.testing.assert_array_equal(outputs[epsilon].ravel(), expected)


@pytest.mark.parametrize("choice", [{}, VICKREY])
@pytest.mark.parametrize("name", ["hyperbolic", "hyperbolic-icdm"])
def test_shared_rays_of_the_ball_lead_where_the_mechanism_goes(
    ball: Embedding, name: str, choice: dict[str, Any]
) -> None:
    """Rejects noise that is not moved to the word, one epsilon's radii for all, and another's coin."""
    shared = make(ball, grid(name, (9.0, 3.0, 1.5), **choice), runs=1100)
    words = np.arange(len(ball.words))
    outputs = shared.draws(words, block=2)
    uniforms = shared._uniforms("2", slice(0, 1100))
    for epsilon, perturb in enumerate(shared.bound):
        inputs = np.repeat(words, 1100)
        expected = perturb(inputs, np.tile(uniforms, (len(words), 1)))
        np.testing.assert_array_equal(outputs[epsilon].ravel(), expected)
    kept = (outputs == words[:, None]).mean(axis=(1, 2))
    assert kept[0] > kept[1] > kept[2]


@pytest.mark.parametrize("choice", [{}, VICKREY])
def test_centres_may_be_in_another_space(small: Embedding, choice: dict[str, Any]) -> None:
    """Rejects rays that start at the words' own vectors."""
    mechanisms = grid("projection", (60.0, 20.0, 5.0), dimension=12, **choice)
    plain = make(small, mechanisms, 100, "plain")
    shared = EuclideanRayEstimator(
        bound=plain.bound, noise=plain.noise, width=plain.width, release_words=200, runs=100
    )
    words = np.array([3, 199, 250])
    outputs = shared.draws(words, block=0)
    uniforms = shared._uniforms("0", slice(0, 100))
    for epsilon, perturb in enumerate(plain.bound):
        expected = perturb(np.repeat(words, 100), np.tile(uniforms, (3, 1)))
        np.testing.assert_array_equal(outputs[epsilon].ravel(), expected)


@pytest.mark.parametrize("leaders", [(), (1,), (2, 3), (5, 40, 150)])
@pytest.mark.parametrize("choice", [{}, VICKREY])
def test_no_cut_of_the_work_changes_a_draw(
    clustered: Embedding, leaders: tuple[int, ...], choice: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, mechanisms = np.arange(0, 2500, 100), grid("laplace", (30.0, 8.0, 1.0), **choice)
    expected = make(clustered, mechanisms, 70).draws(words, block=0)
    monkeypatch.setattr(rays, "LEADERS", leaders)
    monkeypatch.setattr(rays, "_CELLS", 7000)
    monkeypatch.setattr(estimators, "_CELLS", 33 * clustered.releasable)
    monkeypatch.setattr(estimators, "_WORD_CELLS", 3 * clustered.releasable)
    with threadpool_limits(2):
        np.testing.assert_array_equal(make(clustered, mechanisms, 70).draws(words, block=0), expected)


@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_draws_are_values(small: Embedding, name: str) -> None:
    """The same for the same seed; other runs, blocks, seeds and (plain) words have noise of their own."""
    mechanisms = grid("laplace", (4.0, 2.0))
    words = np.array([5, 250, 17])
    draws = make(small, mechanisms, 200, name)
    transitions = cells(draws(words, block=3))
    assert cells(make(small, mechanisms, 200, name)(words[::-1], block=3)) == transitions
    others = [
        estimator(mechanisms, small, search=among(200), runs=200, seed=1, name=name)(words, block=3),  # type: ignore[arg-type]
        make(small, mechanisms[::-1], 200, name)(words, block=3),
    ]
    others += [draws(words, block=4)] if name == "shared-ray" else []
    assert all(cells(other) != transitions for other in others)
    more = make(small, mechanisms, 1500, name)
    np.testing.assert_array_equal(more.draws(words, block=0)[:, :, :200], draws.draws(words, block=0))  # type: ignore[attr-defined]
    assert transitions["output"].to_numpy().max() < 200


def test_plain_words_do_not_share_noise_and_epsilons_do(small: Embedding) -> None:
    """Words at one place differ, by any cut of the work; epsilons that hardly differ do not."""
    drawn = make(small, grid("laplace", (2.0, 2.0 + 1e-12)), 300, "plain").draws(np.array([5, 6]), block=0)
    assert (drawn[0, 0] != drawn[0, 1]).mean() > 0.5
    np.testing.assert_array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize("kind", ["plain", "shared-ray"])
@pytest.mark.parametrize(
    ("name", "parameters", "epsilons"),
    [
        ("laplace", {}, (1.0, 2.0, 4.0, 7.0)),
        ("mahalanobis", {"lambda": 0.5}, (1.0, 2.0, 4.0, 7.0)),
        ("projection", {"dimension": 6}, (1.0, 2.0, 4.0, 7.0)),
        ("hyperbolic", {}, (1.1, 1.5, 3.0, 9.0)),
        ("hyperbolic-icdm", {}, (0.5, 1.5, 3.0, 9.0)),
    ],
)
def test_a_word_that_stays_does_so_at_every_larger_epsilon(
    small: Embedding, ball: Embedding, name: str, parameters: dict[str, Any], epsilons: Any, kind: str
) -> None:
    """Run by run, in one grid or each epsilon in its own: rejects noise that is keyed by epsilon."""
    world = ball if name.startswith("hyperbolic") else small
    if kind == "shared-ray" and name == "projection":
        kind = "auto"
    words = np.arange(0, len(world.words), 7)
    made = [make(world, grid(name, (epsilon,), **parameters), 300, kind) for epsilon in epsilons]
    assert all(one.monotone for one in made)
    stays = [one.draws(words, block=1)[0] == words[:, None] for one in made]  # type: ignore[attr-defined]
    for near, far in zip(stays[1:], stays[:-1], strict=True):
        assert (near >= far).all()
        assert near.sum() > far.sum()
    together = make(world, grid(name, epsilons, **parameters), 300, kind).draws(words, block=1)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(together == words[:, None], stays)


def test_only_what_is_proven_to_be_monotone_says_so(small: Embedding) -> None:
    """With Vickrey's choice a run that left its word may stay again: here are some."""
    assert not make(small, grid("exponential", (1.0,)), 1).monotone
    mechanisms = grid("laplace", tuple(np.geomspace(1.0, 40.0, 30)), select="vickrey", t=0.8)
    made = make(small, mechanisms, 200)
    assert not made.monotone
    stays = made.draws(np.arange(0, 200, 9), block=0) == np.arange(0, 200, 9)[:, None]  # type: ignore[attr-defined]
    assert (stays[1:] < stays[:-1]).any()


def test_the_estimator_fits_the_mechanism(small: Embedding, ball: Embedding) -> None:
    assert make(small, grid("laplace", (1.0,)), 1).name == "shared-ray"
    assert make(small, grid("laplace", (1.0,)), 1, "plain").name == "plain"
    assert make(ball, grid("hyperbolic", (3.0,)), 1).name == "shared-ray"
    assert make(small, grid("exponential", (1.0,)), 1).name == "exact"
    for world, name, wanted in ((small, "laplace", "exact"), (ball, "hyperbolic", "exact")):
        with pytest.raises(ConfigError, match=rf"does not serve mechanism {name}.*Got: {wanted}"):
            make(world, grid(name, (3.0,)), 1, wanted)


def test_impossible_estimations_are_refused(small: Embedding) -> None:
    mixed = [*grid("laplace", (1.0,)), *grid("mahalanobis", (2.0,), **{"lambda": 0.5})]
    turned = [*grid("laplace", (1.0,)), *grid("laplace", (2.0,), **VICKREY)]
    for mechanisms in ([], mixed, turned):
        with pytest.raises(ConfigError, match="differ in epsilon alone"):
            make(small, mechanisms, 1)
    for numbers in ({"runs": 0}, {"runs": 1, "seed": -1}, {"runs": 1, "seed": 2**63}):
        with pytest.raises(ConfigError, match="runs or the seed"):
            estimator(grid("laplace", (1.0,)), small, search=among(200), **numbers)


@pytest.mark.parametrize("parameters", [{}, {"truncate": 0.5}])
def test_exact_counts_are_the_law(small: Embedding, parameters: dict[str, Any]) -> None:
    mechanisms = grid("exponential", (20.0, 2.0), **parameters)
    words = np.array([250, 3, 90])
    with np.errstate(all="raise"):
        transitions = make(small, mechanisms, 1000)(words, block=0)
        table = word_statistics(transitions)
    assert transitions.exact
    assert table["word"].to_pylist() == [3, 90, 250] * 2
    for epsilon, configured in enumerate(mechanisms):
        law = configured.bind(small, among(200)).probabilities(np.sort(words))
        part = slice(3 * epsilon, 3 * epsilon + 3)
        assert table["n_w"].to_pylist()[part] == pytest.approx([law[0, 3], law[1, 90], 0.0])
        assert table["s_w"].to_pylist()[part] == pytest.approx((1 - (1 - law) ** 1000).sum(axis=1).tolist())
        entropy = -(law * np.log2(np.maximum(law, 1e-300))).sum(axis=1)
        np.testing.assert_allclose(table["entropy"].to_numpy()[part], entropy, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("choice", [{}, VICKREY])
def test_two_words_and_extreme_noise(tmp_path: Path, choice: dict[str, Any]) -> None:
    world = worlds.build(tmp_path, [[1.0, 0.0], [1.0, 0.0], [0.0, 1e-3]])
    mechanisms = grid("laplace", (1e15, 1.0, 1e-12), **choice)
    with np.errstate(all="raise"):
        outputs = estimator(mechanisms, world, search=among(2), runs=50).draws(np.array([0, 2]), block=0)  # type: ignore[attr-defined]
    assert set(np.unique(outputs)) <= {0, 1}
