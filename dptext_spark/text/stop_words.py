"""Stop words, which say little about the subject of a text."""

from __future__ import annotations

from functools import cache
from typing import Final

from dptext_spark.text.tokens import tokenize

# NLTK has these only as pieces of contractions that were cut at the apostrophe. As words of a text they are
# initials, units and names: T. N., Don, New Haven.
_PIECES: Final = frozenset(
    tokenize(
        "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s shan shouldn "
        "t ve wasn weren won wouldn y"
    )
)


@cache
def stop_words() -> frozenset[str]:
    """The English stop words of NLTK (as the papers use), from ``bm25s``, in the forms that texts have.

    Contractions are there whole and as their tokens (``don't``, ``do``, ``n't``), but not as NLTK's bare
    pieces (``don``, ``t``), which are other words in a text.
    """
    from bm25s.stopwords import STOPWORDS_EN_PLUS  # a large package, rarely needed

    parts = (part for word in STOPWORDS_EN_PLUS for part in tokenize(word))
    return frozenset({*STOPWORDS_EN_PLUS, *parts} - _PIECES)
