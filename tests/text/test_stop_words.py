"""Stop words as the tokenizer finds them."""

from __future__ import annotations

from hashlib import sha256

from bm25s.stopwords import STOPWORDS_EN_PLUS

from dptext_spark.text.stop_words import stop_words
from dptext_spark.text.tokens import tokenize

PIECES = tokenize(
    "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s shan shouldn "
    "t ve wasn weren won wouldn y"
)


def test_the_stop_words_are_those_of_nltk_as_words() -> None:
    """Rejects NLTK's list as it is, by which the T of "T N pension" is released as it stands."""
    words = stop_words()
    # What --protect content releases may not change with a version of bm25s.
    assert sha256(" ".join(sorted(words)).encode()).hexdigest()[:16] == "f00c3a8bf1a63740"
    assert {"the", "do", "n't", "'ve", "don't", "i"} <= words and not {"paris", "", "'"} & words
    # Every form in which a text holds a stop word is one, but what is left of a contraction without its end.
    forms = {word for stop in STOPWORDS_EN_PLUS for word in tokenize(f"x {stop} x")[1:-1]}
    assert forms - words == {*PIECES} <= {*STOPWORDS_EN_PLUS}
