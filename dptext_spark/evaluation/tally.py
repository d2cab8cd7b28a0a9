"""What a rehearsal comes to: numbers of rows that add up, whatever parts of a table they come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation import frequencies
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.recovery import TOP, Attacker, AttackerName, Successes, attack
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.row_sums import RowSums
from dptext_spark.evaluation.similarity import similarity
from dptext_spark.mechanisms import Exponential, Mechanism
from dptext_spark.mechanisms.mechanism import LEAST_EPSILON

RANDOM_WORDS: Final = Exponential(epsilon=LEAST_EPSILON, truncate=1e-9)
"""At the least epsilon every word comes out as likely as any other, but for one part in 10^20."""

_PAIRS: Final = "pairs"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Use:
    """What is left of the use of some rows; parts of a table add up.

    Attributes:
        similarity: See :func:`~dptext_spark.evaluation.similarity.similarity`.
        pairs: Of the released words.
    """

    similarity: Mapping[str, RowSums]
    pairs: PairCounts

    @classmethod
    def of(cls, rows: ReleasedRows, embedding: Embedding) -> Use:
        """Look at the first version of rows."""
        pairs = PairCounts.of_rows(rows.released, rows.offsets, vocabulary=len(embedding.words))
        return cls(similarity=similarity(rows, embedding), pairs=pairs)

    def __add__(self, other: Use) -> Use:
        """Add what is left of other rows."""
        similarity = {name: sums + other.similarity[name] for name, sums in self.similarity.items()}
        return Use(similarity=similarity, pairs=self.pairs + other.pairs)

    def measures(self, before: PairCounts, confidence: float) -> dict[str, tuple[float, float, float]]:
        """Give each measure with its interval, NaN where there is none, against the pairs before."""
        kept, *means = self.similarity.items()
        found = {kept[0]: (kept[1].ratio, *kept[1].share_interval(confidence))}
        found |= {name: (sums.ratio, *sums.mean_interval(confidence)) for name, sums in means}
        measures = {name: (float(v[0]), float(a[0]), float(b[0])) for name, (v, a, b) in found.items()}
        for kind, compare in (("word", frequencies.of_words), ("pair", frequencies.of_pairs)):
            values = compare(before, self.pairs)
            measures |= {f"{kind}_{name}": (value, np.nan, np.nan) for name, value in values.items()}
        return measures


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # it holds private words
class Tally:
    """What attackers get back of some rows, and what is kept of them.

    Attributes:
        recovered: By the number of versions that attackers have.
        use: What is kept.
        classified: Rows whose class a model gets right, where classes were given, by what it learnt.
    """

    recovered: Mapping[int, Successes]
    use: Use
    classified: Mapping[str, RowSums] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        rehearsal: Rehearsal,
        rows: ReleasedRows,
        ids: pa.Array,
        mechanism: Mechanism | None,
        attacker: Attacker,
        *,
        versions: int,
    ) -> Tally:
        """Rehearse a setting and attack it.

        Args:
            rehearsal: How rows are released.
            rows, ids: The rows, in any versions, and their ids.
            mechanism: The setting; None for the floors: what an attacker without any output guesses, and
                what random words keep.
            attacker: Who knows the setting.
            versions: In how many versions the attacker has each row, beside one.

        Raises:
            InputError: The ids are of the wrong type or number, or null.
        """
        released = rehearsal.released(rows, ids, mechanism or RANDOM_WORDS, versions=versions)
        attacked = (
            {1: rows.without_noise()}
            if mechanism is None
            else {n: released.with_outputs(released.outputs[:n]) for n in sorted({1, versions})}
        )
        return cls(
            recovered={number: attack(seen, attacker) for number, seen in attacked.items()},
            use=Use.of(released, rehearsal.embedding),
        )

    def __add__(self, other: Tally) -> Tally:
        """Add what was found in other rows."""
        recovered = {number: found + other.recovered[number] for number, found in self.recovered.items()}
        classified = {name: sums + other.classified[name] for name, sums in self.classified.items()}
        return Tally(recovered=recovered, use=self.use + other.use, classified=classified)

    def to_table(self) -> pa.Table:
        """Write it as numbers under keys: columns kind (string), a, b (int64) and total (float64).

        Totals of one key add up, exactly.
        """
        tables = [_of_sums(kind, sums) for kind, sums in self._sums()]
        pairs = self.use.pairs
        tables.append(_keyed(_PAIRS, pairs.first, pairs.second, pairs.count.astype(np.float64)))
        return pa.concat_tables(tables)

    @classmethod
    def of_table(cls, table: pa.Table, *, vocabulary: int) -> Tally:
        """Read what :meth:`to_table` wrote, of V words, each key once and in any order."""
        of_pairs = pc.equal(table["kind"], _PAIRS)
        a, b, total = (table.filter(of_pairs)[name].to_numpy() for name in ("a", "b", "total"))
        found: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
        for row in table.filter(pc.invert(of_pairs)).to_pylist():
            found[row["kind"]][row["a"], row["b"]] = row["total"]
        sums = {kind: _row_sums(cells) for kind, cells in found.items()}
        versions = sorted({int(kind.split("/")[1]) for kind in sums if kind.startswith("recovered/")})
        recovered = {
            number: Successes(
                recovered={
                    (name, top): sums[f"recovered/{number}/{name}/{top}"]
                    for name in get_args(AttackerName)
                    for top in TOP
                },
                considered=sums[f"considered/{number}"],
            )
            for number in versions
        }
        kept = {kind.partition("/")[2]: own for kind, own in sums.items() if kind.startswith("use/")}
        order = [name for name in ("kept", "distance", "similarity") if name in kept]
        use = Use(
            similarity={name: kept[name] for name in order},
            pairs=PairCounts.of(a, b, total.astype(np.int64), vocabulary=vocabulary),
        )
        return cls(recovered=recovered, use=use)

    def _sums(self) -> Iterator[tuple[str, RowSums]]:
        for number, successes in self.recovered.items():
            for (attacker, top), sums in successes.recovered.items():
                yield f"recovered/{number}/{attacker}/{top}", sums
            yield f"considered/{number}", successes.considered
        for name, sums in self.use.similarity.items():
            yield f"use/{name}", sums


def hits(right: int, rows: int) -> RowSums:
    """Sum up rows of one thing each, that is right or is not."""
    terms = np.array([rows, right, rows, right, right, rows], dtype=np.float64)
    return RowSums(parts=np.stack([terms, np.zeros(6)])[:, :, None])


def _of_sums(kind: str, sums: RowSums) -> pa.Table:
    terms = sums.parts.reshape(-1, sums.parts.shape[2])
    a, b = np.indices(terms.shape)
    return _keyed(kind, a.ravel(), b.ravel(), terms.ravel())


def _keyed(kind: str, a: np.ndarray, b: np.ndarray, total: np.ndarray) -> pa.Table:
    return pa.table({"kind": pa.repeat(kind, len(a)), "a": a, "b": b, "total": total})


def _row_sums(cells: Mapping[tuple[int, int], float]) -> RowSums:
    terms, classes = (1 + max(places) for places in zip(*cells, strict=True))
    parts = np.zeros((terms, classes))
    for place, total in cells.items():
        parts[place] = total
    return RowSums(parts=parts.reshape(2, terms // 2, classes))
