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
    """Return the places in ``RARITY_BANDS`` of words that this number of rows has, 1 or more each."""
    return np.searchsorted(_BAND_ENDS, row_counts, side="left")


def singled_out(rows: SimulatedRows, row_counts: Ints, few: int) -> ClusterSums:
    """Count the rows that show an unchanged word that fewer than ``few`` rows have, of rows with words.

    ``row_counts`` (V,) says how many rows have each word. Only words that are perturbed count.
    """
    is_rare = row_counts[rows.inputs] < few
    shown = rows.perturbed & (rows.outputs[0] == rows.inputs) & is_rare
    shows = np.zeros(len(rows.offsets) - 1)
    shows[rows.rows[shown]] = 1.0
    with_words = np.unique(rows.rows)
    return ClusterSums.of(with_words, shows[with_words])


def with_rare_words(rows: SimulatedRows, row_counts: Ints, few: int) -> ClusterSums:
    """Count the rows that have a perturbed word that fewer than ``few`` rows have, of rows with words."""
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
    seen = np.unique(rows.rows[is_sighting] * vocabulary + outputs[is_sighting])
    known = rows.inputs >= 0
    true = np.isin(seen, rows.rows[known] * vocabulary + rows.inputs[known])
    return ClusterSums.of(seen // vocabulary, true.astype(np.float64))
