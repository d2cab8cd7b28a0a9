"""What a sentence becomes: ``dptext try``, without Spark."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
import pyarrow as pa

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, all_of, not_utf8
from dptext_spark.options import TryOptions
from dptext_spark.release import Release
from dptext_spark.report.facts import Report, embedding_json
from dptext_spark.report.text import table
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.text.identifiers import MARKS

COLUMN: Final = "sentence"


def run(options: TryOptions) -> Report:
    """Run ``dptext try``: sanitize a sentence under a fresh key, as privatize would a column of a table."""
    embedding, policy = all_of(lambda: Embedding.open(options.embedding), lambda: options.policy)
    if policy.spans_column:
        do = "Leave out --protect slots:COLUMN and --mask-spans"
        raise ConfigError("A sentence has no column of spans", got=policy.spans_column, do=do)
    search = options.search_over(embedding, options.release_words)
    sentence = options.sentence
    if sentence in (None, "-"):
        try:
            sentence = (
                click.prompt("Sentence", err=True) if sys.stdin.isatty() else sys.stdin.read()
            )
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
    first = {name: int(count[0]) for name, count in made.counts._asdict().items()}
    unknown, marks = first["out_of_vocabulary"], {kind: first[kind] for kind in MARKS}
    facts = {
        "embedding": embedding_json(embedding),
        "words": words,
        "out_of_vocabulary": {"policy": str(policy.oov), "tokens": unknown},
        "unprotected": first["unprotected"],
        "marks": marks,
        "draws": draws,
    }
    counts = {
        f"outside the vocabulary ({policy.oov})": unknown,
        "not protected": first["unprotected"],
    }
    counts |= {f"marked [{kind.upper()}]": n for kind, n in marks.items()}
    said = [
        f"{words} word{'s' * (words != 1)}",
        *(f"{n} {what}" for what, n in counts.items() if n),
    ]
    rows = [("mechanism", "epsilon", "replaced", "becomes")]
    for place, draw in enumerate(draws):
        setting = (
            (draw["mechanism"], f"{draw['epsilon']:g}") if place % options.draws == 0 else ("", "")
        )
        rows.append((*setting, f"{draw['replaced']:.0%}", draw["text"]))
    return Report(
        facts=facts, text="\n".join([", ".join(said) + ".", "", *table(rows, numbers=False)])
    )
