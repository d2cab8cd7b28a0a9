"""Runs every command with fixed keys and seeds in the working folder, and keeps what it prints.

    cd EMPTY_FOLDER && PYTHONPATH=CHECKOUT python CHECKOUT/scripts/versions/commands.py

Nothing of the package is named here but its commands, so that any version of it can be run.
"""

from __future__ import annotations

import gzip
import importlib.util
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

KEY: Final = bytes(range(32))
ROWS: Final = 60

TABLE: Final = "--input tables/queries --key-file key --salt tables --embedding glove"
WORDS: Final = f"privatize {TABLE} --text text --id id --keep intent"
BALL_TABLE: Final = (
    "--input tables/mammals --key-file key --salt mammals --embedding ball --text text --id id"
)
CALIBRATE: Final = "calibrate --words 60 --runs 60"
VECTORS: Final = "vectors --input tables/vectors --key-file key --salt vectors --id id"

COMMANDS: Final = f"""
embedding demo.txt.gz --output glove
embedding demo.txt.gz --output unit --normalize unit --limit 3000 --release-words 500
poincare --pairs mammals.tsv.gz --min-links 0 --epochs 12 --dimension 3 --max-radius 3 \
--transitive-closure --output ball

{WORDS} --mechanism laplace --epsilon 8 --output out/laplace
{WORDS} --mechanism laplace --epsilon 8 --select vickrey --t 0.4 --output out/vickrey
{WORDS} --mechanism laplace --epsilon 8 --release-words 900 --output out/release-words
{WORDS} --mechanism mahalanobis --lambda 0.5 --epsilon 8 --output out/mahalanobis
{WORDS} --mechanism projection --epsilon 8 --output out/projection
{WORDS} --mechanism projection --epsilon 8 --beta 0.8 --sensitivity spectral --dimension 20 --seed 3 \
--output out/projection-spectral
{WORDS} --mechanism projection --epsilon 8 --sensitivity paper --dimension 20 --output out/projection-paper
{WORDS} --mechanism exponential --epsilon 8 --output out/exponential
{WORDS} --mechanism exponential --epsilon 8 --truncate 3.5 --release-words 4000 --output out/truncated
{WORDS} --mechanism laplace --epsilon 8 --oov drop --output out/drop
{WORDS} --mechanism laplace --epsilon 8 --oov random --output out/random
{WORDS} --mechanism laplace --epsilon 8 --oov keep-unprotected --output out/keep-unprotected
{WORDS} --mechanism laplace --epsilon 8 --oov fail --output out/fail
{WORDS} --mechanism laplace --epsilon 8 --protect content --output out/content
{WORDS} --mechanism laplace --epsilon 8 --protect slots:slots --output out/slots
{WORDS} --mechanism laplace --epsilon 8 --where "id%3=1" --write-option compression=zstd --output out/where
{WORDS} --mechanism laplace --epsilon 8 --dry-run --output out/dry-run
{WORDS} --mechanism laplace --epsilon 9 --mode overwrite --output out/laplace
privatize {TABLE} --tokens tokens --mechanism laplace --epsilon 8 --keep id --output out/tokens
privatize {TABLE} --text turns[].text --text text --keep turns[].who --mechanism laplace --epsilon 8 \
--output out/nested
privatize --input tables/days --key-file key --salt days --embedding glove --text text --keep dt \
--mechanism laplace --epsilon 8 --incremental out/checkpoint --output out/incremental
privatize {BALL_TABLE} --mechanism hyperbolic --epsilon 12 --output out/hyperbolic
privatize {BALL_TABLE} --mechanism hyperbolic-icdm --epsilon 12 --select vickrey --t 0.5 --output out/icdm
privatize {BALL_TABLE} --mechanism exponential --epsilon 9 --output out/exponential-ball

vectors --input tables/queries --key-file key --salt tables --embedding glove --text text --epsilon 30 \
--id id --keep id --output out/texts
{VECTORS} --vector vector --vector wide --epsilon 30 --keep id --output out/vectors
{VECTORS} --vector wide --epsilon 30 --sensitivity paper --beta 0.9 --seed 2 --keep id --output \
out/vectors-paper
{VECTORS} --vector vector --epsilon 30 --dimension 2 --keep id --dry-run --output out/vectors-dry

{CALIBRATE} --embedding glove --mechanism laplace --epsilon 5 10 20 --target "p95(n_w) <= 0.5" --example \
london --transitions --output out/calibration
{CALIBRATE} --embedding glove --mechanism mahalanobis --lambda 0 0.5 --epsilon 5 10 --release-words 4000 \
--compare out/calibration --output out/calibration-lambda
{CALIBRATE} --embedding glove --mechanism exponential --epsilon 5 10 --truncate 4 --words 20 --output \
out/calibration-exact
{CALIBRATE} --embedding glove --mechanism laplace --select vickrey --t 0.3 --epsilon 10 --estimator plain \
--words 20 --output out/calibration-plain
{CALIBRATE} --embedding ball --mechanism hyperbolic --epsilon 6 9 --target "mean(n_w) <= 0.5" --output \
out/calibration-ball

audit --embedding glove --mechanism laplace --epsilon 5 --runs 4000 --report out/audit-laplace.json
audit --mechanism mahalanobis --lambda 0.5 --epsilon 2 --runs 4000 --world line --world star --report \
out/audit-world.json
audit --mechanism projection --epsilon 2 --dimension 1 --runs 4000 --world line --report \
out/audit-projection.json
audit --embedding ball --mechanism hyperbolic --epsilon 4 --runs 4000 --report out/audit-ball.json
audit --mechanism exponential --epsilon 3 --truncate 2 --runs 4000 --world clusters --report \
out/audit-exponential.json

privatize --mechanism laplace --lambda 0.5 --epsilon -1 --oov lose
privatize --input tables/none --output out/none --embedding glove --mechanism laplace --epsilon 8 --text \
text
privatize --input tables/queries --output out/none --embedding glove --mechanism laplace --epsilon 8 \
--text absent --keep gone
privatize --input tables/queries --output out/none --embedding glove --mechanism hyperbolic --epsilon 8 \
--text text
privatize --input tables/queries --output out/none --embedding nowhere --mechanism gauss --epsilon 8 \
--text id
{WORDS} --mechanism laplace --epsilon 8 --protect some --release-words 9000 --output out/none
{WORDS} --mechanism laplace --epsilon 8 --incremental out/other --mode overwrite --output out/none
{WORDS} --mechanism laplace --epsilon nan --select vickrey --output out/none
{WORDS} --config wrong.toml --output out/none
{WORDS} --config unknown.toml --output out/none
vectors --input tables/vectors --output out/none --vector wide --epsilon 5 --sensitivity vocabulary --text \
text
vectors --input tables/vectors --output out/none --vector wide --epsilon 5 --dimension 900
calibrate --embedding glove --mechanism laplace --epsilon 5 0 --output out/none --words 1 --target \
"p95(n_w) >= 2"
calibrate --embedding glove --mechanism exponential --epsilon 5 --output out/none --estimator shared-ray \
--example zzyzx
audit --mechanism laplace --epsilon 5 --world moon
audit --mechanism laplace --epsilon 5
embedding demo.txt.gz --output unit2 --normalize half --geometry round --format new
embedding --output unit2
poincare --pairs mammals.tsv.gz --output ball --dimension 1
"""


