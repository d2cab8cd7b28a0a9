"""What is left of texts: words that stayed, how far words moved, and whether texts still mean the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.row_sums import RowSums

# Vectors that are added up at once.
_TOKENS: Final = 1 << 15


def similarity(rows: ReleasedRows, embedding: Embedding) -> dict[str, RowSums]:
    """Measure the first version of some rows against what they were.

    Returns:
        ``kept``, the share of perturbed words that came out unchanged; ``distance``, the mean distance from
        a perturbed word to what came out, in the bundle's own geometry; and ``similarity``, the mean over
        rows of the cosine between the mean vectors of a text's words before and after. Tokens outside the
        vocabulary have no vector; a row without any word counts for nothing.
    """
    hidden = np.flatnonzero(rows.perturbed)
    before, after = rows.inputs[hidden], rows.outputs[0, hidden]
    of_rows = rows.rows[hidden]
    cosine = _cosines(rows, embedding.vectors)
    told = np.flatnonzero(~np.isnan(cosine))
    return {
        "kept": _sums(of_rows, (before == after).astype(np.float64)),
        "distance": _sums(of_rows, _distances(embedding, before, after)),
        "similarity": _sums(told, cosine[told]),
    }


def _sums(rows: NDArray[np.int64], values: NDArray[np.float64]) -> RowSums:
    return RowSums.of(rows, values, np.zeros(len(rows), dtype=np.int64), 1)


def _distances(
    embedding: Embedding, before: NDArray[np.int64], after: NDArray[np.int64]
) -> NDArray[np.float64]:
    metric, starts = embedding.space.metric(), range(0, len(before), _TOKENS)
    parts = [metric.between(before[i : i + _TOKENS], after[i : i + _TOKENS]) for i in starts]
    return np.concatenate(parts) if parts else np.zeros(0)


def _cosines(rows: ReleasedRows, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Cosines of the rows' mean vectors (rows,); 0 where one has no direction, NaN where no word is."""
    count, n = len(rows.offsets) - 1, vectors.shape[1]
    sums = np.zeros((2, count, n))
    for tokens, part in rows.batches(_TOKENS):  # whole rows: what a row gives is the same in every batch
        known = np.flatnonzero(part.inputs >= 0)
        row = rows.rows[tokens[known]]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for total, words in zip(sums, (part.inputs, part.released), strict=True):
            if len(known):
                added = np.add.reduceat(vectors[words[known]].astype(np.float64), starts, axis=0)
                total[row[starts]] = added
    lengths = np.linalg.norm(sums, axis=2)
    product = lengths[0] * lengths[1]
    cosine = np.zeros(count)
    np.divide((sums[0] * sums[1]).sum(axis=1), product, out=cosine, where=product > 0.0)
    cosine[np.bincount(rows.rows[rows.inputs >= 0], minlength=count) == 0] = np.nan
    return cosine
