"""Write the data that ships in dptext_spark/demo: Snips queries, GloVe words for them, WordNet's mammals.

Run from the project's root: `.venv/bin/python scripts/make_demo_data.py`. It reads the folders `snips`,
`glove_6b_50d` and `wordnet` in $DPTEXT_DATA (by default ../shared/data) and chooses by hash and by rank, so
the same sources give the same files.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "dptext_spark" / "demo"
SNIPS = "snips/snips_intents_2017.parquet"
GLOVE = ("glove_6b_50d/vocab.txt", "glove_6b_50d/vectors.npy")
WORDNET = [f"wordnet/noun_synset_{name}.tsv.gz" for name in ("closure", "direct", "lemmas")]

QUERIES_PER_INTENT = 286  # seven intents: 2,002 queries
VOCABULARY = 8_000
CLITICS = frozenset({"n't", "'s", "'m", "'re", "'ve", "'ll", "'d"})

SPAN = pa.struct([pa.field(name, pa.int32(), nullable=False) for name in ("start", "end")])
QUERY = {
    "id": pa.int64(),
    "intent": pa.string(),
    "text": pa.string(),
    "slots": pa.list_(pa.field("element", SPAN, nullable=False)),
}


def main() -> None:
    """Write the files and print their sizes."""
    data = Path(os.environ.get("DPTEXT_DATA") or ROOT.parent / "shared" / "data")
    if missing := [name for name in (SNIPS, *GLOVE, *WORDNET) if not (data / name).is_file()]:
        sys.exit(
            f"The sources of the demo data are not here: no {', '.join(missing)} in {data}. Set DPTEXT_DATA "
            "to their folder. (Only needed to make the files again: dptext_spark/demo has them.)"
        )
    queries = choose_queries(pq.read_table(data / SNIPS).to_pylist())
    vocabulary = (data / GLOVE[0]).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    rows = choose_words(vocabulary, {word for query in queries for word in words_of(query["text"])})
    vectors = np.load(data / GLOVE[1], mmap_mode="r")[rows]
    mammals = choose_mammals(*([*read_table(data / name)] for name in WORDNET))

    files = DEMO / "queries.parquet", DEMO / "glove.6B.50d.subset.txt.gz", DEMO / "mammals.tsv.gz"
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in QUERY.items()])
    pq.write_table(pa.Table.from_pylist(queries, schema=schema), files[0], compression="zstd")
    # Each number has the fewest digits that read back to the same float16.
    numbers = (" ".join(np.format_float_positional(x, trim="-") for x in vector) for vector in vectors)
    write_gzip(files[1], (f"{vocabulary[row]} {line}" for row, line in zip(rows, numbers, strict=True)))
    write_gzip(files[2], (f"{low}\t{high}" for low, high in [("hyponym", "hypernym"), *mammals]))
    for file, count in zip(files, (len(queries), len(rows), len(mammals)), strict=True):
        print(f"{file.relative_to(ROOT)}: {count:,} rows, {file.stat().st_size:,} bytes")


def read_table(path: Path) -> Iterator[list[str]]:
    """Read a compressed table of tab-separated fields, without its header."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from (line.rstrip("\n").split("\t") for line in islice(lines, 1, None))


def write_gzip(path: Path, lines: Iterable[str]) -> None:
    """Write lines; the file has no time or name in it."""
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
        out.writelines(f"{line}\n".encode() for line in lines)


def choose_mammals(
    closure: list[list[str]], direct: list[list[str]], lemmas: list[list[str]]
) -> list[tuple[str, str]]:
    """Return the direct is-a pairs below mammal, each synset under its first lemma, sorted."""
    first: dict[str, str] = {}
    for synset, lemma in lemmas:
        first.setdefault(synset, lemma)
    below = {"mammal.n.01", *(row[0] for row in closure if row[1] == "mammal.n.01")}
    return sorted({(first[row[0]], first[row[1]]) for row in direct if {row[0], row[1]} <= below})


def choose_queries(source: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the queries of each intent with the smallest text hashes, in the order of the source."""
    by_intent: dict[str, dict[str, dict[str, Any]]] = {}
    for row, record in enumerate(source):
        text = record["text"].strip()
        slots = [slot["text"].strip() for slot in json.loads(record["slots_json"])]
        query = {"id": row, "intent": record["intent"], "text": text, "slots": slots}
        by_intent.setdefault(record["intent"], {}).setdefault(text, query)  # each text once
    chosen = []
    for queries in by_intent.values():
        # A hash orders texts in a way that has nothing to do with their content.
        order = sorted(queries.values(), key=lambda query: hashlib.sha256(query["text"].encode()).digest())
        chosen += order[:QUERIES_PER_INTENT]
    for query in chosen:
        found = list(placements(query["text"], query["slots"], 0))
        if len(found) != 1:
            sys.exit(f"The slots of a query can stand in {len(found)} ways: {query['text']!r}")
        query["slots"] = [{"start": start, "end": end} for start, end in found[0]]
    return sorted(chosen, key=lambda query: query["id"])


def placements(text: str, slots: list[str], start: int) -> Iterator[list[tuple[int, int]]]:
    """Give every way in which texts stand in another one, in their order and as whole words."""
    if not slots:
        yield []
        return
    for match in re.finditer(rf"(?<!\w){re.escape(slots[0])}(?!\w)", text[start:]):
        place = start + match.start(), start + match.end()
        yield from ([place, *others] for others in placements(text, slots[1:], place[1]))


def words_of(text: str) -> set[str]:
    """Return every lower-case reading of the words of `text`: "lina's" gives lina's, lina and s."""
    lowered = text.lower().replace("’", "'")
    spaced = {word.strip(".,;:!?\"'()[]") for word in lowered.split()}
    return spaced | set(re.findall(r"\w+", lowered)) | set(re.findall(r"\w+(?:['-]\w+)+", lowered))


def choose_words(vocabulary: list[str], wanted: set[str]) -> list[int]:
    """Return the rows of the wanted words and of the most frequent ones, in frequency order."""
    words = [row for row, word in enumerate(vocabulary) if any(map(str.isalnum, word))]
    needed = {row for row in words if vocabulary[row] in wanted | CLITICS}
    frequent = islice((row for row in words if row not in needed), max(0, VOCABULARY - len(needed)))
    return sorted(needed.union(frequent))


if __name__ == "__main__":
    main()
