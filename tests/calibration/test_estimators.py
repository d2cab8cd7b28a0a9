"""Calibration: statistics against hand-made examples, and estimators against the mechanism itself."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from threadpoolctl import threadpool_limits

from dptext_spark import calibration
from dptext_spark.calibration import (
    Estimator,
    Transitions,
    bayes_risk,
    deniability,
    estimator,
    output_statistics,
    rays,
    summary,
    word_statistics,
)
from dptext_spark.calibration.estimators import EuclideanRayEstimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.mechanisms.noisy import vickrey_probability
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import among

VICKREY = {"select": "vickrey", "t": 0.3}


def grid(name: str, epsilons: tuple[float, ...], **parameters: Any) -> list[Mechanism]:
    return [mechanism(name, epsilon=epsilon, **parameters) for epsilon in epsilons]


# Transitions


# Word 1 becomes 1 six times and 2 four times of ten, word 2 becomes 2 always, word 7 many others.
DRAWS = np.array([[[1, 2, 1, 2, 1, 1, 2, 1, 1, 2], [2] * 10, [0, 1, 2, 3, 4, 5, 6, 8, 9, 9]]], np.int32)
WORDS = np.array([1, 2, 7])


def counted(draws: np.ndarray = DRAWS, words: np.ndarray = WORDS) -> Transitions:
    return Transitions.of_draws(words, draws.copy())


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_draws_are_counted() -> None:
    expected = [(0, 1, 1, 6), (0, 1, 2, 4), (0, 2, 2, 10)]
    expected += [(0, 7, y, 1) for y in (0, 1, 2, 3, 4, 5, 6, 8)] + [(0, 7, 9, 2)]
    assert rows(counted().to_table()) == expected
    assert rows(counted(DRAWS[:, [2, 0, 1]], WORDS[[2, 0, 1]]).to_table()) == expected
    assert counted().to_table().schema.types == [pa.int16(), pa.int32(), pa.int32(), pa.int32()]


def test_counts_of_several_epsilons_are_kept_apart() -> None:
    """Rejects runs of equal outputs that go on from one word or epsilon to the next."""
    draws = np.array([[[3, 3], [3, 3]], [[3, 4], [4, 4]]], dtype=np.int32)
    expected = [(0, 0, 3, 2), (0, 1, 3, 2), (1, 0, 3, 1), (1, 0, 4, 1), (1, 1, 4, 2)]
    assert rows(counted(draws, np.array([0, 1])).to_table()) == expected


def test_transitions_survive_a_table_in_any_order_and_their_parts_add_up() -> None:
    whole = counted()
    table = whole.to_table()
    assert (
        Transitions.from_table(table.take([5, 1, 0, *range(11, 5, -1), 4, 3, 2]), runs=10).to_table() == table
    )
    parts = [counted(DRAWS[:, [i]], WORDS[[i]]) for i in (2, 0, 1)]
    assert Transitions.concat(parts).to_table() == table
    half = counted(DRAWS[:, :, :5])
    for wrong in ([], [whole, half], [whole, expected_counts()]):
        with pytest.raises(ConfigError, match="cannot be put together"):
            Transitions.concat(wrong)


def expected_counts() -> Transitions:
    """A law known exactly: word 0 becomes 0 or 1 evenly, word 1 itself but once in a million."""
    table = pa.table(
        {
            "epsilon_index": [0] * 4,
            "word": [0, 0, 1, 1],
            "output": [0, 1, 0, 1],
            "count": [5.0, 5.0, 1e-5, 10.0 - 1e-5],
        }
    )
    return Transitions.from_table(table, runs=10)


# Statistics by hand


def test_word_statistics_of_an_example() -> None:
    with np.errstate(all="raise"):
        table = word_statistics(counted(), eta=0.1, confidence=0.9)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    assert columns["word"].tolist() == [1, 2, 7]
    assert columns["n_w"].tolist() == [0.6, 1.0, 0.0]
    assert columns["s_w"].tolist() == [2, 1, 9]
    assert columns["s_eta"].tolist() == [2, 1, 8]  # word 7: 2 + 7 ones hold nine tenths
    even = -0.6 * math.log2(0.6) - 0.4 * math.log2(0.4)
    many = 8 * 0.1 * math.log2(10) + 0.2 * math.log2(5)
    np.testing.assert_allclose(columns["entropy"], [even, 0.0, many])
    np.testing.assert_allclose(columns["h_0"], [1.0, 0.0, math.log2(9)])
    np.testing.assert_allclose(columns["h_inf"], [-math.log2(0.6), 0.0, math.log2(5)])
    for row, hits in enumerate((6, 10, 0)):
        interval = stats.binomtest(hits, 10).proportion_ci(0.9, method="exact")
        assert columns["n_w_low"][row] == pytest.approx(interval.low)
        assert columns["n_w_high"][row] == pytest.approx(interval.high)


def test_word_statistics_of_an_exact_law() -> None:
    """Rejects cells that may come up counted as cells that have."""
    with np.errstate(all="raise"):
        table = word_statistics(expected_counts())
    first, second = table.to_pylist()
    assert first["n_w"] == first["n_w_low"] == first["n_w_high"] == 0.5
    assert first["s_w"] == pytest.approx(2 * (1 - 0.5**10))
    assert second["s_w"] == pytest.approx(1 + 1e-5, rel=1e-9)
    assert second["s_eta"] == 1 and first["s_eta"] == 2
    assert first["entropy"] == 1.0 and first["h_inf"] == 1.0


def test_output_statistics_of_an_example() -> None:
    expected = [(0, 0, 1), (0, 1, 2), (0, 2, 3)] + [(0, y, 1) for y in (3, 4, 5, 6, 8, 9)]
    assert rows(output_statistics(counted())) == expected
    exact = output_statistics(expected_counts())["k_w"].to_numpy()
    np.testing.assert_allclose(exact, [1 - 0.5**10 + 1e-5, 1 - 0.5**10 + 1], rtol=1e-9)


@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 2.5, 4.0, 1e9])
def test_deniability_by_brute_force(gamma: float) -> None:
    rng = np.random.default_rng(0)
    counts = rng.multinomial(20, rng.dirichlet(np.full(6, 0.7), size=15)).reshape(1, 15, 6)
    draws = np.array([[np.repeat(np.arange(6), row) for row in counts[0]]], dtype=np.int32)
    transitions = counted(np.concatenate([draws, draws[:, ::-1]]), np.arange(15))
    found = {row[:3]: row[4] for row in rows(deniability(transitions, gamma=gamma))}
    for (epsilon, word, output), k in found.items():
        column = counts[0, :: -1 if epsilon else 1, output]
        assert k == ((column >= column[word] / gamma) & (column > 0)).sum()
    assert len(found) == len(transitions.count)


def test_bayes_risk_by_brute_force() -> None:
    prior = np.array([9.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0])
    # Outputs 1: word 1 by 1 * 0.6; 2: word 1 by 1 * 0.4; all else word 7, 3 * 0.8.
    seven = 3 * (1.0 - 0.2)
    assert rows(bayes_risk(counted(), prior)) == [(0, pytest.approx((0.6 + 0.4 + seven) / 4))]
    uniform = np.ones(8)
    assert rows(bayes_risk(counted(), uniform)) == [(0, pytest.approx((0.6 + 1.0 + 0.8) / 3))]


def test_bayes_risk_by_other_runs() -> None:
    """Rejects a guesser that is judged by the runs it learned from."""
    learned = counted(np.array([[[5, 5], [6, 6]]], np.int32), np.array([0, 1]))
    judged = counted(np.array([[[5, 6], [6, 8]]], np.int32), np.array([0, 1]))
    prior = np.array([1.0, 3.0])
    assert rows(bayes_risk(learned, prior)) == [(0, 1.0)]
    # 5 names word 0, 6 word 1, and 8, not seen before, the likelier word 1.
    assert rows(bayes_risk(learned, prior, held_out=judged)) == [(0, pytest.approx(0.25 * 0.5 + 0.75))]


def test_a_summary_describes_each_epsilon() -> None:
    table = pa.table(
        {
            "epsilon_index": [0, 0, 0, 0, 1],
            "word": range(5),
            "s_w": [4.0, 1.0, 3.0, 2.0, 7.0],
            "w": [1, 1, 1, 5, 2],
        }
    )
    first, second, *_ = (
        summary(table).filter(pa.compute.equal(summary(table)["statistic"], "s_w")).to_pylist()
    )
    assert (first["mean"], first["min"], first["p50"], first["max"]) == (2.5, 1.0, 2.0, 4.0)
    assert first["sd"] == pytest.approx(math.sqrt(1.25))
    assert (second["epsilon_index"], second["mean"], second["sd"], second["p95"]) == (1, 7.0, 0.0, 7.0)
    weighted = summary(table, weight="w").to_pylist()[0]
    assert weighted["mean"] == pytest.approx(18 / 8) and weighted["p50"] == 2.0 and weighted["p95"] == 4.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: word_statistics(counted(), eta=1.0),
        lambda: word_statistics(counted(), confidence=0.0),
        lambda: deniability(counted(), gamma=0.99),
        lambda: deniability(counted(), gamma=math.nan),
        lambda: bayes_risk(counted(), np.zeros(8)),
        lambda: bayes_risk(counted(), -np.ones(8)),
        lambda: bayes_risk(counted(), np.full(8, np.nan)),
    ],
)
def test_impossible_parameters_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        wrong()


# Estimators


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
    uniforms = shared._uniforms(0, str(block), slice(0, shared.runs))
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
    uniforms = shared._uniforms(0, "2", slice(0, 100))
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
    uniforms = shared._uniforms(0, "2", slice(0, 1100))
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
    uniforms = shared._uniforms(0, "0", slice(0, 100))
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
    monkeypatch.setattr(calibration.estimators, "_CELLS", 33 * clustered.releasable)
    monkeypatch.setattr(calibration.estimators, "_WORD_CELLS", 3 * clustered.releasable)
    with threadpool_limits(2):
        np.testing.assert_array_equal(make(clustered, mechanisms, 70).draws(words, block=0), expected)


@pytest.mark.parametrize("name", ["plain", "shared-ray"])
def test_draws_are_values(small: Embedding, name: str) -> None:
    """The same for the same seed; other runs, blocks, seeds and (plain) words have noise of their own."""
    mechanisms = grid("laplace", (4.0, 2.0))
    words = np.array([5, 250, 17])
    draws = make(small, mechanisms, 200, name)
    transitions = draws(words, block=3).to_table()
    assert make(small, mechanisms, 200, name)(words[::-1], block=3).to_table() == transitions
    others = [
        estimator(mechanisms, small, search=among(200), runs=200, seed=1, name=name)(words, block=3),  # type: ignore[arg-type]
        make(small, mechanisms[::-1], 200, name)(words, block=3),
    ]
    others += [draws(words, block=4)] if name == "shared-ray" else []
    assert all(other.to_table() != transitions for other in others)
    more = make(small, mechanisms, 1500, name)
    np.testing.assert_array_equal(
        more.draws(words, **block(name))[:, :, :200], draws.draws(words, **block(name))
    )
    assert transitions["output"].to_numpy().max() < 200


def block(name: str) -> dict[str, int]:
    return {"block": 0} if name == "shared-ray" else {}


def test_plain_runs_do_not_share_noise(small: Embedding) -> None:
    """Words at one place, by any cut of the work, at any epsilon."""
    drawn = make(small, grid("laplace", (2.0, 2.0 + 1e-12)), 300, "plain").draws(np.array([5, 6]))
    assert (drawn[0, 0] != drawn[1, 0]).mean() > 0.5


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
