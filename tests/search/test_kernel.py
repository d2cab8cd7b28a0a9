"""Products of 8-bit integers: by any kernel that is exact, and by no other."""

import hashlib

import numpy as np
import pytest

from dptext_spark.search import kernel
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.kernel import multiplier, prepare, trusted_bits
from tests.helpers.nearest import differing, exact_multiplier, half_norms, hard_points, search_of

MODEL_SHA256 = "782d90d090d1fdd0bf24ba2b37274c763e4686107af6f03fe1725cb16ff7ffea"
"""Of what scripts/make_product_model.py writes."""


def test_the_model_is_the_one_that_the_script_makes():
    """Rejects a model that was edited by hand, and one with other types or inputs in another order."""
    assert hashlib.sha256(kernel.MODEL.read_bytes()).hexdigest() == MODEL_SHA256
    model = kernel.session()
    inputs = [(part.name, part.type) for part in model.get_inputs()]
    outputs = [(part.name, part.type) for part in model.get_outputs()]
    assert inputs == [("words", "tensor(uint8)"), ("points", "tensor(int8)")]
    assert outputs == [("scores", "tensor(int32)")]


def saturating(bits):
    """Sums pairs in so many bits, as processors without 8-bit dot products do in 16."""

    def multiplied(points, scores):
        wide = points.astype(np.int64)
        top = 1 << (bits - 1)

        def product(words, count):
            pairs = (
                (words[:, :, None] * wide[None])
                .reshape(len(words), -1, 2, wide.shape[1])
                .sum(axis=2)
            )
            scores[:count] = np.clip(pairs, -top, top - 1).sum(axis=1)

        return product

    return multiplied


def careless(words, points):
    """Is one off where it has so many words, or points."""

    def multiplied(given, scores):
        exact = exact_multiplier(given, scores)

        def product(prepared, count):
            exact(prepared, count)
            scores[0, 0] += count == words or scores.shape[1] == points

        return product

    return multiplied


KERNELS = {
    "exact": (8, exact_multiplier),
    "in 16 bits": (7, saturating(16)),
    "in 15 bits": (0, saturating(15)),
    "one word at a time": (0, careless(1, None)),
    "a remainder of points": (0, careless(None, 17)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_saturates_has_fewer_bits_or_is_not_used(name, fresh):
    """Rejects trust in a processor, and a trial of one shape only."""
    bits, multiplied = KERNELS[name]
    fresh.setattr(kernel, "_TRIED_SIZES", (1, 2, 3, 8, 17, 33))  # the fake ones are slow
    fresh.setattr(kernel, "multiplier", multiplied)
    fresh.setattr(kernel, "prepare", lambda words: words.astype(np.int64))
    vectors = np.random.default_rng(3).standard_normal((70, 12)).astype(np.float32)
    points = hard_points(vectors, 40)
    assert trusted_bits(16) == bits
    if bits:
        assert differing(vectors, points, bits) == 0
    search = ExactSearch(release_words=70).of_images(vectors, half_norms(vectors))
    assert (search.coarse is not None) == (bits > 0)
    np.testing.assert_array_equal(search(points), search_of(vectors)(points))


def test_the_kernel_of_this_processor_is_exact_in_the_bits_that_it_has(fresh):
    """8 with instructions for 8-bit dot products, 7 without them."""
    fresh.setattr(kernel, "multiplier", multiplier)
    fresh.setattr(kernel, "prepare", prepare)
    bits = trusted_bits(16)
    assert bits in (7, 8)
    vectors = np.random.default_rng(3).standard_normal((700, 12)).astype(np.float32)
    assert differing(vectors, hard_points(vectors, 40), bits) == 0
