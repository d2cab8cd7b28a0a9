"""What attackers recover and what is kept of use: numbers that add up over the parts of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.accounting.row_budget import LEAST_EPSILON
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.attackers import (
    ATTACKERS,
    BY_PAIRS,
    RANKS,
    STRONGEST,
    TOP,
    Knowledge,
    attack,
)
from dptext_spark.evaluation.classes import NOTHING, ClassCounts
from dptext_spark.evaluation.intervals import ClusterSums, Dyads, Interval
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.linkage import LENGTH_BANDS
from dptext_spark.evaluation.rarity import (
    RARITY_BANDS,
    rarity_band,
    sightings,
    singled_out,
    with_rare_words,
)
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.evaluation.vector_attackers import VECTOR_ATTACKERS
from dptext_spark.geometry import Ints
from dptext_spark.mechanisms import Exponential
from dptext_spark.text.pieces import PIECES, count_pieces
from dptext_spark.word_reader import FEW

RANDOM_WORDS: Final = Exponential(epsilon=LEAST_EPSILON, truncate=1e-9)
"""At the least epsilon all outputs are equally likely, except for one part in 10^20."""

_TOKENS: Final = 1 << 15  # vectors that are added up at once
_PAIRS: Final = ("pairs/before", "pairs/after")

Sums: TypeAlias = dict[str, Any]
"""What attackers recover of some rows and what is kept of them, as :meth:`Measure.add` gives it:
PairCounts by ``pairs/before`` and ``pairs/after``, ClusterSums by
``recovered/VERSIONS/ATTACKER/GUESSES``, ``recovered/VERSIONS/considered``, ``rare(K)``,
``sighted(K)``, ``linked/among``, ``linked/alike``, ``topics/words``, an array by
``words/estimated``, ClassCounts by ``labels``, and else by what the
measure is written as."""


def _rank_bands() -> tuple[str, ...]:
    """Return the names of the bands that ``RANKS`` cut, the last of which has no end."""
    bands = []
    first = 1
    for last in RANKS:
        bands.append(f"{first:,}-{last:,}")
        first = last + 1
    return (*bands, f"{first:,}-")


_RANK_BANDS: Final = _rank_bands()


@dataclass(frozen=True)
class Measure:
    """What is measured of a setting; by default the share of rows whose class a model gets right.

    Of a risk less is better, of a use more. Without noise it is 1, or what models learn from the
    originals.
    """

    name: str  # in sums and in tables
    title: str  # on pages
    kind: Literal["risk", "use"] = "use"
    needs: str = ""  # an option
    bands: tuple[str, ...] = ()  # classes of its sums after all words or rows

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        """Add up what it needs of released rows; by default nothing, as models learn elsewhere."""
        return {}

    @property
    def written(self) -> str:
        """The name in tables and targets."""
        return self.name

    @property
    def forms(self) -> list[str]:
        """How targets write it."""
        return [self.name]

    def with_arguments(self, arguments: tuple[str, ...]) -> Self | None:
        """Return what a target with these arguments means; None where it means nothing."""
        if arguments:
            return None
        return self

    def is_in(self, sums: Sums) -> bool:
        """Return whether it was measured."""
        return self.written in sums

    def all_in(self, sums: Sums) -> list[Measure]:
        """Return what was measured: itself, or itself of each class, the most frequent first."""
        if not self.is_in(sums):
            return []
        return [self]

    def totals(self, sums: Sums) -> ClusterSums:
        """Return what was added up; a ConfigError says that it was not measured."""
        if self.written not in sums:
            remedy = f"Give --{self.needs}" if self.needs else ""
            raise ConfigError(f"This {self.kind} was not measured", got=self.written, do=remedy)
        totals: ClusterSums = sums[self.written]
        return totals

    def at_floor(self, sums: Sums) -> Self:
        """Return the measure whose value of these sums, without a release, is the floor."""
        return self

    def without_noise(self, sums: Sums) -> float:
        """Return what it is of the same rows without noise."""
        return 1.0

    def value(self, sums: Sums, confidence: float) -> Interval:
        """Compute the value and its interval; see above."""
        return self.totals(sums).share(confidence)


@dataclass(frozen=True)
class Risk(Measure):
    """The share of perturbed words that an attacker recovers."""

    name: str = "recovery"
    title: str = "Share of words recovered"
    kind: Literal["risk", "use"] = "risk"
    bands: tuple[str, ...] = _RANK_BANDS
    attacker: str = STRONGEST  # or a name of ``ATTACKERS``
    guesses: int = 1  # a number of ``TOP``
    versions: int = 1  # in how many versions the attacker has each row

    def is_in(self, sums: Sums) -> bool:
        return True

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        sums: Sums = {}
        for versions in sorted({1, len(rows.outputs)}):
            attacked = attack(replace(rows, outputs=rows.outputs[:versions]), knowledge)
            for name, recovered in attacked.items():
                sums[f"recovered/{versions}/{name}"] = recovered
        return sums

    def totals(self, sums: Sums) -> ClusterSums:
        """Return the words that were recovered, in all and by how frequent they are; see above."""
        key = f"recovered/{self.versions}/{self.attacker_in(sums)}/{self.guesses}"
        if key not in sums:
            names = " or ".join([STRONGEST, *ATTACKERS])
            top = " or ".join(map(str, TOP))
            versions = " or ".join(map(str, versions_of(sums)))
            raise ConfigError(
                "This risk was not measured",
                allowed=f"{names}, {top} guesses, {versions} versions",
                got=f"{self.attacker}, {self.guesses} guesses, {self.versions} versions",
            )
        recovered: ClusterSums = sums[key]
        return recovered

    def attacker_in(self, sums: Sums) -> str:
        """Return the attacker's name; the strongest is the one that recovers most of these rows."""
        if self.attacker != STRONGEST:
            return self.attacker
        return self._strongest(ATTACKERS, sums)

    def at_floor(self, sums: Sums) -> Self:
        names = (*ATTACKERS, BY_PAIRS)
        if self.attacker in ATTACKERS:
            names = (self.attacker, *ATTACKERS[self.attacker].floors)
        unseen = replace(self, versions=1)
        return replace(unseen, attacker=unseen._strongest(names, sums))

    def _strongest(self, names: Iterable[str], sums: Sums) -> str:
        """Return which of these attackers recovers most, of those that were tried."""
        ratios = {}
        for name in names:
            recovered = sums.get(f"recovered/{self.versions}/{name}/{self.guesses}")
            if recovered is not None:
                ratios[name] = float(np.nan_to_num(recovered.ratio[0], nan=-1.0))
        return max(ratios, key=ratios.__getitem__, default=self.attacker)


