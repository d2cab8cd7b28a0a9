"""Transitions: draws counted, and kept apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tests.helpers.calibration_oracle import DRAWS, WORDS, cells, counted


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_draws_are_counted() -> None:
    expected = [(0, 1, 1, 6, 3), (0, 1, 2, 4, 2), (0, 2, 2, 10, 5)]
    expected += [(0, 7, y, 1, y > 4) for y in (0, 1, 2, 3, 4, 5, 6, 8)] + [(0, 7, 9, 2, 2)]
    assert rows(cells(counted())) == expected
    assert rows(cells(counted(DRAWS[:, [2, 0, 1]], WORDS[[2, 0, 1]]))) == expected
    assert cells(counted()).schema.types == [pa.int16(), pa.int32(), pa.int32(), pa.int32(), pa.int32()]


def test_counts_of_several_epsilons_are_kept_apart() -> None:
    """Rejects runs of equal outputs that go on from one word or epsilon to the next."""
    draws = np.array([[[3, 3], [3, 3]], [[3, 4], [4, 4]]], dtype=np.int32)
    expected = [(0, 0, 3, 2, 1), (0, 1, 3, 2, 1), (1, 0, 3, 1, 0), (1, 0, 4, 1, 1), (1, 1, 4, 2, 1)]
    assert rows(cells(counted(draws, np.array([0, 1])))) == expected


def test_the_last_half_of_the_runs_judges() -> None:
    """Of an odd number the smaller half; of a single run none. Rejects counts of the first runs."""
    draws = np.array([[[3, 3, 5, 3, 5]]], np.int32)
    found = counted(draws, np.array([0]))
    assert rows(cells(found)) == [(0, 0, 3, 3, 1), (0, 0, 5, 2, 1)]
    single = counted(draws[:, :, :1], np.array([0]))
    assert single.judged.tolist() == [0]
