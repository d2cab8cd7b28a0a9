"""A finished calibration folder, read in batches: no table of words or transitions need fit in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numpy.typing import NDArray

from dptext_spark.calibration import record
from dptext_spark.errors import InputError

N_W_EDGES: Final = np.linspace(0.0, 1.0, 21)
# Each small number has a bar of its own, so that no bar is empty only because no whole number falls in it.
S_W_EDGES: Final = np.unique(np.rint(np.geomspace(1.0, 1e7, 57))) - 0.5

HIGH_N_W: Final = 0.95
"""A word that stays itself in this share of the runs, or in more, is hardly changed."""

_GRID: Final = ("mechanism", "setting", "epsilon")


@dataclass(frozen=True, kw_only=True, order=True)
class Line:
    """A mechanism in one setting: one line of a figure."""

    mechanism: str
    setting: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Percentiles over words, all float64 (p,), by ascending epsilon or rank of the neighbour."""

    x: NDArray[np.float64]
    p5: NDArray[np.float64]
    p50: NDArray[np.float64]
    p95: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], x: str) -> Curve:
        """Read rows that have the column ``x`` and the percentiles."""
        ordered = sorted(rows, key=lambda row: float(row[x]))
        columns = np.array([[row[name] for name in (x, "p5", "p50", "p95")] for row in ordered], float).T
        return cls(x=columns[0], p5=columns[1], p50=columns[2], p95=columns[3])


