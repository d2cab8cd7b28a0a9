"""Intervals of soft topics cover what they are of, over made tables; and wrong estimates do not.

Tables come from fixed seeds: the coverage of the right estimate is 0.958, between the limits.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.helpers.made_releases import OUTPUTS, MadeRelease, coverage, errors

MADE = MadeRelease()
LIMITS = (0.93, 0.97)


def transposed(matrix):
    """The channel with words and outputs exchanged where there are both."""
    table = matrix.table.copy()
    table[:OUTPUTS] = table[:OUTPUTS].T
    return replace(matrix, table=table / table.sum(axis=1, keepdims=True))


MUTANTS = {
    "rows taken as independent words": {"mutated": "words"},
    "marks read as words": {"mutated": "marks"},
    "the channel transposed": {"matrix": transposed(MADE.matrix)},
    "the epsilon of another release": {"matrix": replace(MADE, epsilon=5.0).matrix},
}


def test_intervals_of_200_topics_cover_as_they_say():
    """Rejects intervals that are too narrow, and such as hold everything."""
    assert LIMITS[0] <= coverage(MADE) <= LIMITS[1]


@pytest.mark.parametrize("name", MUTANTS)
def test_wrong_estimates_do_not_cover(name):
    """Rejects a simulation that any estimate would pass."""
    assert coverage(MADE, **MUTANTS[name]) < LIMITS[0]


def test_errors_fall_as_one_over_the_root_of_the_rows():
    """Rejects an estimate with a bias, whose error stops falling, and the channel transposed."""
    few, many = errors(MADE, rows=100), errors(MADE, rows=1600)
    # Sixteen times the rows, a quarter of the error.
    assert 3.4 <= few / many <= 4.6
    wrong = transposed(MADE.matrix)
    few, many = (errors(MADE, rows=rows, matrix=wrong) for rows in (100, 1600))
    assert few / many < 2.0


def test_made_texts_have_words_that_go_together():
    """Rejects a made language in which rows as clusters make no difference."""
    texts = MADE.texts(np.random.default_rng(0))
    repeated = [len(row) - len({*row.tolist()}) for row in texts]
    assert np.mean(repeated) > 5
