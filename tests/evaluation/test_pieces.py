"""Rows that show what looks like pieces of identifiers, on a world by hand."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.evaluation.measures import MEASURES
from dptext_spark.evaluation.rows import SimulatedRows

NAMES = pa.array(["06", "12", "one", "AB12"])
ROWS = SimulatedRows(
    offsets=np.array([0, 2, 4, 6, 6, 8]),
    inputs=np.array([0, 1, 2, 2, 0, -1, 3, 2]),
    # A chain goes, another comes; an unknown word ends one; a code stays, as it is not perturbed.
    outputs=np.array([[2, 1, 0, 1, 1, 0, 0, 1]]),
    perturbed=np.array([True, True, True, True, True, False, False, True]),
)


def test_rows_are_counted_by_what_comes_out():
    """Rejects counts of the inputs, of places, of rows without words, and chains over an unknown."""
    measure = MEASURES["pieces"]
    sums = measure.add(ROWS, SimpleNamespace(words=NAMES), None)
    figures, codes = measure.all_in(sums)
    assert (figures.written, codes.written) == ("pieces(figures)", "pieces(codes)")
    assert figures.totals(sums).ratio[0] == pytest.approx(1 / 4)
    assert codes.totals(sums).ratio[0] == pytest.approx(1 / 4)
    assert figures.without_noise(sums) == codes.without_noise(sums) == pytest.approx(1 / 4)
    shown = measure.add(SimulatedRows(
        offsets=ROWS.offsets, inputs=ROWS.inputs, outputs=ROWS.outputs * 0 + 2,
        perturbed=ROWS.perturbed | True,
    ), SimpleNamespace(words=NAMES), None)  # fmt: skip
    assert figures.totals(shown).ratio[0] == codes.totals(shown).ratio[0] == 0.0
    assert figures.without_noise(shown) == pytest.approx(1 / 4)


def test_targets_name_a_kind():
    assert MEASURES["pieces"].with_arguments(("codes",)).of == "codes"
    assert MEASURES["pieces"].with_arguments(("signs",)) is None
    assert MEASURES["pieces"].with_arguments(()) is None
