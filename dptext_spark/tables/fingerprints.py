"""Fingerprints of released rows: what a release of them costs, and what it lets out raw.

A line for each row and column holds keyed hashes: of the row's id, of what the column holds, of its
slots or masked spans if there are any, of the key that its noise is drawn from, and of each token
that goes out raw with its place. Elements of an array that move to another place get fresh noise
there, and nobody can tell which one came from where: so all that a column holds in a row is one
content. Without the user's key the hashes show how many tokens go out raw, and which contents,
spans and raw tokens of one row are equal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from dptext_spark.accounting.exposure import WHOLE, Cover, is_known, recorded_policy
from dptext_spark.accounting.ledger import Entry, Exposure, Ledger, RowCounts, Terms, Texts
from dptext_spark.noise import NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.tables.batch import Batch, Fields, FieldValues
from dptext_spark.tables.columns import shared
from dptext_spark.text.columns import Spans, column_kind, id_bytes, read_spans

LINES: Final = (
    "row binary, column string, content binary, spans binary, context binary, "
    "unprotected array<bigint>, unknown array<bigint>"
)
"""The columns of fingerprints; the last two are null where a policy from elsewhere decides."""

_FIELDS: Final = [field.split() for field in LINES.split(", ")]
_BYTES: Final = 16
_BYTES_OF_TOKEN: Final = 8
_PLACE: Final = ("row", "column")
_COMPARED: Final = ("column", "content", "spans", "unprotected", "unknown")
_RAW_TOKENS: Final = {"protect": "unprotected", "oov": "unknown"}
# Epsilon in units of 1e-18, rounded up: sums of it are exact, whatever their order.
_TINY: Final = 18
_DIGITS: Final = Context(prec=60, rounding=ROUND_CEILING)
_SUM: Final = DecimalType(38, 0)


def fingerprint_batches(
    key: NoiseKey, sanitizer: Sanitizer, ways: Fields, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield fingerprints of rows that ``TableColumns.select`` gave, in workers, by a derived key."""
    sanitizer = shared(sanitizer)
    policy = sanitizer.release.policy
    spans_column = policy.spans_column
    knows_tokens = is_known(recorded_policy(policy))

    def hashed(*parts: bytes | memoryview) -> bytes:
        return key.derive(*parts).secret[:_BYTES]

    def hashed_tokens(
        row_id: bytes, place: bytes, tokens: Iterable[tuple[int, str]]
    ) -> Iterator[int]:
        for start, token in tokens:
            token_place = start.to_bytes(8, "little")
            digest = key.derive(b"token", row_id, place, token_place, token.encode()).secret
            yield int.from_bytes(digest[:_BYTES_OF_TOKEN], "little", signed=True)

    for batch in Batch.parts(batches, ways):
        row_ids = id_bytes(batch.ids)
        rows = pa.array([hashed(b"row", row_id) for row_id in row_ids], pa.binary())
        for column, found in batch.fields(sanitizer.visible_words):
            # Under any spelling of the column's name.
            contents = [[b"content", row_id, column.lower().encode()] for row_id in row_ids]
            spans = [[b"spans", row_id] for row_id in row_ids]
            keys = [[b"context"] for _ in row_ids]
            unprotected: list[list[int]] = [[] for _ in row_ids]
            unknown: list[list[int]] = [[] for _ in row_ids]
            # In a text a masked span is one letter, in a list as many elements as before.
            moves_tokens = (
                bool(policy.mask_spans) and column_kind(found.values.type, column) == "text"
            )
            of_values = zip(
                found.rows.tolist(),
                found.positions.astype("<i8"),
                # The first to read values: it refuses what is no Unicode.
                sanitizer.contexts(found.values, found.ids, column=column, **found.given),
                _contents(found.values),
                _spans(found, spans_column),
                strict=True,
            )
            for row, positions, context, content, value_spans in of_values:
                place = positions.tobytes()
                keys[row].append(context.key)
                contents[row] += (place, content)
                spans[row] += (place, _span_bytes(value_spans))
                masked = value_spans if moves_tokens else None
                for tokens, raw in ((unprotected, context.unprotected), (unknown, context.unknown)):
                    if raw:
                        tokens[row] += hashed_tokens(row_ids[row], place, _unmasked(raw, masked))
            yield pa.RecordBatch.from_pydict(
                {
                    "row": rows,
                    "column": pa.array([column] * len(rows), pa.string()),
                    "content": pa.array([hashed(*parts) for parts in contents], pa.binary()),
                    "spans": pa.array(
                        [hashed(*parts) if spans_column else None for parts in spans], pa.binary()
                    ),
                    "context": pa.array([hashed(*parts) for parts in keys], pa.binary()),
                    "unprotected": _sorted(unprotected if knows_tokens else [None] * len(rows)),
                    "unknown": _sorted(unknown if knows_tokens else [None] * len(rows)),
                }
            )


