"""Channels from computed probabilities against the mechanism's own, and what is made of counts of draws."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.calibration import estimator
from dptext_spark.channel.counts import blocks_of, channel_of_cells, likeliest
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers.hidden_worlds import law_of


def measured(world, configured, *, runs=200, most=1024):
    """The channel of all words of a world."""
    words = np.arange(len(world.words))
    estimated = estimator([configured], world, search=ExactSearch.over(world), runs=runs)
    blocks = range(blocks_of(estimated, words))
    cells = [likeliest(estimated, words, block, most) for block in blocks]
    return channel_of_cells(pa.concat_tables(cells[::-1]), estimated, vocabulary=len(words))


def truth(world, configured):
    bound = configured.bind(world, ExactSearch.over(world))
    return np.asarray(bound.probabilities(np.arange(len(world.words))))


@pytest.mark.parametrize(
    ("epsilon", "most"), [(0.1, 300), (40.0, 300), (3.0, 300), (3.0, 1), (3.0, 7), (3.0, 150)]
)
def test_a_computed_channel_is_the_mechanism(small, epsilon, most):
    """The likeliest outputs keep their probabilities, the others share what is left; all add up to one."""
    # Rejects the likeliest words of each output in place of the likeliest outputs of each word.
    exponential = mechanism("exponential", epsilon=epsilon)
    channel = measured(small, exponential, most=most)
    law, exact = law_of(channel), truth(small, exponential)
    assert (channel.method, channel.size, channel.difference) == ("computed", 0, None)
    assert channel.method == "computed"
    np.testing.assert_allclose(law.sum(axis=1), 1.0, rtol=1e-6)
    best = np.argsort(-exact, axis=1, kind="stable")[:, :most]
    probability = np.take_along_axis(law, best, axis=1)
    np.testing.assert_allclose(
        probability, np.take_along_axis(exact, best, axis=1), rtol=1e-6, atol=1e-9
    )
    rest = 1.0 - np.take_along_axis(exact, best, axis=1).sum(axis=1)
    distance = np.abs(law - exact).sum(axis=1) / 2
    assert (distance <= rest + 1e-6).all()
    if most < 200:
        assert len(channel.keys) == most * len(small.words)


@pytest.mark.parametrize("epsilon", [0.5, 1e9])
def test_a_drawn_channel_has_no_zeros(small, epsilon):
    """Rejects counts as they are: an output that did not come up in 50 runs is not impossible."""
    channel = measured(small, mechanism("laplace", epsilon=epsilon), runs=50)
    law = law_of(channel)
    np.testing.assert_allclose(law.sum(axis=1), 1.0, rtol=1e-6)
    assert (law > 0).all()
    assert (channel.method, channel.size) == ("draws", 50)


def test_counts_by_hand():
    """Word 0 gave output 0 eight times, 1 and 2 once; word 1 gave all four outputs, so nothing is left."""
    cells = {
        "word": [0, 0, 0, 1, 1, 1, 1],
        "output": [0, 1, 2, 0, 1, 2, 3],
        "count": [8.0, 1, 1, 4, 3, 2, 1],
    }
    estimated = SimpleNamespace(name="plain", runs=10, search=ExactSearch(release_words=4))
    channel = channel_of_cells(pa.table(cells), estimated, vocabulary=3)
    d = (3 + 0.5) / (3 + 2 * 1 + 1)
    first = [(8 - d) / 10, (1 - d) / 10, (1 - d) / 10, 3 * d / 10]
    np.testing.assert_allclose(law_of(channel)[:2], [first, [0.4, 0.3, 0.2, 0.1]], rtol=1e-6)
    assert (law_of(channel)[2] == 0).all()  # not looked at
