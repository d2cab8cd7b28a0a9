"""What attackers recover and what is kept of use: numbers of rows that add up over the parts of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.accounting.row_budget import LEAST_EPSILON
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.attackers import ATTACKERS, TOP, Knowledge, attack
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Exponential, Mechanism

RANDOM_WORDS: Final = Exponential(epsilon=LEAST_EPSILON, truncate=1e-9)
"""At the least epsilon every word comes out as likely as any other, except for one part in 10^20."""

_TOKENS: Final = 1 << 15  # vectors that are added up at once
_PAIRS: Final = ("pairs/before", "pairs/after")

Interval: TypeAlias = tuple[float, float, float]
"""A value and the ends of its interval, NaN of nothing."""

Sums: TypeAlias = dict[str, Any]
"""What attackers recover of some rows and what is kept of them, as :meth:`Measure.add` gives it: PairCounts
by ``pairs/before`` and ``pairs/after``, ClusterSums by ``recovered/VERSIONS/ATTACKER/GUESSES``,
``recovered/VERSIONS/considered``, and else by the measure's name."""


@dataclass(frozen=True)
class Measure:
    """What is measured of a setting; by default the share of rows whose class a model gets right.

    Of a risk less is better, of a use more. Without noise it is 1, or what models learn from the originals.
    """

    name: str  # in sums and in tables
    title: str  # on pages
    kind: Literal["risk", "use"] = "use"
    needs: str = ""  # an option

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        """Add up what it needs of released rows; by default nothing, as models learn elsewhere."""
        return {}

    def is_in(self, sums: Sums) -> bool:
        """Say whether it was measured."""
        return not self.needs or self.name in sums

    def own(self, sums: Sums) -> ClusterSums:
        """Give what was added up; a ConfigError says that it was not measured."""
        if self.name not in sums:
            raise ConfigError(
                f"This {self.kind} was not measured", got=self.name, do=f"Give --{self.needs}"
            )
        found: ClusterSums = sums[self.name]
        return found

    def value(self, sums: Sums, confidence: float) -> Interval:
        """Give the value and its interval; see above."""
        return self.own(sums).share(confidence)


@dataclass(frozen=True)
class Risk(Measure):
    """The share of perturbed words that an attacker recovers."""

    name: str = "recovery"
    title: str = "Share of words recovered"
    kind: Literal["risk", "use"] = "risk"
    attacker: str = "in-context"  # a name of ``ATTACKERS``
    guesses: int = 1  # a number of ``TOP``
    versions: int = 1  # in how many versions the attacker has each row

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        return {
            f"recovered/{versions}/{name}": sums
            for versions in sorted({1, len(rows.outputs)})
            for name, sums in attack(
                replace(rows, outputs=rows.outputs[:versions]), knowledge
            ).items()
        }

    def own(self, sums: Sums) -> ClusterSums:
        """Give the words that were recovered, in all and by how frequent they are; see above."""
        found: ClusterSums | None = sums.get(
            f"recovered/{self.versions}/{self.attacker}/{self.guesses}"
        )
        if found is None:
            attackers, top, versions = (
                " or ".join(map(str, n)) for n in (ATTACKERS, TOP, versions_of(sums))
            )
            raise ConfigError(
                "This risk was not measured",
                allowed=f"{attackers}, {top} guesses, {versions} versions",
                got=f"{self.attacker}, {self.guesses} guesses, {self.versions} versions",
            )
        return found


class Kept(Measure):
    """The share of perturbed words that came out unchanged."""

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        hidden = np.flatnonzero(rows.perturbed)
        same = (rows.inputs[hidden] == rows.outputs[0, hidden]).astype(np.float64)
        return {self.name: ClusterSums.of(rows.rows[hidden], same)}


class Similarity(Measure):
    """The mean over rows of the cosine between the mean vectors of a text's words before and after.

    Tokens outside the vocabulary have no vector; a row without any word does not count. A cosine is 0 where a
    mean has no direction. The interval is Student's.
    """

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        vectors, count = embedding.vectors, len(rows.offsets) - 1
        sums = np.zeros((2, count, vectors.shape[1]))
        for tokens, part in rows.batches(
            _TOKENS
        ):  # whole rows: what a row gives is the same in every batch
            known = np.flatnonzero(part.inputs >= 0)
            if not len(known):
                continue
            row = rows.rows[tokens[known]]
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            for total, words in zip(sums, (part.inputs, part.released), strict=True):
                total[row[starts]] = np.add.reduceat(
                    vectors[words[known]].astype(np.float64), starts, axis=0
                )
        product = np.linalg.norm(sums, axis=2).prod(axis=0)
        cosine = np.zeros(count)
        np.divide((sums[0] * sums[1]).sum(axis=1), product, out=cosine, where=product > 0.0)
        some = np.unique(rows.rows[rows.inputs >= 0])
        return {self.name: ClusterSums.of(some, cosine[some])}

    def value(self, sums: Sums, confidence: float) -> Interval:
        return self.own(sums).mean(confidence)


