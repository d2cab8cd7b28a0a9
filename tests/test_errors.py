"""Errors: several checks at once."""

import pytest

from dptext_spark.errors import BundleError, ConfigError, all_of


def test_all_of_runs_every_check():
    assert all_of(lambda: 1, lambda: "two") == [1, "two"]
    seen = []

    def fail():
        seen.append(1)
        raise BundleError("Broken")

    def other():
        raise BundleError("Another")

    with pytest.raises(BundleError, match="Broken"):
        all_of(fail, lambda: seen.append(2))
    assert seen == [1, 2]
    with pytest.raises(ConfigError, match="2 things are wrong"):
        all_of(fail, other, fail)
