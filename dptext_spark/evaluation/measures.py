"""What attackers recover and what is kept of use: numbers of rows that add up over the parts of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import Attacker, AttackerName, attack
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.mechanisms import Exponential, Mechanism
from dptext_spark.mechanisms.mechanism import LEAST_EPSILON

RANDOM_WORDS: Final = Exponential(epsilon=LEAST_EPSILON, truncate=1e-9)
"""At the least epsilon every word comes out as likely as any other, except for one part in 10^20."""

ATTRIBUTION: Final = "attribution"
"""The attacker who names the author of a row."""

LABELLED: Final = ("accuracy", "accuracy_on_original")
"""Measures that need labels."""

CEILINGS: Final = {"kept": 1.0, "distance": 0.0, "similarity": 1.0}
"""What the original keeps of the measures of :func:`kept`; of counts it is 1, of labels it is measured."""

LEADERS: Final = 100
"""Leading words or pairs whose share that leads in the other counts too is measured."""

# Vectors that are added up at once.
_TOKENS: Final = 1 << 15

_PAIRS: Final = "pairs"

Interval = tuple[float, float, float]
"""A value and the ends of its interval, NaN where there is none."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Totals:
    """What attackers recover of some rows, and what is kept of them.

    Attributes:
        sums: By ``recovered/VERSIONS/ATTACKER/GUESSES`` and ``recovered/VERSIONS/considered`` what
            :func:`attack` gives, the measures of :func:`kept`, and where classes were given the rows whose
            class a model gets right, by what it learnt.
        pairs: Of the released words.
    """

    sums: Mapping[str, ClusterSums]
    pairs: PairCounts

    @classmethod
    def simulate(
        cls,
        simulation: Simulation,
        rows: SimulatedRows,
        ids: pa.Array,
        mechanism: Mechanism | None,
        attacker: Attacker,
        *,
        versions: int,
    ) -> Totals:
        """Simulate a setting and attack it.

        Args:
            simulation: How rows are released.
            rows, ids: The rows, in any versions, and their ids.
            mechanism: The setting; None for the floors: what an attacker without any output guesses, and
                what random words keep.
            attacker: Who knows the setting.
            versions: In how many versions the attacker has each row, besides one.

        Raises:
            InputError: The ids are of the wrong type or number, or null.
        """
        released = simulation.release(rows, ids, mechanism or RANDOM_WORDS, versions=versions)
        attacked = (
            {1: rows.without_noise()}
            if mechanism is None
            else {n: released.first(n) for n in sorted({1, versions})}
        )
        recovered = {
            f"recovered/{number}/{name}": sums
            for number, seen in attacked.items()
            for name, sums in attack(seen, attacker).items()
        }
        vocabulary = len(simulation.embedding.words)
        return cls(
            sums=recovered | kept(released, simulation.embedding),
            pairs=PairCounts.of_rows(released.released, released.offsets, vocabulary=vocabulary),
        )

    def __add__(self, other: Totals) -> Totals:
        """Add the totals of other rows."""
        sums = {name: own + other.sums[name] for name, own in self.sums.items()}
        return Totals(sums=sums, pairs=self.pairs + other.pairs)

    @property
    def versions(self) -> list[int]:
        """In how many versions attackers had each row, ascending."""
        return sorted(int(name.split("/")[1]) for name in self.sums if name.endswith("/considered"))

    def recovered(self, attacker: AttackerName, guesses: int, versions: int = 1) -> ClusterSums | None:
        """Give the words that an attacker recovered; None if that was not measured."""
        return self.sums.get(f"recovered/{versions}/{attacker}/{guesses}")

    def measures(self, before: PairCounts, confidence: float) -> dict[str, Interval]:
        """Give each measure of use with its interval, against the pairs of words before the noise."""
        found = {"kept": self.sums["kept"].share(confidence)}
        found |= {name: self.sums[name].mean(confidence) for name in ("distance", "similarity")}
        found |= {
            f"{kind}_{name}": (value, np.nan, np.nan)
            for kind, after in (("word", of_words), ("pair", of_pairs))
            for name, value in after(before, self.pairs).items()
        }
        return found | accuracies(self.sums, confidence)

    def to_table(self) -> pa.Table:
        """Write it as numbers under keys: columns kind (string), a, b (int64) and total (float64).

        Totals of one key add up, exactly.
        """
        pairs = self.pairs
        columns = [(_PAIRS, pairs.first, pairs.second, pairs.count.astype(np.float64))]
        for kind, sums in self.sums.items():
            terms = sums.parts.reshape(-1, sums.parts.shape[2])
            a, b = np.indices(terms.shape)
            columns.append((kind, a.ravel(), b.ravel(), terms.ravel()))
        return pa.concat_tables(
            pa.table({"kind": pa.repeat(kind, len(a)), "a": a, "b": b, "total": total})
            for kind, a, b, total in columns
        )

    @classmethod
    def from_table(cls, table: pa.Table, *, vocabulary: int) -> Totals:
        """Read what :meth:`to_table` wrote, of V words, each key once and in any order."""
        of_pairs = pc.equal(table["kind"], _PAIRS)
        a, b, total = (table.filter(of_pairs)[name].to_numpy() for name in ("a", "b", "total"))
        cells = defaultdict[str, list[tuple[int, int, float]]](list)
        for row in table.filter(pc.invert(of_pairs)).to_pylist():
            cells[row["kind"]].append((row["a"], row["b"], row["total"]))
        sums = {
            kind: ClusterSums(parts=np.array([own[2] for own in sorted(found)]).reshape(2, 6, -1))
            for kind, found in cells.items()
        }
        return cls(sums=sums, pairs=PairCounts.of(a, b, total.astype(np.int64), vocabulary=vocabulary))


