"""How long ``dptext estimate`` takes: its channel, and a table of many released words.

Bundle and table are random, since only their sizes matter here. Processor time is that of all
processes, Java's too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.channel.matrix import MatrixSource
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.estimates.frames import Estimation, rank_prior
from dptext_spark.mechanisms import mechanism
from dptext_spark.options import PrivatizeOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Report, release_facts
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.withheld import NONE
from dptext_spark.spark.session import session
from scripts.experiments import shared

ROW_WORDS: Final = 10
GROUPS: Final = 10
TOPICS: Final = 20
TOPIC_WORDS: Final = 8
FILES: Final = 8
DIMENSION: Final = 50


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Write how long some work takes."""
    start = time.perf_counter()
    before = _processor_time()
    yield
    seconds = time.perf_counter() - start
    spent = _processor_time() - before
    click.echo(f"| {what} | {seconds:.0f} s | {spent:.0f} s |")


def _processor_time() -> float:
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        times = member.cpu_times()
        total += times.user + times.system
    return total


def bundle_of(folder: Path, vocabulary: int) -> Embedding:
    """Build a random bundle."""
    vectors = np.random.default_rng(0).standard_normal((vocabulary, DIMENSION), dtype=np.float32)
    return shared.made_embedding([f"w{row}" for row in range(vocabulary)], vectors, folder)


def report_of(embedding: Embedding, epsilon: float) -> str:
    """Return the public report of a release that nobody made."""
    values = {"input": "in", "output": "out", "embedding": str(embedding.path), "text": ["text"]}
    options = PrivatizeOptions.of(values | {"mechanism": "exponential", "epsilon": epsilon})
    release = Release.open(embedding=embedding, mechanism=mechanism("exponential", epsilon=epsilon))
    facts = release_facts(
        release,
        release.guarantee(),
        None,
        options=options.to_json(),
        row_id="",
        kept=["group"],
        sanitized=options.text,
    )
    return Report(facts=facts, text="").to_publish(options.published)


def write_table(folder: Path, embedding: Embedding, words: int) -> None:
    """Write released rows, their words by Zipf's law."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    names = np.array(embedding.words.to_pylist())
    prior = rank_prior(embedding, NONE)
    for number in range(FILES):
        rows = words // ROW_WORDS // FILES
        ids = rng.choice(len(prior), size=(rows, ROW_WORDS), p=prior)
        texts = [*map(" ".join, names[ids].tolist())]
        groups = [f"g{row % GROUPS}" for row in range(rows)]
        pq.write_table(pa.table({"text": texts, "group": groups}), folder / f"{number}.parquet")


@click.command(help=__doc__)
@click.option("--words", default=1_000_000, show_default=True, help="released words of the table")
@click.option("--vocabulary", default=8_000, show_default=True, help="words of the table's bundle")
@click.option("--channel-words", default=20_000, show_default=True)
@click.option("--channel-outputs", default=10_000, show_default=True)
@click.option("--mechanism", "specs", multiple=True, help="whose channel; repeatable")
@click.option("--epsilon", default=4.0, show_default=True)
def main(
    words: int,
    vocabulary: int,
    channel_words: int,
    channel_outputs: int,
    specs: tuple[str, ...],
    epsilon: float,
) -> None:
    click.echo("| | seconds | processor time |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="dptext-speed-") as name:
        folder = Path(name)
        for spec in specs:
            embedding = bundle_of(folder / f"of-{spec}", channel_words)
            source = MatrixSource(
                mechanism=mechanism(spec, epsilon=epsilon),
                embedding=embedding,
                search=ExactSearch.over(embedding, channel_outputs),
                prior=rank_prior(embedding, NONE),
            )
            with measured(f"channel of {spec}, {channel_words:,} x {channel_outputs:,}"):
                source.matrix(folder / "channels")
        if words:
            _estimate(folder, bundle_of(folder / "embedding", vocabulary), words, epsilon)


def _estimate(folder: Path, embedding: Embedding, words: int, epsilon: float) -> None:
    """Measure estimates of a table, its channel apart."""
    write_table(folder / "table", embedding, words)
    spark = session("estimates")
    spark.read.parquet(str(folder / "table")).count()  # the session has started
    opened = Estimation.open(
        spark.read.parquet(str(folder / "table")),
        report=report_of(embedding, epsilon),
        embedding=embedding,
        text="text",
        by=["group"],
        cache=folder / "channels",
    )
    with measured(f"{words:,} words read"):
        _ = opened.counts
    with measured("their channel"):
        _ = opened.matrices
    with measured("frequencies"):
        opened.frequencies(100)
    names = embedding.words.to_pylist()
    lists = {}
    for topic in range(TOPICS):
        lists[f"topic {topic}"] = names[topic * TOPIC_WORDS : (topic + 1) * TOPIC_WORDS]
    with measured(f"{TOPICS} topics in {GROUPS} groups, and their differences"):
        opened.topics(lists)
    opened.closed()


if __name__ == "__main__":
    main()
