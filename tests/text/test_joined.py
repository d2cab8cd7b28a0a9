"""Joined words: what a worker keeps of texts that no person wrote."""

import tracemalloc

import pyarrow as pa

from dptext_spark.text.joined import JoinedWords


def test_a_worker_forgets_words_of_a_megabyte():
    """Rejects a cache that is bounded by its entries alone: 800 such words took 1.6 GB. Source: own trial."""
    cut = JoinedWords.of(pa.array(["new york", "new", "york"]))
    cut("new york")
    tracemalloc.start()
    try:
        for number in range(4):
            assert cut(f"{number}{'a' * (1 << 20)} new york")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20
