"""Sums over the rows of groups of a table, as estimates with intervals, and their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import scipy

from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.geometry import Floats, Ints

Group: TypeAlias = tuple[str, ...]
"""The values of the columns that rows are grouped by."""

Row: TypeAlias = dict[str, Any]

SUMS: Final = ("rows", "v", "n", "vv", "vn", "nn")
"""For clusters with a value v and a size n: how many there are, and sums as in ClusterSums."""

# No standard error is smaller than that of so many words, or rows: with none seen, 3 are possible.
_ONE_MORE: Final = 1.5
ANY_WORD: Final = "(any word)"
"""In place of a topic: whether words differ at all."""

_NOT_SURE: Final = 0.99  # p-values above it count as this, so that no one outweighs all others
_USEFUL: Final = 0.25  # the widest interval of a share of rows that is reported


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Sums of each group, for T topics by words and then T topics by rows."""

    columns: tuple[str, ...]  # that rows are grouped by
    sums: Mapping[Group, Floats]  # (6, 2 T), see SUMS
    errors: Floats  # (2 T,), standard errors of simulated channels

    def value(self, group: Group) -> tuple[Floats, Floats, Floats]:
        """Return estimates (2 T,) of a group, their standard errors, and numbers of clusters."""
        return estimates_of(self.sums[group], self.errors)

    def rows(self, topics: Sequence[str], confidence: float) -> Iterator[Row]:
        """Yield the row of each topic and group, with the interval of its share of words."""
        for group in sorted(self.sums):
            sums = self.sums[group]
            values, errors, clusters = self.value(group)
            reach = errors * quantile(clusters, confidence)
            for number, topic in enumerate(topics):
                of_rows = len(topics) + number
                row = {"topic": topic, **dict(zip(self.columns, group, strict=True))}
                row |= interval("share", values[number], reach[number])
                row |= useful_interval(values[of_rows], reach[of_rows])
                row["words"] = round(sums[2, number])
                row["rows"] = round(sums[2, of_rows])
                row["clusters"] = round(clusters[of_rows])
                yield row

    def differences(self, topics: Sequence[str], *, in_order: bool) -> Iterator[Row]:
        """Yield how each group differs from all others, or from the one before it in order."""
        groups = sorted(self.sums)
        pairs: list[tuple[Group, str, Floats]] = []
        if in_order:
            for before, group in pairwise(groups):
                pairs.append((group, ", ".join(before), self.sums[before]))
        elif len(groups) > 1:
            total = sum(self.sums.values(), start=np.zeros_like(self.sums[groups[0]]))
            pairs = [(group, "all others", total - self.sums[group]) for group in groups]
        for group, name, other_sums in pairs:
            yield from self._compared(topics, group, name, other_sums)

    def _compared(
        self, topics: Sequence[str], group: Group, name: str, other_sums: Floats
    ) -> Iterator[Row]:
        # The error of the channel is that of both.
        values, errors, clusters = estimates_of(self.sums[group], np.zeros_like(self.errors))
        compared, other_errors, other_clusters = estimates_of(
            other_sums, np.zeros_like(self.errors)
        )
        spread = np.hypot(errors, other_errors)
        least = np.minimum(clusters, other_clusters)
        for number, topic in enumerate(topics):
            if not spread[number] > 0.0:
                continue
            difference = values[number] - compared[number]
            freedom = max(least[number] - 1.0, 1.0)
            chance = 2.0 * float(scipy.special.stdtr(freedom, -abs(difference) / spread[number]))
            yield {
                "topic": topic,
                "group": ", ".join(group),
                "against": name,
                "difference": float(difference),
                "error": float(spread[number]),
                "clusters": float(least[number]),
                "p": chance,
            }

    def differences_at_all(self, axes: int, *, in_order: bool) -> Iterator[Row]:
        """Yield, for what :meth:`differences` compares, one p-value of all of these axes.

        It holds whatever the axes have in common. Source: Liu and Xie 2020, "Cauchy combination
        test", theorem 1.
        """
        names = [str(number) for number in range(axes)]
        chances: dict[tuple[str, str], list[float]] = {}
        clusters: dict[tuple[str, str], float] = {}
        for row in self.differences(names, in_order=in_order):
            pair = (row["group"], row["against"])
            chances.setdefault(pair, []).append(min(row["p"], _NOT_SURE))
            clusters[pair] = row["clusters"]
        for (group, against), of_axes in chances.items():
            least = np.maximum(of_axes, np.finfo(np.float64).tiny)
            statistic = (1.0 / np.tan(np.pi * least)).mean()
            yield {
                "topic": ANY_WORD,
                "group": group,
                "against": against,
                "difference": None,
                "error": np.nan,
                "clusters": clusters[group, against],
                "p": float(np.arctan2(1.0, statistic) / np.pi),
            }