class Kept(Measure):
    """The share of perturbed words that came out unchanged, in all and by how rare words are."""

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        hidden = np.flatnonzero(rows.perturbed)
        words = rows.inputs[hidden]
        same = (words == rows.outputs[0, hidden]).astype(np.float64)
        if knowledge.row_counts is None:
            return {self.name: ClusterSums.of(rows.rows[hidden], same)}
        bands = rarity_band(knowledge.row_counts[words])
        return {self.name: ClusterSums.banded(rows.rows[hidden], same, bands, len(RARITY_BANDS))}


@dataclass(frozen=True)
class SingledOut(Measure):
    """The share of rows that show an unchanged word that fewer than ``few`` evaluated rows have.

    It is a share of the rows with words. Next to it stands how often an observer is right who takes
    each row that shows a rare word for a row that has it.
    """

    name: str = "singled_out"
    title: str = "Rows with an unchanged rare word"
    kind: Literal["risk", "use"] = "risk"
    few: int = FEW[0]

    @property
    def written(self) -> str:
        return f"{self.name}({self.few})"

    @property
    def forms(self) -> list[str]:
        return [variant.written for variant in self.variants]

    @property
    def variants(self) -> list[Self]:
        """All that is measured."""
        return [replace(self, few=few) for few in FEW]

    def with_arguments(self, arguments: tuple[str, ...]) -> Self | None:
        for variant in self.variants:
            if (str(variant.few),) == arguments:
                return variant
        return None

    def all_in(self, sums: Sums) -> list[Measure]:
        return [variant for variant in self.variants if variant.is_in(sums)]

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        counts = knowledge.row_counts
        if counts is None:
            return {}
        sums: Sums = {}
        for few in FEW:
            sums[f"{self.name}({few})"] = singled_out(rows, counts, few)
            sums[f"rare({few})"] = with_rare_words(rows, counts, few)
            sums[sighted(few)] = sightings(rows, counts, few)
        return sums

    def without_noise(self, sums: Sums) -> float:
        return float(sums[f"rare({self.few})"].ratio[0])


