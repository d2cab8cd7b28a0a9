"""A look at a table before it is sanitized: at some rows, or at all of them in one narrow pass.

Some rows say what the vocabulary lacks, all rows how many each person has, and how many have each
word. Workers count: numbers reach the driver, no row and no word does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dptext_spark.bars import progress, tell
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import ID, ROW, SLOTS, Batch, Fields
from dptext_spark.tables.columns import ACCURACY, TableColumns, shared
from dptext_spark.tables.fields import Field, pruned
from dptext_spark.tables.source import setting
from dptext_spark.text.columns import SLICE_BYTES
from dptext_spark.text.patterns.find import TYPES, find
from dptext_spark.text.tokens import WordRuns, lookup_form, unspaced_share
from dptext_spark.word_reader import FEW, WordReader, rows_with_words

SAMPLE_TASKS: Final = 4
SAMPLE_ROWS: Final = 1000
"""Rows that each of so many tasks looks at, at most: little work, whatever the size of the table."""

MANY: Final = 0.1
"""A share of unknown words to warn of: one word in ten, so that hardly a sentence stays whole.

Ordinary English has a few in a hundred that a vocabulary of its own kind lacks; where stop words or
a language are missing there are several in ten.
"""


_NAMED: Final = 5
"""Columns that a warning names, of those that it is also about."""


class Coverage(Counter[str]):
    """How many words of a column the vocabulary has, in a sample of its rows.

    It counts ``rows``, the ``tokens`` that the policy protects, those of them that are ``unknown``
    to the vocabulary, and spans of each of ``TYPES`` that patterns find, whether they are marked or
    not. Where the tokenizer takes each run of letters in scripts without spaces for one word,
    ``unspaced`` is the sum over the rows of the share of such letters.
    """

    @classmethod
    def measure(cls, values: pa.Array, reader: WordReader, slots: pa.Array | None = None) -> Self:
        """Look at the first rows of a column of texts or token lists: at most a MB of text, or one row."""
        run = next(reader.runs(values, slots), None)
        if run is None:
            return cls()
        rows = len(run.tokens.offsets) - 1
        texts = map(lookup_form, filter(None, run.tokens.strings))
        found = cls(kind for text in texts for _, _, kind in find(text, TYPES))
        found.update(rows=rows, tokens=int(run.protected.sum()), unknown=int(run.unknown.sum()))
        if run.tokens.kind == "text" and reader.policy.tokenizer.name == WordRuns.name:
            shares: Any = rows * unspaced_share(values[run.rows])
            found["unspaced"] = shares
        return found

    @property
    def unknown_share(self) -> float:
        """Share of the words that the vocabulary lacks."""
        return self["unknown"] / max(self["tokens"], 1)

    @property
    def unspaced_share(self) -> float:
        """Share of the letters that are of scripts without spaces, on average over the rows."""
        return self["unspaced"] / max(self["rows"], 1)

    def to_json(self) -> dict[str, Any]:
        """Give the sample as JSON-ready values."""
        counts = {name: self[name] for name in ("rows", "tokens", "unknown")}
        identifiers = {name: self[name] for name in TYPES}
        return {**counts, "unspaced": round(self.unspaced_share, 4), "identifiers": identifiers}

    def identified(self, but: Collection[str] = ()) -> str:
        """Count what patterns find, by type but for some; empty if nothing."""
        return ", ".join(
            f"{self[kind]:,} {kind}" for kind in TYPES if self[kind] and kind not in but
        )

    def describe(self) -> str:
        """Say how much the vocabulary has."""
        found = (
            f"; identifiers that patterns find: {self.identified()}" if self.identified() else ""
        )
        sample = f"a sample of {self['rows']:,} rows"
        if not self["tokens"]:
            return f"no words in {sample}{found}"
        known = f"{1 - self.unknown_share:.1%} of {self['tokens']:,} words are in the vocabulary"
        return f"{known} ({sample}){found}"

    @property
    def concern(self) -> str:
        """What to warn of: ``unspaced`` letters, ``unknown`` words, or nothing."""
        if self.unspaced_share > MANY:
            return "unspaced"
        return "unknown" if self.unknown_share > MANY else ""

    def warning(self, column: str, fate: str, others: Collection[str] = ()) -> str:
        """Return what to know of a column before the run, if anything; ``fate`` is that of unknown words.

        ``others`` are columns with the same concern, of which each has a smaller share.
        """
        of, sample = f"of column {column}", f"in a sample of {self['rows']:,} rows"
        unknown = f"{self.unknown_share:.1%} of the words"
        also = f"; in {_listed(others)} more than {MANY:.0%}" if others else ""
        if self.concern == "unspaced":
            return (
                f"{self.unspaced_share:.0%} of the letters {of}, {sample}, are of scripts without spaces "
                f"between words (Chinese, Japanese, Thai and others){also}. A run of such letters counts as "
                f"one word: {unknown} are not in the embedding's vocabulary. Cut them into words with "
                "--tokenizer icu, and take an embedding of that language."
            )
        if self.concern == "unknown":
            return f"{unknown} {of}, {sample}, are not in the embedding's vocabulary{also}. {fate}"
        return ""


def _listed(columns: Collection[str]) -> str:
    """Name some columns, however many there are."""
    more = len(columns) - _NAMED
    names = ", ".join([*islice(columns, _NAMED), *([f"{more} more"] if more > 0 else [])])
    return f"{len(columns)} other column{'s' * (len(columns) > 1)} ({names})"


@dataclass(kw_only=True)
class Sample:
    """Looks at some rows, once, and warns where the vocabulary lacks many words."""

    columns: TableColumns  # of the run: texts and token lists are looked at
    table: StructType
    reader: WordReader
    fate: str  # what becomes of unknown words, and what to do about it, in sentences
    identifiers: str = ""  # likewise of identifiers, if they are no marks
    found: dict[str, Coverage] = field(default_factory=dict)  # by the first call, by column
    # How many words its rows have, all columns together, and on average; None before it, and for no
    # rows.
    lengths: dict[str, int | None] | None = None
    words: float | None = None
    rows: list[int] | None = (
        None  # of each of Spark's partitions, where the sample is the whole table
    )

    def __call__(self, selected: DataFrame) -> None:
        """Look at rows as :meth:`TableColumns.select` gives them; later calls do nothing."""
        if self.found:
            self.rows = None  # of another batch of a growing table
            return
        columns = replace(self.columns, keep=(), vector=())
        row = pruned(F.col(ROW), self.columns.schema(self.table), columns.schema(self.table))
        slots = [SLOTS] if columns.slots else []
        narrow = selected.select(row.alias(ROW), F.lit("").alias(ID), *slots)
        # Spark would ask one task first, and all cores but one would wait for it and for its Python
        # worker.
        spark, name = selected.sparkSession, "spark.sql.limit.initialNumPartitions"
        changes = spark.conf.isModifiable(name)  # some servers let nobody change it
        work = partial(_sample, self.reader, columns.ways(self.table))
        samples = narrow.mapInArrow(work, "sample string")
        more = setting(spark, name, str(SAMPLE_TASKS)) if changes else nullcontext()
        with progress(spark, "Looking at a sample"), more:
            tasks = [json.loads(sample) for (sample,) in samples.limit(SAMPLE_TASKS).collect()]
        for task in tasks:
            for name, counted in zip(columns.sanitized, task["coverage"], strict=True):
                self.found.setdefault(name, Coverage()).update(counted)
        if words := sorted(count for task in tasks for count in task["words"]):
            median = words[(len(words) - 1) // 2]
            self.lengths = {"median": median, "longest": words[-1], "sample": len(words)}
            self.words = sum(words) / len(words)
        if len(tasks) < SAMPLE_TASKS and all(task["rows"] is not None for task in tasks):
            self.rows = [task["rows"] for task in tasks]
        for warning in self.warnings():
            tell(f"Warning, for those who run the job: {warning}")

    def warnings(self) -> list[str]:
        """Return what to know before the run: one sentence a concern, however many columns share it."""
        warnings = []
        for concern, share in (("unspaced", "unspaced_share"), ("unknown", "unknown_share")):
            shares = {
                name: getattr(own, share)
                for name, own in self.found.items()
                if own.concern == concern
            }
            if shares:
                worst, *others = sorted(shares, key=lambda name: -shares[name])
                warnings.append(self.found[worst].warning(worst, self.fate, others))
        marked = self.reader.policy.identifiers.marked
        identified = [
            name for name, coverage in self.found.items() if coverage.identified(but=marked)
        ]
        if identified and self.identifiers:
            first, *others = identified
            coverage = self.found[first]
            also = f"; so have {_listed(others)}" if others else ""
            warnings.append(
                f"Column {first} has identifiers ({coverage.identified(but=marked)}), in a sample of "
                f"{coverage['rows']:,} rows{also}. {self.identifiers}"
            )
        return warnings


def _sample(
    reader: WordReader, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count words in the first rows of a task; runs in Python workers.

    A task without rows gives zeros: no other task is asked in its place, however few rows there
    are.
    """
    reader, batches = shared(reader), iter(batches)
    first = next(batches, None)
    rows: int | None = 0 if first is None else len(first)
    found: dict[str, Any] = {"coverage": [Coverage()] * len(ways.paths), "words": []}
    if first is not None and rows:
        about_a_mb = max(1, SLICE_BYTES * rows // first.nbytes)
        batch = Batch.from_arrow(first.slice(0, min(about_a_mb, SAMPLE_ROWS)), ways)
        found["coverage"] = [
            Coverage.measure(own.values, reader, own.slots) for _, own in batch.fields()
        ]
        # Sorted: no number has the place of a row.
        found["words"] = np.sort(batch.words(reader.visible_words)).tolist()
        # Where this is the end, Spark uses the worker again.
        rows = rows if rows <= SAMPLE_ROWS and next(batches, None) is None else None
    yield pa.RecordBatch.from_pydict({"sample": [json.dumps(found | {"rows": rows})]})


def count_rows_with_words(
    df: DataFrame, columns: TableColumns, reader: WordReader, vocabulary: int
) -> NDArray[np.uint8]:
    """Count in one pass the rows that have each word, uint8 (V,): exact below the largest of ``FEW``.

    Other words have that number. A row has a word if one of its sanitized fields has it, perturbed
    or not. Workers read and cut texts; nothing is perturbed.
    """
    columns = replace(columns, keep=(), vector=())
    work = partial(_count_words, reader, columns.ways(df.schema))
    selected = columns.select(df, F.lit(""))
    counted = selected.mapInArrow(work, "word long, rows long")
    sums = counted.groupBy("word").agg(F.sum("rows").alias("rows"))
    row_counts = np.full(vocabulary, max(FEW), dtype=np.uint8)
    rare = to_arrow(sums.where(F.col("rows") < max(FEW)))
    row_counts[rare["word"].to_numpy()] = rare["rows"].to_numpy()
    return row_counts


def _count_words(
    reader: WordReader, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count the rows of a task that have each word; runs in Python workers."""
    reader = shared(reader)
    vocabulary = len(reader.bundle.shared().words)
    total = np.zeros(vocabulary, dtype=np.int64)
    for batch in Batch.parts(batches, ways):
        rows = [np.zeros(0, dtype=np.int64)]
        words = [np.zeros(0, dtype=np.int64)]
        for name, found in batch.fields():
            for run in reader.runs(found.values, found.slots, column=name):
                rows.append(found.rows[run.tokens.rows + run.rows.start])
                words.append(run.word_ids)
        total += rows_with_words(np.concatenate(words), np.concatenate(rows), vocabulary=vocabulary)
    counted = np.flatnonzero(total)
    arrays = [pa.array(counted), pa.array(total[counted])]
    yield pa.RecordBatch.from_arrays(arrays, names=["word", "rows"])


_PERCENTILES: Final = {"50%": 0.5, "90%": 0.9, "99%": 0.99, "largest": 1.0}


def count_persons(
    df: DataFrame, columns: TableColumns, name: str, reader: WordReader, within: float
) -> dict[str, Any] | None:
    """Add up the rows and words of each person in one pass; None where no row names one.

    Persons go between machines as hashes, without their texts; percentiles of them reach the
    driver.
    """
    person = Field.find(df.schema, name)[0].column
    columns = replace(columns, keep=())
    selected = columns.select(df, F.when(person.isNotNull(), F.xxhash64(person)))
    work = partial(_count, reader, columns.ways(df.schema))
    counted = selected.mapInArrow(work, "person string, words long")
    sums = counted.groupBy("person").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("words").alias("words")
    )
    named = F.col("person").isNotNull()
    shares = [*_PERCENTILES.values()]
    totals = [
        F.percentile_approx(F.when(named, F.col(n)), shares, ACCURACY) for n in ("rows", "words")
    ]
    nobody = F.sum(F.when(~named, F.col("rows")))
    persons, unnamed, rows, words = sums.agg(F.count("person"), nobody, *totals).collect()[0]
    if not persons:
        return None
    return {
        "column": name,
        "persons": persons,
        "nobody": unnamed or 0,
        "rows": dict(zip(_PERCENTILES, rows, strict=True)),
        "words": dict(zip(_PERCENTILES, words, strict=True)),
        "within": within,
    }


def _count(
    reader: WordReader, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count the words of rows; runs in Python workers."""
    reader = shared(reader)
    for batch in Batch.parts(batches, ways):
        words = pa.array(batch.words(reader.visible_words))
        yield pa.RecordBatch.from_arrays([batch.ids, words], names=["person", "words"])