def row_values(outputs: Ints, rows: Ints, weights: Floats, epsilons: Ints) -> tuple[Floats, Floats]:
    """Return the values and sizes of rows, (rows, 2 T) each.

    By words: the sum of the weights of a row's outputs, and how many those are. By rows: 1 minus
    the product of 1 minus each weight, and 1. Noise is independent over words, so that the mean of
    the product is that of rows without any word of the topic.

    Args:
        outputs: (t,), in the order of rows.
        rows: (t,), ascending.
        weights: (E, outputs, T).
        epsilons: (rows,), the place of each row's epsilon among E.
    """
    count = len(epsilons)
    topics = weights.shape[2]
    of_words = weights[epsilons[rows], outputs]
    values = np.zeros((count, 2 * topics))
    numbers = np.bincount(rows, minlength=count)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    present = rows[starts]
    if len(starts):
        values[present, :topics] = np.add.reduceat(of_words, starts, axis=0)
        values[present, topics:] = 1.0 - np.multiply.reduceat(1.0 - of_words, starts, axis=0)
    sizes = np.ones((count, 2 * topics))
    sizes[:, :topics] = numbers[:, None]
    return values, sizes


def cluster_terms(values: Floats, sizes: Floats) -> tuple[Floats, ...]:
    """Return what SUMS adds up, of clusters with values and sizes: (clusters, c) each."""
    is_cluster = (sizes > 0.0).astype(np.float64)
    return is_cluster, values, sizes, values * values, values * sizes, sizes * sizes


def estimates_of(sums: Floats, errors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the ratios of sums (6, c), their standard errors, and clusters: (c,) each."""
    clusters = ClusterSums(parts=np.stack([sums, np.zeros_like(sums)]))
    # Where a topic hardly ever comes its values show no spread, and yet there is chance.
    least = _ONE_MORE / np.maximum(clusters.size, 1.0)
    errors = np.sqrt(np.square(clusters.standard_error) + np.square(errors) + np.square(least))
    return clusters.ratio, errors, clusters.rows


def quantile(clusters: Floats, confidence: float) -> Floats:
    """Return the quantile of Student's law for so many clusters, (c,); NaN for fewer than two."""
    freedom = np.where(clusters > 1.0, clusters - 1.0, np.nan)
    return np.asarray(scipy.special.stdtrit(freedom, 0.5 + confidence / 2.0))


def interval(name: str, value: float, reach: float) -> Row:
    """Return a value with its interval, None for what is not known."""
    ends = {name: value, "low": value - reach, "high": value + reach}
    return {key: float(end) if np.isfinite(end) else None for key, end in ends.items()}


def useful_interval(value: float, reach: float) -> Row:
    """Return a share of rows with its interval, None where that is too wide to be of use."""
    row = interval("share_of_rows", value, reach)
    is_useful = 2.0 * reach <= _USEFUL  # not for NaN
    return {
        "share_of_rows": row["share_of_rows"] if is_useful else None,
        "share_of_rows_low": row["low"] if is_useful else None,
        "share_of_rows_high": row["high"] if is_useful else None,
    }


def judged(differences: list[Row], confidence: float) -> list[Row]:
    """Add intervals and Benjamini and Hochberg's adjusted p-values, the smallest ones first.

    Whether words differ at all has no interval.

    Among the differences with an adjusted value of at most 1 - confidence no more than that share
    are none, on average (Benjamini and Hochberg 1995).
    """
    ordered = sorted(differences, key=lambda row: (row["p"], row["topic"], row["group"]))
    least = 1.0
    for rank in range(len(ordered), 0, -1):
        row = ordered[rank - 1]
        least = min(least, row["p"] * len(ordered) / rank)
        reach = float(quantile(np.array(row.pop("clusters")), confidence)) * row.pop("error")
        row["low"] = None
        row["high"] = None
        if row["difference"] is not None:
            row["low"] = row["difference"] - reach
            row["high"] = row["difference"] + reach
        row["adjusted_p"] = least
        row["differs"] = least <= 1.0 - confidence
    return ordered
