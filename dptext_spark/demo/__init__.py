"""The demo: real queries and real vectors, sanitized by the job that a user would run.

The licences of the data files are in DATA_LICENSES.md next to them.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark import interrupts
from dptext_spark.bars import stage
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import BundleError
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.options import PrivatizeOptions
from dptext_spark.report.facts import describe_counts

QUERIES: Final = Path(__file__).with_name("queries.parquet")
"""2,002 spoken-style queries: `id` int64, `intent`, `text`, `slots` array<struct<start, end>>."""

GLOVE: Final = Path(__file__).with_name("glove.6B.50d.subset.txt.gz")
"""8,000 words with 50-dimensional GloVe vectors, in GloVe's text format and in frequency order."""

NEVER_OUTPUT: Final = Path(__file__).with_name("never_output.txt")
"""Words of GLOVE that nobody wants in a sanitized text: slurs, swearing, violence."""

MAMMALS: Final = Path(__file__).with_name("mammals.tsv.gz")
"""1,171 is-a pairs of WordNet's mammals, tab-separated with a header: direct links of a tree."""

EPSILONS: Final = (5, 10, 20)
SHOWN_ROWS: Final = 10
EVALUATED: Final = (1.5, 2.0, 3.0)
"""Epsilons of ``exponential`` that attackers try: its law is computed, in seconds."""

ATTACKED_ROWS: Final = 240
TARGET: Final = "recovery(top1) <= 0.35"
SENTENCE: Final = "play some jazz in boston"


def run(folder: Path) -> None:
    """Sanitize the demo's queries at a low, a middle and a high epsilon, and show what came out.

    Table, bundle, outputs and reports go into a folder; an earlier demo's are replaced.
    """
    with stage("Loading libraries"):
        from dptext_spark.jobs import privatize  # and pyspark

    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "queries.parquet"
    bundle = folder / "glove-50d"
    shutil.copyfile(QUERIES, table)
    with interrupts.handled():
        try:
            Embedding.open(bundle)
        except BundleError:
            build_embedding(GLOVE, bundle, never_output=NEVER_OUTPUT, overwrite=bundle.exists())
    queries = pq.read_table(table, columns=["id", "text"])
    rows = queries.to_pylist()[:: len(queries) // SHOWN_ROWS][:SHOWN_ROWS]
    for epsilon in EPSILONS:
        output = folder / f"sanitized-epsilon-{epsilon}"
        command: dict[str, Any] = {
            "input": str(table),
            "output": str(output),
            "embedding": str(bundle),
            "mechanism": "laplace",
            "epsilon": epsilon,
            "text": "text",
            "id": "id",
            "keep": ["id", "intent"],
            "mode": "overwrite",
        }
        options = PrivatizeOptions.of(command)
        shown_options = [f"--{name} {command[name]}" for name in command if name != "keep"]
        click.secho(f"\n== Epsilon {epsilon}", bold=True)
        click.echo(f"$ dptext privatize {' '.join(shown_options)} --keep id --keep intent")
        with interrupts.handled():
            report = privatize.run(options)
        sanitized = pq.read_table(output, columns=["id", "text"]).to_pydict()
        texts = dict(zip(sanitized["id"], sanitized["text"], strict=True))
        for row in rows:
            click.echo(f"  {row['text'].strip()}")
            click.secho(f"    -> {texts[row['id']]}", fg="green")
        facts = report.facts
        click.echo(
            f"\n{describe_counts(facts['rows'], facts['columns'])}\n{options.finish(report)}"
        )
    click.echo(f"\n== What epsilon {EPSILONS[-1]} promises\n{facts['guarantee']['words']}")
    scope = [*facts["scope"], *facts["private_scope"]]
    click.echo("\n== What is covered and what is not\n" + "\n".join(scope))
    click.secho("\n== Your own words", bold=True)
    click.echo(
        f"$ dptext try {shlex.quote(SENTENCE)} --embedding {shlex.quote(str(bundle))} "
        f"--mechanism laplace --epsilon {' '.join(map(str, EPSILONS))}"
    )
    _recommend(queries.slice(0, ATTACKED_ROWS), table, bundle)


def _recommend(queries: pa.Table, table: Path, bundle: Path) -> None:
    """Attack some rows at several epsilons; write the command of the best that meets a target."""
    with stage("Attacking simulated releases"):
        from dptext_spark.evaluation.local import evaluate
        from dptext_spark.evaluation.target import Target
        from dptext_spark.mechanisms import Exponential

        comparison = evaluate(
            queries["text"],
            queries["id"],
            embedding=bundle,
            mechanisms=[Exponential(epsilon=epsilon) for epsilon in EVALUATED],
        )
    chosen = Target.parse(TARGET).choose(comparison)
    click.secho("\n== The setting to begin with", bold=True)
    click.echo(f"{comparison!r}\n\nAttacked: {len(queries):,} of the demo's rows. {STRONGER}")
    if chosen is None:
        click.echo(f"None of these meets {TARGET}: try a smaller epsilon.")
        return
    places = {"input": table, "embedding": bundle, "output": table.with_name("sanitized")}
    words = []
    for name, place in places.items():
        words += [f"--{name}", shlex.quote(str(place))]
    click.echo(
        "On your own table: dptext suggest, then dptext evaluate, then dptext privatize.\n"
        f"The most useful of these settings that meets {TARGET}:\n"
        f"$ dptext privatize {' '.join(words)} --text text --id id {chosen.mechanism.options}"
    )