class WordOverlap(Measure):
    """The mass that the frequencies of words before and after have in common: 1 less the total variation."""

    def value(self, sums: Sums, confidence: float) -> Interval:
        import pandas as pd  # slow to load

        counts = (pd.Series(*self.counts(sums[name])) for name in _PAIRS)
        before, after = pd.Series.align(*counts, fill_value=0)
        common = np.minimum(before / before.sum(), after / after.sum())
        return float(common.sum(skipna=False, min_count=1)), np.nan, np.nan

    def counts(self, pairs: PairCounts) -> tuple[Ints, ...]:
        """Give how often things come, and their keys."""
        return (pairs.words,)


class PairOverlap(WordOverlap):
    """The same of pairs of neighbours."""

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        both = zip(_PAIRS, (rows.inputs, rows.released), strict=True)
        count = partial(PairCounts.of_rows, offsets=rows.offsets, vocabulary=len(embedding.words))
        return {name: count(words) for name, words in both}

    def counts(self, pairs: PairCounts) -> tuple[Ints, ...]:
        return pairs.count, pairs.first * (pairs.vocabulary + 2) + pairs.second


_LEARNT: Final = "Labels right: learnt from released texts, on"

MEASURES: Final[Mapping[str, Measure]] = {
    measure.name: measure
    for measure in (
        Risk(),
        Measure("attribution", "Authors right", kind="risk", needs="author"),
        Kept("kept", "Words that stay"),
        Similarity("similarity", "Similarity of a text's mean vector"),
        WordOverlap("word_overlap", "Frequencies of words: mass in common"),
        PairOverlap("pair_overlap", "Frequencies of pairs: mass in common"),
        Measure("accuracy", f"{_LEARNT} released texts", needs="label"),
        Measure("accuracy_on_original", f"{_LEARNT} the originals", needs="label"),
    )
}
"""What is measured of each setting, in the order of tables."""


def measured(
    simulation: Simulation,
    rows: SimulatedRows,
    ids: pa.Array,
    mechanism: Mechanism | None,
    knowledge: Knowledge,
    *,
    versions: int,
) -> Sums:
    """Simulate a setting, and measure and attack it; without a mechanism random words: the floor."""
    number = 1 if mechanism is None else versions
    released, sums = (
        simulation.release(rows, ids, mechanism or RANDOM_WORDS, versions=number),
        Sums(),
    )
    for measure in MEASURES.values():
        sums |= measure.add(released, simulation.embedding, knowledge)
    return sums


def added(sums: Sums, other: Mapping[str, Any]) -> Sums:
    """Add the sums of other rows."""
    return {name: own + other[name] for name, own in sums.items()}


def versions_of(sums: Sums) -> list[int]:
    """In how many versions attackers had each row, ascending."""
    return sorted(int(name.split("/")[1]) for name in sums if name.endswith("/considered"))


def to_table(sums: Sums) -> pa.Table:
    """Write sums as numbers under keys, which add up: kind (string), a, b (int64) and total (float64)."""
    tables = []
    for kind, own in sums.items():
        if isinstance(own, PairCounts):
            a, b, total = own.first, own.second, own.count.astype(np.float64)
        else:
            terms = own.parts.reshape(-1, own.parts.shape[2])
            (a, b), total = np.indices(terms.shape).reshape(2, -1), terms.ravel()
        tables.append(pa.table({"kind": pa.repeat(kind, len(a)), "a": a, "b": b, "total": total}))
    return pa.concat_tables(tables)


def from_table(table: pa.Table, *, vocabulary: int) -> Sums:
    """Read what :func:`to_table` wrote, each key once and in any order."""
    sums = Sums()
    kinds = {*table["kind"].unique().to_pylist(), *_PAIRS}  # without tokens there are no pairs
    for kind in sorted(kinds):
        own = table.filter(pc.equal(table["kind"], kind)).sort_by(
            [("a", "ascending"), ("b", "ascending")]
        )
        a, b, total = (own[name].to_numpy() for name in ("a", "b", "total"))
        if kind in _PAIRS:
            sums[kind] = PairCounts.of(a, b, total.astype(np.int64), vocabulary=vocabulary)
        else:
            sums[kind] = ClusterSums(parts=total.reshape(2, 6, -1))
    return sums
