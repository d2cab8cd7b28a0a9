"""Released texts as the numbers of their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.geometry import Ints
from dptext_spark.search.withheld import NONE, Withheld
from dptext_spark.text.columns import column_kind
from dptext_spark.text.joined import unused_letter
from dptext_spark.text.patterns.names import MARKS
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import Bundle, WordReader, joining

ASIDE: Final = -1
"""In place of an output: a mark, or a word that is no output of the mechanism."""

_DETAIL: Final = "[0-9a-f]{16}|[0-9]{4}(?:-[0-9]{2}-[0-9]{2})?"
"""What a mark may have behind its name: a tag, a year, a date."""


class ReadRows(NamedTuple):
    """What rows of a released column show; arrays are int64."""

    offsets: Ints  # (rows + 1,), where each row's tokens start
    outputs: Ints  # (t,), ids below the number of outputs, or ASIDE
    marks: Ints  # (rows,), how many tokens are marks, such as [MASK] and [PHONE]


@dataclass(frozen=True, kw_only=True)
class OutputReader:
    """Reads released texts or token lists; small and hashable, as workers want it."""

    bundle: Bundle
    policy: TextPolicy
    outputs: int  # the words that may be output are among the first so many
    withheld: Withheld = NONE
    marks: tuple[str, ...] = MARKS

    @property
    def mark(self) -> str:
        """The pattern of a mark."""
        names = "|".join(mark.upper() for mark in self.marks)
        return rf"\[(?:{names})(?:-(?:{_DETAIL}))?\]"

    def read(self, values: pa.Array, *, column: str) -> ReadRows:
        """Read a column of texts or token lists (rows,); a null has no token."""
        reader = WordReader(bundle=self.bundle, policy=self.policy)
        if column_kind(values.type, column) == "text":
            marks = pc.fill_null(pc.count_substring_regex(values, self.mark), 0)
            # A letter that no word has keeps the words around a mark from being joined.
            letter = unused_letter(joining(self.bundle.shared(), self.policy.tokenizer))
            values = pc.replace_substring_regex(values, self.mark, f" {letter} ")
            of_rows = marks.to_numpy(zero_copy_only=False).astype(np.int64)
        else:
            is_mark = pc.fill_null(
                pc.match_substring_regex(values.flatten(), f"^{self.mark}$"), False
            )
            parents = pc.list_parent_indices(values).filter(is_mark)
            of_rows = np.bincount(parents, minlength=len(values))
        withheld = self.withheld.among(self.outputs)
        lengths = [np.zeros(1, dtype=np.int64)]
        outputs = [np.zeros(0, dtype=np.int64)]
        for run in reader.runs(values, column=column):
            lengths.append(np.diff(run.tokens.offsets))
            is_output = (run.word_ids >= 0) & (run.word_ids < self.outputs)
            is_output[is_output] = ~withheld[run.word_ids[is_output]]
            outputs.append(np.where(is_output, run.word_ids, ASIDE))
        return ReadRows(
            offsets=np.cumsum(np.concatenate(lengths)),
            outputs=np.concatenate(outputs),
            marks=of_rows,
        )
