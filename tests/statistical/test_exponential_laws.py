"""The words that the exponential mechanism puts out, through the path that releases take.

Chi-square of the outputs of every input word, those that may not be released too, against the closed form by
formulas of its own. Wrong laws go the same way and must be rejected. The key is fixed, so a run is
deterministic; over keys each check of the real mechanism would fail at the rate REAL.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Exponential
from dptext_spark.mechanisms.exponential import ExponentialChoice, Lists
from dptext_spark.noise import SEED_UNIFORMS
from dptext_spark.privatizer import Privatizer
from tests.helpers import worlds
from tests.helpers.worlds import among

pytestmark = pytest.mark.statistical

REAL = 1e-4  # false-alarm rate of one check of the real mechanism, over keys
MUTANT = 1e-6  # a wrong law must be at most this likely to be right
EPSILON = 1.5
DRAWS = 30_000
RELEASED = 6
TRUNCATIONS = [None, 1.2]


@pytest.fixture(scope="module", params=["euclidean", "poincare"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """Eight words; the last two are far out, near to each other, and may not be released."""
    points = np.array(
        [[0.3, 0.1], [-0.2, 0.4], [0.0, -0.5], [0.6, 0.5], [-0.7, -0.2], [0.1, 0.2], [0.5, -0.7], [0.6, -0.6]]
    )
    scale = 1.0 if request.param == "poincare" else 1.8
    folder = tmp_path_factory.mktemp(request.param)
    return worlds.build(folder, points * scale, geometry=request.param, release_words=RELEASED)


def distances(world: Embedding) -> np.ndarray:
    """Distances (words, released), the ball's by the cosh formula."""
    points = world.vectors[:].astype(np.float64)
    squares = np.square(points[:, None] - points[None, :RELEASED]).sum(axis=2)
    if world.space.geometry == "euclidean":
        return np.sqrt(squares)
    rims = 1 - np.square(points).sum(axis=1)
    return np.arccosh(1 + 2 * squares / np.outer(rims, rims[:RELEASED]))


def normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)


def law(gaps: np.ndarray, truncate: float | None, epsilon: float = EPSILON) -> np.ndarray:
    return normalised(np.exp(-epsilon * np.minimum(gaps, truncate or np.inf) / 2))


