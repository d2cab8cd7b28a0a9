"""What is counted in a table before it is sanitized: in a sample, or in all rows in one pass.

Some rows say what the vocabulary lacks, all rows how many each person has, and how many have each
word. Workers count: numbers reach the driver, no row and no word does.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from dptext_spark.bars import progress, tell
from dptext_spark.errors import DptextError
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.spark.versions import to_arrow
from dptext_spark.tables.batch import ID, PERSON, ROW, SLOTS, Batch, FieldPaths
from dptext_spark.tables.columns import ACCURACY, TableColumns, shared
from dptext_spark.tables.fields import Field, pruned, quoted
from dptext_spark.tables.source import setting
from dptext_spark.text.columns import DROP, KEEP, SLICE_BYTES
from dptext_spark.text.layout import assemble
from dptext_spark.text.patterns.find import find
from dptext_spark.text.patterns.names import TYPES
from dptext_spark.text.pieces import PIECES, count_pieces, pieces_text
from dptext_spark.text.tokens import WordRuns, lookup_form, unspaced_share
from dptext_spark.word_reader import FEW, TokenLookup, WordReader, rows_with_words

SAMPLE_TASKS: Final = 4
SAMPLE_ROWS: Final = 1000
"""The most rows that a task looks at: little work, whatever the table's size."""

NAMED_ROWS: Final = 1_000_000
"""Rows up to which those that kept columns name uniquely are counted and not estimated."""

MANY: Final = 0.1
"""A share of unknown words to warn of: one word in ten, so that hardly a sentence stays whole.

Ordinary English has a few in a hundred that a vocabulary of its own kind lacks; where stop words or
a language are missing there are several in ten.
"""


_LARGER: Final = (
    "100,000 words of GloVe have 94 to 98% of the words of ordinary English texts, 8,000 words "
    "have 79 to 86%: see docs/guide/embeddings.md."
)
"""How much a larger embedding gains, measured on text messages, tweets and novels."""

SOME: Final = 0.01
"""Places per row that look like pieces of identifiers, to warn of."""

_LONG: Final = 2000  # letters of a text that are sanitized to measure the speed
_REHEARSAL: Final = 1.0  # seconds, about, for which a task sanitizes its sample

_NAMED: Final = 5
"""Columns that a warning names, of those that it is also about."""


