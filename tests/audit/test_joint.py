"""Outputs together: over a row, rows, tables and versions their law is the product that the claims add up.

On a line the law of one word is known in closed form. Where contexts of noise are distinct, counts of two
outputs together are held against the product of their laws by a chi-square test. Keys are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace
from dptext_spark.noise import ColumnNoise
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.text.policies import ContentWords
from tests.helpers import worlds

pytestmark = pytest.mark.statistical

RUNS = 1000
FALSE_ALARMS = 1e-5  # of one scenario
Patch = pytest.MonkeyPatch


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of the word at one place of a row, and what its noise depends on."""

    row: tuple[int, ...] = (1,)
    place: int = 0
    row_id: str = "r"
    label: str = "a"
    column: str = "text"
    epsilon: float = 1.0
    protect: str = "all"

    def drawn(self, line: Embedding) -> np.ndarray:
        """Draw it from many rows alike, whose ids differ in a number."""
        mechanism = Laplace(epsilon=self.epsilon)
        noise = worlds.release(mechanism, line, salt=self.label)
        words = worlds.words(len(line.words))
        rows = pa.array([[words[word] for word in self.row]] * RUNS, pa.list_(pa.string()))
        ids = pa.array([f"{self.row_id} {run}" for run in range(RUNS)])
        private = replace(worlds.sanitizer(line, mechanism, protect=self.protect), noise=noise)
        values = private.sanitize(rows, ids, column=self.column).values
        return np.array([words.index(row[self.place]) for row in values.to_pylist()])

    def law(self, line: Embedding) -> np.ndarray:
        """Give P[output], by differences of the Laplace law between the middles of neighbours."""
        positions = line.vectors[:, 0].astype(np.float64)
        borders = [-np.inf, *(positions[1:] + positions[:-1]) / 2, np.inf]
        return np.diff(stats.laplace(positions[self.row[self.place]], 1 / self.epsilon).cdf(borders))


INDEPENDENT: dict[str, tuple[Output, Output]] = {
    "two words of a row": (Output(row=(1, 3)), Output(row=(1, 3), place=1)),
    "a word twice in a row": (Output(row=(1, 1)), Output(row=(1, 1), place=1)),
    "two words at one place": (Output(), Output(row=(2,))),
    "an edited row": (Output(row=(1, 0)), Output(row=(1, 4))),
    "two rows": (Output(), Output(row_id="s")),
    "two tables": (Output(), Output(label="b")),
    "two columns": (Output(), Output(column="title")),
    "two epsilons": (Output(), Output(epsilon=2.0)),
    "content words": (Output(protect="content"), Output(row=(3,), protect="content")),
}
AGAIN = "a row again"


def broken(line: Embedding) -> set[str]:
    """The scenarios whose outputs together do not follow the claimed law."""
    found = set()
    for name, pair in INDEPENDENT.items():
        one, other = (output.drawn(line) for output in pair)
        seen = np.zeros((len(line.words),) * 2)
        np.add.at(seen, (one, other), 1)
        expected = RUNS * np.outer(*(output.law(line) for output in pair))
        distance = ((seen - expected) ** 2 / expected).sum()
        if stats.chi2.sf(distance, seen.size - 1) < FALSE_ALARMS:
            found.add(name)
    if not np.array_equal(Output().drawn(line), Output().drawn(line)):
        found.add(AGAIN)
    return found


def test_the_running_code_breaks_no_bound_together(line: Embedding) -> None:
    """The losses of independent outputs add up, and equal contexts lose once."""
    assert broken(line) == set()


ROW_KEY, FILL, LAW = ColumnNoise.row_key, ColumnNoise.fill, Laplace.law


def noise_anew(patch: Patch) -> None:
    runs = count()
    patch.setattr(ColumnNoise, "row_key", lambda self, i, c: ROW_KEY(self, i, (*c, b"%d" % next(runs))))


def no_content(patch: Patch) -> None:
    patch.setattr(ColumnNoise, "row_key", lambda self, row_id, content: ROW_KEY(self, row_id, ()))


def no_id(patch: Patch) -> None:
    """Only the number of the run distinguishes rows."""
    patch.setattr(ColumnNoise, "row_key", lambda self, i, c: ROW_KEY(self, i.partition(b" ")[2], c))


def one_position(patch: Patch) -> None:
    def fill(self: ColumnNoise, out: np.ndarray, row_key: bytes, first_position: int) -> None:
        FILL(self, out, row_key, first_position)
        out[:] = out[:1]

    patch.setattr(ColumnNoise, "fill", fill)


def no_epsilon(patch: Patch) -> None:
    def law(self: Laplace, dimension: int) -> Mapping[str, Any]:
        return {name: value for name, value in LAW(self, dimension).items() if name != "epsilon"}

    patch.setattr(Laplace, "law", law)


def no_label(patch: Patch) -> None:
    release = Laplace.release_noise
    patch.setattr(
        Laplace, "release_noise", lambda self, key, **given: release(self, key, **given | {"salt": ""})
    )


def no_column(patch: Patch) -> None:
    sanitize = Sanitizer.sanitize
    patch.setattr(Sanitizer, "sanitize", lambda self, v, ids, column: sanitize(self, v, ids, column=""))


def a_word_that_passes(patch: Patch) -> None:
    patch.setattr(ContentWords, "protected", lambda self, tokens, slots: ~tokens.flag(lambda t: t == "w3"))


FAULTS: list[tuple[Callable[[Patch], None], set[str]]] = [
    (noise_anew, {AGAIN}),
    (no_content, {"two words at one place", "an edited row", "content words"}),
    (no_id, {"two rows"}),
    (one_position, {"two words of a row", "a word twice in a row"}),
    (no_epsilon, {"two epsilons"}),
    (no_label, {"two tables"}),
    (no_column, {"two columns"}),
    (a_word_that_passes, {"content words"}),
]


@pytest.mark.parametrize(("fault", "names"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_fault_is_found(
    fault: Callable[[Patch], None], names: set[str], line: Embedding, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    assert broken(line) == names
