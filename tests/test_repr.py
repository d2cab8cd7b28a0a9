"""What objects show of themselves in one line; never a key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dptext_spark import Embedding, Exponential, Laplace, Mahalanobis, Projection
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.vectors import ProjectedVectors
from tests.helpers import worlds


def test_an_embedding_names_itself(tmp_path: Path) -> None:
    embedding = worlds.build(tmp_path, worlds.uneven(1200, 3))
    facts = f"1,200 words, 3 dimensions, euclidean, fingerprint {embedding.fingerprint[:16]}"
    assert repr(embedding) == f"Embedding('bundle': {facts})"


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


def test_a_guarantee_is_one_line(small: Embedding) -> None:
    shown = repr(Laplace(epsilon=2.0).guarantee(small))
    start = "Guarantee(laplace, epsilon 2: factor exp(2 x Euclidean distance of their vectors); "
    assert shown.startswith(start) and shown.endswith(" for a typical nearest word)")
    assert "\n" not in shown and len(shown) < 160
    vectors = ProjectedVectors(epsilon=2.0, sensitivity="paper").guarantee(small)
    assert repr(vectors).startswith("VectorGuarantee(projected vectors, epsilon 2: factor exp(2.07758 x ")


def test_a_privatizer_shows_its_parts_and_no_key(small: Embedding) -> None:
    mechanism = Laplace(epsilon=2.0)
    noise = worlds.release(mechanism, small)
    shown = repr(worlds.sanitizer(small, mechanism))
    assert "Laplace(epsilon=2.0)" in shown and "oov mask, protect all" in shown
    assert "\n" not in shown and len(shown) < 300
    for secret in (worlds.KEY.secret, noise.key.secret):
        assert secret.hex() not in shown and repr(secret)[2:-1] not in shown
