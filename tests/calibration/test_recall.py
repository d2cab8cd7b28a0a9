"""Lists for a recall: found on noisy points, true of others, and told by the rank of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dptext_spark.calibration.recall import (
    SAMPLE,
    NoisySample,
    chosen_search,
    recall_of,
    sample_of,
    zipf_words,
)
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace, Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds

EPSILON, LISTS = 12.0, 32


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """3,000 words in 20 dimensions, 2,500 of them released, in 32 and in 8 lists."""
    vectors = worlds.uneven(3000, 20)
    bundle = worlds.build(tmp_path_factory.mktemp("recall"), vectors, release_words=2500)
    make_lists(bundle, LISTS)
    make_lists(bundle, 8)
    return bundle


def sample(world: Embedding, epsilon: float = EPSILON) -> NoisySample:
    return sample_of(Laplace(epsilon=epsilon), world, 2500)


def in_lists(world: Embedding, probes: int, lists: int = LISTS) -> IvfSearch:
    return IvfSearch.over(world, lists=lists, probes=probes)


def fresh_recall(world: Embedding, probes: int) -> float:
    """Recall on points that nobody has seen: words by Zipf's law, other noise."""
    rng, weights, exact = np.random.default_rng(11), 1 / np.arange(1, 3001), ExactSearch.over(world)
    words = rng.choice(3000, 20_000, p=weights / weights.sum())
    points = Laplace(epsilon=EPSILON).bind(world, exact).points(words, rng.random((20_000, 21)))
    nearest = exact.of_words(world)(points)
    return float((in_lists(world, probes).of_words(world)(points) == nearest).mean())


@pytest.mark.parametrize("recall", [0.9, 0.98])
def test_a_recall_that_was_found_holds_on_other_points(world: Embedding, recall: float) -> None:
    """Its lower limit fails once in 100 samples; rejects probes found without noise or at another one."""
    probes = sample(world).probes_for(LISTS, recall)
    assert 1 < probes < LISTS
    fewer, found = (sample(world).measured(in_lists(world, n)).at_least for n in (probes - 1, probes))
    assert fewer < recall <= found
    assert fresh_recall(world, probes) >= recall - 0.005
    for wrong in (1e6, 3 * EPSILON):
        assert fresh_recall(world, sample(world, wrong).probes_for(LISTS, recall)) < recall - 0.01


def test_a_certain_recall_looks_at_all_lists(world: Embedding) -> None:
    assert sample(world).probes_for(LISTS, 1.0) == LISTS
    everything = sample(world).measured(in_lists(world, LISTS))
    assert everything.recall == 1.0 and everything.looked_at == 1.0 + LISTS / 2500
    assert everything.staying[0] == everything.staying[1]


def test_the_index_that_compares_fewest_words_is_taken(world: Embedding) -> None:
    each = [in_lists(world, sample(world).probes_for(lists, 0.95), lists) for lists in (8, LISTS)]
    looked_at = [sample(world).looked_at(search) for search in each]
    best = chosen_search("ivf:recall=0.95", world, [Laplace(epsilon=EPSILON)])
    assert best == each[looked_at.index(min(looked_at))] and len({*looked_at}) == 2


def test_what_is_said_adds_up(world: Embedding) -> None:
    found = recall_of(in_lists(world, 9), Laplace(epsilon=EPSILON), world)
    assert found is not None
    bands = found.to_json()["recall_by_rank"].values()
    assert sum(band["words"] for band in bands) == SAMPLE
    assert sum(band["words"] * band["recall"] for band in bands) / SAMPLE == pytest.approx(found.recall)
    assert 0 < found.looked_at < 1
    assert "9 of 32 lists" in found.describe()


def test_words_are_the_quantiles_of_zipfs_law() -> None:
    words = zipf_words(1000, 4096)
    weights = 1 / np.arange(1, 1001)
    seen = np.bincount(words, minlength=1000) / 4096
    np.testing.assert_allclose(seen, weights / weights.sum(), atol=1.01 / 4096)


@pytest.mark.parametrize(
    "other",
    [mechanism("exponential", epsilon=5.0), mechanism("projection", epsilon=5.0, beta=0.9, dimension=5)],
)
def test_mechanisms_that_search_no_words_are_refused(world: Embedding, other: Mechanism) -> None:
    with pytest.raises(ConfigError, match="--search exact"):
        chosen_search("ivf", world, [other])


def test_a_bundle_without_an_index_is_refused(tmp_path: Path) -> None:
    bundle = worlds.build(tmp_path, worlds.uneven(50, 3))
    for spec in ("ivf", "ivf:probes=3"):
        with pytest.raises(ConfigError, match="no such index"):
            chosen_search(spec, bundle, [Laplace(epsilon=1.0)])


def test_a_search_is_chosen_for_the_mechanism_that_needs_most(world: Embedding) -> None:
    mechanisms = [Laplace(epsilon=epsilon) for epsilon in (30.0, EPSILON)]
    needed = [chosen_search("ivf:recall=0.95", world, [m]) for m in mechanisms]
    chosen = chosen_search("ivf:recall=0.95", world, mechanisms)
    assert chosen == needed[1] and needed[0] != needed[1]
    assert chosen_search("exact", world, mechanisms) == ExactSearch.over(world)
    with pytest.raises(ConfigError, match=r"several indexes.*ivf:recall=R"):
        chosen_search("ivf:probes=3", world, mechanisms)


def test_the_only_index_is_looked_at_as_told(indexed: Embedding) -> None:
    chosen = chosen_search("ivf:probes=3", indexed, [Laplace(epsilon=9.0)], release_words=100)
    assert chosen == IvfSearch(release_words=100, lists=8, probes=3) and chosen.label == "ivf, 3 of 8 lists"
    assert recall_of(ExactSearch.over(indexed), Laplace(epsilon=9.0), indexed) is None
    found = recall_of(chosen, Laplace(epsilon=9.0), indexed)
    assert found is not None and 0.3 < found.recall < 1.0
