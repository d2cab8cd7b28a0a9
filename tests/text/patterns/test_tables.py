"""The tables that patterns look into."""

from dptext_spark.text.patterns.tables import DOMAINS


def test_domains_are_those_of_the_root_zone():
    """Rejects a list that lacks countries whose names are registered below others only."""
    assert {"com", "za", "bd", "np", "xn--p1ai", "\u0440\u0444", "onion"} <= DOMAINS
    assert "example" not in DOMAINS
