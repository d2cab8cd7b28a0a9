"""Sanitized slots of the Snips queries: what kind of word comes out, for the mechanisms of the Poincaré ball.

    OMP_NUM_THREADS=1 python scripts/experiments/hyperbolic_snips.py --embedding BALL \
        --queries snips.parquet \
        --relations noun_word_closure.tsv.gz --epsilon 10.5 --epsilon 12 --epsilon 18 --epsilon 30 \
        --example london:city

The queries are Parquet with ``text`` and ``slots_json``: a list of objects with ``text``, in their order,
which gives their positions, as whole words from the left. The relations are tab-separated ``word``,
``hypernym`` and the distance between them in steps. Everything goes through ``Privatizer`` with ``--protect
slots``: carrier phrases stay, words in slots are perturbed one by one. The epsilons are *proven* ones per
unit of hyperbolic distance, above n: ``hyperbolic-icdm``, which proves epsilon + n, is given n less. Prints
Markdown: how many slots and words there are, what became of them, twenty queries, and how often a word
becomes another one in 1,000 runs, as the paper has it of London and city.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.lookup import joining
from dptext_spark.mechanisms import mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.slots import marks_of_positions
from dptext_spark.text.token_columns import PLACEHOLDER, Tokens
from dptext_spark.text.tokens import tokenize

Slot = dict[str, int]

MECHANISMS: Final = ("hyperbolic", "hyperbolic-icdm", "exponential")
# A fixed key makes the tables repeatable, and is for public queries alone.
KEY: Final = NoiseKey(hashlib.sha256(b"hyperbolic snips").digest())
SHOWN: Final = 5
RUNS: Final = 1000
CHANCES: Final = 500
KINDS: Final = ("itself", "hypernym", "hyponym", "sibling", "cousin", "unrelated", "not in WordNet")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """What is known of the kinship of words.

    Attributes:
        above: For each word its hypernyms and, of the shortest way, the steps to each.
    """

    above: dict[str, dict[str, int]]

    @classmethod
    def read(cls, path: Path) -> Relation:
        """Read the tab-separated pairs; the first line names the columns."""
        above: dict[str, dict[str, int]] = {}
        with gzip.open(path, "rt", encoding="utf-8") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            next(rows)
            for word, hypernym, steps, *_ in rows:
                above.setdefault(word, {})[hypernym] = int(steps)
                above.setdefault(hypernym, {})
        return cls(above=above)

    def kind(self, word: str, output: str) -> str:
        """Name what an output is to a word, the nearest kinship first.

        Siblings share a direct hypernym, cousins one of two steps or fewer on both sides.
        """
        if word == output:
            return "itself"
        if word not in self.above or output not in self.above:
            return "not in WordNet"
        mine, others = self.above[word], self.above[output]
        if output in mine:
            return "hypernym"
        if word in others:
            return "hyponym"
        shared = [max(mine[up], others[up]) for up in mine.keys() & others.keys()]
        nearest = min(shared, default=99)
        return "sibling" if nearest == 1 else "cousin" if nearest == 2 else "unrelated"


Sanitized = list[list[str]]
"""What the words of each query became."""


@dataclass(frozen=True, kw_only=True)
class Queries:
    """Texts as lists of their words, and the words of slots by their positions.

    Attributes:
        texts: As they stand.
        slots: Where slots stand in the texts.
        words: The words of the texts, those that the vocabulary joins as one.
        marked: Which of them are in a slot.
    """

    texts: list[str]
    slots: list[list[Slot]]
    words: list[list[str]]
    marked: list[list[bool]]

    @classmethod
    def of(cls, texts: list[str], slots: list[list[Slot]], embedding: Embedding) -> Self:
        """Cut texts into words."""
        values = pa.array(texts)
        marks = marks_of_positions(pa.array(slots), values, "slots")
        tokens = Tokens.of(values, joining(embedding, TextPolicy().tokenizer), marks)
        words = [[str(token) for token in row] for row in tokens.row_tokens()]
        marked = [part.tolist() for part in np.split(tokens.marked, tokens.offsets[1:-1])]
        return cls(texts=texts, slots=slots, words=words, marked=marked)

    @property
    def values(self) -> list[str]:
        """The texts of the slots."""
        rows = zip(self.texts, self.slots, strict=True)
        return [text[slot["start"] : slot["end"]] for text, slots in rows for slot in slots]

    def sanitized(self, embedding: Embedding, name: str, proven: float) -> Sanitized:
        """Sanitize the slots of all queries by a mechanism of a proven epsilon."""
        epsilon = proven - embedding.dimension if name == "hyperbolic-icdm" else proven
        chosen = mechanism(name, epsilon=epsilon)
        guarantee = chosen.guarantee(embedding)
        if abs(guarantee.epsilon - proven) > 1e-9:
            raise click.UsageError(f"{name} proves {guarantee.epsilon}, not {proven}")
        privatizer = Privatizer(
            embedding=embedding,
            mechanism=chosen,
            noise=chosen.release_noise(KEY, salt="", embedding=embedding, search=ExactSearch.over(embedding)),
            policy=TextPolicy(protect="slots:slots"),
        )
        slots = [[{"start": i, "end": i + 1} for i in np.flatnonzero(row).tolist()] for row in self.marked]
        found = privatizer.sanitize(self.words, range(len(self.words)), column="words", slots=slots)
        return list(found.values.to_pylist())

    def became(self, outputs: Sanitized) -> Iterator[tuple[str, str]]:
        """Every word of a slot, in lower case, and what it became."""
        for row in zip(self.words, outputs, self.marked, strict=True):
            yield from ((word.lower(), output) for word, output, mark in zip(*row, strict=True) if mark)


def read(path: Path, limit: int | None, embedding: Embedding) -> Queries:
    """Read queries that have slots, those apart in which they do not stand as whole words in their order."""
    table = pq.read_table(path, columns=["text", "slots_json"])
    rows = [row for row in table.to_pylist() if json.loads(row["slots_json"]) and tokenize(row["text"])]
    rows = rows[:: max(1, len(rows) // limit)] if limit else rows
    found = [(row["text"], positions(row["text"], json.loads(row["slots_json"]))) for row in rows]
    placed = [(text, slots) for text, slots in found if slots]
    return Queries.of([text for text, _ in placed], [slots for _, slots in placed], embedding)


def positions(text: str, slots: list[dict[str, str]]) -> list[Slot]:
    """Where slots stand; none if some do not."""
    pattern = ".*?".join(rf"(?<!\w)({re.escape(slot['text'].strip())})(?!\w)" for slot in slots)
    match = re.search(pattern, text, re.DOTALL)
    places = [match.span(number) for number in range(1, len(slots) + 1)] if match else []
    return [{"start": start, "end": end} for start, end in places]


def about(queries: Queries, embedding: Embedding) -> str:
    """Count slots, their words, and the slots of several words."""
    vocabulary = set(embedding.words.to_pylist())
    values = [tokenize(value.lower()) for value in queries.values]
    several = [value for value in values if len(value) > 1]
    words = [word for value in values for word in value]
    known = sum(word in vocabulary for word in words)
    return (
        f"{len(queries.texts):,} queries with {len(values):,} slots, {len(several):,} of them of several "
        f"words. Of their {len(words):,} words {known:,} are in the vocabulary of {len(vocabulary):,} words "
        f"x {embedding.dimension}; the others become {PLACEHOLDER}.\n"
    )


def chance(
    queries: Queries, outputs: Sanitized, relation: Relation, embedding: Embedding
) -> dict[str, float]:
    """Part of each kind if the outputs were any words of the vocabulary, by every so many of them."""
    inputs = Counter(word for word, became in queries.became(outputs) if became != PLACEHOLDER)
    others = embedding.words.to_pylist()[:: max(1, len(embedding.words) // CHANCES)]
    counts: Counter[str] = Counter()
    for word, count in inputs.items():
        for other in others:
            counts[relation.kind(word, other)] += count
    return {kind: counts[kind] / counts.total() for kind in KINDS}


def shares(queries: Queries, outputs: Sanitized, relation: Relation) -> dict[str, float]:
    """Part of each kind among the words that the vocabulary has."""
    pairs = [pair for pair in queries.became(outputs) if pair[1] != PLACEHOLDER]
    counts = Counter(relation.kind(word, output) for word, output in pairs)
    return {kind: counts[kind] / len(pairs) for kind in KINDS}


@click.command()
@click.option("--embedding", "bundle", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--queries", "source", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--relations", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--epsilon", "epsilons", type=float, multiple=True, required=True, help="proven, above n")
@click.option("--limit", type=int, help="about so many queries, evenly spread; default: all")
@click.option("--example", "examples", multiple=True, help="WORD:OUTPUT, to count in 1,000 runs")
def main(
    bundle: Path,
    source: Path,
    relations: Path,
    epsilons: tuple[float, ...],
    limit: int | None,
    examples: tuple[str, ...],
) -> None:
    """Print the tables."""
    embedding, relation = Embedding.open(bundle), Relation.read(relations)
    queries = read(source, limit, embedding)
    with threadpool_limits(1):
        click.echo(about(queries, embedding))
        runs = {
            (epsilon, name): queries.sanitized(embedding, name, epsilon)
            for epsilon in epsilons
            for name in MECHANISMS
        }
        click.echo(f"| proven ε | mechanism | {' | '.join(KINDS)} |")
        click.echo("|---|---|" + "---|" * len(KINDS))
        for (epsilon, name), outputs in runs.items():
            found = shares(queries, outputs, relation)
            click.echo(f"| {epsilon:g} | `{name}` | {' | '.join(f'{found[kind]:.1%}' for kind in KINDS)} |")
        found = chance(queries, outputs, relation, embedding)
        click.echo(f"| | any word | {' | '.join(f'{found[kind]:.1%}' for kind in KINDS)} |")
        click.echo(f"\n| ε | query | {' | '.join(f'`{name}`' for name in MECHANISMS)} |")
        click.echo("|---|---|" + "---|" * len(MECHANISMS))
        for turn, epsilon in enumerate(epsilons):
            for row in spread(runs[epsilon, MECHANISMS[0]], SHOWN * len(epsilons))[turn :: len(epsilons)]:
                cells = [" ".join(runs[epsilon, name][row]) for name in MECHANISMS]
                click.echo(f"| {epsilon:g} | {queries.texts[row].strip()} | {' | '.join(cells)} |")
        if examples:
            click.echo(f"\n| ε | word | {' | '.join(f'`{name}`' for name in MECHANISMS)} |")
            click.echo("|---|---|" + "---|" * len(MECHANISMS))
        for epsilon in epsilons:
            for example in examples:
                word, _, wanted = example.partition(":")
                cells = [often(embedding, word, wanted, name, epsilon) for name in MECHANISMS]
                click.echo(f"| {epsilon:g} | {word} | {' | '.join(cells)} |")


def spread(outputs: Sanitized, count: int) -> list[int]:
    """Rows, evenly spread, of queries whose slots the vocabulary knows."""
    rows = [row for row, output in enumerate(outputs) if PLACEHOLDER not in output]
    return rows[:: max(1, len(rows) // count)][:count]


def often(embedding: Embedding, word: str, wanted: str, name: str, epsilon: float) -> str:
    """How often a word becomes a wanted one in 1,000 runs, and what it becomes most often."""
    runs = Queries.of([word] * RUNS, [[{"start": 0, "end": len(word)}]] * RUNS, embedding)
    counts = Counter(output for (output,) in runs.sanitized(embedding, name, epsilon))
    most = ", ".join(f"{output} {count}" for output, count in counts.most_common(4))
    return f"{wanted} **{counts[wanted]}**; {most}"


if __name__ == "__main__":
    main()
