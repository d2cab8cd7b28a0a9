"""Columns of every library are the same column: equal content, equal words, nothing quoted of the rest."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dptext_spark import Laplace
from dptext_spark.errors import InputError
from dptext_spark.text.columns import as_arrow
from tests.helpers.worlds import sanitizer

MECHANISM = Laplace(epsilon=4.0)
FIRST = {"start": 0, "end": 2}
TEXTS = ["w1 w2 Zyx", None, "", "w3"]
WORDS = [["w1", None, "zyx"], None, [], ["w3"]]
IDS = [10, 11, 12, 13]

SAME_TEXTS = [
    TEXTS, tuple(TEXTS), (text for text in TEXTS), np.array(TEXTS, dtype=object),
    pd.Series(["w9", *TEXTS])[1:],
    *(["w1 w2 Zyx", missing, "", "w3"] for missing in (math.nan, pd.NA)),
    pa.array(TEXTS, pa.large_string()), pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    pa.chunked_array([TEXTS[:1], TEXTS[1:]]).dictionary_encode(),
    pd.Series(["w1 w2 Zyx", np.nan, "", "w3"], index=[9, 9, 2, 0]),
    *(pd.Series(TEXTS, dtype=kind) for kind in ("string", "category", pd.ArrowDtype(pa.string()))),
]  # fmt: skip
SAME_WORDS = [
    [["w1", math.nan, "zyx"], math.nan, [], ["w3"]],
    pd.Series([None if row is None else np.array(row, dtype=object) for row in WORDS]),
    pa.chunked_array([WORDS[:2], WORDS[2:]]),
]
SAME_IDS = [
    range(10, 14), np.arange(10, 14, dtype=np.int16), pd.Series(IDS), pd.RangeIndex(10, 14),
    np.array(["10", "11", "12", "13"]), pa.chunked_array([[10, 11], [12, 13]]),
]  # fmt: skip


@pytest.fixture
def privatizer(small):
    return sanitizer(small, MECHANISM)


def sanitized(privatizer, values, ids=IDS):
    done = privatizer.sanitize(values, ids, column="text").values
    assert isinstance(done, pa.Array)
    return done.to_pylist()


def test_columns_of_every_library_get_the_same_words(privatizer, small):
    texts = sanitized(privatizer, pa.array(TEXTS), pa.array(IDS))
    assert texts[1:3] == [None, ""] and texts[0].endswith("[MASK]")
    assert [sanitized(privatizer, column) for column in SAME_TEXTS] == [texts] * len(SAME_TEXTS)
    words = sanitized(privatizer, pa.array(WORDS))
    assert words[0][1:] == [None, "[MASK]"] and words[1:3] == [None, []]
    assert [sanitized(privatizer, column) for column in SAME_WORDS] == [words] * len(SAME_WORDS)
    assert [sanitized(privatizer, TEXTS, ids) for ids in SAME_IDS] == [texts] * len(SAME_IDS)
    for values in ([], pd.Series([], dtype=object), pa.chunked_array([], pa.string())):
        assert sanitized(privatizer, values, []) == []
    for values, out in (([None, None],) * 2, (pd.Series([np.nan] * 2), [None, None]), ([[None], []],) * 2):
        assert sanitized(privatizer, values, [0, 1]) == out  # without a single word
    marked = sanitizer(small, MECHANISM, protect="slots:s")
    for slots in ([[FIRST]], pd.Series([np.array([FIRST], dtype=object)]), pa.chunked_array([[[FIRST]]])):
        done = marked.sanitize(["w1 W2"], [1], column="text", slots=slots)
        assert done.counts.unprotected.tolist() == [1] and done.values[0].as_py().endswith(" W2")


@pytest.mark.parametrize("wrong_ids", [False, True])
def test_what_is_no_column_is_refused_and_not_quoted(privatizer, wrong_ids):
    """Rejects a text taken apart into letters, a table into names, and messages that quote values."""
    for values in (
        [1.5, 2.5], [b"secret"], "secret", None, ["secret", 7], [7, "secret"],
        ["secret \ud800"], np.array([["secret", "b"]]), pd.DataFrame({"secret": ["secret"]}),
        pa.table({"secret": ["secret"]}), {"secret": 1}, {"secret"}, pa.scalar("secret"),
        pd.Series(pd.date_range("2024-01-01", periods=2)), [[["secret"]]], [2**64],
    ):  # fmt: skip
        given = (["w1", "w2"], values) if wrong_ids else (values, [1, 2])
        with pytest.raises(InputError) as caught:
            privatizer.sanitize(*given, column="text")
        error = caught.value
        while error is not None:
            assert "secret" not in f"{error} {error!r} {error.args}"
            error = error.__cause__ or error.__context__


def test_arrow_arrays_are_not_copied():
    array = pa.array(["a"])
    assert as_arrow(array, "Column a") is array
