"""Lists for a recall: found on noisy points, true of others, and told by the rank of words."""

from functools import partial

import numpy as np
import pytest

from dptext_spark.calibration import recall
from dptext_spark.calibration.recall import SAMPLE, recall_of, sample_of
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from dptext_spark.text.policies import WORDS_ALONE
from tests.helpers import worlds

chosen_search = partial(recall.chosen_search, policy=WORDS_ALONE)
EPSILON, LISTS = 12.0, 32
LAPLACE = Laplace(epsilon=EPSILON)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """3,000 words in 20 dimensions, 2,500 of them released, in 32 and in 8 lists."""
    vectors = worlds.uneven(3000, 20)
    bundle = worlds.build(tmp_path_factory.mktemp("recall"), vectors, release_words=2500)
    make_lists(bundle, LISTS)
    make_lists(bundle, 8)
    return bundle


def sample(world, epsilon=EPSILON):
    return sample_of(Laplace(epsilon=epsilon), world, ExactSearch.over(world))


def in_lists(world, probes, lists=LISTS):
    return IvfSearch.over(world, lists=lists, probes=probes)


def facts_of(world, probes):
    return recall_of(in_lists(world, probes), LAPLACE, world) or {}


def fresh_recall(world, probes):
    """Recall on points that nobody has seen: words by Zipf's law, other noise."""
    rng, weights, exact = np.random.default_rng(11), 1 / np.arange(1, 3001), ExactSearch.over(world)
    words = rng.choice(3000, 20_000, p=weights / weights.sum())
    points = LAPLACE.bind(world, exact).points(words, rng.random((20_000, 21)))
    nearest = exact.of_words(world)(points)
    return float((in_lists(world, probes).of_words(world)(points) == nearest).mean())


@pytest.mark.parametrize("recall", [0.9, 0.98])
def test_a_recall_that_was_found_holds_on_other_points(world, recall):
    """Its lower limit fails once in 100 samples; rejects probes found without noise or at another one."""
    probes = sample(world).probes_for(LISTS, recall)
    assert 1 < probes < LISTS
    fewer, found = (facts_of(world, number)["recall_at_least"] for number in (probes - 1, probes))
    assert fewer < recall <= found
    assert fresh_recall(world, probes) >= recall - 0.005
    for wrong in (1e6, 3 * EPSILON):
        assert fresh_recall(world, sample(world, wrong).probes_for(LISTS, recall)) < recall - 0.01


def test_what_is_said_adds_up(world, monkeypatch):
    """By the rank of words; a certain recall looks at all lists."""
    facts = facts_of(world, 9)
    bands = facts["recall_by_rank"].values()
    assert sum(band["words"] for band in bands) == SAMPLE
    assert sum(band["words"] * band["recall"] for band in bands) / SAMPLE == pytest.approx(
        facts["recall"]
    )
    assert 0.2 < facts["words_looked_at"] < 0.5 and "9 of 32 lists" in facts["said"]
    assert "hardly be slower" not in facts["said"]
    with monkeypatch.context() as patch:  # as in ten times the dimensions
        patch.setattr(ExactSearch, "products", lambda *_: "codes of 8 bits")
        patch.setattr("dptext_spark.calibration.recall._PAYS_OVER_CODES", 3.0)
        assert "hardly be slower" in facts_of(world, 9)["said"]
    weights = 1 / np.arange(1, 3001)
    seen = np.bincount(sample(world).words, minlength=3000) / SAMPLE
    np.testing.assert_allclose(seen, weights / weights.sum(), atol=1.01 / SAMPLE)
    assert sample(world).probes_for(LISTS, 1.0) == LISTS
    facts = facts_of(world, LISTS)
    assert (facts["recall"], facts["words_looked_at"]) == (1.0, 1.0 + LISTS / 2500)
    assert facts["n_w"]["exact"] == facts["n_w"]["ivf"]


def test_a_search_is_chosen_for_the_mechanism_that_needs_most(world):
    """In the index that compares a point with fewest words. Rejects the first index and the last noise."""
    each = [in_lists(world, sample(world).probes_for(lists, 0.95), lists) for lists in (8, LISTS)]
    looked_at = [sample(world).compared_share(search) for search in each]
    mechanisms = [Laplace(epsilon=30.0), LAPLACE]
    quiet, needed = (chosen_search("ivf:recall=0.95", world, [m]) for m in mechanisms)
    assert needed == each[looked_at.index(min(looked_at))] and len({*looked_at}) == 2
    assert chosen_search("ivf:recall=0.95", world, mechanisms) == needed != quiet
    assert chosen_search("exact", world, mechanisms) == ExactSearch.over(world)


def test_the_only_index_is_looked_at_as_told(indexed):
    chosen = chosen_search("ivf:probes=3", indexed, [Laplace(epsilon=9.0)], release_words=100)
    assert chosen == IvfSearch(release_words=100, lists=8, probes=3)
    assert recall_of(ExactSearch.over(indexed), Laplace(epsilon=9.0), indexed) is None


@pytest.mark.parametrize(
    ("spec", "other", "message"),
    [
        ("ivf", mechanism("exponential", epsilon=5.0), "--search exact"),
        ("ivf", mechanism("projection", epsilon=5.0, beta=0.9, dimension=5), "--search exact"),
        ("ivf:probes=3", LAPLACE, r"several indexes.*ivf:recall=R"),
    ],
)
def test_searches_that_do_not_suit_are_refused(world, small, spec, other, message):
    """Mechanisms that search no words; several indexes; a bundle without any."""
    for bundle, said in (
        (world, message),
        (small, "has no index ivf\\. .*--index ivf --overwrite"),
    ):
        with pytest.raises(ConfigError, match=said):
            chosen_search(spec, bundle, [other])