def accuracies(sums: Mapping[str, ClusterSums], confidence: float) -> dict[str, Interval]:
    """Give the shares of labels that models got right, where there are any."""
    return {name: sums[name].share(confidence) for name in LABELLED if name in sums}


def kept(rows: SimulatedRows, embedding: Embedding) -> dict[str, ClusterSums]:
    """Measure the first version of some rows against what they were.

    Returns:
        ``kept``, the share of perturbed words that came out unchanged; ``distance``, the mean distance from
        a perturbed word to what came out, in the bundle's own geometry; and ``similarity``, the mean over
        rows of the cosine between the mean vectors of a text's words before and after. Tokens outside the
        vocabulary have no vector; a row without any word does not count.
    """
    hidden = np.flatnonzero(rows.perturbed)
    before, after, of_rows = rows.inputs[hidden], rows.outputs[0, hidden], rows.rows[hidden]
    metric, starts = embedding.space.metric(), range(0, len(before), _TOKENS)
    distances = [metric.between(before[i : i + _TOKENS], after[i : i + _TOKENS]) for i in starts]
    cosine = _cosines(rows, embedding)
    known = np.flatnonzero(~np.isnan(cosine))
    return {
        "kept": ClusterSums.of(of_rows, (before == after).astype(np.float64)),
        "distance": ClusterSums.of(of_rows, np.concatenate([np.zeros(0), *distances])),
        "similarity": ClusterSums.of(known, cosine[known]),
    }


def _cosines(rows: SimulatedRows, embedding: Embedding) -> NDArray[np.float64]:
    """Cosines of the rows' mean vectors (rows,); 0 where one has no direction, NaN where no word is."""
    vectors, count = embedding.vectors, len(rows.offsets) - 1
    sums = np.zeros((2, count, vectors.shape[1]))
    for tokens, part in rows.batches(_TOKENS):  # whole rows: what a row gives is the same in every batch
        known = np.flatnonzero(part.inputs >= 0)
        if not len(known):
            continue
        row = rows.rows[tokens[known]]
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for total, words in zip(sums, (part.inputs, part.released), strict=True):
            total[row[starts]] = np.add.reduceat(vectors[words[known]].astype(np.float64), starts, axis=0)
    lengths = np.linalg.norm(sums, axis=2)
    product = lengths[0] * lengths[1]
    cosine = np.zeros(count)
    np.divide((sums[0] * sums[1]).sum(axis=1), product, out=cosine, where=product > 0.0)
    cosine[np.bincount(rows.rows[rows.inputs >= 0], minlength=count) == 0] = np.nan
    return cosine


def of_words(before: PairCounts, after: PairCounts) -> dict[str, float]:
    """Compare how often words came in two tables over one vocabulary; see :func:`_compared`."""
    return _compared(before.words, after.words)


def of_pairs(before: PairCounts, after: PairCounts) -> dict[str, float]:
    """Compare how often words followed each other, or began a row; see :func:`_compared`."""
    keys = [pairs.first * (before.vocabulary + 2) + pairs.second for pairs in (before, after)]
    union = np.union1d(*keys)
    counts = np.zeros((2, len(union)), dtype=np.int64)
    for total, own, pairs in zip(counts, keys, (before, after), strict=True):
        total[np.searchsorted(union, own)] = pairs.count
    return _compared(*counts)


def _compared(before: NDArray[np.int64], after: NDArray[np.int64]) -> dict[str, float]:
    """Compare two counts (c,).

    Returns:
        ``overlap``, the mass that both laws have in common (1 less the total variation); ``agreement``, 1
        less the Jensen-Shannon divergence in bits (Lin 1991); ``leaders``, the share of the ``LEADERS`` of
        one, the first of equal counts, that lead in the other too. All are 1 for equal laws, and 0 for laws
        that have nothing in common. NaN where there is nothing to compare.
    """
    if not before.any() or not after.any():
        return dict.fromkeys(("overlap", "agreement", "leaders"), float("nan"))
    p, q = before / before.sum(), after / after.sum()
    first, second = (
        np.argsort(-c, kind="stable")[: min(LEADERS, np.count_nonzero(c))] for c in (before, after)
    )
    return {
        "overlap": float(np.minimum(p, q).sum()),
        "agreement": 1.0 - float(scipy.spatial.distance.jensenshannon(p, q, base=2)) ** 2,
        "leaders": len(np.intersect1d(first, second)) / max(len(first), len(second)),
    }
