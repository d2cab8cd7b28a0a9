"""Prints which words of texts the vocabularies of bundles have, and how fast they are sanitized.

    python -m scripts.measure_embeddings BUNDLE ... --texts TEXTS.parquet:COLUMN ...

The first table has the share of each column's words that each bundle has. The second has the size
of the bundle's folder, and words a second of mechanisms on one core, in rows of 100 words of the
last column: processor time, without Spark, with making the lists of ``exponential``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dptext_spark import Embedding, Exponential, Laplace, Projection, Release, TextPolicy
from dptext_spark.mechanisms.mechanism import Mechanism
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.tables.sampling import Coverage
from dptext_spark.text.columns import slices
from dptext_spark.word_reader import WordReader
from scripts.benchmarks.shared import seconds

LENGTH: Final = 100  # words of a row
WORDS: Final = 400_000
OF_TEXT: Final = 10_000  # words of each text, at most: a table of books is not that of one
MECHANISMS: Final = (Laplace(epsilon=8), Projection(epsilon=8), Exponential(epsilon=4))
ENOUGH: Final = 4.0  # seconds that a rate is measured for, if there are so many words


class Here(NamedTuple):
    """A bundle that is open in this process."""

    embedding: Embedding

    def shared(self) -> Embedding:
        return self.embedding


def coverage(embedding: Embedding, texts: pa.Array) -> float:
    """Return the share of the words of texts that a bundle has."""
    reader = WordReader(bundle=Here(embedding), policy=TextPolicy())
    total: Coverage = Coverage()
    for rows in slices(texts):
        total.update(Coverage.measure(texts[rows], reader))
    return 1.0 - total.unknown_share


def rate(embedding: Embedding, mechanism: Mechanism, rows: list[str]) -> float:
    """Return words a second of processor time, on as many rows as it takes."""
    sanitizer = Sanitizer.open(Release.open(embedding=embedding, mechanism=mechanism))
    count = 20
    while True:
        part = rows[:count]
        ids = list(range(len(part)))
        spent = seconds(partial(sanitizer.sanitize, part, ids, column="text"))
        if spent > ENOUGH or count >= len(rows):
            return len(part) * LENGTH / spent
        count *= 4


def column_of(spec: str) -> pa.Array:
    """Read ``FILE:COLUMN``."""
    file, _, name = spec.rpartition(":")
    column = pq.read_table(file, columns=[name])[name].combine_chunks()
    return column.cast(pa.string())


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--texts", "specs", multiple=True, required=True, help="FILE:COLUMN, repeatable")
def main(bundles: tuple[Path, ...], specs: tuple[str, ...]) -> None:
    """Print both tables."""
    columns = {spec: column_of(spec) for spec in specs}
    words: list[str] = []
    for text in columns[specs[-1]].to_pylist():
        words += (text or "").split()[:OF_TEXT]
    rows = [" ".join(words[i : i + LENGTH]) for i in range(0, min(len(words), WORDS), LENGTH)]
    for path in bundles:
        embedding = Embedding.open(path)
        shares = {spec: f"{coverage(embedding, texts):.1%}" for spec, texts in columns.items()}
        click.echo(f"{path}: {len(embedding.words):,} words; known: {shares}")
    for path in bundles:
        embedding = Embedding.open(path)
        size = sum(file.stat().st_size for file in path.rglob("*"))
        rates: dict[str, Any] = {}
        with threadpool_limits(1):
            for mechanism in MECHANISMS:
                rates[mechanism.name] = f"{rate(embedding, mechanism, rows):,.0f}"
        click.echo(f"{path}: {size / 1e6:.0f} MB; words a second: {rates}")


if __name__ == "__main__":
    main()
