"""What objects show of themselves in one line; never a key."""

from __future__ import annotations

import pytest

from dptext_spark import Embedding, Exponential, Laplace, Mahalanobis, Projection
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.vectors import ProjectedVectors
from tests.helpers import worlds


@pytest.mark.parametrize(
    ("mechanism", "shown"),
    [
        (Laplace(epsilon=8), "Laplace(epsilon=8.0)"),
        (Mahalanobis(epsilon=8, lambda_=0.25), "Mahalanobis(epsilon=8.0, lambda_=0.25)"),
        (Exponential(epsilon=0.5), "Exponential(epsilon=0.5)"),
        (Projection(epsilon=2, select="vickrey", t=0.0), "Projection(epsilon=2.0, select='vickrey', t=0.0)"),
    ],
    ids=lambda value: "",
)
def test_a_mechanism_is_written_as_it_is_made(mechanism: Mechanism, shown: str) -> None:
    assert repr(mechanism) == str(mechanism) == shown
    assert eval(shown) == mechanism


def test_what_is_long_is_one_line_without_a_key(small: Embedding) -> None:
    """Rejects a dataclass's own representation, which holds keys and arrays."""
    mechanism = Laplace(epsilon=2.0)
    release = worlds.sanitizer(small, mechanism)
    claim = "Guarantee(laplace, epsilon 2: factor exp(2 x Euclidean distance of their vectors); "
    facts = f"300 words, 50 dimensions, euclidean, fingerprint {small.fingerprint[:16]}"
    for made, parts in (
        (small, [f"Embedding('bundle': {facts})"]),
        (mechanism.guarantee(small), [claim, " for a typical nearest word)"]),
        (
            ProjectedVectors(epsilon=2.0, sensitivity="paper").guarantee(small),
            ["Guarantee(projected vectors, epsilon 2: factor exp(2.07758 x "],
        ),
        (release, ["Laplace(epsilon=2.0)", "oov mask, protect all"]),
    ):
        shown = repr(made)
        assert all(part in shown for part in parts)
        assert "\n" not in shown and len(shown) < 300
        for secret in (worlds.KEY.secret, release.noise.key.secret):
            assert secret.hex() not in shown and repr(secret)[2:-1] not in shown
