"""Likeliest frequencies, and words that nobody can distinguish."""

from dataclasses import replace

import numpy as np
import pytest

from dptext_spark.estimates.frequencies import alike, likeliest_frequencies
from tests.helpers.made_releases import MadeRelease

MADE = MadeRelease(epsilon=5.0)


def test_frequencies_are_nearer_to_the_truth_than_counts():
    """Rejects shares that never leave the prior, and the channel transposed."""
    matrix = MADE.matrix
    private = np.random.default_rng(3).dirichlet(np.full(len(matrix.words), 0.1))
    counts = np.random.default_rng(4).multinomial(50_000, private @ matrix.table)
    shares = likeliest_frequencies({5.0: matrix}, {5.0: counts})
    counted = np.zeros(len(private))
    counted[: matrix.outputs] = counts / counts.sum()
    overlap = np.minimum(shares, private).sum()
    assert shares.sum() == pytest.approx(1.0)
    assert overlap > 1.2 * np.minimum(counted, private).sum()
    assert overlap > 1.2 * np.minimum(matrix.prior, private).sum()


def test_each_epsilon_has_its_own_channel():
    """Rejects counts of all epsilons that go through one channel."""
    loud, quiet = MADE.matrix, replace(MADE, epsilon=40.0).matrix
    private = np.random.default_rng(3).dirichlet(np.full(len(loud.words), 0.1))
    counts = {
        1.0: np.rint(1e6 * private @ loud.table).astype(np.int64),
        2.0: np.rint(1e6 * private @ quiet.table).astype(np.int64),
    }
    right = likeliest_frequencies({1.0: loud, 2.0: quiet}, counts)
    wrong = likeliest_frequencies({1.0: quiet, 2.0: loud}, counts)
    assert np.minimum(right, private).sum() > np.minimum(wrong, private).sum() + 0.05
    nothing = likeliest_frequencies({1.0: loud}, {1.0: 0 * counts[1.0]})
    assert np.allclose(nothing, loud.prior, atol=1e-7)


def test_an_output_that_the_channel_does_not_know_says_nothing():
    """Rejects a division by 0, after which all shares are not numbers."""
    table = MADE.matrix.table.copy()
    table[:, 5] = 0.0
    shares = likeliest_frequencies({1.0: replace(MADE.matrix, table=table)}, {1.0: np.full(40, 9)})
    assert shares.sum() == pytest.approx(1.0) and (shares >= 0.0).all()


def test_words_with_one_channel_are_alike_and_far_ones_are_not():
    """Rejects neighbours in the list's order, a word like itself, and all words alike."""
    matrix = MADE.matrix
    table = matrix.table.copy()
    table[7] = table[3]
    twins = replace(matrix, table=table)
    shares = np.full(len(matrix.words), 1.0 / len(matrix.words))
    near, far = alike(twins, shares, np.array([3, 20]), 10_000)
    assert near[0] == 7 and 3 not in near
    assert len(far) < 5
    assert len(alike(twins, shares, np.array([20]), 1)[0]) == 5