class Coverage(Counter[str]):
    """How many words of a column the vocabulary has, in a sample of its rows.

    It counts ``rows``, the ``tokens`` that the policy protects, those of them that are ``unknown``
    to the vocabulary, and spans of each of ``TYPES`` that patterns find, whether they are marked or
    not. ``left_figures`` and such are ``PIECES`` of what a release would be whose noise changes no
    word. Where the tokenizer takes each run of letters in scripts without spaces for one word,
    ``unspaced`` is the sum over the rows of the share of such letters.
    """

    @classmethod
    def measure(cls, values: pa.Array, reader: WordReader, slots: pa.Array | None = None) -> Self:
        """Count in the first rows of a column of texts or token lists: a MB of text, or one row."""
        run = next(reader.runs(values, slots), None)
        if run is None:
            return cls()
        coverage = cls()
        for string in run.tokens.strings:
            if string:
                coverage.update(kind for _, _, kind in find(lookup_form(string), TYPES))
        for kind, places in count_pieces(_unchanged(run, reader)).items():
            coverage[f"left_{kind}"] = int(places.sum())
        rows = len(run.tokens.offsets) - 1
        coverage.update(rows=rows, tokens=int(run.protected.sum()), unknown=int(run.unknown.sum()))
        if run.tokens.kind == "text" and reader.policy.tokenizer.name == WordRuns.name:
            sum_of_shares: Any = rows * unspaced_share(values[run.rows])
            coverage["unspaced"] = sum_of_shares
        return coverage

    @property
    def unknown_share(self) -> float:
        """Share of the words that the vocabulary lacks."""
        return self["unknown"] / max(self["tokens"], 1)

    @property
    def unspaced_share(self) -> float:
        """Share of the letters that are of scripts without spaces, on average over the rows."""
        return self["unspaced"] / max(self["rows"], 1)

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON-ready values."""
        return {
            "rows": self["rows"],
            "tokens": self["tokens"],
            "unknown": self["unknown"],
            "unspaced": round(self.unspaced_share, 4),
            "identifiers": {name: self[name] for name in TYPES},
            "left": self.left,
        }

    @property
    def left(self) -> dict[str, int]:
        """What looks like pieces of identifiers, by kind."""
        return {kind: self[f"left_{kind}"] for kind in PIECES}

    def identified(self, but: Collection[str] = ()) -> str:
        """Count what patterns find, by type except for some; empty if nothing."""
        return ", ".join(
            f"{self[kind]:,} {kind}" for kind in TYPES if self[kind] and kind not in but
        )

    def describe(self, column: str = "") -> str:
        """Describe how much of a column the vocabulary has."""
        identified = self.identified()
        if identified:
            identified = f"; identifiers that patterns find: {identified}"
        pieces = pieces_text(self.left)
        if pieces:
            identified += f"; what may be left of others: {pieces}"
        sample = f"a sample of {self['rows']:,} {_unit(column)}"
        if not self["tokens"]:
            return f"no words in {sample}{identified}"
        share = 1 - self.unknown_share
        words = f"{share:.1%} of {self['tokens']:,} words are in the vocabulary"
        return f"{words} ({sample}){identified}"

    @property
    def concern(self) -> str:
        """What to warn of: ``unspaced`` letters, ``unknown`` words, or nothing."""
        if self.unspaced_share > MANY:
            return "unspaced"
        return "unknown" if self.unknown_share > MANY else ""

    def warning(self, column: str, fate: str, others: Collection[str] = ()) -> str:
        """Return what to know of a column before the run; ``fate`` is that of unknown words.

        ``others`` are columns with the same concern, of which each has a smaller share.
        """
        of = f"of column {column}"
        sample = f"in a sample of {self['rows']:,} {_unit(column)}"
        unknown = f"{self.unknown_share:.1%} of the words"
        also = ""
        if others:
            also = f"; in {_listed(others)} more than {MANY:.0%}"
        if self.concern == "unspaced":
            return (
                f"{self.unspaced_share:.0%} of the letters {of}, {sample}, are of scripts without "
                f"spaces between words (Chinese, Japanese, Thai and others){also}. A run of such "
                f"letters counts as one word: {unknown} are not in the embedding's vocabulary. "
                "Cut them into words with --tokenizer icu, and take an embedding of that language."
            )
        if self.concern == "unknown":
            return (
                f"{unknown} {of}, {sample}, are not in the embedding's vocabulary{also}. "
                f"{fate} {_LARGER}"
            )
        return ""


def _unit(column: str) -> str:
    """Return what the values of a column are: those inside arrays are elements."""
    return "elements" if "[]" in column else "rows"


def _listed(columns: Collection[str]) -> str:
    """Name some columns, however many there are."""
    names = [*islice(columns, _NAMED)]
    unnamed = len(columns) - len(names)
    if unnamed:
        names.append(f"{unnamed} more")
    plural = "" if len(columns) == 1 else "s"
    return f"{len(columns)} other column{plural} ({', '.join(names)})"


@dataclass(kw_only=True)
class Sample:
    """Counts in some rows, once, and warns where the vocabulary lacks many words.

    Attributes:
        columns: Those of the run; texts and token lists are looked at.
        table: The schema of the table.
        reader: Cuts texts, and looks words up.
        fate: What becomes of unknown words, and what to do about it, in sentences.
        identifiers: Likewise of identifiers, if they are no marks.
        coverage: By column, after the first call.
        lengths: How many words its rows have, all columns together; None before the first call, and
            for no rows.
        mean_words: The same on average.
        is_sized: Whether columns that pass are read, too, for the bytes of a row.
        row_bytes: Of what is released of a row, on average; None where it is not asked for.
        rehearsed: Sanitizes the sample to measure its speed; no word of that leaves a worker. None
            where no speed is asked for.
        words_per_second: Of one core; None where nothing was measured.
        partition_rows: The rows of each of Spark's partitions, where the sample is the whole table.
    """

    columns: TableColumns
    table: StructType
    reader: WordReader
    fate: str
    identifiers: str = ""
    coverage: dict[str, Coverage] = field(default_factory=dict)
    lengths: dict[str, int | None] | None = None
    mean_words: float | None = None
    is_sized: bool = False
    row_bytes: float | None = None
    rehearsed: Sanitizer | None = None
    words_per_second: float | None = None
    partition_rows: list[int] | None = None

    def __call__(self, rows: DataFrame) -> None:
        """Count in rows as :meth:`TableColumns.select` returns them; later calls do nothing."""
        if self.coverage:
            self.partition_rows = None  # of another batch of a growing table
            return
        tasks = self._tasks(rows)
        names = replace(self.columns, vector=()).sanitized
        words: list[int] = []
        task_rows: list[Any] = []
        total_bytes = 0
        rehearsed = np.zeros(2)  # words and their seconds
        for task in tasks:
            for name, counts in zip(names, task["coverage"], strict=True):
                self.coverage.setdefault(name, Coverage()).update(counts)
            words += task["words"]
            task_rows.append(task["rows"])
            total_bytes += task["bytes"]
            rehearsed += np.array(task["rehearsed"])
        words.sort()
        if words and self.is_sized:
            self.row_bytes = total_bytes / len(words)
        if rehearsed.all():
            rehearsed_words, seconds = rehearsed.tolist()
            self.words_per_second = rehearsed_words / seconds
        if words:
            median = words[(len(words) - 1) // 2]
            self.lengths = {"median": median, "longest": words[-1], "sample": len(words)}
            self.mean_words = sum(words) / len(words)
        if len(tasks) < SAMPLE_TASKS and None not in task_rows:
            self.partition_rows = task_rows
        for warning in self.warnings():
            tell(f"Warning, for those who run the job: {warning}")

    def _tasks(self, rows: DataFrame) -> list[dict[str, Any]]:
        """Return what some tasks count in their first rows."""
        columns = replace(self.columns, vector=())
        if not self.is_sized:
            columns = replace(columns, keep=())
        row = pruned(F.col(ROW), self.columns.schema(self.table), columns.schema(self.table))
        slots = [SLOTS] if columns.slots else []
        person = [PERSON] if columns.person and self.rehearsed is not None else []
        narrow = rows.select(row.alias(ROW), F.lit("").alias(ID), *slots, *person)
        work = partial(_sample, self.reader, columns.field_paths(self.table), self.rehearsed)
        samples = narrow.mapInArrow(work, "sample string").limit(SAMPLE_TASKS)
        # Spark would ask one task first, and all cores but one would wait for it and for its Python
        # worker.
        spark = rows.sparkSession
        name = "spark.sql.limit.initialNumPartitions"
        with ExitStack() as settings, progress(spark, "Looking at a sample"):
            if spark.conf.isModifiable(name):  # some servers let nobody change it
                settings.enter_context(setting(spark, name, str(SAMPLE_TASKS)))
            return [json.loads(sample) for (sample,) in samples.collect()]

    def warnings(self) -> list[str]:
        """Return what to know before the run: one sentence a concern, for all columns together."""
        warnings = []
        for concern in ("unspaced", "unknown"):
            shares = {
                name: getattr(coverage, f"{concern}_share")
                for name, coverage in self.coverage.items()
                if coverage.concern == concern
            }
            if shares:
                worst, *better = sorted(shares, key=lambda name: -shares[name])
                warnings.append(self.coverage[worst].warning(worst, self.fate, better))
        if self.identifiers:
            warnings += self._identified()
        return warnings + self._left()

    def _identified(self) -> list[str]:
        """Return what to know of identifiers that are no marks."""
        marked = self.reader.policy.identifiers.marked
        by_column = {}
        for name, coverage in self.coverage.items():
            identified = coverage.identified(but=marked)
            if identified:
                by_column[name] = identified
        if not by_column:
            return []
        first, *further = by_column
        also = f"; so have {_listed(further)}" if further else ""
        return [
            f"Column {first} has identifiers ({by_column[first]}), in a sample of "
            f"{self.coverage[first]['rows']:,} {_unit(first)}{also}. {self.identifiers}"
        ]

    def _left(self) -> list[str]:
        """Return what to know of pieces of identifiers that no pattern recognizes."""
        columns = [
            name
            for name, coverage in self.coverage.items()
            if sum(coverage.left.values()) > SOME * coverage["rows"]
        ]
        if not columns:
            return []
        first, *further = columns
        coverage = self.coverage[first]
        also = f"; so may {_listed(further)}" if further else ""
        return [
            f"Column {first} may keep pieces of identifiers that no pattern recognizes "
            f"({pieces_text(coverage.left)}, in a sample of {coverage['rows']:,} rows){also}. Look "
            "at such rows, and mask what they hold with --mask-spans or --spans-by."
        ]


def _unchanged(run: TokenLookup, reader: WordReader) -> pa.Array:
    """Return what rows would be in a release whose noise changes no word."""
    tokens = run.tokens
    policy = reader.policy
    released = np.where(run.known | run.marked, run.token_ids, policy.oov.stand_in)
    released[~run.protected & ~run.marked] = KEEP
    released[run.left_out] = DROP
    marks: list[str | None] = [None] * len(tokens.distinct)
    for place, name in run.mark_types().items():
        marks[place] = f"[{name.upper()}]"
    words = reader.bundle.shared().words
    return assemble(tokens, released, words, policy.layout, marks)


def _sample(
    reader: WordReader,
    paths: FieldPaths,
    rehearsed: Sanitizer | None,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Count words in the first rows of a task; runs in Python workers.

    A task without rows counts zeros: no other task is asked in its place, however few rows there
    are.
    """
    reader = shared(reader)
    batches = iter(batches)
    first = next(batches, None)
    rows: int | None = 0 if first is None else len(first)
    coverage = [Coverage()] * len(paths.paths)
    words: list[int] = []
    row_bytes = 0
    speed = np.zeros(2)
    if first is not None and rows:
        about_a_mb = max(1, SLICE_BYTES * rows // first.nbytes)
        batch = Batch.from_arrow(first.slice(0, min(about_a_mb, SAMPLE_ROWS)), paths)
        coverage = [
            Coverage.measure(field_values.values, reader, field_values.slots)
            for _, field_values in batch.fields()
        ]
        # Sorted: no number has the place of a row.
        words = np.sort(batch.words(reader.visible_words)).tolist()
        row_bytes = batch.row.nbytes
        if rehearsed is not None:
            speed = _speed(shared(rehearsed), batch)
        # Where this is the end, Spark uses the worker again.
        is_whole = rows <= SAMPLE_ROWS and next(batches, None) is None
        rows = rows if is_whole else None
    sample = {
        "coverage": coverage,
        "words": words,
        "rows": rows,
        "bytes": row_bytes,
        "rehearsed": speed.tolist(),
    }
    yield pa.RecordBatch.from_pydict({"sample": [json.dumps(sample)]})


def _speed(sanitizer: Sanitizer, batch: Batch) -> NDArray[np.float64]:
    """Sanitize rows of a batch; return how many words took how much processor time, (2,).

    It takes more and more rows until about a second has passed. The first row, which also loads the
    search, does not count if there are others.
    """
    measured: list[tuple[int, float]] = []
    start = 0
    rows = 1
    end = time.monotonic() + _REHEARSAL
    with suppress(DptextError):  # of words that fail a run, which is to say so itself
        while start < len(batch) and (not measured or time.monotonic() < end):
            clock = time.process_time()
            words = _rehearse(sanitizer, batch.part(slice(start, start + rows)))
            measured.append((words, time.process_time() - clock))
            start += rows
            rows *= 2
    counted = measured[1:] or measured
    total: NDArray[np.float64] = np.array(counted, dtype=np.float64).reshape(-1, 2).sum(axis=0)
    return total


def _rehearse(sanitizer: Sanitizer, batch: Batch) -> int:
    """Sanitize all fields of a batch, of long texts the beginning; return the number of words."""
    words = 0
    for name, field_values in batch.fields(sanitizer.visible_words):
        values = field_values.values
        if field_values.slots is None and pa.types.is_string(values.type):
            values = pc.utf8_slice_codeunits(values, 0, _LONG)
        result = sanitizer.sanitize(
            values, field_values.ids, column=name, trust_id=True, **field_values.of_rows
        )
        words += int(result.counts.tokens.sum())
    return words


def count_rows_with_words(
    df: DataFrame, columns: TableColumns, reader: WordReader, vocabulary: int
) -> NDArray[np.uint8]:
    """Count in one pass the rows that have each word, uint8 (V,): exact below ``max(FEW)``.

    Other words have that number. A row has a word if one of its sanitized fields has it, perturbed
    or not. Workers read and cut texts; nothing is perturbed.
    """
    columns = replace(columns, keep=(), vector=())
    work = partial(_count_words, reader, columns.field_paths(df.schema))
    selected = columns.select(df, F.lit(""))
    counted = selected.mapInArrow(work, "word long, rows long")
    sums = counted.groupBy("word").agg(F.sum("rows").alias("rows"))
    row_counts = np.full(vocabulary, max(FEW), dtype=np.uint8)
    rare = to_arrow(sums.where(F.col("rows") < max(FEW)))
    row_counts[rare["word"].to_numpy()] = rare["rows"].to_numpy()
    return row_counts


def _count_words(
    reader: WordReader, paths: FieldPaths, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count the rows of a task that have each word; runs in Python workers."""
    reader = shared(reader)
    vocabulary = len(reader.bundle.shared().words)
    total = np.zeros(vocabulary, dtype=np.int64)
    for batch in Batch.parts(batches, paths):
        rows = [np.zeros(0, dtype=np.int64)]
        words = [np.zeros(0, dtype=np.int64)]
        for name, values in batch.fields():
            for run in reader.runs(values.values, values.slots, column=name):
                rows.append(values.rows[run.tokens.rows + run.rows.start])
                words.append(run.word_ids)
        total += rows_with_words(np.concatenate(words), np.concatenate(rows), vocabulary=vocabulary)
    word_ids = np.flatnonzero(total)
    yield pa.RecordBatch.from_pydict({"word": word_ids, "rows": total[word_ids]})


def count_rows_named(
    df: DataFrame, kept: Sequence[str], rows: int, *, read: Column
) -> dict[str, Any]:
    """Count in one pass the rows whose values in kept columns no other row has, together and alone.

    A column of the files is ``read`` besides: partition columns alone are in none of them.

    Values go between machines as hashes. Where the table has more than ``NAMED_ROWS`` rows, a share
    of the hashes is looked at, each with all of its rows.
    """
    alone = []
    for name in kept:
        field = Field.find(df.schema, name)[0]
        column = field.column
        if None in field.path:  # inside an array, which counts whole
            column = quoted(str(field.path[0]))
        alone.append(column.cast("string"))
    # A null leaves a hash as it is: which columns are null is hashed, too.
    nulls = [column.isNull() for column in alone]
    hashes = [F.xxhash64(*alone, *nulls), *(F.xxhash64(column) for column in alone)]
    hashes.append(F.xxhash64(read.isNull()))
    parts = 1 << max(0, (rows - 1) // NAMED_ROWS).bit_length()
    numbered = []
    for number, value in enumerate(hashes):
        numbered.append(F.struct(F.lit(number).alias("column"), value.alias("hash")))
    values = df.select(F.explode(F.array(*numbered)).alias("v")).select("v.*")
    shared_values = values.where(F.pmod("hash", F.lit(parts)) == 0).groupBy("column", "hash")
    unique = shared_values.count().where("count = 1").groupBy("column").count()
    counts = {row["column"]: row["count"] * parts for row in unique.collect()}
    together, *by_column = [min(rows, counts.get(number, 0)) for number in range(len(kept) + 1)]
    return {
        "rows": rows,
        "together": together,
        "alone": dict(zip(kept, by_column, strict=True)),
        "share": 1.0 / parts,
    }


_PERCENTILES: Final = {"50%": 0.5, "90%": 0.9, "99%": 0.99, "largest": 1.0}


def count_persons(
    df: DataFrame, columns: TableColumns, name: str, reader: WordReader, within: float
) -> dict[str, Any] | None:
    """Add up the rows and words of each person in one pass; None where no row names one.

    Persons go between machines as hashes, without their texts; percentiles of them reach the
    driver.
    """
    person = Field.find(df.schema, name)[0].column
    columns = replace(columns, keep=(), person=None)
    selected = columns.select(df, F.when(person.isNotNull(), F.xxhash64(person)))
    work = partial(_words_of_persons, reader, columns.field_paths(df.schema))
    rows = selected.mapInArrow(work, "person string, words long")
    persons = rows.groupBy("person").agg(
        F.count(F.lit(1)).alias("rows"), F.sum("words").alias("words")
    )
    is_named = F.col("person").isNotNull()
    sums = persons.agg(
        F.count("person").alias("persons"),
        F.sum(F.when(~is_named, F.col("rows"))).alias("nobody"),
        _percentiles("rows", is_named),
        _percentiles("words", is_named),
    ).collect()[0]
    if not sums["persons"]:
        return None
    return {
        "column": name,
        "persons": sums["persons"],
        "nobody": sums["nobody"] or 0,
        "rows": dict(zip(_PERCENTILES, sums["rows"], strict=True)),
        "words": dict(zip(_PERCENTILES, sums["words"], strict=True)),
        "within": within,
    }


def _percentiles(name: str, is_named: Column) -> Column:
    values = F.when(is_named, F.col(name))
    return F.percentile_approx(values, [*_PERCENTILES.values()], ACCURACY).alias(name)


def _words_of_persons(
    reader: WordReader, paths: FieldPaths, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Count the words of rows; runs in Python workers."""
    reader = shared(reader)
    for batch in Batch.parts(batches, paths):
        words = pa.array(batch.words(reader.visible_words))
        yield pa.RecordBatch.from_arrays([batch.ids, words], names=["person", "words"])
