"""What tests of searches share."""

import pytest

from dptext_spark.search import code_files
from dptext_spark.search.kernel import trusted_bits


@pytest.fixture
def fresh(monkeypatch):
    """Kernels are tried anew, and few words have codes, too."""
    monkeypatch.setattr(code_files, "_pays", lambda words, dimension: True)
    trusted_bits.cache_clear()
    yield monkeypatch
    trusted_bits.cache_clear()