def _sorted(tokens: Sequence[list[int] | None]) -> pa.Array:
    """Return lists of hashes without the order of their tokens."""
    return pa.array(
        [None if of_row is None else sorted(of_row) for of_row in tokens], pa.list_(pa.int64())
    )


def _unmasked(
    tokens: Iterable[tuple[int, str]], spans: Sequence[tuple[int, int]] | None
) -> Iterator[tuple[int, str]]:
    """Yield tokens with their places in the text as it was before each span became a letter."""
    for start, token in tokens:
        for first, end in spans or ():
            if first < start:
                start += end - first - 1
        yield start, token


def _contents(values: pa.Array) -> Iterator[bytes]:
    """Yield what each text or token list holds; other contents are other bytes."""
    for value in values:
        strings = value.as_py()
        if strings is None:
            yield b"null"
        elif isinstance(strings, str):
            yield b"text" + strings.encode()
        else:
            encoded = [None if string is None else string.encode() for string in strings]
            lengths = [-1 if string is None else len(string) for string in encoded]
            numbers = np.array([len(lengths), *lengths], dtype="<i8").tobytes()
            yield b"".join([b"list", numbers, *filter(None, encoded)])


def _spans(found: FieldValues, column: str | None) -> Spans:
    """Read each value's slots or masked spans; None where there are none, or they cannot be read."""
    if column is None or found.slots is None:
        return [None] * len(found.values)
    return read_spans(found.slots, found.values, column)


def _span_bytes(spans: Sequence[tuple[int, int]] | None) -> bytes:
    return b"unreadable" if spans is None else np.array(spans, dtype="<i8").tobytes()


def measures() -> list[Column]:
    """Aggregates of fingerprints that say whether files hold what was written."""
    lines = F.xxhash64(*(name for name, _ in _FIELDS))
    return [
        F.count(F.lit(1)).alias("lines"),
        F.coalesce(F.bit_xor(lines), F.lit(0)).alias("checksum"),
    ]


# What a release costs


def compare(
    mine: DataFrame, earlier: DataFrame | None, before: Ledger, terms: Terms
) -> tuple[RowCounts, Decimal | None, Decimal]:
    """Compare a release's fingerprints with ``earlier`` ones of its family; no row leaves Spark.

    Returns:
        Counts of rows; the largest earlier total in the family of those that get new noise, None
        where none does; and the largest total there of all of them with this release.
    """
    largest, family = before.family_totals.get(terms.family, Decimal(0)), before.family(terms)
    worth = _by_release({entry.release: _tiny(entry.terms.epsilon) for entry in family})
    if earlier is None:
        earlier = mine.sparkSession.createDataFrame([], f"{LINES}, release string")
    mine, earlier = (_under_one_name(lines, family, terms) for lines in (mine, earlier))
    # Of each place what was released of it: once for each noise context, however often it came. A
    # run that was cut off before it was assessed counts, but frees nobody: no budget was checked
    # for it.
    assessed = F.col("release").isin([e.release for e in family if e.total is not None])
    uses = earlier.groupBy(*_PLACE, F.col("context").alias("used")).agg(
        F.collect_set("content").alias("before"),
        F.max(worth.cast(_SUM)).alias("worth"),
        F.bool_or(assessed).alias("assessed"),
    )
    is_own, no = F.col("used") == F.col("context"), F.lit(False)
    pairs = mine.select(*_PLACE, "content", "context").join(uses, [*_PLACE], "left").distinct()
    places = pairs.groupBy(*_PLACE, "content", "context").agg(
        (F.count("used") == 0).alias("new"),
        F.coalesce(F.bool_or(F.array_contains("before", F.col("content"))), no).alias("same"),
        F.coalesce(F.bool_or(is_own & F.col("assessed")), no).alias("free"),
        F.coalesce(F.sum("worth"), F.lit(0)).alias("spent"),
        # Its own context, which it would share with a run that was cut off, counts once.
        F.coalesce(F.sum(F.when(is_own, F.col("worth"))), F.lit(0)).alias("own"),
    )
    new, free = F.col("new"), F.col("free")
    added = F.when(free, F.lit(0)).otherwise(F.lit(_tiny(terms.epsilon)))
    # A row that may be any earlier one counts from the largest total.
    any_row = ~free & {"id": no, "file": ~new, "position": F.lit(True)}[terms.known_as]
    known = F.col("spent") - F.when(free, F.lit(0)).otherwise(F.col("own"))
    places = places.select("*", known.cast(_SUM).alias("known"), added.cast(_SUM).alias("added"))
    places = _with_others(places, uses, before.texts(terms), {*map(terms.name, terms.columns)})
    spent = F.when(any_row, F.lit(_tiny(largest)) + F.col("others_added")).otherwise(
        F.col("known") + F.col("others")
    )
    spent = spent.cast(_SUM)
    rows = places.groupBy("row").agg(
        F.bool_or("new").alias("new"),
        F.bool_or(~new & ~F.col("same")).alias("changed"),
        F.bool_and("free").alias("free"),
        F.max(F.when(~free, spent)).alias("costliest"),
        F.max(spent + F.col("added")).alias("total"),
    )
    found = rows.agg(
        F.count_if("changed").alias("changed"),
        F.count_if(~F.col("changed") & F.col("new")).alias("new"),
        F.count_if(~F.col("changed") & ~F.col("new")).alias("equal"),
        F.count_if("free").alias("free"),
        *(F.max(name).alias(name) for name in ("costliest", "total")),
    ).collect()[0]
    costliest, total = (
        None if found[name] is None else found[name].scaleb(-_TINY, _DIGITS)
        for name in ("costliest", "total")
    )
    counts = {name: found[name] for name in ("new", "equal", "changed", "free")}
    return counts, costliest, total or Decimal(0)


