"""Measures how well the patterns of `--identifiers` find labelled spans: the table of docs/guide/choosing.md.

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
from importlib import import_module
from pathlib import Path
from typing import Any, Final

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
    rows = [
        {
            "text": row.full_text,
            "spans": [
                (span.entity_type, span.start_position, span.end_position) for span in row.spans
            ],
        }
        for row in faker.generate_new_fake_sentences(num_samples=SENTENCES)
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")


def measure(path: Path) -> None:
    """Print, for each type, its spans, those with a mark of it, with any mark, and marks that are right."""
    from dptext_spark.text.identifiers import TYPES, find

    rows = json.loads(path.read_text(encoding="utf-8"))
    start = time.process_time()
    found = [find(row["text"], {*TYPES, "number"}) for row in rows]
    seconds = time.process_time() - start
    spans, own, covered, marks, right = (Counter[str]() for _ in range(5))
    for row, marked in zip(rows, found, strict=True):
        text = row["text"]
        labelled = [(OURS[kind], first, end) for kind, first, end in row["spans"] if kind in OURS]
        for kind, first, end in labelled:
            inside = text[first:end]
            # Words ("next Monday") and bare years are no patterns.
            if kind == "date" and (inside.isdigit() or not any(map(str.isdigit, inside))):
                continue
            spans[kind] += 1
            own[kind] += any(k == kind and a <= first + 1 and end <= b + 1 for a, b, k in marked)
            hidden = {place for a, b, _ in marked for place in range(a, b)}
            covered[kind] += all(n in hidden or not text[n].isalnum() for n in range(first, end))
        for a, b, kind in marked:
            marks[kind] += 1
            right[kind] += any(k == kind and first < b and a < end for k, first, end in labelled)
    print(
        f"{sum(len(row['text'].split()) for row in rows) / seconds:,.0f} words a second of one core\n"
    )
    print("| type | spans | own type | any mark | precision |\n|---|---|---|---|---|")
    for kind in sorted(spans):
        shares = (
            own[kind] / spans[kind],
            covered[kind] / spans[kind],
            right[kind] / max(marks[kind], 1),
        )
        print(
            f"| {kind} | {spans[kind]} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"
        )


if __name__ == "__main__":
    {"make": make, "measure": measure}[sys.argv[1]](Path(sys.argv[2]))
