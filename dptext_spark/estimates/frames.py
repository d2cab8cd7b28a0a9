"""Statistics of a released Spark frame: topics, differences, frequencies, features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, DateType, TimestampNTZType, TimestampType

from dptext_spark.arguments import check_frame
from dptext_spark.channel.matrix import UNKNOWN, ChannelMatrix, MatrixSource
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.estimates.axes import axes_of
from dptext_spark.estimates.cells import Cells, Row, judged
from dptext_spark.estimates.features import OutputFeatures, RowPosterior
from dptext_spark.estimates.frequencies import alike, likeliest_frequencies
from dptext_spark.estimates.on_spark import ReadTable, with_features
from dptext_spark.estimates.reading import OutputReader
from dptext_spark.estimates.released import MOST_EPSILONS, ReleasedColumn
from dptext_spark.estimates.topics import SoftTopics, combined, members_of
from dptext_spark.geometry import Floats, Ints
from dptext_spark.search.withheld import NONE, Withheld
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.text.patterns.user import UserPatterns

CHANNEL_WORDS: Final = 20_000
"""Words that the channel has by default: the likeliest ones by the prior."""

UNITS: Final = ("day", "week", "month")
"""What times are rounded to."""

TIME: Final = "time"
"""The column of tables that has them."""

LEARNT_ROWS: Final = 20_000
"""Rows of a public corpus, at most, that a language is learned from."""

_TRUSTED_ROWS: Final = 500  # of the table, that say how far its language is that of the corpus
_UNKNOWN_SHARE: Final = 0.05  # of tokens that became random words, before the table is read
_SMOOTHING: Final = 0.1  # share of the prior by rank in that of a corpus
_FIRST_RANK: Final = 2.7  # Mandelbrot's shift of Zipf's law


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimation:
    """A released table, opened to be estimated from; ``closed`` forgets what was read of it."""

    df: DataFrame
    released: ReleasedColumn
    embedding: Embedding
    reader: OutputReader
    table: ReadTable
    prior: Floats  # (V,), public
    cache: Path  # folder of channels
    confidence: float
    corpus: DataFrame | None = None  # public texts in a column of the released one's name
    seed: int = 0

    @classmethod
    def open(
        cls,
        df: DataFrame,
        *,
        report: str | Path,
        embedding: Embedding | Path | str,
        text: str,
        by: Sequence[str] = (),
        time: tuple[str, str] | None = None,
        person: str | None = None,
        corpus: DataFrame | None = None,
        patterns: UserPatterns | None = None,
        channel_words: int = CHANNEL_WORDS,
        cache: Path | None = None,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> Estimation:
        """Read a released table once.

        Args:
            df: The table, in a session with the settings of this package.
            report: The public report of the release, as JSON text or by its path.
            text: The column that was sanitized.
            by: Columns of groups.
            time: A column of dates or times, and one of ``UNITS``.
            person: A column that says whose a row is: the rows of a person are one cluster.
            corpus: Public texts in a column of the same name, for the prior.
            patterns: The user's own patterns of the release.
            cache: By default the folder BUNDLE.channels.
        """
        check_frame(df)
        embedding = Embedding.of(embedding)
        if isinstance(report, Path):
            report = report.read_text(encoding="utf-8")
        released = ReleasedColumn.read(report, embedding, text, patterns)
        groups = _groups(df, by, time)
        reader = OutputReader(
            bundle=BundleFiles.send(df.sparkSession, embedding),
            policy=released.policy,
            outputs=released.search.release_words,
            withheld=released.search.withheld,
            marks=released.marks,
        )
        column = F.col(_quoted(df, text))
        whose = None if person is None else F.col(_quoted(df, person))
        table = ReadTable.read(df, reader, column, groups, whose)
        prior = rank_prior(embedding, released.search.withheld)
        if corpus is not None:
            prior = _corpus_prior(_read_corpus(corpus, reader, text, prior), released, prior)
        return cls(
            df=df,
            released=released,
            embedding=embedding,
            reader=reader,
            table=table,
            prior=likeliest(prior, channel_words),
            cache=cache or embedding.path.with_name(f"{embedding.path.name}.channels"),
            confidence=confidence,
            corpus=corpus,
            seed=seed,
        )

    def closed(self) -> None:
        """Forget what was read."""
        self.table.release()

    @cached_property
    def totals(self) -> dict[str, int]:
        """Rows, and the words and marks that they show."""
        totals = self.table.totals()
        outputs = totals["words"] - totals["marks"] - totals["aside"]
        if outputs < 1:
            raise InputError(
                "The released table has no word that the mechanism could have given",
                got=f"{totals['words']:,} words and marks in {totals['rows']:,} rows",
                do="Give the table and the column of the release",
            )
        return {**totals, "outputs": outputs}

    @cached_property
    def counts(self) -> dict[float, Ints]:
        """How often each output came, by epsilon of the rows."""
        _ = self.totals
        if self.released.row_epsilons is not None:
            epsilons = np.unique(self.released.epsilons_of(self.table.lengths()))
            if len(epsilons) > MOST_EPSILONS:
                raise ConfigError(
                    "Rows under the row budget have too many epsilons: each needs a channel",
                    allowed=f"{MOST_EPSILONS}",
                    got=f"{len(epsilons)}",
                    do="Take rows of fewer lengths with --where",
                )
        return self.table.output_counts(self.released, self.reader.outputs)

    @cached_property
    def sources(self) -> dict[float, MatrixSource]:
        """What works out the channel at each epsilon."""
        drawn = np.zeros(len(self.prior))
        drawn[: self.reader.outputs] = np.sum([*self.counts.values()], axis=0)
        sources = {}
        for epsilon in self.counts:
            sources[epsilon] = MatrixSource(
                mechanism=self.released.mechanism.at(epsilon),
                embedding=self.embedding,
                search=self.released.search,
                prior=self.prior,
                drawn=drawn,
                seed=self.seed,
            )
        return sources

    @cached_property
    def _worked_out(self) -> tuple[dict[float, ChannelMatrix], bool]:
        """The channel at each epsilon, and whether all are of earlier runs."""
        matrices = {}
        are_cached = True
        for epsilon, source in self.sources.items():
            matrix, is_cached = source.matrix(self.cache)
            are_cached = are_cached and is_cached
            if len(self.released.passing):
                matrix = matrix.passing(self.released.passing)
            if self.released.has_random_words:
                matrix = matrix.with_unknown(_UNKNOWN_SHARE)
            matrices[epsilon] = matrix
        return matrices, are_cached

    @property
    def matrices(self) -> dict[float, ChannelMatrix]:
        """The channel at each epsilon."""
        matrices, _ = self._worked_out
        return matrices

    @property
    def first(self) -> ChannelMatrix:
        """The channel at one epsilon; all have the same words, outputs and prior."""
        return next(iter(self.matrices.values()))

    @cached_property
    def shares(self) -> Floats:
        """The likeliest share of each word of the channel, (k,)."""
        return likeliest_frequencies(self.matrices, self.counts)

    @property
    def words(self) -> list[str]:
        """The words of the channel, as they are written; an unknown one has no name."""
        ids = self.first.words
        names: list[str] = self.embedding.words.take(pa.array(ids[ids != UNKNOWN])).to_pylist()
        if UNKNOWN in ids:
            names.append("(unknown)")
        return names

    def frequent(self, number: int) -> Ints:
        """Return the places of the words with the largest shares, of those that have a name."""
        is_named = self.first.words != UNKNOWN
        order = np.argsort(-self.shares * is_named, kind="stable")
        return order[: min(number, int(is_named.sum()))]

    def topics(self, lists: Mapping[str, Sequence[str]]) -> dict[str, list[Row]]:
        """Estimate the shares of lists of words by group: tables by their names."""
        members, absent = members_of(lists, self.embedding, self.first.words)
        names = [*lists]
        typical = float(np.median(self.table.words_of_groups())) / len(self.matrices)
        fitted: dict[float, SoftTopics] = {}
        weights: dict[float, Floats] = {}
        words: dict[float, int] = {}
        for epsilon, matrix in self.matrices.items():
            source = self.sources[epsilon]
            soft = SoftTopics.fitted(
                source, matrix, names, members, words=typical, shares=self.shares
            )
            fitted[epsilon] = soft
            weights[epsilon] = soft.weights
            words[epsilon] = int(self.counts[epsilon].sum())
        soft = combined(fitted, words)
        # Of rows the channel's error is no more than that of a row's words together.
        per_row = self.totals["outputs"] / self.totals["rows"]
        errors = np.concatenate([soft.error, soft.error * per_row])
        groups = self.table.groups
        sums = self.table.sums(self.released, weights, groups)
        cells = Cells(columns=groups, sums=sums, errors=errors)
        rows = list(cells.rows(names, self.confidence))
        sharpness = dict(zip(names, soft.sharpness.tolist(), strict=True))
        differences = []
        if groups:
            overall = self.table.sums(self.released, weights, ())
            rows += Cells(columns=(), sums=overall, errors=errors).rows(names, self.confidence)
            for row in rows[-len(names) :]:
                row |= dict.fromkeys(groups)
            differences = [*self._differences(weights, cells, names, errors)]
        for row in rows:
            row["sharpness"] = sharpness[row["topic"]]
        return {
            "topics": rows,
            "weights": [*self._weights(soft)],
            "differences": judged(differences, self.confidence),
            "lists": [*self._lists(soft, lists, absent)],
        }

    def _differences(
        self, weights: Mapping[float, Floats], cells: Cells, names: Sequence[str], errors: Floats
    ) -> Iterator[Row]:
        """Yield differences between groups, of all times, and between neighbouring times."""
        by = tuple(name for name in cells.columns if name != TIME)
        for columns in (by, (TIME,)):
            if not {*columns} <= {*cells.columns} or not columns:
                continue
            of_columns = cells
            if columns != cells.columns:
                sums = self.table.sums(self.released, weights, columns)
                of_columns = Cells(columns=columns, sums=sums, errors=errors)
            in_order = columns == (TIME,)
            yield from of_columns.differences(names, in_order=in_order)
            yield from self._differences_at_all(columns, in_order=in_order)

    def _differences_at_all(self, columns: tuple[str, ...], *, in_order: bool) -> Iterator[Row]:
        """Yield whether the words of groups differ at all, which needs no channel."""
        if len(self.counts) > 1:
            return  # under a row budget outputs differ with the lengths of rows, too
        ((epsilon, counts),) = self.counts.items()
        axes = axes_of(self.embedding.vectors[: len(counts)], counts)
        sums = self.table.sums(self.released, {epsilon: axes}, columns)
        cells = Cells(columns=columns, sums=sums, errors=np.zeros(2 * axes.shape[1]))
        yield from cells.differences_at_all(axes.shape[1], in_order=in_order)

    def _weights(self, soft: SoftTopics) -> Iterator[Row]:
        words = self.words
        for number, name in enumerate(soft.names):
            for word, weight in zip(words, soft.counted[:, number].tolist(), strict=True):
                yield {"topic": name, "word": word, "weight": weight}

    def _lists(
        self,
        soft: SoftTopics,
        lists: Mapping[str, Sequence[str]],
        absent: Mapping[str, Sequence[str]],
    ) -> Iterator[Row]:
        words = self.words
        for number, (name, listed) in enumerate(lists.items()):
            leaks = []
            for place in soft.leaks(number).tolist():
                weight = float(soft.counted[place, number])
                leaks.append({"word": words[place], "weight": weight})
            yield {
                "topic": name,
                "listed": list(listed),
                "absent": list(absent[name]),
                "sharpness": float(soft.sharpness[number]),
                "channel_error": float(soft.error[number]),
                "ridge": soft.ridge,
                "leaks": leaks,
            }

    def frequencies(self, number: int) -> list[Row]:
        """Return the most frequent words with their likeliest shares, and words like each."""
        places = self.frequent(number)
        words = self.words
        neighbours = alike(self.first, self.shares, places, self.totals["outputs"])
        rows = []
        for place, near in zip(places.tolist(), neighbours, strict=True):
            similar = [words[neighbour] for neighbour in near.tolist()]
            rows.append({"word": words[place], "share": float(self.shares[place]), "like": similar})
        return rows

    @cached_property
    def posterior(self) -> RowPosterior:
        """What all outputs of a row say of its words, by the language of the corpus."""
        if self.corpus is None:
            raise ConfigError(
                "Features in context need a language", do="Give texts with --public-corpus"
            )
        corpus = _read_corpus(self.corpus, self.reader, self.released.column, self.prior)
        texts = corpus.texts(LEARNT_ROWS)
        corpus.release()
        return RowPosterior.of(
            self.first,
            self.shares,
            self.embedding.vectors,
            corpus=texts,
            released=self.table.texts(_TRUSTED_ROWS),
        )

    def features(self, *, in_context: bool = False) -> DataFrame:
        """Return the table's other columns, with a vector and the likeliest words of each row.

        Args:
            in_context: Look at all outputs of a row together, by the language of the corpus, as
                the attacker of that name does. It takes far longer.
        """
        if len(self.matrices) > 1:
            raise ConfigError("Features of a release under a row budget are not supported")
        features: OutputFeatures | RowPosterior
        if in_context:
            features = self.posterior
        else:
            shares = self.shares.astype(np.float32)
            features = OutputFeatures.of(self.first, shares, self.embedding.vectors)
        return with_features(self.df, self.reader, self.released.column, features)

    def facts(self) -> dict[str, Any]:
        """Return what was read, and through which channel, JSON-ready."""
        source = next(iter(self.sources.values()))
        _, are_cached = self._worked_out
        method = "computed" if source.is_computed else "posteriors"
        channel = {
            "method": method,
            "points": source.points,
            "words": len(source.words),
            "outputs": len(self.released.search.outputs),
            "epsilons": [*self.counts],
            "reused": are_cached,
            "folder": str(self.cache),
        }
        return {
            "column": self.released.column,
            "mechanism": self.released.mechanism.to_json(),
            "table": self.totals,
            "channel": channel,
            "passing_words": len(self.released.passing),
            "random_words": self.released.has_random_words,
            "confidence": self.confidence,
        }


def rank_prior(embedding: Embedding, withheld: Withheld = NONE) -> Floats:
    """Return Zipf's law over the order of a bundle, (V,), 0 for what no text can have."""
    weights = 1.0 / (np.arange(len(embedding.words)) + _FIRST_RANK)
    weights[embedding.inputs :] = 0.0
    weights[withheld.among(len(weights))] = 0.0
    return np.asarray(weights / weights.sum())


