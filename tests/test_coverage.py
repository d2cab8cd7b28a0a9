"""Coverage of a vocabulary: which tokens count, what is warned of, how little is looked at."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.lookup import WordReader
from dptext_spark.tables.look import Coverage
from dptext_spark.text.columns import SLICE_BYTES
from dptext_spark.text.policies import TextPolicy

CHINESE = "\u6211\u559c\u6b22\u5403\u82f9\u679c"
FATE = "They become [MASK]."


def measure(values: Any, world: Embedding, **policy: str) -> Coverage:
    return Coverage.measure(pa.array(values), WordReader(bundle=world, policy=TextPolicy(**policy)))


def test_tokens_are_known_as_a_run_knows_them(small: Embedding) -> None:
    """Rejects a lookup without lower case, and blank tokens that count as unknown."""
    assert measure(["w1 W2, zyx", None, ""], small) == Coverage(rows=3, tokens=3, unknown=1)
    assert measure([["w1", None, "", "zyx", "w2 w3"], None], small) == Coverage(rows=2, tokens=3, unknown=2)
    assert measure(["the w1 zyx"], small, protect="content") == Coverage(rows=1, tokens=2, unknown=1)
    reader = WordReader(bundle=small, policy=TextPolicy(protect="slots:s"))
    assert Coverage.measure(pa.array([], pa.string()), reader) == Coverage()
    found = Coverage.measure(pa.array(["w1 zyx abc"]), reader, pa.array([[{"start": 3, "end": 5}]]))
    assert found == Coverage(rows=1, tokens=1, unknown=1)


def test_letters_of_scripts_without_spaces_are_counted(small: Embedding) -> None:
    """Rejects complaints of texts that are cut into words."""
    assert measure([CHINESE, "w1"], small) == Coverage(rows=2, tokens=2, unknown=1, unspaced=6 / 7 * 2)
    assert measure([[CHINESE, "abcdef"]], small).unspaced_share == 0.0  # its words were distinguished already
    pytest.importorskip("icu4py")
    cut = measure([CHINESE, "w1"], small, tokenizer="icu")
    assert cut.unspaced == 0.0 and cut.tokens > 2


def test_one_megabyte_is_looked_at(small: Embedding) -> None:
    found = measure(["zyx " * 25_000] * 12, small)
    assert (found.rows, found.tokens) == (SLICE_BYTES // 100_001, found.rows * 25_000)
    assert measure(["zyx " * SLICE_BYTES, "w1"], small).rows == 1


def test_samples_are_added_up() -> None:
    parts = [Coverage(10, 90, 3, 2.0), Coverage(), Coverage(10.0, 10.0, 7.0, 0.0)]  # type: ignore[arg-type]
    whole = Coverage.sum(parts)
    assert whole == Coverage(20, 100, 10, 2.0)
    assert (whole.unknown_share, whole.unspaced_share) == (0.1, 0.1)
    assert whole.to_json() == {"rows": 20, "tokens": 100, "unknown": 10, "unspaced": 0.1}
    assert whole.describe() == "90.0% of 100 words are in the vocabulary (a sample of 20 rows)"
    assert Coverage(rows=5).describe() == "no words in a sample of 5 rows"


OF = "of column text, in a sample of 1,000 rows, are"


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        (Coverage(), []),
        (Coverage(1000, 100, 10, 100.0), []),
        (Coverage(1000, 1000, 278, 0.0), [f"27.8% of the words {OF} not", f"vocabulary. {FATE}"]),
        (Coverage(1000, 1000, 990, 950.0), [f"95% of the letters {OF}", "--tokenizer icu"]),
        (Coverage(1000, 9000, 890, 200.0), ["A run of such letters counts as one word: 9.9% of the words"]),
    ],
)
def test_what_is_warned_of(coverage: Coverage, said: list[str]) -> None:
    warning = coverage.warning("text", FATE)
    assert all(each in warning for each in said) and bool(warning) == bool(said)
