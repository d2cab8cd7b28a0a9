"""One contract for every search: a value, and an answer that hangs on the point alone."""

import pickle

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.lists import make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.search.exact import POINT_BLOCK, WORD_BLOCK
from dptext_spark.search.nearest import SEARCHES
from tests.helpers import worlds
from tests.helpers.nearest import ball_words, hard_ball_points, hard_points, near_ties

PARAMETERS = {"exact": {}, "ivf": {"lists": 12, "probes": 3}}
CASES = [("exact", "flat"), ("exact", "ball"), ("ivf", "flat")]


def over(name, embedding, words=None):
    return SEARCHES[name].over(embedding, words, **PARAMETERS[name])


def test_every_search_is_held_to_the_contract():
    assert PARAMETERS.keys() == SEARCHES.keys() == {name for name, _ in CASES}


@pytest.fixture(scope="module")
def ties(tmp_path_factory):
    """Words that are twins, or one ulp apart, over blocks of the search, and points with near ties."""
    words = ball_words(WORD_BLOCK + 100, 10)
    words = words[np.linalg.norm(words, axis=1) < 1 - 1e-5]
    flat = worlds.build(tmp_path_factory.mktemp("flat"), near_ties(2 * WORD_BLOCK + 1, 30))
    ball = worlds.build(tmp_path_factory.mktemp("ball"), words, geometry="poincare")
    make_lists(flat, 12)
    curved = hard_ball_points(words, POINT_BLOCK + 100)
    curved[::7, 1:] *= 1 - 1e-3  # w that belies q0 by more than the bound of the scan allows
    return {"flat": (flat, hard_points(flat.vectors[:], POINT_BLOCK + 100)), "ball": (ball, curved)}


@pytest.mark.parametrize("words", [200, None])
@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_answers_hang_on_the_point_alone(name, geometry, words, ties):
    """Rejects a state carried from batch to batch, sums that follow the batch, and words not released."""
    embedding, points = ties[geometry]
    search = over(name, embedding, words)
    nearest = search.of_words(embedding)
    found, (two, distances) = nearest(points), nearest.nearest_two(points)
    assert found.dtype == np.int64 and found.min() >= 0 and found.max() < (words or embedding.releasable)
    assert (two[:, 0] == found).all() and (two[:, 0] != two[:, 1]).all()
    assert (np.diff(distances, axis=1) >= -1e-15).all()
    for size, threads in ((1, 1), (7, 2), (POINT_BLOCK - 1, 1), (len(points), 2)):
        cuts = [points[start : start + size] for start in range(0, len(points), size)]
        with threadpool_limits(limits=threads, user_api="blas"):
            answers = [(nearest(cut), *nearest.nearest_two(cut)) for cut in cuts]
        for parts, whole in zip(zip(*answers, strict=True), (found, two, distances), strict=True):
            assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert nearest(points[:0]).shape == (0,) and nearest.nearest_two(points[:0])[0].shape == (0, 2)
    again = pickle.loads(pickle.dumps(search))
    assert again == search and hash(again) == hash(search)
    np.testing.assert_array_equal(again.of_words(embedding)(points), found)


@pytest.mark.parametrize("name", sorted(SEARCHES))
@pytest.mark.parametrize("words", [1, 0, -1, 2000])
def test_an_impossible_release_vocabulary_is_refused(name, words, ties):
    embedding, _ = ties["flat"]
    with pytest.raises(ConfigError, match=f"2 to {embedding.releasable} words of this bundle.*{words}"):
        over(name, embedding, words)
    assert over(name, embedding).release_words == embedding.releasable
