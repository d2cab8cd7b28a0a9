"""Packages for the same purpose, each from the registry into a virtual environment of its own, beside ours.

    python -m scripts.benchmarks.rivals --data DATA

All get the same embedding and the same texts. How fast they are, and what was found by running them: what
becomes of an unknown word, and whether noise comes again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.embedding.bundle import Embedding
from scripts.benchmarks.kernel_and_job import CORES
from scripts.benchmarks.processes import run_job
from scripts.benchmarks.section import Given, reason, section
from scripts.benchmarks.turns import Texts

RIVALS: Final = {
    # name: (version, its call, epsilon, words)
    "pypantera": ("1.0.2", "CMP, `obfuscateText`", 15.0, "all"),
    "mldp-text": ("0.1.2", "MultivariateCalibrated with its index, `replace_word`", 15.0, "all"),
    "dp-diffractor": ("0.2.1", "geometric, `rewrite`", 1.0, "few"),
}
OURS: Final = "dptext-spark"
EPSILON: Final = 15.0
NOISY: Final = 3.0
"""Epsilon for what noise does: hardly a word stays."""
UNKNOWN: Final = "zzqxjk"
LENGTH: Final = 8
"""Words of a text: pypantera holds all differences of its vectors and the vocabulary's, 81 MB a word."""
FEW: Final = 1000
ROOT: Final = Path(__file__).parents[2]
PROCESS: Final = Path(__file__).with_name("rival_process.py")


class Failed(Exception):
    """A package that could not be installed or run; the message says why."""


