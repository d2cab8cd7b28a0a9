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
CASES = [("exact", "flat"), ("exact", "ball"), ("exact", "half"), ("ivf", "flat"), ("ivf", "half")]


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
    half = worlds.build(
        tmp_path_factory.mktemp("half"), near_ties(2 * WORD_BLOCK + 1, 30), precision="half"
    )
    make_lists(flat, 12)
    make_lists(half, 12)
    curved = hard_ball_points(words, POINT_BLOCK + 100)
    curved[::7, 1:] *= 1 - 1e-3  # w that belies q0 by more than the bound of the scan allows
    count = POINT_BLOCK + 100
    return {
        "flat": (flat, hard_points(flat.vectors[:], count)),
        "half": (half, hard_points(half.vectors.astype(np.float32), count)),
        "ball": (ball, curved),
    }


@pytest.mark.parametrize("words", [200, None])
@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_answers_hang_on_the_point_alone(name, geometry, words, ties):
    """Rejects a state carried from batch to batch, sums that follow the batch, and words not released."""
    embedding, points = ties[geometry]
    search = over(name, embedding, words)
    nearest = search.of_words(embedding)
    found, (two, distances) = nearest(points), nearest.nearest_two(points)
    assert (
        found.dtype == np.int64
        and found.min() >= 0
        and found.max() < (words or embedding.releasable)
    )
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


@pytest.mark.parametrize("far", [1e37, 1e39, -1e300, np.inf, np.nan])
@pytest.mark.parametrize(("name", "geometry"), CASES)
def test_points_that_single_precision_cannot_hold_are_refused(name, geometry, far, ties):
    """Rejects word ids that are what memory held, another at each call."""
    embedding, points = ties[geometry]
    search = over(name, embedding).of_words(embedding)
    for place in (0, -1):
        beyond = points[:3].copy()
        beyond[1, place] = far
        for find in (search, search.nearest_two):
            with pytest.raises(ConfigError, match=r"too far.*Raise --epsilon"):
                find(beyond)


@pytest.mark.parametrize("coded", [False, True])
def test_the_farthest_points_have_right_answers(coded, tmp_path):
    """With the longest vectors that bundles may have; rejects a limit where products overflow."""
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((2000, 300)).astype(np.float32) if coded else near_ties(600, 30)
    vectors *= np.float32(0.99e12 / np.linalg.norm(vectors, axis=1).max())
    embedding = worlds.build(tmp_path, vectors)
    search = over("exact", embedding).of_words(embedding)
    points = search.reach * rng.choice([-1.0, 1.0], size=(40, vectors.shape[1]))
    products = points @ embedding.vectors[:].astype(np.float64).T
    np.testing.assert_array_equal(search(points), products.argmax(axis=1))
    np.testing.assert_array_equal(search.nearest_two(points)[0][:, 0], products.argmax(axis=1))


@pytest.mark.parametrize("name", sorted(SEARCHES))
@pytest.mark.parametrize("words", [1, 0, -1, 2000])
def test_an_impossible_release_vocabulary_is_refused(name, words, ties):
    embedding, _ = ties["flat"]
    with pytest.raises(
        ConfigError, match=f"2 to {embedding.releasable} words of this bundle.*{words}"
    ):
        over(name, embedding, words)
    assert over(name, embedding).release_words == embedding.releasable
