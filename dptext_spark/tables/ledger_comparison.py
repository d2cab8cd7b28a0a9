"""Released rows compared with earlier ones: what their release costs, and what it lets out raw.

Rows are fingerprints, as :mod:`dptext_spark.tables.fingerprints` writes them; none leaves Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType

from dptext_spark.accounting.exposure import WHOLE, Cover
from dptext_spark.accounting.ledger import Entry, Exposure, Ledger, RowCounts, Terms, Texts
from dptext_spark.tables.fingerprints import LINES

_PLACE: Final = ("row", "column")
_COMPARED: Final = ("column", "content", "spans", "unprotected", "unknown")
_RAW_TOKENS: Final = {"protect": "unprotected", "oov": "unknown"}
# Epsilon in units of 1e-18, rounded up: sums of it are exact, whatever their order.
_SCALE: Final = 18
_DIGITS: Final = Context(prec=60, rounding=ROUND_CEILING)
_SUM: Final = DecimalType(38, 0)


def compare(
    lines: DataFrame, earlier: DataFrame | None, before: Ledger, terms: Terms
) -> tuple[RowCounts, Decimal | None, Decimal]:
    """Compare a release's fingerprints with ``earlier`` ones of its family; no row leaves Spark.

    Returns:
        Counts of rows; the largest earlier total in the family of those that get new noise, None
        where none does; and the largest total there of all of them with this release.
    """
    family = before.family(terms)
    lines = _under_one_name(lines, family, terms)
    earlier = _under_one_name(_or_empty(earlier, lines), family, terms)
    uses = _uses(earlier, family)
    places = _places(lines, uses, terms)
    places = _with_others(places, uses, before.texts(terms), {*map(terms.name, terms.columns)})
    new = F.col("new")
    free = F.col("free")
    largest = _scaled(before.family_totals.get(terms.family, Decimal(0)))
    # A row that may be any earlier one counts from the largest total.
    may_be_any = {"id": F.lit(False), "file": ~new, "position": F.lit(True)}[terms.known_as]
    spent_by_any = F.lit(largest) + F.col("others_added")
    spent = F.when(~free & may_be_any, spent_by_any).otherwise(F.col("spent") + F.col("others"))
    spent = spent.cast(_SUM)
    spent_anew = F.when(~free, spent)
    is_changed = ~new & ~F.col("same")
    of_rows = {
        "new": F.bool_or(new),
        "changed": F.bool_or(is_changed),
        "free": F.bool_and(free),
        "costliest": F.max(spent_anew),
        "total": F.max(spent + F.col("added")),
    }
    rows = places.groupBy("row").agg(*_named(of_rows))
    changed = F.col("changed")
    counts = {
        "new": F.count_if(~changed & new),
        "equal": F.count_if(~changed & ~new),
        "changed": F.count_if(changed),
        "free": F.count_if(free),
    }
    totals = (F.max("costliest"), F.max("total"))
    *numbers, costliest, total = rows.agg(*counts.values(), *totals).collect()[0]
    row_counts = dict(zip(counts, numbers, strict=True))
    return row_counts, _unscaled(costliest), _unscaled(total) or Decimal(0)


def _uses(earlier: DataFrame, family: Sequence[Entry]) -> DataFrame:
    """Return what was released of each place: once for each noise context."""
    epsilons = _by_release({entry.release: _scaled(entry.terms.epsilon) for entry in family})
    # A run that was cut off before it was assessed counts, but frees nobody: no budget was checked
    # for it.
    assessed = [entry.release for entry in family if entry.total is not None]
    uses = {
        "contents": F.collect_set("content"),
        "epsilon": F.max(epsilons.cast(_SUM)),
        "assessed": F.bool_or(F.col("release").isin(assessed)),
    }
    return earlier.groupBy(*_PLACE, F.col("context").alias("used")).agg(*_named(uses))


def _places(lines: DataFrame, uses: DataFrame, terms: Terms) -> DataFrame:
    """Return places of a release: whether they are new, same and free; what they spent and add."""
    is_own = F.col("used") == F.col("context")
    no = F.lit(False)
    nothing = F.lit(0)
    is_new = F.count("used") == 0
    is_same = F.array_contains("contents", F.col("content"))
    is_free = is_own & F.col("assessed")
    own_epsilon = F.when(is_own, F.col("epsilon"))
    pairs = lines.select(*_PLACE, "content", "context").join(uses, [*_PLACE], "left").distinct()
    of_places = {
        "new": is_new,
        "same": F.coalesce(F.bool_or(is_same), no),
        "free": F.coalesce(F.bool_or(is_free), no),
        "in_all": F.coalesce(F.sum("epsilon"), nothing),
        # Its own context, which it would share with a run that was cut off, counts once.
        "in_its_own": F.coalesce(F.sum(own_epsilon), nothing),
    }
    places = pairs.groupBy(*_PLACE, "content", "context").agg(*_named(of_places))
    counted_twice = F.when(F.col("free"), nothing).otherwise(F.col("in_its_own"))
    added = F.when(F.col("free"), nothing).otherwise(F.lit(_scaled(terms.epsilon)))
    return places.select(
        *(*_PLACE, "content", "context", "new", "same", "free"),
        (F.col("in_all") - counted_twice).cast(_SUM).alias("spent"),
        added.cast(_SUM).alias("added"),
    )


def _named(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _scaled(number: Decimal | float) -> Decimal:
    return Decimal(str(number)).scaleb(_SCALE, _DIGITS).quantize(Decimal(1), context=_DIGITS)


def _unscaled(number: Decimal | None) -> Decimal | None:
    return None if number is None else number.scaleb(-_SCALE, _DIGITS)


def _or_empty(earlier: DataFrame | None, lines: DataFrame) -> DataFrame:
    """Return the earlier fingerprints, or a frame without any."""
    if earlier is not None:
        return earlier
    return lines.sparkSession.createDataFrame([], f"{LINES}, release string")


def _under_one_name(lines: DataFrame, family: Sequence[Entry], terms: Terms) -> DataFrame:
    """Return fingerprints whose columns have the names under which they are compared."""
    columns = {*terms.columns}
    for entry in family:
        columns.update(entry.terms.columns)
    pairs: list[Column] = []
    for column in columns:
        pairs += [F.lit(column), F.lit(terms.name(column))]
    names = F.create_map(*pairs)
    return lines.withColumn("column", F.coalesce(names[F.col("column")], "column"))


def _with_others(
    places: DataFrame, uses: DataFrame, texts: Texts, columns: Collection[str]
) -> DataFrame:
    """Add what other columns of a row spent that may hold the same text.

    ``others`` is all, ``others_added`` what this release adds. Of columns with different texts one
    at most can be the same, so that the costliest of them counts.
    """
    other_columns = sorted(set[str]().union(*map(texts.others, columns)))
    nothing = F.lit(0).cast(_SUM)
    if not other_columns:
        return places.withColumns({"others": nothing, "others_added": nothing})
    spent_before = (
        uses.join(places.select("row").distinct(), "row", "left_semi")
        .groupBy(*_PLACE)
        .agg(F.sum("epsilon").cast(_SUM).alias("others"), nothing.alias("others_added"))
    )
    spent = (F.col("spent") + F.col("added")).cast(_SUM)
    spent_now = places.select(*_PLACE, spent.alias("others"), F.col("added").alias("others_added"))
    numbers = {column: number for number, column in enumerate(other_columns)}
    largest: list[Column] = []
    for column, number in numbers.items():
        for name in ("others", "others_added"):
            of_column = F.when(F.col("column") == column, F.col(name))
            largest.append(F.max(of_column).alias(f"{name} {number}"))
    by_row = spent_before.unionByName(spent_now).groupBy("row").agg(*largest)

    def sum_of_groups(name: str) -> Column:
        sums = nothing
        for column in sorted(columns):
            total = nothing
            for group in texts.groups(column):
                of_group = [F.col(f"{name} {numbers[in_group]}") for in_group in group]
                # Null where the row never had the column.
                total = total + F.greatest(nothing, *of_group)
            sums = F.when(F.col("column") == column, total.cast(_SUM)).otherwise(sums)
        return sums.alias(name)

    joined = places.join(by_row, "row")
    return joined.select(*places.columns, sum_of_groups("others"), sum_of_groups("others_added"))


# What a release lets out raw


def exposed_by_row(
    lines: DataFrame,
    earlier: DataFrame | None,
    before: Ledger,
    terms: Terms,
    exposures: Sequence[Exposure],
) -> list[str]:
    """Name what is released raw of some row although an earlier release protected it.

    No row leaves Spark. Each row counts for itself: what is out of one is not out of another one.
    """
    if not exposures:
        return []
    family = before.family(terms)
    lines = _under_one_name(lines, family, terms)
    earlier = _under_one_name(_or_empty(earlier, lines), family, terms)
    theirs = [F.col(name).alias(f"their {name}") for name in _COMPARED]
    earlier = earlier.select("row", *theirs, "release")
    pairs = lines.select("row", *_COMPARED).distinct().join(earlier, "row", "left")
    judgements: list[Column] = []
    protecting: list[Column] = []
    for number, exposure in enumerate(exposures):
        for name, judgement in _judge(exposure, before, terms).items():
            judgements.append(judgement.alias(f"{name} {number}"))
        protected = F.col(f"protected {number}")
        raw = F.col(f"kept {number}")
        is_exposed = protected.isNotNull() & ~F.col(f"out {number}")
        is_exposed = is_exposed & (raw.isNull() | (raw <= protected))
        if exposure.raw != WHOLE:
            is_exposed = is_exposed & (F.col("column") == terms.name(exposure.column))
        protecting.append(F.max(F.when(is_exposed, protected)).alias(str(number)))
    last_releases = pairs.groupBy("row", *_COMPARED).agg(*judgements).agg(*protecting).collect()[0]
    names: dict[str, None] = {}
    for exposure, release in zip(exposures, last_releases, strict=True):
        if release is not None:
            names[exposure.protected_in(release)] = None
    return [*names]


def _judge(exposure: Exposure, before: Ledger, terms: Terms) -> dict[str, Column]:
    """Return aggregates over all earlier fingerprints of a row.

    They are the number of the last release that ``protected`` it, whether it is ``out`` already of
    this very content, and the number of the last release that ``kept`` the whole column raw.
    """
    numbers: dict[str, int] = {}
    committed: set[str] = set()
    keeping: set[str] = set()
    for entry in before.family(terms):
        numbers[entry.release] = entry.number
        if entry.state == "committed":
            committed.add(entry.release)
            if entry.terms.raw(exposure.column, terms) == [WHOLE]:
                keeping.add(entry.release)
    number = _by_release(numbers).cast("long")
    same_content = F.col("column") == F.col("their column")
    same_content = same_content & (F.col("content") == F.col("their content"))
    protects, out = _protection(exposure, committed, same_content)
    protecting = _covering(exposure, "no")
    of_family = [numbers[name] for name in protecting & numbers.keys()]
    always = [
        entry.number for entry in before.counted if entry.release in protecting - numbers.keys()
    ]
    if terms.known_as == "position":  # any earlier row may be this one
        always += of_family
    last = [F.max(F.when(protects, number)), _largest(always)]
    if terms.known_as == "file":  # so may it be in a file that comes again
        last.append(F.when(F.count("release") > 0, _largest(of_family)))
    is_kept = F.col("release").isin(keeping)
    if terms.known_as != "id":
        is_kept = is_kept & same_content
    return {
        "protected": F.greatest(*last),
        "out": out,
        "kept": F.max(F.when(is_kept, number)),
    }


def _protection(
    exposure: Exposure, committed: Collection[str], same_content: Column
) -> tuple[Column, Column]:
    """Return whether an earlier fingerprint protects, and of all whether the content is out."""
    release = F.col("release")
    same_spans = F.col("spans").eqNullSafe(F.col("their spans"))
    covers_same_spans = _covering(exposure, "same spans")
    protects = release.isin(_covering(exposure, "no"))
    protects = protects | (release.isin(covers_same_spans) & ~same_spans)
    is_out = release.isin(_covering(exposure, "yes") | _covering(exposure, "likely"))
    is_out = is_out | (release.isin(covers_same_spans) & same_spans)
    is_out = release.isin(committed) & is_out
    out = F.coalesce(F.bool_or(is_out & same_content), F.lit(False))
    if exposure.raw == WHOLE:  # of which there are no fingerprints
        return protects, F.lit(False)
    tokens = _RAW_TOKENS.get(exposure.raw.option)
    if tokens is None:
        return protects, out
    # Of one content the tokens themselves decide, whatever the policies are.
    theirs = F.when(same_content, F.concat("their unprotected", "their unknown"))
    protects = F.coalesce(F.array_size(F.array_except(tokens, theirs)) > 0, protects)
    all_theirs = F.flatten(F.collect_set(F.when(release.isin(committed), theirs)))
    remaining = F.array_except(F.any_value(tokens), all_theirs)
    return protects, F.coalesce(F.array_size(remaining) == 0, out)


def _covering(exposure: Exposure, cover: Cover) -> set[str]:
    """Name the releases whose answer this is to whether they let the same out."""
    return {name for name, answer in exposure.covers.items() if answer == cover}


def _largest(numbers: Collection[int]) -> Column:
    return F.lit(max(numbers, default=None)).cast("long")


def _by_release(values: Mapping[str, Any]) -> Column:
    """Return what a fingerprint's release is mapped to; null for none."""
    parts = [F.lit(""), F.lit(None)]
    for name, value in values.items():
        parts += [F.lit(name), F.lit(value)]
    return F.create_map(*parts)[F.col("release")]