@dataclass(frozen=True)
class Pieces(Measure):
    """The share of rows whose released words have what looks like a piece of an identifier.

    It is a share of the rows with words. What is no word of the vocabulary is not among them.
    """

    name: str = "pieces"
    title: str = "Rows with pieces of identifiers"
    kind: Literal["risk", "use"] = "risk"
    of: str = "figures"

    @property
    def written(self) -> str:
        return f"{self.name}({self.of})"

    @property
    def forms(self) -> list[str]:
        return [variant.written for variant in self.variants]

    @property
    def variants(self) -> list[Self]:
        """All that is measured: words hold no signs such as @."""
        return [replace(self, of=kind) for kind in PIECES if kind != "signs"]

    def with_arguments(self, arguments: tuple[str, ...]) -> Self | None:
        for variant in self.variants:
            if (variant.of,) == arguments:
                return variant
        return None

    def all_in(self, sums: Sums) -> list[Measure]:
        return [variant for variant in self.variants if variant.is_in(sums)]

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        with_words = np.unique(rows.rows)
        sums: Sums = {}
        for prefix, words in (("", rows.released), ("original/", rows.inputs)):
            names = embedding.words.take(pa.array(words, mask=words < 0))
            offsets = pa.array(rows.offsets, pa.int32())
            counts = count_pieces(pa.ListArray.from_arrays(offsets, names))
            for variant in self.variants:
                shows = (counts[variant.of] > 0).astype(np.float64)
                sums[prefix + variant.written] = ClusterSums.of(with_words, shows[with_words])
        return sums

    def without_noise(self, sums: Sums) -> float:
        return float(sums[f"original/{self.written}"].ratio[0])


def sighted(few: int) -> str:
    """Return the key of the sums of :func:`~dptext_spark.evaluation.rarity.sightings`."""
    return f"sighted({few})"


class Similarity(Measure):
    """The mean over rows of the cosine between the mean vectors of a text's words before and after.

    Tokens outside the vocabulary have no vector; a row without any word does not count. A cosine is
    0 where a mean has no direction. The interval is Student's.
    """

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        count = len(rows.offsets) - 1
        dimension = embedding.vectors.shape[1]
        before = np.zeros((count, dimension))
        after = np.zeros((count, dimension))
        # Batches have whole rows: what a row gives is the same in every batch.
        for tokens, part in rows.batches(_TOKENS):
            in_vocabulary = np.flatnonzero(part.inputs >= 0)
            if not len(in_vocabulary):
                continue
            row = rows.rows[tokens[in_vocabulary]]
            starts = np.flatnonzero(np.diff(row, prepend=-1))
            for sums, words in ((before, part.inputs), (after, part.released)):
                vectors = embedding.vectors[words[in_vocabulary]].astype(np.float64)
                sums[row[starts]] = np.add.reduceat(vectors, starts, axis=0)
        product = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        cosine = np.zeros(count)
        np.divide((before * after).sum(axis=1), product, out=cosine, where=product > 0.0)
        with_words = np.unique(rows.rows[rows.inputs >= 0])
        return {self.name: ClusterSums.of(with_words, cosine[with_words])}

    def value(self, sums: Sums, confidence: float) -> Interval:
        return self.totals(sums).mean(confidence)


