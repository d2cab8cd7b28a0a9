"""What a sentence becomes: ``dptext try``, without Spark."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, all_of
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import TryOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import embedding_json, written
from dptext_spark.sanitizer import Sanitizer, TokenCounts
from dptext_spark.text.policies import TextPolicy

COLUMN: Final = "sentence"
_HEADER: Final = ("mechanism", "epsilon", "replaced", "becomes")
_GAP: Final = "  "
# However narrow the terminal, and however long the names of mechanisms.
_LEAST_WIDTH: Final = 20


@dataclass(frozen=True, kw_only=True)
class Draw:
    """What the sentence became once, and what was done to its words."""

    mechanism: Mechanism
    text: str
    counts: TokenCounts[int]

    @property
    def replaced(self) -> float:
        """The share of the sentence's words that became other words of the vocabulary."""
        return self.counts.replaced / max(self.counts.tokens, 1)

    def to_json(self) -> dict[str, Any]:
        """Give all of it as JSON-ready values."""
        return {
            **self.mechanism.to_json(),
            "text": self.text,
            "words": self.counts.tokens,
            "replaced": self.replaced,
        }


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The account of one run of ``dptext try``: draws of each mechanism, one after another."""

    embedding: Embedding
    policy: TextPolicy
    draws: tuple[Draw, ...]

    def to_json(self) -> str:
        """Write what came out as JSON text; the sentence is not in it, but for words that stayed."""
        counts = self.draws[0].counts
        value = {
            "embedding": embedding_json(self.embedding),
            "words": counts.tokens,
            "out_of_vocabulary": {"policy": str(self.policy.oov), "tokens": counts.out_of_vocabulary},
            "unprotected": counts.unprotected,
            "draws": [draw.to_json() for draw in self.draws],
        }
        return written(value)

    def describe(self) -> str:
        """Show a table as wide as the terminal."""
        return "\n".join([self._words(), "", *_table(self._rows(), shutil.get_terminal_size().columns)])

    def _words(self) -> str:
        counts = self.draws[0].counts
        found = {
            f"outside the vocabulary ({self.policy.oov})": counts.out_of_vocabulary,
            "not protected": counts.unprotected,
        }
        told = [f"{count} {what}" for what, count in found.items() if count]
        return ", ".join([f"{counts.tokens} word{'s' * (counts.tokens != 1)}", *told]) + "."

    def _rows(self) -> Iterator[tuple[str, ...]]:
        yield _HEADER
        before = None
        for draw in self.draws:
            names = draw.mechanism.spec, f"{draw.mechanism.epsilon:g}"
            shown = ("", "") if draw.mechanism == before else names
            yield (*shown, f"{draw.replaced:.0%}", draw.text)
            before = draw.mechanism


def run(options: TryOptions) -> Preview:
    """Run ``dptext try``: sanitize a sentence under a fresh key, as privatize would a column of a table.

    Raises:
        DptextError: Options and bundle do not go together, or there is no sentence.
    """
    embedding, policy = all_of(lambda: Embedding.open(options.embedding), lambda: options.policy)
    if policy.protect.slots_column:
        raise ConfigError(
            "A sentence has no slots", allowed="--protect all or content", got=str(policy.protect)
        )
    search, *_ = all_of(
        lambda: options.search_over(embedding, options.release_words),
        *(partial(mechanism.prepare, embedding) for mechanism in options.mechanism),
    )
    sentence = _sentence(options)
    draws: list[Draw] = []
    for mechanism in options.mechanism:
        release = Release(bundle=embedding, mechanism=mechanism, policy=policy, search=search)
        privatizer = Sanitizer.open(release)
        made = privatizer.sanitize(
            pa.array([sentence] * options.draws), pa.array(range(1, options.draws + 1)), column=COLUMN
        )
        for number, text in enumerate(made.values.to_pylist()):
            counts = {name: int(getattr(made.counts, name)[number]) for name in TokenCounts.names()}
            draws.append(Draw(mechanism=mechanism, text=text, counts=TokenCounts[int](**counts)))
    return Preview(embedding=embedding, policy=policy, draws=tuple(draws))


def _sentence(options: TryOptions) -> str:
    """Give the sentence of the options, or that of standard input.

    Raises:
        ConfigError: There is none.
    """
    sentence = options.sentence
    if sentence in (None, "-"):
        sentence = click.prompt("Sentence", err=True) if sys.stdin.isatty() else sys.stdin.read()
    if not str(sentence).strip():
        raise ConfigError(
            "There is no sentence to try", do="Give one as the first argument, or on standard input"
        )
    return str(sentence)


def _table(rows: Iterator[tuple[str, ...]], width: int) -> Iterator[str]:
    """Lay out rows, the last column wrapped to a width: after it nothing has to be aligned."""
    cells = list(rows)
    sizes = np.array([[_columns(cell) for cell in row[:-1]] for row in cells]).max(axis=0)
    indent = int(sizes.sum()) + len(_GAP) * len(sizes)
    for row in cells:
        head = [cell + " " * (size - _columns(cell)) for cell, size in zip(row, sizes.tolist(), strict=False)]
        first, *others = _wrapped(row[-1], max(width - indent, _LEAST_WIDTH)) or [""]
        yield _GAP.join([*head, first]).rstrip()
        yield from (" " * indent + line for line in others)


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text between words into lines of at most ``width`` columns; a word is never broken."""
    lines: list[str] = []
    for word in text.split():
        if lines and _columns(lines[-1]) + 1 + _columns(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _columns(text: str) -> int:
    """Say how many columns of a terminal a text takes: two for wide letters, none for combining marks."""
    marks = sum(unicodedata.category(letter) in ("Mn", "Me", "Cf") for letter in text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - marks