def _tiny(number: Decimal | float) -> Decimal:
    return Decimal(str(number)).scaleb(_TINY, _DIGITS).quantize(Decimal(1), context=_DIGITS)


def _under_one_name(lines: DataFrame, family: Sequence[Entry], terms: Terms) -> DataFrame:
    """Return fingerprints whose columns have the names under which they are compared."""
    columns = {
        column for release in [terms, *(e.terms for e in family)] for column in release.columns
    }
    names = F.create_map(
        *(F.lit(name) for column in columns for name in (column, terms.name(column)))
    )
    return lines.withColumn("column", F.coalesce(names[F.col("column")], "column"))


def _with_others(
    places: DataFrame, uses: DataFrame, texts: Texts, columns: Collection[str]
) -> DataFrame:
    """Add what other columns of a row spent that may hold the same text.

    ``others`` is all, ``others_added`` what this release adds. Of columns with different texts one
    at most can be the same, so that the costliest of them counts.
    """
    groups = {column: texts.groups(column) for column in sorted(columns)}
    others = sorted({other for column in columns for other in texts.others(column)})
    if not others:
        nothing = F.lit(0).cast(_SUM)
        return places.withColumns({"others": nothing, "others_added": nothing})
    spent = (
        uses.join(places.select("row").distinct(), "row", "left_semi")
        .groupBy(*_PLACE)
        .agg(F.sum("worth").cast(_SUM).alias("others"), F.lit(0).cast(_SUM).alias("others_added"))
    )
    now = (F.col("known") + F.col("added")).cast(_SUM)
    mine = places.select(*_PLACE, now.alias("others"), F.col("added").alias("others_added"))
    places_of = {other: place for place, other in enumerate(others)}
    by_row = (
        spent.unionByName(mine)
        .groupBy("row")
        .agg(
            *(
                F.max(F.when(F.col("column") == other, F.col(sum_of))).alias(f"{sum_of} {place}")
                for other, place in places_of.items()
                for sum_of in ("others", "others_added")
            )
        )
    )

    def sum_of_groups(sum_of: str) -> Column:
        nothing = F.lit(0).cast(_SUM)
        chosen = nothing
        for column, of_column in groups.items():
            total = nothing
            for group in of_column:
                sums = [F.col(f"{sum_of} {places_of[other]}") for other in group]
                total = total + F.greatest(
                    nothing, *sums
                )  # null where the row never had the column
            chosen = F.when(F.col("column") == column, total.cast(_SUM)).otherwise(chosen)
        return chosen

    joined = places.join(by_row, "row")
    return joined.select(
        *places.columns, *(sum_of_groups(name).alias(name) for name in ("others", "others_added"))
    )


# What a release lets out raw


