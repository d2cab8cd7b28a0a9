"""Tallies of parts of a table: written, read, and added up they are those of the whole."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.bigrams import PairCounts
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.recovery import Attacker
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.tally import Tally
from dptext_spark.mechanisms import Laplace, Mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

TEXTS = [*sentences(40, 1), "", "strange words alone"]


@pytest.fixture(scope="module")
def rehearsal(small: Embedding) -> Rehearsal:
    return Rehearsal(bundle=small, policy=TextPolicy(), search=ExactSearch.over(small))


def tally(rehearsal: Rehearsal, chosen: slice, mechanism: Mechanism | None, versions: int = 2) -> Tally:
    known = rehearsal.pairs(pa.array(TEXTS))
    nothing = Emissions.uniform(len(rehearsal.embedding.words), 200)
    rows = rehearsal.unreleased(pa.array(TEXTS[chosen]))
    ids = pa.array(range(len(TEXTS)))[chosen]
    attacker = Attacker.of(nothing, known)
    return Tally.of(rehearsal, rows, ids, mechanism, attacker, versions=versions)


def cells(found: Tally) -> dict[tuple[str, int, int], float]:
    rows = found.to_table().to_pylist()
    return {(row["kind"], row["a"], row["b"]): row["total"] for row in rows if row["total"]}


@pytest.mark.parametrize("mechanism", [None, Laplace(epsilon=8.0)])
def test_parts_add_up_to_the_whole_to_the_last_bit(rehearsal: Rehearsal, mechanism: Mechanism | None) -> None:
    """Rejects means of means, pairs that are joined across rows, and sums that hang on their order."""
    whole = tally(rehearsal, slice(None), mechanism)
    for cuts in ((0, 1, 20, 42), (0, 13, 14, 41, 42)):
        parts = [tally(rehearsal, slice(a, b), mechanism) for a, b in pairwise(cuts)]
        added = parts[-1]
        for part in parts[:-1]:
            added = added + part
        assert cells(added) == cells(whole)


def test_what_is_written_is_read_again(rehearsal: Rehearsal) -> None:
    found = tally(rehearsal, slice(None), Laplace(epsilon=8.0))
    table = found.to_table()
    assert table.schema.names == ["kind", "a", "b", "total"]
    mixed = table.take(pa.array(np.random.default_rng(1).permutation(len(table))))
    again = Tally.of_table(mixed, vocabulary=300)
    assert cells(again) == cells(found)
    assert list(again.recovered) == [1, 2]
    before = PairCounts.of_rows(np.array([1, 2]), np.array([0, 2]), vocabulary=300)
    np.testing.assert_equal(again.use.measures(before, 0.95), found.use.measures(before, 0.95))


def test_the_floor_of_a_tally_needs_no_release(rehearsal: Rehearsal) -> None:
    """Without outputs the same words are guessed for all; random words keep next to nothing."""
    floor = tally(rehearsal, slice(None), None, versions=1)
    assert list(floor.recovered) == [1]
    assert 0.0 < floor.recovered[1].recovered["context-free", 1].ratio[0] < 0.2
    assert floor.use.similarity["kept"].ratio[0] < 0.05