def likeliest(prior: Floats, most: int) -> Floats:
    """Return a prior (V,) without all but its likeliest words."""
    places = np.argsort(-prior, kind="stable")[:most]
    likeliest = np.zeros_like(prior)
    likeliest[places] = prior[places]
    return np.asarray(likeliest / likeliest.sum())


def _read_corpus(corpus: DataFrame, reader: OutputReader, text: str, prior: Floats) -> ReadTable:
    """Read public texts as words of the vocabulary, whichever may be output."""
    reading = replace(reader, outputs=len(prior))
    return ReadTable.read(corpus, reading, F.col(_quoted(corpus, text)), {}, None)


def _corpus_prior(table: ReadTable, released: ReleasedColumn, ranks: Floats) -> Floats:
    """Return the shares of words in public texts, (V,), smoothed with the prior by rank."""
    counts = table.output_counts(replace(released, row_epsilons=None), len(ranks))
    table.release()
    if not counts:
        raise InputError(
            "The --public-corpus has no word of the embedding",
            do="Give texts of the language of the input, in a column of the same name",
        )
    (of_words,) = counts.values()
    of_words = np.where(ranks > 0.0, of_words, 0)
    return np.asarray((1.0 - _SMOOTHING) * of_words / of_words.sum() + _SMOOTHING * ranks)


def _groups(df: DataFrame, by: Sequence[str], time: tuple[str, str] | None) -> dict[str, Column]:
    """Return the columns that rows are grouped by, by name."""
    groups = {}
    for name in by:
        kind = df.select(F.col(_quoted(df, name))).schema.fields[0].dataType
        if not isinstance(kind, AtomicType):
            raise InputError(f"Column {name} of --by has no groups", got=kind.simpleString())
        groups[name] = F.col(_quoted(df, name))
    if time is not None:
        name, unit = time
        if unit not in UNITS:
            raise ConfigError("The unit of times is unknown", allowed=", ".join(UNITS), got=unit)
        column = F.col(_quoted(df, name))
        kind = df.select(column).schema.fields[0].dataType
        if not isinstance(kind, DateType | TimestampType | TimestampNTZType):
            raise InputError(
                f"Column {name} of --time has no times",
                allowed="dates or timestamps",
                got=kind.simpleString(),
            )
        groups[TIME] = F.date_trunc(unit, column).cast("date")
    return groups


def _quoted(df: DataFrame, name: str) -> str:
    if name not in df.columns:
        raise InputError(
            "The released table lacks a column", allowed=", ".join(df.columns), got=name
        )
    return f"`{name}`"
