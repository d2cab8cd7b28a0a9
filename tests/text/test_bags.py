"""Bags of K-grams: counts by an independent reading, whatever the texts around, and noise of their own."""

import hashlib
import math
import re

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.errors import InputError
from dptext_spark.text import columns
from dptext_spark.text.bags import KgramBags
from dptext_spark.text.tokens import PLAIN, Segmentation

TEXTS = [
    "Play the song, play THE song again",
    "song the play",
    "one",
    "",
    "... !",
    "ab c",
    "a bc",
    "the the the the",
    "\u0130stanbul CAF\u00c9 cafe\u0301",
]


def bags(kgrams, places, tokenizer=PLAIN):
    return KgramBags(kgrams=kgrams, places=places, tokenizer=tokenizer)


def naive(text, kgrams, places):
    """The bag of a text of ASCII letters, counted by hand."""
    words = re.findall(r"[a-z]+", text.lower())
    length = min(kgrams, len(words))
    vector = np.zeros(places)
    for first in range(len(words) - length + 1 if words else 0):
        content = b"".join(
            len(word).to_bytes(8, "little") + word.encode()
            for word in words[first : first + length]
        )
        number = int.from_bytes(
            hashlib.blake2b(content, digest_size=8, person=b"dptext-kgrams").digest(), "little"
        )
        vector[(number // 2) % places] += -1 if number % 2 else 1
    return vector / (math.sqrt((vector * vector).sum()) or 1.0)


@pytest.mark.parametrize(("kgrams", "places"), [(1, 7), (2, 64), (3, 4096)])
def test_bags_are_those_of_a_naive_reading(kgrams, places):
    """Rejects grams across texts, counts without signs, and a short text without a gram."""
    read = bags(kgrams, places).read(pa.array(TEXTS[:-1]), "t")
    expected = [naive(text, kgrams, places) for text in TEXTS[:-1]]
    assert read.vectors.toarray().tolist() == [row.tolist() for row in expected]
    lengths = [7, 3, 1, 0, 0, 2, 2, 4]
    assert read.grams.tolist() == [max(n - kgrams + 1, min(n, 1)) for n in lengths]


def test_texts_around_a_text_do_not_matter(monkeypatch):
    """Rejects grams, or contents, that depend on how rows are cut."""
    whole = bags(2, 64).read(pa.array(TEXTS), "t")
    monkeypatch.setattr(columns, "SLICE_BYTES", 5)
    cut = bags(2, 64).read(pa.array(TEXTS), "t")
    assert (cut.vectors.toarray() == whole.vectors.toarray()).all()
    assert cut.contents == whole.contents
    single = [bags(2, 64).read(pa.array([text]), "t") for text in TEXTS]
    assert (np.vstack([one.vectors.toarray() for one in single]) == whole.vectors.toarray()).all()
    assert [one.contents[0] for one in single] == whole.contents


def vector_of(text, kgrams=2, places=1 << 40):
    return bags(kgrams, places).read(pa.array([text]), "t").vectors


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("the song", "song the", False),  # order matters
        ("ab c", "a bc", False),  # so does where words end
        ("one", "one one", False),
        ("The SONG", "the song", True),
        ("caf\u00c9", "cafe\u0301", True),
    ],
)
def test_which_grams_are_one(one, other, equal):
    assert (abs(vector_of(one) - vector_of(other)).nnz == 0) == equal


def test_signs_that_cancel_leave_zero():
    """Rejects a division by zero: of one place, some pair of words has opposite signs."""
    words = [f"w{letter}" for letter in "abcdefgh"]
    signs = {word: vector_of(word, 1, 1).toarray()[0, 0] for word in words}
    plus = next(word for word in words if signs[word] > 0)
    minus = next(word for word in words if signs[word] < 0)
    assert vector_of(f"{plus} {minus}", 1, 1).toarray().tolist() == [[0.0]]


def test_kinds_of_bags_have_contexts_of_their_own():
    """Rejects noise that two kinds of bags share, whose difference would be that of the bags."""
    icu = Segmentation.of("icu")
    kinds = [bags(1, 8), bags(2, 8), bags(1, 16), bags(1, 8, icu)]
    assert len({kind.identity for kind in kinds}) == len(kinds)


def test_what_is_no_text_is_refused():
    with pytest.raises(InputError, match="not valid UTF-8"):
        bags(1, 8).read(pa.array([b"\xff\xfe"]).view(pa.string()), "t")
