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
    search_for,
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


def fresh_recall(world: Embedding, probes: int, *, epsilon: float = EPSILON) -> float:
    """Recall on points that nobody has seen: words by Zipf's law, other noise."""
    rng = np.random.default_rng(11)
    weights = 1 / np.arange(1, 3001)
    words = rng.choice(3000, 20_000, p=weights / weights.sum())
    points = (
        Laplace(epsilon=epsilon).bind(world, ExactSearch.over(world)).points(words, rng.random((20_000, 21)))
    )
    search = IvfSearch.over(world, lists=LISTS, probes=probes).of_words(world)
    return float((search(points) == ExactSearch.over(world).of_words(world)(points)).mean())


@pytest.mark.parametrize("recall", [0.9, 0.98])
def test_a_recall_that_was_found_holds_on_other_points(world: Embedding, recall: float) -> None:
    """Its lower limit fails once in 100 samples; rejects probes found without noise or at another one."""
    found = search_for(Laplace(epsilon=EPSILON), world, world.releasable, recall, LISTS)
    assert found.at_least >= recall and 1 < found.search.probes < LISTS
    assert fresh_recall(world, found.search.probes) >= recall - 0.005
    sample = NoisySample.draw(Laplace(epsilon=EPSILON), world, world.releasable)
    fewer = IvfSearch.over(world, lists=LISTS, probes=found.search.probes - 1)
    assert sample.measured(fewer).at_least < recall
    for wrong in (1e6, 3 * EPSILON):
        probes = NoisySample.draw(Laplace(epsilon=wrong), world, world.releasable).probes_for(LISTS, recall)
        assert fresh_recall(world, probes) < recall - 0.01


def test_a_certain_recall_looks_at_all_lists(world: Embedding) -> None:
    sample = NoisySample.draw(Laplace(epsilon=EPSILON), world, world.releasable)
    assert sample.probes_for(LISTS, 1.0) == LISTS
    everything = sample.measured(IvfSearch.over(world, lists=LISTS, probes=LISTS))
    assert everything.recall == 1.0 and everything.looked_at == 1.0 + LISTS / 2500
    assert everything.staying[0] == everything.staying[1]


def test_the_index_that_compares_fewest_words_is_taken(world: Embedding) -> None:
    both = [search_for(Laplace(epsilon=EPSILON), world, 2500, 0.95, lists) for lists in (8, LISTS)]
    best = search_for(Laplace(epsilon=EPSILON), world, 2500, 0.95)
    assert best.looked_at == min(found.looked_at for found in both) < max(found.looked_at for found in both)


def test_what_is_said_adds_up(world: Embedding) -> None:
    found = search_for(Laplace(epsilon=EPSILON), world, 2000, 0.95, LISTS)
    said = found.to_json()
    assert sum(band["words"] for band in said["recall_by_rank"].values()) == SAMPLE
    hits = sum(band["words"] * band["recall"] for band in said["recall_by_rank"].values())
    assert hits / SAMPLE == pytest.approx(found.recall)
    assert 0 < found.looked_at < 1 and found.search.release_words == 2000
    assert f"{found.search.probes} of 32 lists" in found.describe()
    assert found == search_for(Laplace(epsilon=EPSILON), world, 2000, 0.95, LISTS)


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
        search_for(other, world, 2500, 0.9)


def test_a_bundle_without_an_index_is_refused(tmp_path: Path) -> None:
    bundle = worlds.build(tmp_path, worlds.uneven(50, 3))
    with pytest.raises(ConfigError, match="no such index"):
        search_for(Laplace(epsilon=1.0), bundle, 50, 0.9)


def test_a_search_is_chosen_for_the_mechanism_that_needs_most(world: Embedding) -> None:
    mechanisms = [Laplace(epsilon=epsilon) for epsilon in (30.0, EPSILON)]
    needed = [search_for(m, world, 2500, 0.95).search for m in mechanisms]
    chosen = chosen_search("ivf:recall=0.95", world, mechanisms)
    assert chosen == needed[1] and needed[0].probes < needed[1].probes
    assert chosen_search("exact", world, mechanisms) == ExactSearch.over(world)
    with pytest.raises(ConfigError, match=r"several indexes.*ivf:recall=R"):
        chosen_search("ivf:probes=3", world, mechanisms)


def test_the_only_index_is_looked_at_as_told(indexed: Embedding) -> None:
    chosen = chosen_search("ivf:probes=3", indexed, [Laplace(epsilon=9.0)], release_words=100)
    assert chosen == IvfSearch(release_words=100, lists=8, probes=3) and chosen.label == "ivf, 3 of 8 lists"
    assert recall_of(ExactSearch.over(indexed), Laplace(epsilon=9.0), indexed) is None
    found = recall_of(chosen, Laplace(epsilon=9.0), indexed)
    assert found is not None and 0.3 < found.recall < 1.0
