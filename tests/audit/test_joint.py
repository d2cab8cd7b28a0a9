"""Outputs together: over a row, rows, tables and versions their law is the product that the claims add up.

On a line the law of one word is known in closed form. Where contexts of noise are distinct, counts of two
outputs together are held against the product of their laws by a chi-square test. Keys are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

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


class Output(NamedTuple):
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


INDEPENDENT = {
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
    found = set() if np.array_equal(Output().drawn(line), Output().drawn(line)) else {AGAIN}
    for name, pair in INDEPENDENT.items():
        seen = np.zeros((len(line.words),) * 2)
        np.add.at(seen, tuple(output.drawn(line) for output in pair), 1)
        expected = RUNS * np.outer(*(output.law(line) for output in pair))
        if stats.chi2.sf(((seen - expected) ** 2 / expected).sum(), seen.size - 1) < FALSE_ALARMS:
            found.add(name)
    return found


ROW_KEY, FILL, RUN = ColumnNoise.row_key, ColumnNoise.fill, count()
LAW, RELEASE, SANITIZE = Laplace.law, Laplace.release_noise, Sanitizer.sanitize


def one_position(self: ColumnNoise, out: np.ndarray, row_key: bytes, first_position: int) -> None:
    FILL(self, out, row_key, first_position)
    out[:] = out[:1]


def no_epsilon(self: Laplace, dimension: int) -> dict[str, Any]:
    return {name: value for name, value in LAW(self, dimension).items() if name != "epsilon"}


FAULTS: dict[str, tuple[type | None, str, Any, set[str]]] = {
    "none": (None, "", None, set()),
    "noise anew": (
        *(ColumnNoise, "row_key", lambda noise, i, c: ROW_KEY(noise, i, (*c, b"%d" % next(RUN)))),
        {AGAIN},
    ),
    "no content": (
        *(ColumnNoise, "row_key", lambda noise, row_id, _: ROW_KEY(noise, row_id, ())),
        {"two words at one place", "an edited row", "content words"},
    ),
    # Only the number of the run distinguishes rows.
    "no id": (
        *(ColumnNoise, "row_key", lambda noise, i, c: ROW_KEY(noise, i.partition(b" ")[2], c)),
        {"two rows"},
    ),
    "one position": (ColumnNoise, "fill", one_position, {"two words of a row", "a word twice in a row"}),
    "no epsilon": (Laplace, "law", no_epsilon, {"two epsilons"}),
    "no label": (
        *(Laplace, "release_noise", lambda self, key, **given: RELEASE(self, key, **given | {"salt": ""})),
        {"two tables"},
    ),
    "no column": (
        *(Sanitizer, "sanitize", lambda self, values, ids, column: SANITIZE(self, values, ids, column="")),
        {"two columns"},
    ),
    "a word that passes": (
        *(ContentWords, "protected", lambda _, tokens: ~tokens.flag(lambda token: token == "w3")),
        {"content words"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_the_running_code_breaks_no_bound(
    fault: str, line: Embedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The losses of independent outputs add up, and equal contexts lose once."""
    kind, name, wrong, scenarios = FAULTS[fault]
    if kind is not None:
        monkeypatch.setattr(kind, name, wrong)
    assert broken(line) == scenarios
