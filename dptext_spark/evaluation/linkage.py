"""Released rows assigned to their originals, by an observer who holds the originals of all of them.

The observer knows how many words a row has, which of them are not perturbed, and P[output | word];
and takes the original under which the outputs are likeliest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry import Floats, Ints
from dptext_spark.text.columns import id_bytes

MOST_ALIKE: Final = 1_000
"""Originals, about, that a row is compared with: a part, where more rows have its length."""

LENGTH_BANDS: Final = ("1-4", "5-9", "10-19", "20-")
"""Bands of rows by how many words they have."""

_BAND_STARTS: Final = (5, 10, 20)

# The least probability of an output: the channel knows rare outputs badly.
_LEAST: Final = 1e-12
_HIDDEN: Final = -2  # in place of a word that is perturbed
_CELLS: Final = 1 << 22  # probabilities that are held at once, 32 MB


def rows_of_lengths(rows: SimulatedRows) -> dict[int, int]:
    """Count rows by how many words they have; rows without words are not counted."""
    lengths, counts = np.unique(np.diff(rows.offsets), return_counts=True)
    by_length = dict(zip(lengths.tolist(), counts.tolist(), strict=True))
    by_length.pop(0, None)
    return by_length


def bucket_of(ids: pa.Array, lengths: Ints, alike: Mapping[int, int]) -> Ints:
    """Assign each row to a bucket of its length, int64 (rows,), by its id alone.

    Rows are compared within a bucket; a length has several if more than ``MOST_ALIKE`` rows have
    it. ``alike`` says how many rows have each length.
    """
    buckets = np.zeros(len(lengths), dtype=np.int64)
    for place, (row_id, length) in enumerate(zip(id_bytes(ids), lengths.tolist(), strict=True)):
        number = -(-alike.get(length, 0) // MOST_ALIKE)
        if number > 1:
            digest = hashlib.blake2b(row_id, digest_size=8).digest()
            buckets[place] = int.from_bytes(digest, "little") % number
    return buckets


def linkage(
    rows: SimulatedRows, ids: pa.Array, channel: Channel, alike: Mapping[int, int]
) -> dict[str, ClusterSums]:
    """Link released rows, of which all of one length are there; see :func:`linkage_of_equals`."""
    lengths = np.diff(rows.offsets)
    buckets = bucket_of(ids, lengths, alike)
    sums = nothing_linked()
    groups = {*zip(lengths.tolist(), buckets.tolist(), strict=True)}
    for length, bucket in sorted(groups):
        if length:
            members = np.flatnonzero((lengths == length) & (buckets == bucket))
            part = linkage_of_equals(rows.taken(members), channel, alike[length])
            for name in sums:
                sums[name] = sums[name] + part[name]
    return sums


def nothing_linked() -> dict[str, ClusterSums]:
    """Return the sums over no row."""
    nothing = np.zeros(0, dtype=np.int64)
    return _sums(nothing, nothing, nothing, nothing)


def linkage_of_equals(rows: SimulatedRows, channel: Channel, alike: int) -> dict[str, ClusterSums]:
    """Link released rows of one length among themselves, out of ``alike`` rows of that length.

    Returns:
        ``linked``, the share that is assigned to its own original, by ``LENGTH_BANDS``;
        ``linked/among``, how many originals a row was compared with; and ``linked/alike``, how many
        of its length there are.
    """
    number = len(rows.offsets) - 1
    lengths = np.diff(rows.offsets)
    return _sums(linked(rows, channel), lengths, np.full(number, number), np.full(number, alike))


def _sums(shares: Floats | Ints, lengths: Ints, among: Ints, alike: Ints) -> dict[str, ClusterSums]:
    """Return the sums of rows, of one thing each."""
    rows = np.arange(len(lengths))
    bands = np.searchsorted(_BAND_STARTS, lengths, side="right")
    return {
        "linked": ClusterSums.banded(rows, shares, bands, len(LENGTH_BANDS)),
        "linked/among": ClusterSums.of(rows, among),
        "linked/alike": ClusterSums.of(rows, alike),
    }


def linked(rows: SimulatedRows, channel: Channel) -> Floats:
    """Compute how often each row of one length is assigned to its own original, float64 (rows,).

    It is 1 where the own original is the likeliest, 1 over the number of originals that are as
    likely, and 0 where another one is likelier. Without any output, all originals of one length are
    alike.
    """
    number = len(rows.offsets) - 1
    if channel.method == "none":
        return np.full(number, 1.0 / number)
    perturbed = rows.perturbed.reshape(number, -1)
    inputs = rows.inputs.reshape(number, -1)
    outputs = rows.outputs[0].reshape(number, -1)
    # What is not perturbed is seen: it must be the same in an original.
    _, patterns = np.unique(np.where(perturbed, _HIDDEN, inputs), axis=0, return_inverse=True)
    patterns = patterns.ravel()
    order = np.argsort(patterns, kind="stable")
    shares = np.empty(number)
    for group in np.split(order, np.flatnonzero(np.diff(patterns[order])) + 1):
        hidden = np.flatnonzero(perturbed[group[0]])
        cells = np.ix_(group, hidden)
        shares[group] = _linked_by_outputs(inputs[cells], outputs[cells], channel)
    return shares


def _linked_by_outputs(inputs: Ints, outputs: Ints, channel: Channel) -> Floats:
    """Link rows by the outputs (r, h) of their perturbed words (r, h), as :func:`linked` says."""
    number, places = inputs.shape
    words, word_places = np.unique(inputs, return_inverse=True)
    word_places = word_places.reshape(inputs.shape)
    shares = np.empty(number)
    size = max(1, _CELLS // max(1, number, places * len(words)))
    for start in range(0, number, size):
        part = np.arange(start, min(start + size, number))
        distinct, output_places = np.unique(outputs[part], return_inverse=True)
        output_places = output_places.reshape(len(part), places)
        log_channel = np.log(np.maximum(channel.table(distinct, words), _LEAST))
        scores = np.zeros((len(part), number))
        for place in range(places):
            scores += log_channel[output_places[:, place][:, None], word_places[:, place][None, :]]
        of_original = scores[np.arange(len(part)), part]
        is_likeliest = of_original == scores.max(axis=1)
        shares[part] = is_likeliest / (scores == of_original[:, None]).sum(axis=1)
    return shares
