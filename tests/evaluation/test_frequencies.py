"""Comparisons of counts on laws whose distances are known."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.evaluation import frequencies
from dptext_spark.evaluation.bigrams import PairCounts


def counted(texts: list[list[int]]) -> PairCounts:
    words = np.array([word for text in texts for word in text], dtype=np.int64)
    return PairCounts.of_rows(words, np.cumsum([0, *map(len, texts)]), vocabulary=5)


TEXTS = [[0, 1, 2], [0, 1], [3]]


def test_equal_tables_agree() -> None:
    for compare in (frequencies.of_words, frequencies.of_pairs):
        assert compare(counted(TEXTS), counted(TEXTS)) == pytest.approx(
            {"overlap": 1.0, "agreement": 1.0, "leaders": 1.0}
        )


def test_tables_without_a_common_word_do_not() -> None:
    for compare in (frequencies.of_words, frequencies.of_pairs):
        assert compare(counted([[0, 1]]), counted([[3, 4]])) == pytest.approx(
            {"overlap": 0.0, "agreement": 0.0, "leaders": 0.0}
        )


def test_pairs_are_lost_where_words_are_not() -> None:
    """Rejects pairs compared by their words: the same words in another order."""
    before, after = counted([[0, 1, 2]]), counted([[2, 0, 1]])
    assert frequencies.of_words(before, after)["overlap"] == pytest.approx(1.0)
    assert frequencies.of_pairs(before, after)["overlap"] == pytest.approx(1 / 3)  # 0 before 1


def test_the_laws_by_hand() -> None:
    """Words at 3/4 and 1/4 against 1/2 and 1/2."""
    found = frequencies.of_words(counted([[0, 0, 0, 1]]), counted([[0, 1]]))
    p, q = np.array([0.75, 0.25]), np.array([0.5, 0.5])
    middle = (p + q) / 2
    divergence = ((p * np.log2(p / middle)).sum() + (q * np.log2(q / middle)).sum()) / 2
    assert found["overlap"] == pytest.approx(0.75)
    assert found["agreement"] == pytest.approx(1 - divergence)


def test_leaders_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "LEADERS", 2)
    before, after = counted([[0, 0, 0, 1, 1, 2]]), counted([[0, 0, 0, 2, 2, 1]])
    assert frequencies.of_words(before, after)["leaders"] == 0.5


def test_nothing_to_compare_is_no_number() -> None:
    assert np.isnan([*frequencies.of_words(counted([]), counted(TEXTS)).values()]).all()
