"""Words in scripts that put no spaces between them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dptext_spark.text.segmentation import unspaced_share


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    ("texts", "share"),
    [
        ([], 0.0),
        ([None, "", "12 !? \U0001f600"], 0.0),
        (["plain words", "caf\u00e9", "\u043f\u0440\u0438\u0432\u0435\u0442", "\ud55c\uad6d\uc5b4"], 0.0),
        (["\u6211\u559c\u6b22\u5403\u82f9\u679c\u3002"], 1.0),
        (["\u6771\u4eac\u3078", "\u30ab\u30bf\u30ab\u30ca"], 1.0),
        (["\u0e09\u0e31\u0e19\u0e23\u0e31\u0e01"], 1.0),  # with its vowel signs
        (["\u0e9e\u0eb2\u0eaa\u0eb2", "\u1797\u17b6\u179f\u17b6", "\u1019\u103c\u1014\u103a"], 1.0),
        (["ab \u6211\u559c", None, "..."], 0.5),
        (["abc", "\U00020bb7"], 0.25),
    ],
)
def test_the_share_of_letters_without_spaces(kind: pa.DataType, texts: list[Any], share: float) -> None:
    """Rejects bytes for letters, and Cyrillic or Korean, whose words have spaces, for such scripts."""
    assert unspaced_share(pa.array(texts, kind)) == share
