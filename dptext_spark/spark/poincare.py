"""The job around the Poincaré embedding: pairs in, filtered by Spark, a bundle and its report out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from dptext_spark.bundle import build_embedding, check_output
from dptext_spark.config import all_of
from dptext_spark.embedding import Embedding
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.options import PoincareOptions
from dptext_spark.poincare import Cycles, Quality, Relations, Settings, Trained, Trainer, measure
from dptext_spark.poincare.picture import draw
from dptext_spark.spark.failures import plain_errors
from dptext_spark.spark.tables import session
from dptext_spark.text import stop_words

FORMAT_VERSION: Final = 1

# A column of a TSV, in its order; a table's are found by these names.
_COLUMNS: Final = ("hyponym", "hypernym", "count")
# What is known of a word.
_FLAGS: Final = ("known", "stop", "excluded")


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one filter did.

    Attributes:
        name: What was removed, in words.
        removed: How many rows or pairs; below 0 where some were added.
        left: How many were left.
    """

    name: str
    removed: int
    left: int

    def describe(self) -> str:
        """Say what was done, after the number that was left."""
        how = "after" if self.removed >= 0 else "with"
        return f"{how} {abs(self.removed):,} {self.name}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Filtered:
    """The pairs that the filters left.

    Attributes:
        rows: Rows read.
        steps: The filters in their order; the last one leaves the pairs.
        cycles: What lies on cycles among the filtered pairs.
        relations: The pairs, closure included.
    """

    rows: int
    steps: Sequence[Step]
    cycles: Cycles
    relations: Relations = field(repr=False)

    def describe(self) -> str:
        """Say what each filter did."""
        lines = [f"{self.rows:>12,} rows"]
        lines += [f"{step.left:>12,} {step.describe()}" for step in self.steps]
        lines += [
            "",
            f"{len(self.relations.words):,} words, {len(self.relations.pairs):,} pairs; on cycles: "
            f"{self.cycles.pairs:,} pairs of {self.cycles.words:,} words in {self.cycles.groups:,} groups",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, eq=False)
class PoincareReport:
    """The account of one run of ``dptext poincare``; all of it is public.

    Attributes:
        options: The run's options as JSON-ready values.
        found: What was trained on, and how it came about.
        trained: The training.
        quality: How good the embedding is.
        fingerprint: The bundle's.
        picture: File name of the picture.
    """

    options: Mapping[str, Any]
    found: Filtered
    trained: Trained = field(repr=False)
    quality: Quality
    fingerprint: str
    picture: str

    def to_json(self) -> str:
        """Write the report as JSON text."""
        value = {
            "format_version": FORMAT_VERSION,
            "options": dict(self.options),
            "rows": self.found.rows,
            "steps": [asdict(step) for step in self.found.steps],
            "cycles": asdict(self.found.cycles),
            "words": len(self.found.relations.words),
            "pairs": len(self.found.relations.pairs),
            "training": {
                "epochs": self.trained.epoch,
                "best_epoch": self.trained.best_epoch,
                "history": [dict(entry) for entry in self.trained.history],
            },
            "quality": self.quality.to_json(),
            "fingerprint": self.fingerprint,
            "picture": self.picture,
        }
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def describe(self) -> str:
        """Say filters, training and quality in plain words."""
        quality, correlation = self.quality.reconstruction, self.quality.norm_depth_correlation
        low, half, high = self.quality.nearest_distances
        lines = [
            self.found.describe(),
            f"Trained for {self.trained.epoch} epochs, the best after {self.trained.best_epoch}.",
            f"Mean rank of true hypernyms {quality.mean_rank:.2f}, mean average precision "
            f"{quality.mean_average_precision:.3f} ({quality.words:,} of {quality.all_words:,} hyponyms).",
            f"Hyperbolic distance to the nearest word: median {half:.2f}, 5th and 95th percentile {low:.2f} "
            f"and {high:.2f}.",
        ]
        if correlation is not None:
            lines.append(f"Rank correlation of norm and depth {correlation:.3f}.")
        lines += ["Nearest words:"]
        lines += [f"  {word}: {', '.join(near)}" for word, near in self.quality.neighbours.items()]
        return "\n".join(lines)


