"""What only Spark reads: headers of Parquet's pages, in a table that a whole job releases."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dptext_spark.jobs import privatize
from dptext_spark.options import PrivatizeOptions
from dptext_spark.spark.session import session
from scripts.fuzz.mutations import HOSTILE_BYTES, Rng
from scripts.fuzz.targets import CANARY, Target
from tests.helpers import worlds

ROWS = 40


class Pages(Target):
    """Headers of pages that lie of sizes, numbers of values, encodings and statistics."""

    name = "pages"

    def prepare(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # Java reserves more than it takes
        session("fuzz")
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        self.bundle = worlds.build(self.folder, worlds.uneven(40, 4)).path
        texts = [f"w1 w{row % 7} {CANARY}{row}" for row in range(ROWS)]
        table = pa.table(
            {"id": range(ROWS), "text": texts, "kept": [row % 3 for row in range(ROWS)]}
        )
        self.files = []
        for version in ("1.0", "2.0"):
            buffer = io.BytesIO()
            pq.write_table(
                table,
                buffer,
                data_page_version=version,
                data_page_size=128,
                write_batch_size=8,
                compression="none",
            )
            content = buffer.getvalue()
            self.files.append((content, _page_offsets(content)))

    def case(self, rng: Rng, place: Path) -> Callable[[], object]:
        content, offsets = self.files[int(rng.integers(0, len(self.files)))]
        for _ in range(int(rng.integers(1, 4))):
            start = offsets[int(rng.integers(0, len(offsets)))] + int(rng.integers(0, 48))
            hostile = HOSTILE_BYTES[int(rng.integers(0, len(HOSTILE_BYTES)))][:8]
            if rng.random() < 0.7:
                hostile = rng.bytes(1)
            content = content[:start] + hostile + content[start + len(hostile) :]
        (place / "in").mkdir()
        (place / "in" / "a.parquet").write_bytes(content)
        where = {"where": "kept < 2"} if rng.random() < 0.3 else {}
        options = PrivatizeOptions.of(
            {
                "input": str(place / "in"),
                "output": str(place / "out"),
                "embedding": str(self.bundle),
                "mechanism": "laplace",
                "epsilon": 5.0,
                "text": ["text"],
                "keep": ["kept"],
                **where,
            }
        )

        def read() -> None:
            try:
                report = privatize.run(options)
            except Exception:
                if {*os.listdir(place)} != {"in"}:
                    raise AssertionError("partial output was left") from None
                raise
            written = pq.read_table(place / "out")
            if written.num_rows != report.facts["rows"]:
                raise AssertionError("rows were counted that are not there")
            if CANARY in "".join(written["text"].to_pylist()):
                raise AssertionError("a word of the input came out")

        return read


def _page_offsets(content: bytes) -> list[int]:
    """Return where the first pages of all column chunks begin."""
    metadata = pq.read_metadata(io.BytesIO(content))
    offsets = []
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            offsets += [chunk.data_page_offset]
            if chunk.has_dictionary_page:
                offsets.append(chunk.dictionary_page_offset)
    return offsets