def fill() -> None:
    """Put the key and the tables into the working folder; equal at every run."""
    # Found and not imported: other versions may have other modules under this name.
    found = importlib.util.find_spec("dptext_spark")
    demo = Path(str(found and found.origin)).parent / "demo"
    Path("demo.txt.gz").write_bytes((demo / "glove.6B.50d.subset.txt.gz").read_bytes())
    Path("mammals.tsv.gz").write_bytes((demo / "mammals.tsv.gz").read_bytes())
    Path("key").touch(mode=0o600)
    Path("key").write_bytes(KEY)
    Path("wrong.toml").write_text('mechanism = "laplace"\nepsilon = "5"\n', encoding="utf-8")
    Path("unknown.toml").write_text("epsilom = 5.0\n", encoding="utf-8")
    queries = pq.read_table(demo / "queries.parquet").slice(0, ROWS)
    texts = queries["text"].to_pylist()
    texts[3], texts[5], texts[7] = None, "", "🙂 Zzyzx שלום 12,5 do n't DON'T"
    tokens = [None if text is None else [*text.split(), None, ""] for text in texts]
    turns = [
        None if i % 9 == 4 else [{"who": "a", "text": t}, {"who": None, "text": "hm"}]
        for i, t in enumerate(texts)
    ]
    table = queries.set_column(queries.schema.get_field_index("text"), "text", pa.array(texts))
    table = table.append_column("tokens", pa.array(tokens)).append_column("turns", pa.array(turns))
    for part in range(3):
        write(table.take(list(range(part, ROWS, 3))), f"tables/queries/part-{part}.parquet")
    for day in (1, 2):
        write(table.select(["text"]).slice(20 * day, 20), f"tables/days/dt=2026-01-0{day}/day.parquet")
    with gzip.open("mammals.tsv.gz", "rt", encoding="utf-8") as lines:
        words = [line.split("\t")[0] for line in lines][1:ROWS]
    write(
        pa.table({"id": range(len(words)), "text": [f"the {word} and {word}" for word in words]}),
        "tables/mammals/a.parquet",
    )
    rng = np.random.default_rng(5)
    vectors = {
        "id": range(ROWS),
        "vector": pa.array(rng.standard_normal((ROWS, 4)).tolist(), pa.list_(pa.float64())),
        "wide": pa.array([None, *rng.standard_normal((ROWS - 1, 300)).tolist()], pa.list_(pa.float32())),
    }
    write(pa.table(vectors), "tables/vectors/a.parquet")


def write(table: pa.Table, path: str) -> None:
    """Write a Parquet file, with its folders."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command with a name for what it prints, and the help of each."""
    yield "help", ["--help"]
    for name in ("embedding", "privatize", "vectors", "calibrate", "poincare", "audit", "demo"):
        yield f"help-{name}", [name, "--help"]
    lines = (line for line in COMMANDS.replace("\\\n", "").splitlines() if line)
    for number, line in enumerate(lines):
        arguments = shlex.split(line)
        yield f"{number:02d}-{arguments[0]}", arguments


def main() -> None:
    """Run all commands one after another; what they print goes to the folder ``printed``."""
    from dptext_spark.cli import main as dptext

    fill()
    Path("printed").mkdir()
    Path("out").mkdir()
    for name, arguments in commands():
        if sys.argv[1:] and not any(part in " ".join(arguments) for part in sys.argv[1:]):
            continue
        done = CliRunner().invoke(dptext, arguments, prog_name="dptext", terminal_width=110)
        fault = (
            "" if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
        )
        ended = f"exit code {done.exit_code} {fault}"
        said = f"$ dptext {' '.join(arguments)}\n{done.stdout}\n{done.stderr}\n{ended}\n"
        Path("printed", f"{name}.txt").write_text(said, encoding="utf-8")
        click.echo(f"{done.exit_code} {' '.join(arguments)[:150]}")


if __name__ == "__main__":
    main()