def epsilon_doubled(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    """The missing half."""
    return law(gaps, truncate, 2 * EPSILON)


def epsilon_five_percent_too_large(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    return law(gaps, truncate, 1.05 * EPSILON)


def nearest_only(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    """Candidate lists of the five nearest of six words."""
    return normalised(np.where(gaps < gaps.max(axis=1, keepdims=True), law(gaps, truncate), 0.0))


def squared(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    limit = np.inf if truncate is None else truncate**2
    return normalised(np.exp(-EPSILON * np.minimum(gaps**2, limit) / 2))


def not_truncated(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    return law(gaps, None)


def far_left_out(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    near = gaps < truncate
    # A word with no near word at all draws from the far ones even so.
    return normalised(np.where(near | ~near.any(axis=1, keepdims=True), law(gaps, truncate), 0.0))


def far_as_one(gaps: np.ndarray, truncate: float | None) -> np.ndarray:
    """The far class has one word's weight, whatever its number of words."""
    far = gaps >= truncate
    return normalised(law(gaps, truncate) / np.where(far, far.sum(axis=1, keepdims=True), 1))


Law = Callable[[np.ndarray, float | None], np.ndarray]
MUTANTS: list[Law] = [epsilon_doubled, epsilon_five_percent_too_large, nearest_only, squared]
TRUNCATED_MUTANTS: list[Law] = [far_left_out, far_as_one, not_truncated]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Draws by the first uniform from a table of probabilities (words, released)."""

    probabilities: np.ndarray

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        cumulative = np.cumsum(self.probabilities, axis=1)[words]
        return np.minimum((cumulative <= uniforms[:, :1]).sum(axis=1), RELEASED - 1).astype(np.int64)


def short_lists(choice: ExponentialChoice) -> ExponentialChoice:
    """List the nearest words alone, so that far ones are proposed and rejected, even in a small world."""
    return dataclasses.replace(choice, listed=10.0)


@dataclass(frozen=True, kw_only=True)
class AcceptsAll(ExponentialChoice):
    """A far word is the output whenever it is proposed."""

    def round(self, lists: Lists, places: np.ndarray, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        return super().round(lists, places, words, np.where([False, False, True], 1e-300, uniforms))


@dataclass(frozen=True, kw_only=True)
class WrongBound(ExponentialChoice):
    """Far words are accepted as if they had been proposed by the bound of a list a tenth shorter."""

    def round(self, lists: Lists, places: np.ndarray, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        nearer = dataclasses.replace(lists, radii=0.9 * lists.radii)
        return super().round(nearer, places, words, uniforms)


@dataclass(frozen=True, kw_only=True)
class OneAcceptance(ExponentialChoice):
    """Later rounds reuse the uniform by which the first one accepts."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        uniforms[:, 2:-SEED_UNIFORMS:3] = uniforms[:, 2:3]
        return super().__call__(words, uniforms)


@dataclass(frozen=True, kw_only=True)
class Overlapping(ExponentialChoice):
    """A round moves on by one uniform, and reuses the others."""

    def __call__(self, words: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        for first in range(3, uniforms.shape[1] - SEED_UNIFORMS, 3):
            uniforms[:, first : first + 3] = uniforms[:, first // 3 : first // 3 + 3].copy()
        return super().__call__(words, uniforms)


ROUND_MUTANTS = [AcceptsAll, WrongBound, OneAcceptance, Overlapping]


def private(world: Embedding, truncate: float | None) -> Privatizer:
    configured = Exponential(epsilon=EPSILON, truncate=truncate)
    return Privatizer(embedding=world, mechanism=configured, noise=worlds.release(configured, world))


def output_check(privatizer: Privatizer, truncate: float | None) -> float:
    """Chi-square with words x (released - 1) degrees of freedom."""
    names = privatizer.embedding.words.to_pylist()
    texts = pa.array([f"{name} " * DRAWS for name in names])
    outputs = privatizer.sanitize(texts, pa.array(range(len(names))), column="text").values.to_pylist()
    seen = np.array([[text.split().count(name) for name in names] for text in outputs])
    assert not seen[:, RELEASED:].any()
    expected = DRAWS * law(distances(privatizer.embedding), truncate)
    assert expected.min() > 100
    statistic = ((seen[:, :RELEASED] - expected) ** 2 / expected).sum()
    return float(stats.chi2.sf(statistic, df=len(names) * (RELEASED - 1)))


def report(name: str, world: Embedding, truncate: float | None, value: float) -> None:
    print(f"p-value of {name}, {world.space.geometry}, truncate {truncate}: {value:.3g}")


def test_the_worlds_have_near_and_far_words(world: Embedding) -> None:
    near = distances(world) < TRUNCATIONS[1]
    assert (near.sum(axis=1) > 1).sum() >= 3
    assert ((~near).sum(axis=1) > 1).all()


@pytest.mark.parametrize("truncate", TRUNCATIONS)
def test_words_follow_the_exponential_law(world: Embedding, truncate: float | None) -> None:
    value = output_check(private(world, truncate), truncate)
    report("exponential", world, truncate, value)
    assert value > REAL


@pytest.mark.parametrize("truncated", [False, True])
def test_words_follow_the_law_round_after_round(
    world: Embedding, truncated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far words are proposed and rejected; with a truncation, all the same, from beyond the lists."""
    truncate = 0.95 * float(distances(world).max()) if truncated else None
    privatizer = private(world, truncate)
    choice = short_lists(privatizer._perturb)
    words = np.arange(len(world.words))
    lists = choice.lists(words, choice.reach(words)[0])
    assert (lists.radii < choice.truncate).all() and (lists.lengths < RELEASED - 1).all()
    monkeypatch.setattr(privatizer, "_perturb", choice)
    value = output_check(privatizer, truncate)
    report("rounds", world, truncate, value)
    assert value > REAL


@pytest.mark.parametrize("kind", ROUND_MUTANTS)
def test_wrong_rounds_are_rejected(
    world: Embedding, kind: type[ExponentialChoice], monkeypatch: pytest.MonkeyPatch
) -> None:
    privatizer = private(world, None)
    right = short_lists(privatizer._perturb)
    wrong = kind(**{f.name: getattr(right, f.name) for f in dataclasses.fields(right)})
    monkeypatch.setattr(privatizer, "_perturb", wrong)
    value = output_check(privatizer, None)
    report(f"mutant {kind.__name__}", world, None, value)
    assert value < MUTANT


@pytest.mark.parametrize("rounds", ["later", "none"])
def test_later_rounds_and_the_list_after_them_follow_the_law(
    world: Embedding, rounds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No first round accepts; then later ones do, or there are none and all words are listed."""
    if rounds == "none":
        monkeypatch.setattr("dptext_spark.mechanisms.exponential._MORE", 0)
    configured, draws = Exponential(epsilon=EPSILON), 10_000
    choice = short_lists(configured.bind(world, among(RELEASED)))
    rng = np.random.default_rng(4)
    uniforms = np.full((draws, configured.uniforms_per_token(2)), 1 - 2.0**-53)
    uniforms[:, -SEED_UNIFORMS:] = rng.random((draws, SEED_UNIFORMS))
    seen = np.bincount(choice(np.full(draws, 6), uniforms), minlength=RELEASED)
    expected = draws * law(distances(world), None)[6]
    value = float(stats.chisquare(seen, expected).pvalue)
    report(f"{rounds} rounds", world, None, value)
    assert value > REAL


@pytest.mark.parametrize(
    ("truncate", "mutant"),
    [*((t, m) for t in TRUNCATIONS for m in MUTANTS), *((TRUNCATIONS[1], m) for m in TRUNCATED_MUTANTS)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_wrong_laws_are_rejected(
    world: Embedding, truncate: float | None, mutant: Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    privatizer = private(world, truncate)
    monkeypatch.setattr(privatizer, "_perturb", Table(probabilities=mutant(distances(world), truncate)))
    value = output_check(privatizer, truncate)
    report(f"mutant {mutant.__name__}", world, truncate, value)
    assert value < MUTANT


@pytest.mark.parametrize("truncate", TRUNCATIONS)
def test_an_independent_sampler_passes(
    world: Embedding, truncate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check rejects what is wrong about the mutants, not that they draw in another way."""
    privatizer = private(world, truncate)
    monkeypatch.setattr(privatizer, "_perturb", Table(probabilities=law(distances(world), truncate)))
    assert output_check(privatizer, truncate) > REAL


def test_the_two_uniforms_serve_one_word_each(world: Embedding) -> None:
    """Outputs of neighbouring words are independent: chi-square of pairs, rejects a shared uniform."""

    def pairs(perturb: Callable[[np.ndarray, np.ndarray], np.ndarray], uniforms: np.ndarray) -> float:
        drawn = perturb(np.zeros(len(uniforms), dtype=np.int64), uniforms)
        table = np.zeros((RELEASED, RELEASED))
        np.add.at(table, (drawn[::2], drawn[1::2]), 1)
        return float(stats.chi2_contingency(table).pvalue)

    configured = Exponential(epsilon=EPSILON, truncate=0.5)
    width = configured.uniforms_per_token(2)
    noise = worlds.release(configured, world).column("text", purpose="text word", uint64s_per_token=width)
    words = np.empty((2 * DRAWS, width), dtype=np.uint64)
    noise.fill(words, noise.row_key(b"0", (b"content",)), 0)
    uniforms = (words >> np.uint64(12)) * 2.0**-52 + 2.0**-53
    perturb = configured.bind(world, among(RELEASED))
    value = pairs(perturb, uniforms)
    report("pairs of neighbours", world, 0.5, value)
    assert value > REAL
    shared = uniforms.copy()
    shared[1::2, 1] = shared[::2, 1]  # the second uniform, the choice among far words
    wrong = pairs(perturb, shared)
    report("mutant shared second uniform, pairs", world, 0.5, wrong)
    assert wrong < MUTANT
