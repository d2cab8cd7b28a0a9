"""One contract for every search: a value, and an answer that hangs on the point alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.search.exact import POINT_BLOCK, WORD_BLOCK
from dptext_spark.search.nearest import SEARCHES, NearestWords, Search
from tests.helpers import worlds
from tests.helpers.nearest import ball_words, hard_ball_points, hard_points, near_ties

PARAMETERS: dict[str, dict[str, int]] = {"exact": {}, "ivf": {"lists": 12, "probes": 3}}
WORLDS = [("exact", "ties"), ("exact", "ball_ties"), ("ivf", "ties")]

contract = pytest.mark.parametrize("name", sorted(SEARCHES))


def over(name: str, embedding: Embedding, words: int | None = None) -> Search:
    return SEARCHES[name].over(embedding, words, **PARAMETERS[name])


def test_every_search_is_held_to_the_contract() -> None:
    assert PARAMETERS.keys() == SEARCHES.keys() == {name for name, _ in WORLDS}


def points_of(name: str, embedding: Embedding) -> np.ndarray:
    """Points with near ties, of several blocks of the search."""
    if name.startswith("ball"):
        points = hard_ball_points(np.asarray(embedding.vectors, dtype=np.float64), POINT_BLOCK + 100)
        points[::7, 1:] *= 1 - 1e-3  # w that belies q0 by more than the bound of the scan allows
        return points
    return hard_points(np.asarray(embedding.vectors), POINT_BLOCK + 100)


@pytest.fixture(scope="module")
def ties(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    """Words that are twins, or one ulp apart, over three blocks of the search, in 12 lists."""
    bundle = worlds.build(tmp_path_factory.mktemp("ties"), near_ties(2 * WORD_BLOCK + 1, 30))
    make_lists(bundle, 12)
    return bundle


@pytest.fixture(scope="module")
def ball_ties(tmp_path_factory: pytest.TempPathFactory) -> Embedding:
    folder, words = tmp_path_factory.mktemp("ball"), ball_words(WORD_BLOCK + 100, 10)
    words = words[np.linalg.norm(words, axis=1) < 1 - 1e-5]
    return worlds.build(folder, words, geometry="poincare")


@pytest.mark.parametrize("words", [200, None])
@pytest.mark.parametrize(("name", "world"), WORLDS)
def test_answers_hang_on_the_point_alone(
    name: str, world: str, words: int | None, request: pytest.FixtureRequest
) -> None:
    """Rejects a state carried from batch to batch, sums that follow the batch, and words not released."""
    embedding: Embedding = request.getfixturevalue(world)
    search, points = over(name, embedding, words), points_of(world, embedding)
    nearest: NearestWords = search.of_words(embedding)
    found, (two, distances) = nearest(points), nearest.nearest_two(points)
    assert found.dtype == np.int64 and found.min() >= 0 and found.max() < (words or embedding.releasable)
    assert (two[:, 0] == found).all() and (two[:, 0] != two[:, 1]).all()
    assert (np.diff(distances, axis=1) >= -1e-15).all()
    order = np.random.default_rng(1).permutation(len(points))
    np.testing.assert_array_equal(nearest(points[order]), found[order])
    for size, threads in ((1, 1), (7, 2), (POINT_BLOCK - 1, 1), (len(points), 2)):
        cuts = [points[start : start + size] for start in range(0, len(points), size)]
        with threadpool_limits(limits=threads, user_api="blas"):
            assert np.concatenate([nearest(cut) for cut in cuts]).tobytes() == found.tobytes()
            pairs = [nearest.nearest_two(cut) for cut in cuts]
        assert np.concatenate([pair[0] for pair in pairs]).tobytes() == two.tobytes()
        assert np.concatenate([pair[1] for pair in pairs]).tobytes() == distances.tobytes()
    assert nearest(points[:0]).shape == (0,) and nearest.nearest_two(points[:0])[0].shape == (0, 2)
    again = pickle.loads(pickle.dumps(search))
    assert again == search and hash(again) == hash(search)
    np.testing.assert_array_equal(again.of_words(embedding)(points), found)


@contract
@pytest.mark.parametrize("words", [1, 0, -1, 2000])
def test_an_impossible_release_vocabulary_is_refused(name: str, words: int, ties: Embedding) -> None:
    with pytest.raises(ConfigError, match=f"2 to {ties.releasable} words of this bundle.*{words}"):
        over(name, ties, words)
    assert over(name, ties).release_words == ties.releasable
