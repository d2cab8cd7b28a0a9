"""Texts that no person wrote, and what a worker keeps of them."""

import tracemalloc

import pyarrow as pa
import pytest

from dptext_spark.text.joined import JoinedWords

MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lambda i: f"{i}{'a' * MEGABYTE}", id="words of a megabyte"),
        pytest.param(
            lambda i: f"new{' ' * (MEGABYTE + i)}york", id="two words, a megabyte of spaces between"
        ),
    ],
)
def test_a_worker_forgets_long_strings(text):
    """Rejects a cache that is bounded by its entries alone: 800 such words took 1.6 GB. Source: own trial."""
    cut = JoinedWords.of(pa.array(["new york", "new", "york"]))
    cut("new york")
    tracemalloc.start()
    try:
        for number in range(4):
            assert cut(text(number))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < MEGABYTE