def exposed_by_row(
    mine: DataFrame,
    earlier: DataFrame | None,
    before: Ledger,
    terms: Terms,
    exposures: Sequence[Exposure],
) -> list[str]:
    """Name what goes out raw of some row although an earlier release protected it.

    No row leaves Spark. Each row counts for itself: what is out of one is not out of another one.
    """
    if not exposures:
        return []
    if earlier is None:
        earlier = mine.sparkSession.createDataFrame([], f"{LINES}, release string")
    family = before.family(terms)
    mine, earlier = (_under_one_name(lines, family, terms) for lines in (mine, earlier))
    theirs = earlier.select(
        "row", *(F.col(name).alias(f"their {name}") for name in _COMPARED), "release"
    )
    pairs = mine.select("row", *_COMPARED).distinct().join(theirs, "row", "left")
    judges = [_judge(exposure, before, terms) for exposure in exposures]
    rows = pairs.groupBy("row", *_COMPARED).agg(
        *(
            measure.alias(f"{name} {place}")
            for place, measures_of in enumerate(judges)
            for name, measure in measures_of.items()
        )
    )
    protecting = []
    for place, exposure in enumerate(exposures):
        protected, out, kept = (F.col(f"{name} {place}") for name in ("protected", "out", "kept"))
        still = protected.isNotNull() & ~out & (kept.isNull() | (kept <= protected))
        if exposure.raw != WHOLE:
            still = still & (F.col("column") == terms.name(exposure.column))
        protecting.append(F.max(F.when(still, protected)).alias(str(place)))
    numbers = rows.agg(*protecting).collect()[0]
    names = [
        exposure.protected_in(number)
        for exposure, number in zip(exposures, numbers, strict=True)
        if number is not None
    ]
    return list(dict.fromkeys(names))


def _judge(exposure: Exposure, before: Ledger, terms: Terms) -> dict[str, Column]:
    """Return aggregates over all earlier fingerprints of a row.

    They are the number of the last release that ``protected`` it, whether it is ``out`` already of
    this very content, and the number of the last release that ``kept`` the whole column raw.
    """
    family = {entry.release: entry for entry in before.family(terms)}
    committed = {name for name, entry in family.items() if entry.state == "committed"}
    same_spans = F.col("spans").eqNullSafe(F.col("their spans"))
    same_content = (F.col("column") == F.col("their column")) & (
        F.col("content") == F.col("their content")
    )
    release = F.col("release")
    number = _by_release({name: entry.number for name, entry in family.items()}).cast("long")

    def covering(cover: Cover) -> set[str]:
        return {name for name, answer in exposure.covers.items() if answer == cover}

    protects = release.isin(covering("no")) | (release.isin(covering("same spans")) & ~same_spans)
    is_out = release.isin(committed) & release.isin(covering("yes") | covering("likely"))
    is_out = is_out | (release.isin(committed & covering("same spans")) & same_spans)
    out = F.coalesce(F.bool_or(is_out & same_content), F.lit(False))
    if exposure.raw == WHOLE:  # of which there are no fingerprints
        out = F.lit(False)
    tokens = _RAW_TOKENS.get(exposure.raw.option)
    if tokens is not None:
        # Of one content the tokens themselves decide, whatever the policies are.
        theirs = F.when(same_content, F.concat("their unprotected", "their unknown"))
        protects = F.coalesce(F.array_size(F.array_except(tokens, theirs)) > 0, protects)
        all_theirs = F.flatten(F.collect_set(F.when(release.isin(committed), theirs)))
        mine = F.any_value(tokens)
        out = F.coalesce(F.array_size(F.array_except(mine, all_theirs)) == 0, out)
    always = [
        entry.number for entry in before.counted if entry.release in covering("no") - family.keys()
    ]
    of_family = [family[name].number for name in covering("no") & family.keys()]
    if terms.known_as == "position":  # any earlier row may be this one
        always += of_family
    last = [F.max(F.when(protects, number)), _number(always)]
    if terms.known_as == "file":  # so may it be in a file that comes again
        last.append(F.when(F.count(release) > 0, _number(of_family)))
    keeping = {
        name for name in committed if family[name].terms.raw(exposure.column, terms) == [WHOLE]
    }
    is_kept = release.isin(keeping)
    if terms.known_as != "id":
        is_kept = is_kept & same_content
    return {
        "protected": F.greatest(*last),
        "out": out,
        "kept": F.max(F.when(is_kept, number)),
    }


def _number(numbers: Collection[int]) -> Column:
    return F.lit(max(numbers, default=None)).cast("long")


def _by_release(values: Mapping[str, Any]) -> Column:
    """Return what a fingerprint's release is mapped to; null for none."""
    pairs = {"": None, **values}
    return F.create_map(*(F.lit(part) for pair in pairs.items() for part in pair))[F.col("release")]
