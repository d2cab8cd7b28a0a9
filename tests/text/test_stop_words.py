"""Stop words as the tokenizer finds them."""

from __future__ import annotations

from hashlib import sha256

from bm25s.stopwords import STOPWORDS_EN_PLUS

from dptext_spark.text.stop_words import stop_words
from dptext_spark.text.tokens import tokenize


def test_the_stop_words_are_the_179_of_nltk_as_words() -> None:
    assert len(STOPWORDS_EN_PLUS) == 179
    words = stop_words()
    # What --protect content releases may not change with a version of bm25s.
    assert sha256(" ".join(sorted(words)).encode()).hexdigest()[:16] == "5f810bd8b1d3c7a6"
    assert {"the", "of", "you", "do", "n't", "'s", "'ve", "ain", "wouldn"} <= words
    assert not {"don't", "paris", "", "'"} & words
    # Every form in which a text holds a stop word is one.
    assert all(word in words for stop in STOPWORDS_EN_PLUS for word in tokenize(f"x {stop} x")[1:-1])