def run(command: Sequence[str | Path], seconds: float, home: Path | None = None) -> str:
    """Run a command; give what it printed."""
    environment = os.environ | ({} if home is None else {"HOME": str(home), "PYTHONPATH": str(ROOT)})
    try:
        done = subprocess.run(
            [*map(str, command)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {seconds:g} s") from None
    if done.returncode:
        click.echo(done.stderr[-2000:], err=True)
        raise Failed(reason(done.stderr) or f"exit code {done.returncode}")
    return done.stdout


class Bench:
    """Texts and embeddings as text files in a folder, and packages that work on them."""

    def __init__(self, embedding: Embedding, folder: Path, seconds: float, limit: float) -> None:
        self.folder, self.seconds, self.limit = folder, seconds, limit
        self.words = words = embedding.words.to_pylist()
        rows = [row for row, word in enumerate(words) if len(word.split()) == 1]
        self.size = f"{len(rows):,} x {embedding.dimension}"
        ids = Texts(embedding).ids(100_000)
        for name, taken in (("few", rows[:FEW]), ("all", rows)):
            with self._vectors(name).open("w", encoding="utf-8") as file:
                file.write(f"{len(taken)} {embedding.dimension}\n")
                vectors = np.asarray(embedding.vectors[taken], dtype=np.float32)
                file.writelines(
                    f"{words[row]} {' '.join(map(repr, vector))}\n"
                    for row, vector in zip(taken, vectors.tolist(), strict=True)
                )
            self.lines = texts_of([words[row] for row in ids[np.isin(ids, taken)]])
            self._texts(name).write_text("\n".join(self.lines), encoding="utf-8")
        some = np.random.default_rng(0).choice(rows[:FEW], 4 * LENGTH)
        self.given = texts_of([words[row] for row in some])
        self._texts("facts").write_text("\n".join([*self.given, UNKNOWN]), encoding="utf-8")

    def _vectors(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def _texts(self, name: str) -> Path:
        return self.folder / f"texts-{name}"

    def rate(self, name: str, python: Path, epsilon: float, home: Path, words: str) -> dict[str, float]:
        """Let a package sanitize texts of ``all`` words or of ``few`` for some seconds."""
        command: list[str | Path] = [python, "-P", PROCESS, name, self._vectors(words), self._texts(words)]
        said = run([*command, str(epsilon), "rate", str(self.seconds)], self.limit, home)
        found = json.loads(said.splitlines()[-1])
        return {
            "words/s": found["words"] / found["seconds"],
            "words/s of processor time": found["words"] / found["processor seconds"],
            "seconds to start": found["seconds to start"],
        }

    def facts_of(self, name: str, python: Path, epsilon: float, home: Path) -> dict[str, str]:
        """Say what becomes of an unknown word, and whether noise comes again."""
        command: list[str | Path] = [python, "-P", PROCESS, name, self._vectors("few"), self._texts("facts")]
        first, second = (
            json.loads(run([*command, str(epsilon), "facts"], self.limit, home).splitlines()[-1])
            for _ in range(2)
        )
        return {
            "an unknown word becomes": self.fate("".join(first["here"][len(self.given) :]).strip()),
            "noise of two fresh processes": self.same(first["here"], second["here"]),
            "noise of two forked workers": self.same(*first["forked"]),
        }

    def fate(self, word: str) -> str:
        """Say what the unknown word became."""
        named = {UNKNOWN: "itself", "": "nothing"}
        return named.get(word, "a word" if word in self.words else "a placeholder")

    def same(self, one: list[str] | None, other: list[str] | None) -> str:
        """Compare what the same texts became."""
        if one is None or other is None:
            return "they hang"
        if one[: len(self.given)] == self.given:
            return "nothing changed"
        return "the same" if one == other else "differs"


def texts_of(words: Sequence[str]) -> list[str]:
    """Join words to texts; those that are left over fall away."""
    return [" ".join(words[i : i + LENGTH]) for i in range(0, len(words) - LENGTH + 1, LENGTH)]


def environment_of(name: str, number: str, folder: Path, seconds: float) -> Path:
    """Install a package into a virtual environment; give its Python."""
    run([sys.executable, "-m", "venv", folder], seconds)
    python = folder / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, f"{name}=={number}"], seconds)
    return python


def home_of(folder: Path) -> Path:
    """Make a home folder with what nltk asks for and would download: models that know nothing."""
    folder.mkdir()
    model = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    model.mkdir(parents=True)
    for name in ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab"):
        (model / name).touch()
    stop_words = folder / "nltk_data" / "corpora" / "stopwords"
    stop_words.mkdir(parents=True)
    (stop_words / "english").write_text("the\n")
    return folder


def job_rates(bench: Bench, bundle: Path, words: int) -> dict[str, float]:
    """Sanitize a table of the same texts with the job, on all cores."""
    table, output = bench.folder / "table", bench.folder / "sanitized"
    table.mkdir()
    texts = pa.array((bench.lines * -(-words // (LENGTH * len(bench.lines))))[: words // LENGTH])
    for part, start in enumerate(range(0, len(texts), size := -(-len(texts) // (8 * CORES)))):
        some = texts.slice(start, size)
        pq.write_table(
            pa.table({"id": range(start, start + len(some)), "text": some}), table / f"{part}.parquet"
        )
    command = [
        *(sys.executable, "-m", "dptext_spark.cli", "privatize", "--input", str(table)),
        *("--output", str(output), "--embedding", str(bundle), "--text", "text", "--id", "id"),
        *("--mechanism", "laplace", "--epsilon", str(EPSILON)),
    ]
    seconds, use = run_job(command)
    done = len(texts) * LENGTH
    return {"words/s": done / seconds, "words/s of processor time": done / use.processor}


@section
@click.option("--seconds", default=20.0, show_default=True, help="that each package works")
@click.option("--limit", default=400.0, show_default=True, help="seconds for each step of a package")
def main(given: Given, seconds: float, limit: float) -> dict[str, Any]:
    """Compare packages for the same purpose with ours."""
    embedding = given.bundle("glove-300d")
    found: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as place:
        folder = Path(place)
        bench = Bench(embedding, folder, 0.2 if given.small else seconds, limit)
        home, python = home_of(folder / "home"), Path(sys.executable)
        ours = [bench.rate(OURS, python, EPSILON, home, "all")]
        for name, (number, _, epsilon, words) in ({} if given.small else RIVALS).items():
            found[name] = {}
            try:
                other = environment_of(name, number, folder / name, limit)
                found[name] |= bench.facts_of(name, other, min(epsilon, NOISY), home)
                found[name] |= bench.rate(name, other, epsilon, home, words)
                ours.append(bench.rate(OURS, python, EPSILON, home, "all"))
            except Failed as failure:
                found[name]["failed"] = str(failure)
        own = {key: float(np.mean([each[key] for each in ours])) for key in ours[0]}
        job = job_rates(bench, embedding.path, 2_000 if given.small else 400_000)
        facts = bench.facts_of(OURS, python, NOISY, home)
    rows = [row_of(name, found[name], own, job) for name in found]
    title = f"{OURS} {version(OURS)}"
    rows += [
        {"package": title, "call": "`Privatizer`, one thread", "epsilon": EPSILON, **own, **facts},
        {"package": title, "call": f"`dptext privatize`, {CORES} cores", "epsilon": EPSILON, **job},
    ]
    return {"title": "Other packages for word-level metric privacy", "rows": rows, "notes": notes(bench.size)}


def row_of(name: str, found: dict[str, Any], own: dict[str, float], job: dict[str, float]) -> dict[str, Any]:
    """Put what was found of a package beside ours."""
    number, call, epsilon, _ = RIVALS[name]
    row: dict[str, Any] = {"package": f"{name} {number}", "call": call, "epsilon": epsilon}
    for title, rates, what in (
        ("our `Privatizer` / its words/s", own, "words/s"),
        ("the same, of processor time", own, "words/s of processor time"),
        ("our job / its words/s", job, "words/s"),
    ):
        row[title] = rates[what] / found[what] if what in found else None
    return row | found


def notes(size: str) -> list[str]:
    """Say how it was measured."""
    return [
        f"The embedding has {size} numbers: words that hold a space are left out, which others' readers take "
        f"apart. Texts of {LENGTH} words by Zipf's law, all in the vocabulary. Packages run one after the "
        "other, each in a process with its own number of threads; ours has one thread and runs between them. "
        "Spark's start is part of the job.",
        "Installed by `pip install NAME==VERSION`, with all that it asks for. dp-diffractor takes one "
        "embedding here in place of five, under the name of one that it knows; its epsilon is for steps "
        "along a sorted list and is its default; stop words are replaced, too. It has the first "
        f"{FEW:,} words alone and texts of them: sorting all of them takes it many minutes, and then it "
        "looks words up, however many there are. What nltk would download is replaced by empty models.",
        f"An unknown word is `{UNKNOWN}`. Noise: the same texts at epsilon {NOISY:g} (dp-diffractor at its "
        f"own) over {FEW:,} words, in two fresh processes, and in two that are forked from one that had "
        "loaded everything, as Spark forks its workers; ours get rows with ids of their own, as a table's "
        "rows have.",
    ]


if __name__ == "__main__":
    main()
