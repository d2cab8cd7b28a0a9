"""The channel as an object: cells, and a product of a word's and an output's share for pairs without one."""

import pickle

import numpy as np

from dptext_spark.channel.channel import Channel
from tests.helpers.hidden_worlds import law_of

WORDS, OUTPUTS = 5, 4
LAW = np.random.default_rng(1).uniform(0.1, 1.0, (WORDS, OUTPUTS))


def of_cells(cells):
    """A channel in which these pairs (output, word) have a cell, from ``LAW``."""
    pairs = np.array(sorted(cells)).reshape(-1, 2)
    return Channel(
        method="draws",
        keys=pairs[:, 0] * WORDS + pairs[:, 1],
        probability=LAW[pairs[:, 1], pairs[:, 0]].astype(np.float32),
        of_word=np.arange(1.0, WORDS + 1.0),
        of_output=np.array([0.5, 0.25, 0.0, 2.0]),
    )


def test_pairs_with_a_cell_have_it_and_others_the_product():
    """Rejects words and outputs in each other's place, a product on top of cells, and sums of the shares."""
    cells = {(0, 0), (0, 4), (2, 1), (3, 0), (3, 3)}
    channel = of_cells(cells)
    assert (channel.vocabulary, channel.outputs) == (WORDS, OUTPUTS)
    for word in range(WORDS):
        for output in range(OUTPUTS):
            expected = (word + 1.0) * channel.of_output[output]
            if (output, word) in cells:
                expected = np.float32(LAW[word, output])
            assert channel(np.array([output]), np.array([word])) == [expected]
            has_cell, places = channel.look_up(np.array([output]), np.array([word]))
            assert has_cell.tolist() == [(output, word) in cells]
            if has_cell[0]:
                assert channel.keys[places[0]] == output * WORDS + word
    np.testing.assert_array_equal(law_of(pickle.loads(pickle.dumps(channel))), law_of(channel))


def test_cells_are_listed_output_by_output():
    """In the order asked for, outputs without a cell and one asked for twice among them."""
    channel = of_cells({(0, 0), (0, 4), (2, 1), (3, 0), (3, 3)})
    places, words, probability = channel.cells(np.array([3, 1, 0, 3]))
    assert (places.tolist(), words.tolist()) == ([0, 0, 2, 2, 3, 3], [0, 3, 0, 4, 0, 3])
    expected = [LAW[0, 3], LAW[3, 3], LAW[0, 0], LAW[4, 0], LAW[0, 3], LAW[3, 3]]
    np.testing.assert_array_equal(probability, np.array(expected, dtype=np.float32))
    assert [len(part) for part in channel.cells(np.array([], dtype=np.int64))] == [0, 0, 0]


def test_mean_vectors_are_those_of_the_posterior():
    """Rejects the channel without the prior, or transposed, and words that the prior leaves out."""
    channel = of_cells({(0, 0), (0, 4), (2, 1), (3, 0), (3, 3)})
    prior = np.array([0.4, 0.3, 0.0, 0.2, 0.1])
    vectors = np.random.default_rng(2).standard_normal((WORDS, 3)).astype(np.float32)
    means = channel.means(prior, vectors)
    for output in range(OUTPUTS):
        likely = prior * [channel(np.array([output]), np.array([word]))[0] for word in range(WORDS)]
        np.testing.assert_allclose(means[output], likely @ vectors / likely.sum(), rtol=1e-5)


def test_the_channel_without_any_output_says_nothing():
    """Every word becomes every output alike: the floor. It is no weak channel, for nothing was drawn."""
    channel = Channel.uniform(3, 5)
    assert (law_of(channel) == 0.2).all() and law_of(channel).shape == (3, 5)
    assert channel.method == "none"
