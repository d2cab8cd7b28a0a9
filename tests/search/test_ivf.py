"""Search in lists: the nearest word of the nearest lists, whatever the batch, the threads and near ties."""

import numpy as np
import pytest

from dptext_spark.calibration.estimators import estimator
from dptext_spark.embedding.lists import InvertedLists, make_lists
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Laplace, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from tests.helpers import worlds
from tests.helpers.nearest import faults, hard_points, near_ties, two

N, LISTS = 6, 12


@pytest.fixture(scope="module")
def ties(tmp_path_factory):
    """Words that are twins, or one ulp apart, in 12 lists."""
    bundle = worlds.build(tmp_path_factory.mktemp("ties"), near_ties(400, N))
    make_lists(bundle, LISTS)
    return bundle


def search_of(embedding, probes, words=None):
    return IvfSearch.over(embedding, words, lists=LISTS, probes=probes).of_words(embedding)


def scores(points, vectors):
    """The nearer the more, in extended precision: (t, k)."""
    wide = vectors.astype(np.longdouble)
    return ((points[:, None] - wide / 2) * wide).sum(axis=2)


def nearest_lists(lists, points, probes):
    return np.argsort(-scores(points, lists.centroids), axis=1, kind="stable")[:, :probes]


def reference(embedding, points, probes, words):
    """The search as it is meant: all words of the nearest lists, or all, compared."""
    lists, answers = InvertedLists.open(embedding, LISTS), []
    of_words = scores(points, embedding.vectors[:])
    for own, chosen in zip(of_words, nearest_lists(lists, points, probes), strict=True):
        rows = np.concatenate([lists.rows[lists.starts[i] : lists.starts[i + 1]] for i in chosen])
        rows = rows[rows < words] if (rows < words).any() else np.arange(words)
        answers.append(rows[own[rows].argmax()])
    return np.array(answers)


@pytest.mark.parametrize(("probes", "words"), [(LISTS, 400), (LISTS + 5, 400), (1, 2)])
def test_all_lists_and_lists_without_words_give_the_exact_nearest_words(ties, probes, words):
    """Two words may be output: a point whose list holds neither, or one, still gets its two nearest."""
    vectors, search = ties.vectors, search_of(ties, probes, words)
    points = hard_points(vectors, 300)
    assert (
        words == 2 or faults(search, vectors, points) == faults(two(search), vectors, points) == 0
    )
    exact = ExactSearch.over(ties, words).of_words(ties)
    assert words == 2 or (search(points) == exact(points)).all()
    for found, expected in zip(search.nearest_two(points), exact.nearest_two(points), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("probes", "words"), [(1, 400), (3, 400), (3, 30), (1, 5)])
def test_the_answer_is_that_of_the_nearest_lists(ties, probes, words):
    """Rejects lists chosen in single precision, words outside the release vocabulary, lost points."""
    rng = np.random.default_rng(7)
    points = rng.standard_normal((100, N)) * rng.choice([0.5, 1.0, 4.0], (100, 1))
    found = search_of(ties, probes, words)(points)
    expected = reference(ties, points, probes, words)
    assert found.max() < words and np.abs(ties.vectors[found] - ties.vectors[expected]).max() < 1e-6
    if probes == 1 and words == 400:  # or the test could not tell lists from all words
        assert (found != ExactSearch.over(ties, words).of_words(ties)(points)).any()


def test_centroids_as_near_as_each_other_are_settled_in_double_precision(tmp_path):
    """The scan in single precision alone takes the wrong list for half of these points."""
    bundle = worlds.build(tmp_path, worlds.uneven(300, N))
    make_lists(bundle, LISTS)
    lists, rng = InvertedLists.open(bundle, LISTS), np.random.default_rng(2)
    first, second = rng.integers(0, LISTS, (2, 400))
    middle = (lists.centroids[first].astype(np.float64) + lists.centroids[second])[
        first != second
    ] / 2
    points = middle + 1e-9 * rng.standard_normal(middle.shape)
    chosen, _ = search_of(bundle, 1).searched_lists(points)
    expected = nearest_lists(lists, points, 1)
    np.testing.assert_array_equal(np.argwhere(chosen)[:, 1:], expected)
    single = (points.astype(np.float32) @ lists.centroids.T - lists.centroid_half_norms).argmax(
        axis=1
    )
    assert (expected[:, 0] != single).any()


def test_what_lists_cannot_serve_is_refused(small, ball, indexed):
    search = IvfSearch.over(indexed, lists=8, probes=2)
    projection = mechanism("projection:dimension=5", epsilon=5.0)
    for refused, message in (
        (lambda: IvfSearch.over(small, lists=16, probes=2), "has no index ivf:16"),
        (lambda: IvfSearch.over(ball, lists=4, probes=2), "geometry poincare"),
        (lambda: IvfSearch.over(indexed, lists=8, probes=0), "1 or more"),
        (lambda: projection.bind(indexed, search), "--search exact"),
    ):
        with pytest.raises(ConfigError, match=message):
            refused()
    # Not rays, which look for the nearest word of all where the release takes that of lists.
    assert estimator([Laplace(epsilon=5.0)], indexed, search=search, runs=3).name == "plain"


def test_lists_leave_finite_arithmetic_without_a_bound(indexed):
    """Rejects the count of cells that are convex: a line can meet a word's cell of lists more than once."""
    search = IvfSearch.over(indexed, lists=8, probes=2)
    noisy, listed = Laplace(epsilon=5.0), mechanism("exponential", epsilon=5.0)
    exact, stated = noisy.guarantee(indexed), noisy.guarantee(indexed, search=search)
    assert exact.delta_num and stated.delta_num is None
    assert "for this search it is not bounded" in stated.describe()
    assert list(stated.losses()) == list(exact.losses())
    assert listed.guarantee(indexed, search=search) == listed.guarantee(indexed)