class WordOverlap(Measure):
    """The mass that the frequencies of words before and after have in common.

    It is 1 less the total variation.
    """

    def is_in(self, sums: Sums) -> bool:
        return _PAIRS[0] in sums

    def value(self, sums: Sums, confidence: float) -> Interval:
        import pandas as pd  # slow to load

        before, after = (pd.Series(*self.counts(sums[name])) for name in _PAIRS)
        before, after = before.align(after, fill_value=0)
        common = np.minimum(before / before.sum(), after / after.sum())
        return float(common.sum(skipna=False, min_count=1)), np.nan, np.nan

    def counts(self, pairs: PairCounts) -> tuple[Ints, ...]:
        """Return how often things come, and their keys."""
        return (pairs.words,)


class PairOverlap(WordOverlap):
    """The same of pairs of neighbours."""

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        sums: Sums = {}
        vocabulary = len(embedding.words)
        for name, words in zip(_PAIRS, (rows.inputs, rows.released), strict=True):
            sums[name] = PairCounts.of_rows(words, rows.offsets, vocabulary=vocabulary)
        return sums

    def counts(self, pairs: PairCounts) -> tuple[Ints, ...]:
        return pairs.count, pairs.first * (pairs.vocabulary + 2) + pairs.second


ESTIMATED_WORDS: Final = "words/estimated"
"""Among sums: the numbers of words, float64 (V,), that an analyst takes for the likeliest."""


@dataclass(frozen=True)
class EstimatedOverlap(Measure):
    """The mass that the frequencies of words have in common with those that analysts estimate."""

    needs: str = "topics"

    def is_in(self, sums: Sums) -> bool:
        return ESTIMATED_WORDS in sums

    def value(self, sums: Sums, confidence: float) -> Interval:
        if not self.is_in(sums):
            return self.totals(sums).share(confidence)  # which says what to give
        before = sums[_PAIRS[0]].words[:-1]
        estimated = sums[ESTIMATED_WORDS]
        common = np.minimum(before / before.sum(), estimated / estimated.sum())
        return float(common.sum()), np.nan, np.nan