@dataclass(frozen=True, kw_only=True, eq=False)
class Census:
    """What one pass over the words of a line at one epsilon gives.

    Attributes:
        words: How many there are.
        high: How many have an N_w of ``HIGH_N_W`` or more.
        n_w, s_w: int64, words by N_w and by S_w in the bins of ``N_W_EDGES`` and ``S_W_EDGES``.
        top: The words of highest N_w, in that order, with n_w, n_w_low and n_w_high.
    """

    words: int
    high: int
    n_w: NDArray[np.int64]
    s_w: NDArray[np.int64]
    top: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Results:
    """An open calibration folder; ``facts`` is its ``calibration.json``, every other part may be absent."""

    folder: Path
    facts: Mapping[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Results:
        """Open a folder; refuse one whose ``calibration.json`` is missing or of another format."""
        file = folder / record.FILE
        if not file.is_file():
            raise InputError(
                f"The folder {folder} is not a finished calibration",
                allowed=f"the output of dptext calibrate, which ends with {record.FILE}",
            )
        return cls(folder=folder, facts=record.read(str(file), lambda name: Path(name).read_text("utf-8")))

    @cached_property
    def grid(self) -> Mapping[Line, tuple[float, ...]]:
        """The lines in the order of the run, and the epsilons at which each was measured, ascending."""
        found: dict[Line, set[float]] = {}
        for row in self.facts["summary"]:
            found.setdefault(line_of(row), set()).add(float(row["epsilon"]))
        return {line: tuple(sorted(epsilons)) for line, epsilons in found.items()}

    @property
    def epsilons(self) -> tuple[float, ...]:
        """Every epsilon of any line, ascending."""
        return tuple(sorted(set().union(*self.grid.values())))

    def label(self, line: Line) -> str:
        """Name a line as briefly as the others allow."""
        if line.setting and len({other.mechanism for other in self.grid}) == 1:
            return line.setting
        return f"{line.mechanism} {line.setting}".strip()

    def curves(self, statistic: str) -> dict[str, Curve]:
        """Give the percentiles of a statistic over epsilon, by the labels of lines."""
        rows = [row for row in self.facts["summary"] if row["statistic"] == statistic]
        lines = {line_of(row): [own for own in rows if line_of(own) == line_of(row)] for row in rows}
        return {self.label(line): Curve.of(own, "epsilon") for line, own in lines.items()}

    def neighbours(self) -> dict[str, Curve]:
        """Give the percentiles of the distance to the k-th neighbour over k, by the labels of lines."""
        return {
            self.label(line): Curve.of(own["neighbours"], "neighbour")
            for line in self.grid
            if (own := (self.facts.get("distances") or {}).get(line.setting)) and own["neighbours"]
        }

    def census(self, line: Line, epsilon: float, *, top: int) -> Census | None:
        """Count the words of a line at one epsilon; None where there are none."""
        columns = ("word", "n_w", "n_w_low", "n_w_high", "s_w")
        found = self._dataset("words", columns)
        if found is None:
            return None
        n_w, s_w = np.zeros(len(N_W_EDGES) - 1, np.int64), np.zeros(len(S_W_EDGES) - 1, np.int64)
        high, best = 0, pa.table({name: [] for name in columns})
        for batch in found.to_batches(columns=list(columns), filter=_of(line, epsilon)):
            stays, outputs = batch["n_w"].to_numpy(), batch["s_w"].to_numpy()
            # A probability is at most 1, but for rounding.
            n_w += np.histogram(np.minimum(stays, 1.0), bins=N_W_EDGES)[0]
            s_w += np.histogram(outputs, bins=S_W_EDGES)[0]
            high += int((stays >= HIGH_N_W).sum())
            best = _highest(best, batch, top)
        if not best.num_rows:
            return None
        return Census(words=int(n_w.sum()), high=high, n_w=n_w, s_w=s_w, top=tuple(best.to_pylist()))

    def some_words(self, count: int) -> tuple[str, ...]:
        """Take words evenly spaced over the alphabet of those measured."""
        found = self._dataset("words", ("word",))
        if found is None or not self.grid:
            return ()
        line, epsilons = next(iter(self.grid.items()))
        words = found.to_table(columns=["word"], filter=_of(line, epsilons[0])).sort_by("word")["word"]
        rows = np.linspace(0.0, len(words), count, endpoint=False).astype(np.int64)
        return tuple(words.take(np.unique(rows)).to_pylist()) if len(words) else ()

    def substitutions(self, words: Sequence[str], *, top: int) -> list[dict[str, Any]] | None:
        """Find what words became most often; None where neither examples nor transitions were kept.

        Returns:
            Rows with mechanism, setting, epsilon, word, output and count, at most ``top`` for each word of
            a line at one epsilon: the most frequent first, of equals the first by alphabet.
        """
        keys, wanted = [*_GRID, "word"], pc.field("word").isin(pa.array(words, pa.string()))
        columns = ("word", "output", "count")
        found = self._dataset("examples", columns) or self._dataset("transitions", columns)
        if found is None:
            return None
        order = [*((key, "ascending") for key in keys), ("count", "descending"), ("output", "ascending")]
        table = found.to_table(columns=[*keys, "output", "count"], filter=wanted).sort_by(order)
        # The first rows of a group differ in some key from the row that is ``top`` places above.
        first = np.arange(len(table)) < top
        for key in keys:
            column = table[key].combine_chunks()
            first[top:] |= pc.not_equal(column[top:], column[:-top]).to_numpy(zero_copy_only=False)
        rows: list[dict[str, Any]] = table.filter(pa.array(first)).to_pylist()
        return rows

    def _dataset(self, name: str, columns: Sequence[str]) -> Any:
        """Open one of the folder's tables; None where it is absent or has not these columns."""
        if not (self.folder / name).is_dir():
            return None
        found = ds.dataset(self.folder / name, format="parquet")
        return found if {*_GRID, *columns} <= set(found.schema.names) else None


def line_of(row: Mapping[str, Any]) -> Line:
    """Name the line that a row belongs to."""
    return Line(mechanism=row["mechanism"], setting=row["setting"])


def _of(line: Line, epsilon: float) -> Any:
    ours = (pc.field("mechanism") == line.mechanism) & (pc.field("setting") == line.setting)
    return ours & (pc.field("epsilon") == epsilon)


def _highest(best: pa.Table, batch: pa.RecordBatch, top: int) -> pa.Table:
    """Keep the words of highest N_w, of equals the first by alphabet."""
    if not batch.num_rows:
        return best
    table = pa.Table.from_batches([batch])
    table = pa.concat_tables([best.cast(table.schema), table])
    return table.take(pc.select_k_unstable(table, top, [("n_w", "descending"), ("word", "ascending")]))
