"""Pieces of identifiers in released texts: what may be left of those that no pattern recognizes.

Counts alone leave the process, never what was counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.text.columns import column_kind, list_offsets

_WORD: Final = r"[\p{L}\p{Nd}]"
_SHORT: Final = r"\p{Nd}{2,3}"
_GAP: Final = r"[^\p{L}\p{Nd}\[\]]{1,3}"  # no mark

_MARK: Final = r"\[[A-Z][A-Z0-9_]*(?:-[0-9a-f-]+)?\]"

PIECES: Final = {
    "figures": rf"(?:^|[^\p{{L}}\p{{Nd}}]){_SHORT}(?:{_GAP}{_SHORT})+(?:$|[^\p{{L}}\p{{Nd}}])",
    "signs": r"\p{L}@|@\p{L}|\p{L}\\|\\\p{L}|[\p{L}\p{Nd}]://",
    "codes": rf"{_WORD}*(?:\p{{Lu}}{_WORD}*\p{{Nd}}|\p{{Nd}}{_WORD}*\p{{Lu}}){_WORD}*",
}
"""What looks like a piece, by kind: patterns of RE2."""

TITLES: Final = {
    "figures": "chains of numbers of two or three figures",
    "signs": "letters next to @, \\ or ://",
    "codes": "words of capitals and figures",
}


def count_pieces(values: pa.Array) -> dict[str, NDArray[np.int64]]:
    """Return int64 (rows,) by kind: the places that look like pieces, of texts or token lists."""
    texts = values
    if column_kind(values.type, "") == "tokens":
        elements = pc.fill_null(values.flatten().cast(pa.string()), "")
        offsets = pa.array(list_offsets(values), pa.int32())
        texts = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), " ")
    texts = pc.replace_substring_regex(texts, _MARK, "[]")
    counts = {}
    for kind, pattern in PIECES.items():
        places = pc.fill_null(pc.count_substring_regex(texts, pattern), 0)
        counts[kind] = places.to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def pieces_text(counts: Mapping[str, int]) -> str:
    """Return what looks like pieces, in words; empty if nothing does."""
    return ", ".join(f"{count:,} {TITLES[kind]}" for kind, count in counts.items() if count)
