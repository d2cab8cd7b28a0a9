"""A wrong way to cut texts that have slots, which tests must find out."""

from __future__ import annotations

from collections.abc import Sequence

from dptext_spark.text.marks import Span
from dptext_spark.text.tokens import Tokenizer, straight, token_spans


def as_it_stands(text: str, spans: Sequence[Span], tokenizer: Tokenizer) -> tuple[list[str], list[bool]]:
    """Wrong: the text is cut as if it had no slots, and a token that a span touches is protected."""
    found = tokenizer(text)
    places = [*token_spans(straight(text), found)]
    return found, [any(a < end and start < b for a, b in spans) for start, end in places]