def run_poincare(options: PoincareOptions) -> PoincareReport:
    """Run ``dptext poincare``: filter with Spark, train, write bundle, text form, picture and report.

    Returns:
        The report, which lies beside the bundle too.

    Raises:
        DptextError: Options or input are wrong, or the job failed; no bundle is written then.
    """
    vocabulary, excluded, _ = all_of(
        lambda: None if options.vocabulary is None else read_words(options.vocabulary),
        lambda: [] if options.exclude is None else read_words(options.exclude),
        lambda: _check_outputs(options),
    )
    found = filtered_relations(options, vocabulary, excluded)
    names = Settings.__dataclass_fields__
    settings = Settings(**{name: getattr(options, name) for name in names})
    trained = Trainer(relations=found.relations, settings=settings, checkpoint=options.checkpoint).run()
    fingerprint, picture = _write(options, found.relations, trained.vectors)
    report = PoincareReport(
        options=options.model_dump(mode="json", by_alias=True),
        found=found,
        trained=trained,
        quality=measure(trained.vectors, found.relations),
        fingerprint=fingerprint,
        picture=picture,
    )
    options.report_path.write_text(report.to_json(), encoding="utf-8")
    return report


def filtered_relations(
    options: PoincareOptions, vocabulary: Sequence[str] | None, excluded: Sequence[str]
) -> Filtered:
    """Read and filter the pairs of a run.

    Args:
        options: The run's.
        vocabulary: Words of its vocabulary; None allows all.
        excluded: Words to remove.

    Raises:
        InputError: The pairs cannot be read, or none is left.
    """
    spark = session("dptext poincare")
    with plain_errors("The pairs could not be filtered"):
        steps, table = filter_pairs(
            read_pairs(spark, options.pairs),
            vocabulary=vocabulary,
            excluded=excluded,
            min_count=options.min_count,
            min_links=options.min_links,
        )
    _check_left(steps)
    relations = Relations.of(
        table["hyponym"].to_pylist(), table["hypernym"].to_pylist(), order=vocabulary or ()
    )
    cycles = relations.cycles()
    if options.transitive_closure:
        closed = relations.closure()
        added = len(relations.pairs) - len(closed.pairs)
        steps.append(Step(name="added by the transitive closure", removed=added, left=len(closed.pairs)))
        relations = closed
    rows = steps[0].removed + steps[0].left
    return Filtered(rows=rows, steps=steps, cycles=cycles, relations=relations)


def read_words(path: Path) -> list[str]:
    """Read the words of a bundle, or of a UTF-8 file with one word a line, in their order.

    Raises:
        ConfigError: The file cannot be read.
        BundleError: The folder is no bundle.
    """
    if path.is_dir():
        words: list[str] = Embedding.open(path).words.to_pylist()
        return words
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "A file of words cannot be read",
            allowed="an embedding bundle, or a UTF-8 file with one word a line",
            got=str(path),
        ) from None
    return [word for line in lines if (word := line.rstrip("\r"))]


def _check_outputs(options: PoincareOptions) -> None:
    check_output(options.output, options.overwrite)
    written = (options.report_path, options.beside("vec"), options.beside("png"))
    if not options.overwrite and (there := [str(path) for path in written if path.exists()]):
        raise ConfigError(
            "Files beside the output exist", got=", ".join(there), do="Remove them, or allow --overwrite"
        )
    if not options.report_path.absolute().parent.is_dir():
        raise ConfigError("The report's folder does not exist", got=str(options.report_path))


# Filtering


def read_pairs(spark: SparkSession, path: str) -> DataFrame:
    """Read is-a pairs: ``hyponym`` string, ``hypernym`` string, ``count`` bigint or null.

    A file that ends in .parquet, or a folder, is Parquet with these column names. Anything else is a text of
    tab-separated fields, .gz too, with a header line or without.

    Raises:
        InputError: The input cannot be read, or has no such columns.
    """
    try:
        name = path.rstrip("/").lower()
        text = name.endswith((".tsv", ".tsv.gz", ".txt", ".txt.gz"))
        return _read_text(spark, path) if text else _read_table(spark, path)
    except (PySparkException, Py4JJavaError):
        raise InputError(
            f"The pairs {path} cannot be read",
            allowed="Parquet, or tab-separated text named .tsv, .tsv.gz, .txt or .txt.gz",
        ) from None


