"""What a sentence becomes: ``dptext try``, without Spark."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
import numpy as np
import pyarrow as pa

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, all_of, not_utf8
from dptext_spark.options import TryOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.text.identifiers import MARKS

COLUMN: Final = "sentence"
_GAP: Final = "  "
# However narrow the terminal, and however long the names of mechanisms.
_LEAST_WIDTH: Final = 20


def run(options: TryOptions) -> Report:
    """Run ``dptext try``: sanitize a sentence under a fresh key, as privatize would a column of a table.

    Raises:
        DptextError: Options and bundle do not go together, or there is no sentence.
    """
    embedding, policy = all_of(lambda: Embedding.open(options.embedding), lambda: options.policy)
    if policy.spans_column:
        do = "Leave out --protect slots:COLUMN and --mask-spans"
        raise ConfigError("A sentence has no column of spans", got=policy.spans_column, do=do)
    search, *_ = all_of(
        lambda: options.search_over(embedding, options.release_words),
        *(partial(mechanism.prepare, embedding) for mechanism in options.mechanism),
    )
    sentence = options.sentence
    if sentence in (None, "-"):
        try:
            sentence = click.prompt("Sentence", err=True) if sys.stdin.isatty() else sys.stdin.read()
            sentence.encode()
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise not_utf8("The sentence on standard input", error) from None
    if not str(sentence).strip():
        do = "Give one as the first argument, or on standard input"
        raise ConfigError("There is no sentence to try", do=do)
    copies, ids = pa.array([str(sentence)] * options.draws), pa.array(range(1, options.draws + 1))
    draws: list[dict[str, Any]] = []
    for mechanism in options.mechanism:
        release = Release(bundle=embedding, mechanism=mechanism, policy=policy, search=search)
        made = Sanitizer.open(release).sanitize(copies, ids, column=COLUMN)
        words, replaced = int(made.counts.tokens[0]), made.counts.replaced.tolist()
        draws += [
            {**mechanism.to_json(), "text": text, "words": words, "replaced": count / max(words, 1)}
            for text, count in zip(made.values.to_pylist(), replaced, strict=True)
        ]
    unknown, unprotected = int(made.counts.out_of_vocabulary[0]), int(made.counts.unprotected[0])
    marks = {kind: int(getattr(made.counts, kind)[0]) for kind in MARKS}
    facts = {
        "embedding": embedding_json(embedding),
        "words": words,
        "out_of_vocabulary": {"policy": str(policy.oov), "tokens": unknown},
        "unprotected": unprotected,
        "marks": marks,
        "draws": draws,
    }
    counts = {f"outside the vocabulary ({policy.oov})": unknown, "not protected": unprotected}
    counts |= {f"marked [{kind.upper()}]": n for kind, n in marks.items()}
    said = [f"{words} word{'s' * (words != 1)}", *(f"{n} {what}" for what, n in counts.items() if n)]
    table = _table(draws, shutil.get_terminal_size().columns)
    return Report(facts=facts, text="\n".join([", ".join(said) + ".", "", *table]))


def _table(draws: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Lay out draws, the last column wrapped to a width: after it nothing has to be aligned."""
    cells, last = [("mechanism", "epsilon", "replaced", "becomes")], None
    for draw in draws:
        setting = draw["mechanism"], f"{draw['epsilon']:g}"
        cells.append((*(setting if setting != last else ("", "")), f"{draw['replaced']:.0%}", draw["text"]))
        last = setting
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
