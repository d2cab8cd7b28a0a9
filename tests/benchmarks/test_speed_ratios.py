"""Speed that must not be lost, as ratios of processor time: one thread, limits at half of what is usual.

Both sides of a ratio take turns, and the median counts, so that what else the machine does hardly matters.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import zipf_words
from dptext_spark.embedding.lists import make_lists
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.noise import to_uniform
from dptext_spark.search import code_files
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.ivf import IvfSearch
from scripts.benchmarks.shared import sanitizer, seconds
from scripts.experiments.shared import made_embedding
from tests.helpers import worlds

pytestmark = pytest.mark.long  # they compare times, which others on the machine disturb

TURNS = 5


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    # Without 8-bit codes, which some processors lack: with them the exact search is faster.
    monkeypatch.setattr(code_files, "_pays", lambda words, dimension: False)
    with threadpool_limits(1):
        yield


def times_as_fast(fast, slow):
    """How often the fast work is done in the slow one's time: the median of turns, after one to get warm."""
    turns = [seconds(slow) / seconds(fast) for _ in range(TURNS + 1)]
    return float(np.median(turns[1:]))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """60,000 made words in 32 dimensions, 600 clusters of 100, with an index."""
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((600, 32))
    vectors = (centres[rng.integers(600, size=60_000)] + rng.standard_normal((60_000, 32))).astype(
        np.float32
    )
    embedding = made_embedding(
        worlds.words(60_000), vectors, tmp_path_factory.mktemp("clusters") / "made"
    )
    make_lists(embedding, 512)
    return embedding


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """8,000 made words in 300 dimensions."""
    vectors = worlds.uneven(8_000, 300)
    return made_embedding(worlds.words(8_000), vectors, tmp_path_factory.mktemp("wide") / "made")


def drawn(embedding, mechanism, count):
    """Uniforms of tokens, as a release draws them for rows of 64."""
    per_word = mechanism.uniforms_per_token(embedding.dimension)
    column = worlds.release(mechanism, embedding).column(
        "text", purpose="word", uint64s_per_token=per_word
    )
    numbers = np.empty((count, per_word), dtype=np.uint64)
    for row in range(0, count, 64):
        column.fill(numbers[row : row + 64], column.row_key(str(row).encode(), (b"",)), 0)
    return to_uniform(numbers)


def test_the_exact_search_is_a_matrix_product_and_noise_a_small_part(wide):
    """Usual: 0.76 and 5.5."""
    # Rejects distances without BLAS (0.1) or all in double precision (0.3), a generator for each token (1.7),
    # and a covariance that is factored at each draw.
    mechanism = Laplace(epsilon=60.0)
    bound = mechanism.bind(wide, ExactSearch.over(wide))
    words = np.arange(1024) * 7 % len(wide.words)

    def noisy():
        return bound.points(words, drawn(wide, mechanism, 1024)[:, :-1])

    points = noisy()
    a, b = points.astype(np.float32), np.ascontiguousarray(wide.vectors)
    assert times_as_fast(lambda: bound.search(points), lambda: a @ b.T) > 0.35
    assert times_as_fast(noisy, lambda: bound.search(points)) > 2.0


def test_lists_are_searched_faster_than_all_words(clusters):
    """Usual: 7. Rejects an index all of whose lists are looked at (0.6)."""
    mechanism = Laplace(epsilon=10.0)
    exact = mechanism.bind(clusters, ExactSearch.over(clusters))
    words = np.random.default_rng(0).permutation(zipf_words(clusters.inputs, 4096))
    points = exact.points(words, drawn(clusters, mechanism, 4096)[:, :-1])
    lists = IvfSearch.over(clusters, lists=512, probes=8).of_words(clusters)
    assert times_as_fast(lambda: lists(points), lambda: exact.search(points)) > 2.0


def test_known_words_are_drawn_from_their_lists(wide):
    """Usual: 7.6. Rejects lists of near words that are made again for each batch (1.2)."""
    words = wide.words.take(pa.array(zipf_words(wide.inputs, 2_000)))
    rows = pa.ListArray.from_arrays(pa.array(np.arange(0, 2_001, 100, dtype=np.int32)), words)
    ids, both = pa.array(range(len(rows))), (Exponential(epsilon=60.0), Laplace(epsilon=60.0))
    works = [partial(sanitizer(wide, each).sanitize, rows, ids, column="tokens") for each in both]
    assert times_as_fast(*works) > 5.0