def _read_table(spark: SparkSession, path: str) -> DataFrame:
    table = spark.read.parquet(path)
    if missing := [name for name in _COLUMNS[:2] if name not in table.columns]:
        raise InputError(
            f"The pairs {path} lack columns",
            allowed="columns hyponym, hypernym and, if there is one, count",
            got=f"no {' and no '.join(missing)}",
        )
    count = F.col("count") if "count" in table.columns else F.lit(None)
    return table.select("hyponym", "hypernym", count.cast("bigint").alias("count"))


def _read_text(spark: SparkSession, path: str) -> DataFrame:
    lines = spark.read.text(path)
    first = lines.head()
    header = first["value"] if first else ""
    names = header.rstrip("\r").split("\t")
    headed = names[1:2] == ["hypernym"]
    if headed:
        lines = lines.filter(F.col("value") != header)
    position = names.index("count") if headed and "count" in names else 2
    counted = len(names) > position if not headed else "count" in names
    fields = F.split(F.regexp_replace("value", "\r$", ""), "\t")
    # A count that is none makes the row unusable: -1 marks it.
    number = F.coalesce(F.get(fields, F.lit(position)).try_cast("bigint"), F.lit(-1))
    return lines.select(
        F.get(fields, F.lit(0)).alias("hyponym"),
        F.get(fields, F.lit(1)).alias("hypernym"),
        (number if counted else F.lit(None).cast("bigint")).alias("count"),
    )


def filter_pairs(
    rows: DataFrame,
    *,
    vocabulary: Sequence[str] | None,
    excluded: Sequence[str],
    min_count: int,
    min_links: int,
) -> tuple[list[Step], pa.Table]:
    """Filter is-a pairs, and count what each filter removes.

    Args:
        rows: ``hyponym``, ``hypernym``, ``count``; rows of the same pair are added up.
        vocabulary: Both ends must be among these words; None allows all.
        excluded: Words to remove, beside the stop words.
        min_count: Fewest occurrences of a pair; pairs without any count pass.
        min_links: Words in this many distinct pairs or fewer are removed, once.

    Returns:
        The steps, and the pairs that are left: ``hyponym``, ``hypernym``.

    Source: Feyisetan et al. 2019, section V-E.
    """
    facts = _facts(rows.sparkSession, vocabulary, excluded)
    judged = _judged(_merged(rows), facts, open_vocabulary=vocabulary is None, min_count=min_count).persist()
    try:
        totals = judged.groupBy("verdict").agg(F.count("*").alias("pairs"), F.sum("rows").alias("rows"))
        steps = _steps({row["verdict"]: row for row in totals.collect()}, min_count)
        kept = judged.filter(F.col("verdict") == _KEPT).select("hyponym", "hypernym")
        linked = _linked(kept, min_links).toArrow()
    finally:
        judged.unpersist()
    name = f"pairs with a word of {min_links} links or fewer"
    return [*steps, _step(name, steps[-1].left, linked.num_rows)], linked


_UNUSABLE, _SELF, _UNKNOWN, _RARE, _STOP, _EXCLUDED, _KEPT = range(7)


def _merged(rows: DataFrame) -> DataFrame:
    """Add up the rows of each pair; all unusable ones become a single pair of nulls."""
    usable = F.lit(True)
    for end in _COLUMNS[:2]:
        # \s does not know all separators of Unicode, and a bundle takes no control characters.
        usable &= F.coalesce(F.col(end).rlike(r"^[^\s\p{Z}\p{Cc}]+$"), F.lit(False))
    usable &= F.coalesce(F.col("count") >= 0, F.lit(True))
    ends = [F.when(usable, F.col(end)).alias(end) for end in _COLUMNS[:2]]
    count = F.when(usable, F.col("count")).alias("count")
    return (
        rows.select(*ends, count)
        .groupBy(*_COLUMNS[:2])
        .agg(F.sum("count").alias("count"), F.count("*").alias("rows"))
    )


def _facts(spark: SparkSession, vocabulary: Sequence[str] | None, excluded: Sequence[str]) -> DataFrame:
    """Say of each word that a filter knows whether it is ``known``, a ``stop`` word, ``excluded``."""
    known, stop, out = set(vocabulary or ()), stop_words(), set(excluded)
    words = sorted(known | stop | out)
    groups = zip(_FLAGS, (known, stop, out), strict=True)
    columns = {name: [word in group for word in words] for name, group in groups}
    return spark.createDataFrame(pa.table({"word": words, **columns}))


