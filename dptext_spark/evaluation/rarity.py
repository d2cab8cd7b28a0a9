"""Words that few rows have: how often a release shows one, and how often that is true."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Ints

RARITY_BANDS: Final = ("1", "2-5", "6-20", "21-100", "101-")
"""Bands of words by how many rows have them, the rare words first."""

_BAND_ENDS: Final = (1, 5, 20, 100)


def rarity_band(row_counts: Ints) -> Ints:
    """Return the places in ``RARITY_BANDS`` of words that these numbers of rows have, 1 or more."""
    return np.searchsorted(_BAND_ENDS, row_counts, side="left")


def singled_out(rows: SimulatedRows, row_counts: Ints, few: int) -> ClusterSums:
    """Count the rows that show an unchanged word that fewer than ``few`` rows have.

    They are counted of the rows with words. ``row_counts`` (V,) says how many rows have each word.
    Only words that are perturbed count.
    """
    is_rare = row_counts[rows.inputs] < few
    is_shown = rows.perturbed & (rows.outputs[0] == rows.inputs) & is_rare
    shows = np.zeros(len(rows.offsets) - 1)
    shows[rows.rows[is_shown]] = 1.0
    with_words = np.unique(rows.rows)
    return ClusterSums.of(with_words, shows[with_words])


def with_rare_words(rows: SimulatedRows, row_counts: Ints, few: int) -> ClusterSums:
    """Count the rows that have a perturbed word that fewer than ``few`` rows have."""
    unchanged = replace(rows, outputs=rows.inputs[None, :])
    return singled_out(unchanged, row_counts, few)


def sightings(rows: SimulatedRows, row_counts: Ints, few: int) -> ClusterSums:
    """Count the rare words that rows seem to have by their outputs, and those that they have.

    An observer knows the words that fewer than ``few`` rows have, and takes each row that shows one
    for a row that has it. A word that no row has is none of them.
    """
    vocabulary = len(row_counts)
    outputs = rows.outputs[0]
    counts = np.where(outputs >= 0, row_counts[outputs], 0)
    is_sighting = rows.perturbed & (counts >= 1) & (counts < few)
    sighted_words = np.unique(rows.rows[is_sighting] * vocabulary + outputs[is_sighting])
    is_word = rows.inputs >= 0
    words = rows.rows[is_word] * vocabulary + rows.inputs[is_word]
    is_true = np.isin(sighted_words, words)
    return ClusterSums.of(sighted_words // vocabulary, is_true.astype(np.float64))
