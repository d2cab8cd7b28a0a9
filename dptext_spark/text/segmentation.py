"""Words in scripts that put no spaces between them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

UNSPACED: Final = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
"""Scripts whose words stand without spaces: Chinese, Japanese, Thai, Lao, Khmer and Burmese."""

_SCRIPTS: Final = "".join(rf"\p{{{script}}}" for script in UNSPACED)


def unspaced_share(texts: pa.Array) -> float:
    """Give the share of the letters of texts (strings) that are of ``UNSPACED`` scripts; 0 without letters.

    The tokenizer ``words`` takes each run of such letters for one word, whole sentences among them.
    """
    unspaced, all_letters = (
        pc.sum(pc.count_substring_regex(texts, pattern=pattern)).as_py() or 0
        for pattern in (rf"[{_SCRIPTS}]", rf"[\p{{L}}{_SCRIPTS}]")
    )
    return unspaced / max(all_letters, 1)
