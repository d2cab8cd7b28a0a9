"""Stop words: those that say little of what a text is about."""

from __future__ import annotations

from functools import cache

from dptext_spark.text.tokens import tokenize


@cache
def stop_words() -> frozenset[str]:
    """The 179 English stop words of NLTK (as the papers use), as ``bm25s`` carries them."""
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # a large package, rarely needed

    return frozenset(part for word in STOPWORDS_EN_PLUS for part in tokenize(word))