@dataclass(frozen=True)
class TopicShares(Measure):
    """1 less the error of topics' shares, over these shares, of perturbed words; 0 at least.

    Shares are counted among outputs, or estimated with an analyst's weights.
    """

    needs: str = "topics"
    estimated: bool = False

    def add(self, rows: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
        topics = knowledge.topics
        if topics is None:
            return {}
        hidden = np.flatnonzero(rows.perturbed)
        outputs = rows.outputs[0, hidden]
        values = topics.weights[outputs] if self.estimated else topics.members[outputs]
        errors = values - topics.members[rows.inputs[hidden]]
        count = errors.shape[1]
        of_rows = np.repeat(rows.rows[hidden], count)
        of_topics = np.tile(np.arange(count), len(hidden))
        in_topics = topics.members[rows.inputs[hidden]].sum(axis=1)
        return {
            self.name: ClusterSums.of(of_rows, errors.ravel(), of_topics, count),
            _IN_TOPICS: ClusterSums.of(rows.rows[hidden], in_topics),
        }

    def value(self, sums: Sums, confidence: float) -> Interval:
        errors = np.abs(self.totals(sums).ratio).sum()
        shares = sums[_IN_TOPICS].ratio[0]
        if not shares > 0.0:
            return NOTHING
        return max(0.0, 1.0 - float(errors / shares)), np.nan, np.nan


_IN_TOPICS: Final = "topics/words"

LABELS: Final = "labels"
"""Among sums: the counts of labels that models predict on released texts."""


@dataclass(frozen=True)
class LabelMeasure(Measure):
    """What people report of a model that learns labels: of one class, or of all classes."""

    needs: str = "label"
    by_class: Callable[[ClassCounts, str, float], Interval] | None = None
    overall: Callable[[ClassCounts, float], Interval] | None = None
    label: str | None = None  # the class, as text; None for all classes together

    @property
    def written(self) -> str:
        if self.label is None:
            return self.name
        return f"{self.name}({self.label})"

    @property
    def forms(self) -> list[str]:
        forms = []
        if self.overall is not None:
            forms.append(self.name)
        if self.by_class is not None:
            forms.append(f"{self.name}(CLASS)")
        return forms

    def with_arguments(self, arguments: tuple[str, ...]) -> Self | None:
        if arguments and self.by_class is not None:
            return replace(self, label=arguments[0])
        if not arguments and self.overall is not None:
            return self
        return None

    def is_in(self, sums: Sums) -> bool:
        return LABELS in sums

    def all_in(self, sums: Sums) -> list[Measure]:
        if not self.is_in(sums):
            return []
        measures: list[Measure] = []
        if self.overall is not None:
            measures.append(self)
        if self.by_class is not None:
            measures += [replace(self, label=label) for label in sums[LABELS].classes]
        return measures

    def value(self, sums: Sums, confidence: float) -> Interval:
        if not self.is_in(sums):
            raise ConfigError(
                f"This {self.kind} was not measured", got=self.written, do="Give --label"
            )
        counts: ClassCounts = sums[LABELS]
        if self.label is not None and self.by_class is not None:
            return self.by_class(counts, self.label, confidence)
        if self.label is None and self.overall is not None:
            return self.overall(counts, confidence)
        raise ConfigError(
            f"This {self.kind} is of one class", allowed=f"{self.name}(CLASS)", got=self.name
        )


@dataclass(frozen=True)
class Correlation(Measure):
    """How well numbers of pairs of vectors correlate before and after; a constant has 0."""

    needs: str = "vectors"

    def value(self, sums: Sums, confidence: float) -> Interval:
        if not self.is_in(sums):
            raise ConfigError("This use was not measured", got=self.name, do="Give --vectors")
        dyads: Dyads = sums[self.name]
        return dyads.correlation(confidence)


@dataclass(frozen=True)
class WordsBehindVectors(Measure):
    """The share of words that an attacker finds behind vectors, in as many guesses as there are."""

    needs: str = "vectors"
    attacker: str = STRONGEST  # or a name of ``VECTOR_ATTACKERS``

    @property
    def written(self) -> str:
        if self.attacker == STRONGEST:
            return self.name
        return f"{self.name}({self.attacker})"

    def with_arguments(self, arguments: tuple[str, ...]) -> Self | None:
        if not arguments:
            return self
        if len(arguments) == 1 and arguments[0] in VECTOR_ATTACKERS:
            return replace(self, attacker=arguments[0])
        return None

    def is_in(self, sums: Sums) -> bool:
        return any(f"{self.name}/{name}" in sums for name in VECTOR_ATTACKERS)

    def all_in(self, sums: Sums) -> list[Measure]:
        if not self.is_in(sums):
            return []
        return [self, *(replace(self, attacker=name) for name in VECTOR_ATTACKERS)]

    def totals(self, sums: Sums) -> ClusterSums:
        if not self.is_in(sums):
            raise ConfigError("This risk was not measured", got=self.name, do="Give --vectors")
        by_attacker: dict[str, ClusterSums] = {}
        for name in VECTOR_ATTACKERS:
            by_attacker[name] = sums[f"{self.name}/{name}"]
        if self.attacker != STRONGEST:
            return by_attacker[self.attacker]
        return max(by_attacker.values(), key=lambda recovered: np.nan_to_num(recovered.ratio[0]))


_LEARNT: Final = "Labels right: learnt from released texts, on"

_ALL: Final[tuple[Measure, ...]] = (
    Risk(),
    Measure("attribution", "Authors right", kind="risk", needs="author"),
    SingledOut(),
    Pieces(),
    Measure("linked", "Rows assigned to their originals", kind="risk", bands=LENGTH_BANDS),
    WordsBehindVectors("recovered_words", "Words found behind vectors", kind="risk"),
    Measure("membership", "Rows recognized as released or not", kind="risk", needs="vectors"),
    Kept("kept", "Unchanged words"),
    Similarity("similarity", "Similarity of a text's mean vector"),
    WordOverlap("word_overlap", "Frequencies of words: mass in common"),
    EstimatedOverlap("word_overlap_estimated", "Frequencies of words, as estimated"),
    PairOverlap("pair_overlap", "Frequencies of pairs: mass in common"),
    TopicShares("topic_shares", "Shares of topics, as counted"),
    TopicShares("topic_shares_estimated", "Shares of topics, as estimated", estimated=True),
    Correlation("distances", "Correlation of distances"),
    Correlation("products", "Correlation of inner products"),
    Measure("accuracy", f"{_LEARNT} released texts", needs="label"),
    Measure("accuracy_on_original", f"{_LEARNT} the originals", needs="label"),
    Measure("accuracy_from_features", "Labels right: learnt from vectors of rows", needs="label"),
    LabelMeasure(
        "balanced_accuracy",
        "Balanced accuracy of labels: mean recall of the classes",
        overall=ClassCounts.balanced_accuracy,
    ),
    LabelMeasure("auc", "AUC of labels", overall=ClassCounts.mean_auc, by_class=ClassCounts.auc),
    LabelMeasure("precision", "Precision of labels", by_class=ClassCounts.precision),
    LabelMeasure("recall", "Recall of labels", by_class=ClassCounts.recall),
    LabelMeasure("f1", "F1 of labels", by_class=ClassCounts.f1),
)

MEASURES: Final[Mapping[str, Measure]] = {measure.name: measure for measure in _ALL}
"""What is measured of each setting, in the order of tables."""


def measure_named(written: str) -> Measure:
    """Return the measure that is written so, such as ``similarity`` or ``recall(spam)``."""
    name, parenthesis, label = written.partition("(")
    measure = MEASURES[name]
    if parenthesis and isinstance(measure, LabelMeasure):
        return replace(measure, label=label.removesuffix(")"))
    return measure


def measured(released: SimulatedRows, embedding: Embedding, knowledge: Knowledge) -> Sums:
    """Measure and attack released rows; what needs other rows as well is measured elsewhere."""
    sums = Sums()
    for measure in MEASURES.values():
        sums |= measure.add(released, embedding, knowledge)
    return sums


def added(sums: Sums, other: Mapping[str, Any]) -> Sums:
    """Add the sums of other rows."""
    return {name: part + other[name] for name, part in sums.items()}


def attackers_in(sums: Sums) -> list[str]:
    """Return the names of the attackers that were tried."""
    return [name for name in ATTACKERS if f"recovered/1/{name}/1" in sums]


def versions_of(sums: Sums) -> list[int]:
    """Return in how many versions attackers had each row, ascending."""
    return sorted(int(name.split("/")[1]) for name in sums if name.endswith("/considered"))


def to_table(sums: Sums) -> pa.Table:
    """Write sums as numbers under keys, which add up.

    The columns are kind (string), a, b (int64) and total (float64).
    """
    tables = []
    for kind, part in sums.items():
        if isinstance(part, PairCounts):
            a = part.first
            b = part.second
            total = part.count.astype(np.float64)
        else:
            terms = part.parts.reshape(-1, part.parts.shape[2])
            a, b = np.indices(terms.shape).reshape(2, -1)
            total = terms.ravel()
        tables.append(pa.table({"kind": pa.repeat(kind, len(a)), "a": a, "b": b, "total": total}))
    return pa.concat_tables(tables)


def from_table(table: pa.Table, *, vocabulary: int) -> Sums:
    """Read what :func:`to_table` wrote, each key once and in any order."""
    sums = Sums()
    kinds = {*table["kind"].unique().to_pylist(), *_PAIRS}  # without tokens there are no pairs
    for kind in sorted(kinds):
        of_kind = table.filter(pc.equal(table["kind"], kind))
        of_kind = of_kind.sort_by([("a", "ascending"), ("b", "ascending")])
        a, b, total = (of_kind[name].to_numpy() for name in ("a", "b", "total"))
        if kind in _PAIRS:
            sums[kind] = PairCounts.of(a, b, total.astype(np.int64), vocabulary=vocabulary)
        else:
            sums[kind] = ClusterSums(parts=total.reshape(2, 6, -1))
    return sums
