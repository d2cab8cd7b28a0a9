"""What tests of searches share."""

import pytest

from dptext_spark.search import code_files, kernel
from dptext_spark.search.kernel import trusted_bits
from tests.helpers.nearest import exact_multiplier


@pytest.fixture
def fresh(monkeypatch):
    """Kernels are tried anew, and few words have codes, too."""
    monkeypatch.setattr(code_files, "_pays", lambda words, dimension: True)
    trusted_bits.cache_clear()
    yield monkeypatch
    trusted_bits.cache_clear()


@pytest.fixture(autouse=True)
def any_processor(monkeypatch):
    """Where a processor cuts sums of 8-bit codes, NumPy multiplies: tests are about any exact kernel."""
    if trusted_bits(16) == 8:
        yield
        return
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "multiplier", exact_multiplier)
        patch.setattr(kernel, "prepare", lambda words: words)
        trusted_bits.cache_clear()
        yield
    trusted_bits.cache_clear()
