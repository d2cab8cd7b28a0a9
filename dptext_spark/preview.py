"""What a sentence becomes: ``dptext try``, without Spark."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
import pyarrow as pa

from dptext_spark.display import table
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, not_utf8
from dptext_spark.options import TryOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Facts, Report, embedding_json
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.text.patterns.names import MARKS, marked_as

COLUMN: Final = "sentence"


def run(options: TryOptions) -> Report:
    """Run ``dptext try``: sanitize a sentence under a fresh key, as privatize would a column."""
    embedding = Embedding.open(options.embedding)
    policy = options.policy
    if policy.spans_column:
        raise ConfigError(
            "A sentence has no column of spans",
            got=policy.spans_column,
            do="Leave out --protect slots:COLUMN and --mask-spans",
        )
    search = options.search_over(embedding, options.release_words)
    copies = pa.array([_sentence(options)] * options.draws)
    ids = pa.array(range(1, options.draws + 1))
    draws: list[dict[str, Any]] = []
    for mechanism in options.mechanism:
        release = Release(bundle=embedding, mechanism=mechanism, policy=policy, search=search)
        outputs = Sanitizer.open(release).sanitize(copies, ids, column=COLUMN)
        words = int(outputs.counts.tokens[0])
        replaced = outputs.counts.replaced.tolist()
        for text, count in zip(outputs.values.to_pylist(), replaced, strict=True):
            draw = {"text": text, "words": words, "replaced": count / max(words, 1)}
            draws.append({**mechanism.to_json(), **draw})
    # Of any draw: only what is replaced differs.
    counts = {name: int(count[0]) for name, count in outputs.counts._asdict().items()}
    facts = {
        "embedding": embedding_json(embedding),
        "words": words,
        "out_of_vocabulary": {"policy": str(policy.oov), "tokens": counts["out_of_vocabulary"]},
        "unprotected": counts["unprotected"],
        "marks": {kind: counts[kind] for kind in MARKS},
        "draws": draws,
    }
    rows = [("mechanism", "epsilon", "replaced", "becomes")]
    for place, draw in enumerate(draws):
        mechanism_cell = epsilon_cell = ""
        if place % options.draws == 0:
            mechanism_cell = draw["mechanism"]
            epsilon_cell = f"{draw['epsilon']:g}"
        rows.append((mechanism_cell, epsilon_cell, f"{draw['replaced']:.0%}", draw["text"]))
    return Report(facts=facts, text="\n".join([_counts(facts), "", *table(rows, numbers=False)]))


def _sentence(options: TryOptions) -> str:
    """Return the sentence of the command line, or read one from standard input."""
    sentence = options.sentence
    if sentence in (None, "-"):
        try:
            sentence = _read()
            sentence.encode()
        except (UnicodeDecodeError, UnicodeEncodeError) as error:
            raise not_utf8("The sentence on standard input", error) from None
    if not str(sentence).strip():
        raise ConfigError(
            "There is no sentence to try",
            do="Give one as the first argument, or on standard input",
        )
    return str(sentence)


def _read() -> str:
    """Read a sentence from a terminal, after a prompt, or from standard input."""
    if sys.stdin.isatty():
        return str(click.prompt("Sentence", err=True))
    return sys.stdin.read()


def _counts(facts: Facts) -> str:
    """Return how many words there are, and how many of them are not perturbed."""
    unknown = facts["out_of_vocabulary"]
    counts = {
        f"outside the vocabulary ({unknown['policy']})": unknown["tokens"],
        "not protected": facts["unprotected"],
    }
    for kind, count in facts["marks"].items():
        counts[marked_as(kind)] = count
    words = facts["words"]
    parts = ["1 word" if words == 1 else f"{words} words"]
    for what, count in counts.items():
        if count:
            parts.append(f"{count} {what}")
    return f"{', '.join(parts)}."
