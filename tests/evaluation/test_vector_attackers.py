"""Attackers that look for words behind vectors: those there are, and ties of their guesses."""

import numpy as np
import pytest

from dptext_spark.evaluation.vector_attackers import (
    VECTOR_ATTACKERS,
    MostFrequent,
    VectorAttacker,
    words_recovered,
)
from tests.helpers.made_vectors import WORDS, rows_of


def test_ties_of_guesses_are_broken_by_chance():
    """Rejects a constant score that recovers every word, or none."""
    rows = rows_of(40, 0.0, seed=8)
    guesses = {"": MostFrequent(np.ones(WORDS))}
    recovered = words_recovered(rows, guesses, vocabulary=WORDS)[""]
    assert recovered.ratio[0] == pytest.approx(3 / WORDS)
    assert (recovered.size[0], recovered.rows[0]) == (120, 40)


def test_the_attackers_enter_themselves():
    """Rejects a floor that is tried as an attacker, and an attacker without words for reports."""
    assert [*VECTOR_ATTACKERS] == ["nearest", "likelihood", "regression"]
    assert all(
        issubclass(kind, VectorAttacker) and kind.knows for kind in VECTOR_ATTACKERS.values()
    )
