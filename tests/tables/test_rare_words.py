"""Rows of a released table that show a word that few rows have: counted exactly, in the private report."""

import json
from collections import Counter

import numpy as np
import pytest

from tests.helpers.tables import RING_WORDS, rows_of, run_table, write_table

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

BARE = 1e6  # hardly any noise: all words stay
A, B, C, D = RING_WORDS[:4]


def counted(report):
    return report.facts["singled_out"]["rows"]


def test_rows_are_counted_once_for_all_their_columns(ring_release, tmp_path):
    """Rejects tokens in place of rows, single columns, rows that a filter leaves out, and sums of columns.

    Two rows have C, in different columns. The row of id 9, which is left out, has A.
    """
    ids = [1, 2, 3, 4, 5, 9]
    columns = {
        "id": ids,
        "text": [f"{A} {A}", f"{B} {C}", B, None, "Unheardof", A],
        "words": [[A], [B], [C], [], [D, None, "Unheardof"], [D]],
    }
    write_table(ring_release["input"] / "a.parquet", columns)
    release = ring_release | {
        "text": ["text"],
        "tokens": ["words"],
        "epsilon": BARE,
        "id": "id",
        "where": "id < 9",
        "count_unique": True,
    }
    report = run_table(**release)
    assert counted(report) == {"2": 2, "6": 4}
    line = "Rows with an unchanged word that no other row has: 2 (40.0%); "
    line += "that fewer than 6 rows have: 4 (80.0%)"
    assert line in report.describe().splitlines()
    public = json.loads((tmp_path / "out.release.json").read_text())
    assert "singled_out" not in public and "singled_out" in json.loads(report.to_json())


def test_words_that_are_not_perturbed_are_no_findings(ring_release):
    """Rejects words outside slots, which no noise moves. A row that shows one there has it all the same."""
    columns = {
        "id": [1, 2],
        "text": [f"{A} {B}", f"{B} {C}"],
        "slots": [[{"start": 0, "end": len(A)}], [{"start": 0, "end": len(B)}]],
    }
    write_table(ring_release["input"] / "a.parquet", columns)
    report = run_table(
        **ring_release, epsilon=BARE, id="id", protect="slots:slots", count_unique=True
    )
    assert counted(report) == {"2": 1, "6": 2}


def test_a_release_is_counted_as_its_input_and_output_say(ring_release, tmp_path):
    """Rejects rarity of outputs, of a file, of a batch or of a task: rows lie in four files."""
    rng = np.random.default_rng(1)
    ranks = np.minimum(rng.geometric(0.06, (120, 4)) - 1, len(RING_WORDS) - 1)
    texts = [" ".join(RING_WORDS[rank] for rank in row) for row in ranks]
    for file in range(4):
        ids = list(range(file, 120, 4))
        columns = {"id": ids, "text": [texts[i] for i in ids]}
        write_table(ring_release["input"] / f"{file}.parquet", columns)
    report = run_table(**ring_release, epsilon=8.0, id="id", keep=["id"], count_unique=True)
    rows_by_word = Counter(word for text in texts for word in {*text.split()})
    rarest = []
    for row in rows_of(tmp_path / "out"):
        pairs = zip(texts[row["id"]].split(), row["text"].split(), strict=True)
        rarest.append(
            min((rows_by_word[word] for word, output in pairs if word == output), default=120)
        )
    shown = [sum(rows < few for rows in rarest) for few in (2, 6)]
    assert list(counted(report).values()) == shown
    assert 0 < shown[0] < shown[1] < 120
