"""Channels as matrices: against the formula and against counts, unbiased, and whole on disk.

False alarms: a case fails at the rate REAL over seeds, which are fixed.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dptext_spark.channel.matrix import UNKNOWN, ChannelMatrix, MatrixSource
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds

REAL = 1e-6
DRAWS = 200_000


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    """Ten words in three dimensions, of which eight may be output."""
    points = np.random.default_rng(5).standard_normal((10, 3)) * [1.5, 1.0, 0.6]
    return worlds.build(tmp_path_factory.mktemp("space"), points, release_words=8)


def source_of(embedding, mechanism, **changes):
    prior = 1.0 / np.arange(2.0, 12.0)
    values = {"prior": prior / prior.sum()} | changes
    search = ExactSearch.over(embedding)
    return MatrixSource(mechanism=mechanism, embedding=embedding, search=search, **values)


def counts_of(embedding, mechanism, word):
    """How often each output comes of a word."""
    bound = mechanism.bind(embedding, ExactSearch.over(embedding))
    width = mechanism.uniforms_per_token(embedding.dimension)
    uniforms = np.random.default_rng(word).random((DRAWS, width))
    return np.bincount(bound(np.full(DRAWS, word), uniforms), minlength=8)


def test_probabilities_are_computed_for_words_of_the_prior(space, tmp_path):
    """Rejects a matrix with the words that the prior leaves out, or transposed."""
    prior = np.where(np.arange(10) == 3, 0.0, 1.0 / 9.0)
    source = source_of(space, Exponential(epsilon=2.0), prior=prior)
    matrix, _ = source.matrix(tmp_path)
    words = np.array([0, 1, 2, 4, 5, 6, 7, 8, 9])
    bound = source.mechanism.bind(space, source.search)
    assert np.array_equal(matrix.words, words) and source.points == 0
    assert np.allclose(matrix.table, bound.probabilities(words), atol=1e-7)
    weights = np.arange(16.0).reshape(8, 2)
    counted, errors = source.counted(matrix, weights, matrix.prior)
    assert np.allclose(counted, matrix.table @ weights) and not errors.any()


@pytest.mark.parametrize("drawn", [None, np.eye(10)[9]])
def test_simulated_probabilities_are_those_of_the_mechanism(space, tmp_path, drawn):
    """Rejects points that are not weighted by how often their words are drawn, and rows that are joint.

    Their spread is about that of so many draws as there are points of a word.
    """
    source = source_of(space, Laplace(epsilon=2.0), drawn=drawn)
    matrix, _ = source.matrix(tmp_path)
    assert np.allclose(matrix.table.sum(axis=1), 1.0, atol=1e-5) and source.points == 16 * 2048
    for word in (0, 4, 9):
        share = counts_of(space, source.mechanism, word) / DRAWS
        error = np.sqrt(share * (1.0 - share) * (1.0 / DRAWS + 1.0 / 1500))
        limit = stats.norm.isf(REAL / 48)
        assert (np.abs(matrix.table[word] - share) <= limit * error + 1e-3).all()


def test_what_weights_count_is_measured_on_other_points(space, tmp_path):
    """Rejects weights judged on the points that they were fitted to: noise of these looks like words."""
    source = source_of(space, Laplace(epsilon=1.0))
    matrix, _ = source.matrix(tmp_path)
    exact = np.stack([counts_of(space, source.mechanism, w) / DRAWS for w in range(10)])
    # The weights that follow the matrix's own errors, as a fit does.
    weights = (matrix.table - exact)[4][:, None] * 100.0
    of_same = (matrix.table @ weights)[4, 0] - (exact @ weights)[4, 0]
    counted, errors = source.counted(matrix, weights, matrix.prior)
    of_others = counted[4, 0] - (exact @ weights)[4, 0]
    assert of_same > 0.0 and abs(of_others) < of_same
    drift = source.prior @ (counted - exact @ weights)
    assert 0.0 < errors[0] < np.abs(weights).max()
    assert abs(drift[0]) < stats.norm.isf(REAL / 2) * errors[0] + 2e-3 * np.abs(weights).max()


def test_words_that_pass_and_unknown_ones_are_rows(space, tmp_path):
    """Rejects stop words that are taken for perturbed ones, and a change of the matrix that is on disk."""
    source = source_of(space, Laplace(epsilon=2.0))
    matrix, _ = source.matrix(tmp_path)
    passing = matrix.passing(np.array([2, 9])).with_unknown(0.2)  # 9 is no output
    assert np.array_equal(passing.table[2], np.eye(8, dtype=np.float32)[2])
    assert np.array_equal(passing.table[[0, 9]], matrix.table[[0, 9]])
    assert passing.words[-1] == UNKNOWN and np.allclose(passing.table[-1], 1.0 / 8.0)
    assert passing.prior.sum() == pytest.approx(1.0) and passing.prior[-1] == 0.2
    weights = np.arange(8.0)[:, None]
    counted, _ = source.counted(passing, weights, passing.prior)
    assert counted[2, 0] == 2.0 and counted[-1, 0] == pytest.approx(3.5, abs=1e-6)
    assert counted[0, 0] == pytest.approx((matrix.table @ weights)[0, 0], abs=0.2)


def test_a_matrix_is_read_again_only_as_it_was_made(space, tmp_path):
    """Rejects a name without epsilon, prior or the words that are drawn, and a file of another run."""
    source = source_of(space, Laplace(epsilon=2.0))
    first, was_read = source.matrix(tmp_path)
    again, was_read_again = source.matrix(tmp_path)
    assert (was_read, was_read_again) == (False, True)
    assert np.array_equal(first.table, again.table)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]
    other_prior = np.roll(source.prior, 1)
    names = {
        source.name,
        replace(source, mechanism=Laplace(epsilon=3.0)).name,
        replace(source, seed=1).name,
        replace(source, drawn=np.arange(10.0)).name,
        replace(source, prior=other_prior).name,
        replace(source, search=ExactSearch.over(space, 5)).name,
    }
    assert len(names) == 6


def test_what_cannot_be_held_or_written_is_refused(space, tmp_path, monkeypatch):
    """Rejects an error of memory, or of the file system."""
    monkeypatch.setattr("dptext_spark.channel.matrix.MOST_CELLS", 79)
    with pytest.raises(ConfigError, match=r"too many words .*Got: 10 words and 8 outputs"):
        source_of(space, Laplace(epsilon=2.0))
    monkeypatch.undo()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match=r"channel cannot be written.*--cache"):
        source_of(space, Exponential(epsilon=2.0)).matrix(file)


def test_outputs_that_never_come_have_a_prior():
    """Rejects a division by 0 for outputs that no simulated point had."""
    table = np.array([[1.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    matrix = ChannelMatrix(
        words=np.arange(2),
        prior=np.full(2, 0.5),
        table=table,
        is_perturbed=np.ones(2, dtype=np.bool_),
        released=np.arange(2),
    )
    assert (matrix.output_prior > 0.0).all()


@pytest.mark.parametrize(
    ("words", "outputs", "points"),
    [(10, 8, 4096), (1500, 1500, 128), (8000, 8000, 33), (20_000, 10_000, 32)],
)
def test_small_channels_have_more_points(monkeypatch, space, words, outputs, points):
    """Rejects one number for all sizes: minutes for the largest, and blur where more cost little."""
    prior = np.full(words, 1.0 / words)
    source = source_of(space, Laplace(epsilon=2.0))
    # Nothing is drawn here, so the bundle need not have so many words.
    monkeypatch.setattr(MatrixSource, "_guesser", True)
    large = replace(source, prior=prior, search=ExactSearch(release_words=outputs))
    assert points * outputs <= large.points < points * outputs + 2048


@pytest.mark.parametrize(
    "content", [b"", b"PK\x05\x06" + bytes(18), np.ones((10, 8)), 3 * np.ones((10, 8), "f4")]
)
def test_a_file_that_is_no_matrix_is_made_anew(space, tmp_path, content):
    """Rejects a planted or damaged file, whose shape or numbers no channel has."""
    source = source_of(space, Exponential(epsilon=2.0))
    first, _ = source.matrix(tmp_path)
    right = np.array(first.table)
    (path,) = tmp_path.iterdir()
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    again, was_read = source.matrix(tmp_path)
    assert not was_read and np.array_equal(again.table, right)