def _judged(pairs: DataFrame, facts: DataFrame, *, open_vocabulary: bool, min_count: int) -> DataFrame:
    """Add to each pair the ``verdict``: the first filter that removes it, or that it is kept."""
    for end in _COLUMNS[:2]:
        renamed = facts.select(*(F.col(name).alias(f"{end}_{name}") for name in ("word", *_FLAGS)))
        pairs = pairs.join(F.broadcast(renamed), F.col(end) == F.col(f"{end}_word"), "left")

    def of_either(flag: str, absent: bool, wanted: bool) -> Column:
        ends = [F.coalesce(F.col(f"{end}_{flag}"), F.lit(absent)) == wanted for end in _COLUMNS[:2]]
        return ends[0] | ends[1]

    verdict = (
        F.when(F.col("hyponym").isNull(), _UNUSABLE)
        .when(F.col("hyponym") == F.col("hypernym"), _SELF)
        .when(F.lit(not open_vocabulary) & of_either("known", absent=False, wanted=False), _UNKNOWN)
        .when(F.col("count") < min_count, _RARE)
        .when(of_either("stop", absent=False, wanted=True), _STOP)
        .when(of_either("excluded", absent=False, wanted=True), _EXCLUDED)
        .otherwise(_KEPT)
    )
    return pairs.select("hyponym", "hypernym", "rows", verdict.alias("verdict"))


def _steps(found: Mapping[int, Row], min_count: int) -> list[Step]:
    """Write the steps down: rows up to the merging of repeated pairs, pairs after it."""
    rows, pairs = ({verdict: row[unit] for verdict, row in found.items()} for unit in ("rows", "pairs"))
    steps = []
    left = sum(rows.values())
    for verdict, name in ((_UNUSABLE, "rows that are not two words"), (_SELF, "rows of a word with itself")):
        steps.append(_step(name, left, left - rows.get(verdict, 0)))
        left = steps[-1].left
    distinct = sum(count for verdict, count in pairs.items() if verdict > _SELF)
    steps.append(_step("rows of a pair that was there before", left, distinct))
    for verdict, name in (
        (_UNKNOWN, "pairs with a word outside the vocabulary"),
        (_RARE, f"pairs seen fewer than {min_count} times"),
        (_STOP, "pairs with a stop word"),
        (_EXCLUDED, "pairs with an excluded word"),
    ):
        steps.append(_step(name, steps[-1].left, steps[-1].left - pairs.get(verdict, 0)))
    return steps


def _step(name: str, before: int, left: int) -> Step:
    return Step(name=name, removed=before - left, left=left)


def _linked(pairs: DataFrame, min_links: int) -> DataFrame:
    """Remove the pairs of words with few links, once: what this leaves with few links stays."""
    ends = pairs.select(F.explode(F.array("hyponym", "hypernym")).alias("word"))
    few = ends.groupBy("word").count().filter(F.col("count") <= min_links)
    for end in _COLUMNS[:2]:
        pairs = pairs.join(few.select(F.col("word").alias(end)), end, "left_anti")
    return pairs.select("hyponym", "hypernym")


def _check_left(steps: Sequence[Step]) -> None:
    if steps[-1].left == 0:
        listed = "; ".join(f"{step.left:,} {step.describe()}" for step in steps)
        raise InputError("The filters leave no pair", got=listed, do="Loosen the filter that removes most")


# Writing


def _write(options: PoincareOptions, relations: Relations, vectors: NDArray[np.float64]) -> tuple[str, str]:
    """Write the text form, the bundle made of it, and the picture; return fingerprint and picture's name."""
    text, picture = options.beside("vec"), options.beside("png")
    with tempfile.TemporaryDirectory(
        prefix=".dptext-poincare-", dir=options.output.absolute().parent
    ) as made:
        folder = Path(made)
        write_vectors(folder / text.name, relations.words, vectors)
        bundle = build_embedding(
            folder / text.name,
            options.output,
            geometry="poincare",
            format="text",
            overwrite=options.overwrite,
        )
        (folder / text.name).replace(text)
        draw(vectors, relations, folder / picture.name)
        (folder / picture.name).replace(picture)
    return bundle.fingerprint, picture.name


def write_vectors(path: Path, words: Sequence[str], vectors: NDArray[np.float64]) -> None:
    """Write word2vec's text format, as gensim and ``dptext embedding`` read it, without loss."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"{len(words)} {vectors.shape[1]}\n")
        for word, vector in zip(words, vectors.tolist(), strict=True):
            file.write(f"{word} {' '.join(map(repr, vector))}\n")
