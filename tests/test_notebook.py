"""What objects show of themselves: one line, or a small table; never a key, never raw HTML."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from dptext_spark import Embedding, Exponential, Laplace, Mahalanobis, Privatizer, Projection
from dptext_spark.mechanisms import Mechanism
from dptext_spark.vectors.projected_vectors import ProjectedVectors
from tests.helpers import worlds


class Words(HTMLParser):
    """The words between tags; rejects tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert tag in {"table", "caption", "tr", "th", "td", "b", "p"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_an_embedding_names_itself(tmp_path: Path) -> None:
    (tmp_path / "<b>a").mkdir()
    embedding = worlds.build(tmp_path / "<b>a", worlds.uneven(1200, 3), release_words=300)
    facts = f"1,200 words, 3 dimensions, euclidean, fingerprint {embedding.fingerprint[:16]}"
    assert repr(embedding) == f"Embedding('bundle': {facts})"
    moved = embedding.path.rename(tmp_path / "<i>&")
    shown = Embedding.open(moved)._repr_html_()
    assert len(shown) < 1500
    assert {"Embedding <i>&", "1,200", "300", embedding.fingerprint, "source.txt"} <= {*Words(shown).text}


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
    assert {"epsilon", str(mechanism.epsilon)} <= {*Words(mechanism._repr_html_()).text}


def test_a_guarantee_in_one_line_and_in_words(small: Embedding) -> None:
    guarantee = Laplace(epsilon=2.0).guarantee(small)
    shown = repr(guarantee)
    start = "Guarantee(laplace, epsilon 2: factor exp(2 x Euclidean distance of their vectors); "
    assert shown.startswith(start) and shown.endswith(" for a typical nearest word)")
    assert "\n" not in shown and len(shown) < 160
    words = Words(guarantee._repr_html_()).text
    assert words == ["Guarantee", *guarantee.describe().splitlines()]
    vectors = ProjectedVectors(epsilon=2.0, sensitivity="paper").guarantee(small)
    assert repr(vectors).startswith("VectorGuarantee(projected vectors, epsilon 2: factor exp(2.07758 x ")


def test_a_privatizer_shows_its_parts_and_no_key(small: Embedding) -> None:
    mechanism = Laplace(epsilon=2.0)
    privatizer = Privatizer(embedding=small, mechanism=mechanism, noise=worlds.release(mechanism, small))
    html = privatizer._repr_html_()
    for shown in (repr(privatizer), "".join(Words(html).text)):
        assert "Laplace(epsilon=2.0)" in shown and "oov mask, protect all" in shown
        assert "\n" not in shown and len(shown) < 300
    derived = worlds.release(mechanism, small).key.secret
    for secret in (worlds.KEY.secret, derived):
        for form in (secret.hex(), repr(secret)[2:-1]):
            assert form not in f"{privatizer!r}{html}"
