"""How many words of a column the vocabulary has, told from a sample of rows before a run begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass
from typing import Any, Final, Self

import pyarrow as pa

from dptext_spark.lookup import WordReader
from dptext_spark.text.segmentation import WordRuns, unspaced_share

MANY: Final = 0.1
"""A share of unknown words to warn of: one word in ten, so that hardly a sentence stays whole.

Ordinary English has a few in a hundred that a vocabulary of its own kind lacks; where stop words or a
language are missing there are several in ten.
"""


@dataclass(frozen=True)
class Coverage:
    """What was found in a sample of a column's rows.

    Attributes:
        rows: How many rows the sample has.
        tokens: Tokens that the policy protects.
        unknown: Those of them that the vocabulary lacks.
        unspaced: Sum over the rows of the share of letters in scripts without spaces, of texts of which the
            tokenizer takes each run of such letters for one word.
    """

    rows: int = 0
    tokens: int = 0
    unknown: int = 0
    unspaced: float = 0.0

    @classmethod
    def measure(cls, values: pa.Array, reader: WordReader, slots: pa.Array | None = None) -> Self:
        """Look at the first rows of a column of texts or token lists: at most a MB of text, or one row.

        Raises:
            InputError: A text is not Unicode, or the policy lacks its slots.
        """
        run = next(reader.runs(values, slots), None)
        if run is None:
            return cls()
        rows = len(run.tokens.offsets) - 1
        by_runs = run.tokens.kind == "text" and reader.policy.tokenizer.name == WordRuns.name
        return cls(
            rows=rows,
            tokens=int(run.protected.sum()),
            unknown=int(run.unknown.sum()),
            unspaced=rows * unspaced_share(values[run.rows]) if by_runs else 0.0,
        )

    @classmethod
    def sum(cls, parts: Iterable[Self]) -> Self:
        """Put samples together."""
        rows, tokens, unknown, unspaced = (sum(column) for column in zip(*map(astuple, parts), strict=True))
        return cls(rows=int(rows), tokens=int(tokens), unknown=int(unknown), unspaced=float(unspaced))

    @property
    def unknown_share(self) -> float:
        """Share of the words that the vocabulary lacks."""
        return self.unknown / max(self.tokens, 1)

    @property
    def unspaced_share(self) -> float:
        """Share of the letters that are of scripts without spaces, on average over the rows."""
        return self.unspaced / max(self.rows, 1)

    def to_json(self) -> dict[str, Any]:
        """Give the sample as JSON-ready values."""
        return {**asdict(self), "unspaced": round(self.unspaced_share, 4)}

    def describe(self) -> str:
        """Say how much the vocabulary has."""
        if not self.tokens:
            return f"no words in a sample of {self.rows:,} rows"
        known = f"{1 - self.unknown_share:.1%} of {self.tokens:,} words are in the vocabulary"
        return f"{known} (a sample of {self.rows:,} rows)"

    def warning(self, column: str, fate: str) -> str:
        """Say what a person should know before the run; empty where all is well.

        Args:
            column: The column's name.
            fate: What becomes of unknown words, and what to do about it.
        """
        of, sample = f"of column {column}", f"in a sample of {self.rows:,} rows"
        unknown = f"{self.unknown_share:.1%} of the words"
        if self.unspaced_share > MANY:
            return (
                f"{self.unspaced_share:.0%} of the letters {of}, {sample}, are of scripts without spaces "
                "between words (Chinese, Japanese, Thai and others). A run of such letters counts as one "
                f"word: {unknown} are not in the embedding's vocabulary. Cut them into words with "
                "--tokenizer icu, and take an embedding of that language."
            )
        if self.unknown_share > MANY:
            return f"{unknown} {of}, {sample}, are not in the embedding's vocabulary. {fate}"
        return ""
