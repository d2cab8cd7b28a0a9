"""Measures how well `--identifiers` finds labelled spans: the table of docs/guide/choosing.md.

The sentences are presidio-evaluator's (0.3.2), from its templates; it needs an environment of its
own:

    python3 -m venv /tmp/presidio
    /tmp/presidio/bin/pip install presidio-evaluator==0.3.2
    /tmp/presidio/bin/python scripts/measure_identifiers.py make /tmp/sentences.json
    .venv/bin/python scripts/measure_identifiers.py measure /tmp/sentences.json
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias

Span: TypeAlias = tuple[str, int, int]
"""Type, start and end."""

# The types of presidio-evaluator that are the same as ours.
OURS: Final = {
    "CREDIT_CARD": "card",
    "DATE_TIME": "date",
    "DOMAIN_NAME": "url",
    "EMAIL_ADDRESS": "email",
    "IBAN_CODE": "iban",
    "IP_ADDRESS": "ip",
    "PHONE_NUMBER": "phone",
    "URL": "url",
}
SENTENCES: Final = 6000


def make(path: Path) -> None:
    """Write sentences and their spans: type, start and end."""
    library: Any = import_module("presidio_evaluator.data_generator")
    faker = library.PresidioSentenceFaker("en_US", lower_case_ratio=0.05, random_seed=42)
    rows = []
    for row in faker.generate_new_fake_sentences(num_samples=SENTENCES):
        ends = [(span.entity_type, span.start_position, span.end_position) for span in row.spans]
        rows.append({"text": row.full_text, "spans": ends})
    path.write_text(json.dumps(rows), encoding="utf-8")


def measure(path: Path) -> None:
    """Print, for each type, its spans, how many are marked, and how many marks are true."""
    from dptext_spark.text.identifiers import TYPES, find

    rows = json.loads(path.read_text(encoding="utf-8"))
    start = time.process_time()
    marks_of_rows = [find(row["text"], {*TYPES, "number"}) for row in rows]
    seconds = time.process_time() - start
    words = 0
    counts = Counts()
    for row, marks in zip(rows, marks_of_rows, strict=True):
        words += len(row["text"].split())
        count(counts, row["text"], row["spans"], marks)
    print(f"{words / seconds:,.0f} words a second of one core\n")
    print("| type | spans | own type | any mark | precision |\n|---|---|---|---|---|")
    for kind in sorted(counts.spans):
        spans = counts.spans[kind]
        of_type = counts.of_type[kind] / spans
        covered = counts.covered[kind] / spans
        precision = counts.true_marks[kind] / max(counts.marks[kind], 1)
        print(f"| {kind} | {spans} | {of_type:.1%} | {covered:.1%} | {precision:.1%} |")


@dataclass
class Counts:
    """Counts by type."""

    spans: Counter[str] = field(default_factory=Counter)
    of_type: Counter[str] = field(default_factory=Counter)  # spans with a mark of their type
    covered: Counter[str] = field(default_factory=Counter)  # spans that marks hide
    marks: Counter[str] = field(default_factory=Counter)
    true_marks: Counter[str] = field(default_factory=Counter)  # that meet a span of their type


def count(
    counts: Counts, text: str, spans: Iterable[Span], marks: Sequence[tuple[int, int, str]]
) -> None:
    """Count the spans and marks of a sentence."""
    labelled = [(OURS[kind], first, end) for kind, first, end in spans if kind in OURS]
    hidden: set[int] = set()
    for first, end, _ in marks:
        hidden.update(range(first, end))
    for kind, first, end in labelled:
        inside = text[first:end]
        # Words ("next Monday") and bare years are no patterns.
        if kind == "date" and (inside.isdigit() or not any(map(str.isdigit, inside))):
            continue
        counts.spans[kind] += 1
        counts.of_type[kind] += any(
            mark_kind == kind and start <= first + 1 and end <= stop + 1
            for start, stop, mark_kind in marks
        )
        places = [place for place in range(first, end) if text[place].isalnum()]
        counts.covered[kind] += hidden.issuperset(places)
    for start, stop, kind in marks:
        counts.marks[kind] += 1
        counts.true_marks[kind] += any(
            span_kind == kind and first < stop and start < end for span_kind, first, end in labelled
        )


if __name__ == "__main__":
    {"make": make, "measure": measure}[sys.argv[1]](Path(sys.argv[2]))
