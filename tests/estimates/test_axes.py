"""Whether groups' words differ at all: how often the test says so of equal groups, and of others.

Tables come from fixed seeds. The level is 0.05: over 250 tables of equal groups the share of small
p-values is at most 0.085, beyond which a right test gets at a rate of 1 %.
"""

import numpy as np
import pytest

from dptext_spark.estimates.axes import MIXED_AXES, axes_of
from dptext_spark.estimates.cells import Cells, cluster_terms, row_values
from tests.helpers.made_releases import LENGTH, OUTPUTS, ROWS, WORDS, MadeRelease

TABLES = 250
LEVEL = 0.05
MOST = 0.085
MADE = MadeRelease()
MATRIX = MADE.matrix
VECTORS = np.random.default_rng(0).standard_normal((OUTPUTS, 10)).astype(np.float32)


def chance(seed, *, share=0.5, by_words=False, changed=0.0):
    """The p-value of a made table of two groups, of whose first so many words are another's."""
    rng = np.random.default_rng(seed)
    texts = MADE.texts(rng)
    is_first = rng.random(ROWS) < share
    is_changed = (rng.random(texts.shape) < changed) & is_first[:, None]
    texts = np.where(is_changed, WORDS - 1, texts)
    outputs = MADE.release(texts, rng)
    axes = axes_of(VECTORS, np.bincount(outputs.ravel(), minlength=OUTPUTS))
    sums = {}
    for group in (False, True):
        of_group = outputs[is_first == group]
        rows = np.repeat(np.arange(len(of_group)), LENGTH)
        if by_words:
            rows = np.arange(of_group.size)
        epsilons = np.zeros(rows[-1] + 1, dtype=np.int64)
        values, sizes = row_values(of_group.ravel(), rows, axes[None], epsilons)
        terms = cluster_terms(values, sizes)
        sums[str(group),] = np.stack([term.sum(axis=0) for term in terms])
    cells = Cells(columns=("group",), sums=sums, errors=np.zeros(2 * axes.shape[1]))
    row = next(cells.differences_at_all(axes.shape[1], in_order=False))
    assert row["difference"] is None and 0.0 < row["p"] < 1.0
    return row["p"]


def rejected(tables=TABLES, **options):
    return np.mean([chance(seed, **options) < LEVEL for seed in range(tables)])


@pytest.mark.parametrize("share", [0.5, 0.05])
def test_equal_groups_are_rarely_said_to_differ(share):
    """Rejects rows as independent words, of equal groups and of a small one against a large one."""
    assert rejected(share=share) <= MOST


def test_words_as_the_independent_units_are_noticed():
    """Rejects a simulation that any test would pass."""
    assert rejected(40, by_words=True) > 3 * MOST


def test_groups_with_other_words_are_said_to_differ():
    """Rejects a test that never says so."""
    assert np.median([chance(seed, changed=0.3) for seed in range(20)]) < 1e-3


def test_axes_have_one_scale_and_none_is_another():
    """Rejects axes that common words decide by their length alone, and signs that repeat."""
    counts = np.random.default_rng(2).integers(1, 100, 200)
    vectors = np.random.default_rng(3).standard_normal((200, 40)).astype(np.float32) * 9.0
    axes = axes_of(vectors, counts)
    shares = counts / counts.sum()
    assert np.allclose(shares @ np.square(axes), 1.0)
    assert np.unique(axes[:, -MIXED_AXES:].round(6), axis=1).shape[1] == MIXED_AXES
    assert np.abs(np.sign(axes[:, -MIXED_AXES:]).mean(axis=0)).max() < 0.3
    assert np.array_equal(axes, axes_of(vectors, counts))
