"""Rehearsals against what goes in and what the mechanism's law says comes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import InputError
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy

TEXTS = pa.array(["The dog, unheard of", None, "", "new york cat NAÏVE", "unheard"])
IDS = pa.array(range(5))


def of(bundle: Embedding | Path, seed: int = 0, **policy: str) -> Rehearsal:
    embedding = Embedding.of(bundle)
    search = ExactSearch.over(embedding)
    return Rehearsal(bundle=embedding, policy=TextPolicy(**policy), search=search, seed=seed)


def test_words_are_read_as_a_release_reads_them(bundle: Path) -> None:
    """Joined words are one word; capitals do not matter; what is unknown is not perturbed."""
    rehearsal = of(bundle)
    rows = rehearsal.unreleased(TEXTS)
    words = rehearsal.embedding.words.to_pylist()
    assert [words[i] if i >= 0 else None for i in rows.inputs] == [
        *("the", "dog", None, "of"),
        *("new york", "cat", "naïve"),
        None,
    ]
    assert rows.offsets.tolist() == [0, 4, 4, 4, 7, 8]
    assert rows.perturbed.tolist() == [True, True, False, True, True, True, True, False]


def test_outputs_stand_in_their_words_places(bundle: Path) -> None:
    """With hardly any noise every word comes out as itself. Rejects outputs that close up over gaps."""
    rehearsal = of(bundle)
    rows = rehearsal.unreleased(TEXTS)
    found = rehearsal.released(rows, IDS, mechanism("laplace", epsilon=1e6), versions=2)
    assert found.outputs.shape == (2, 8)
    np.testing.assert_array_equal(found.outputs, np.stack([rows.inputs] * 2))


def test_stop_words_pass_where_content_is_protected(bundle: Path) -> None:
    rows = of(bundle, protect="content").unreleased(TEXTS)
    assert rows.perturbed.tolist() == [False, True, False, False, True, True, True, False]


def test_words_of_slots_alone_are_perturbed(bundle: Path) -> None:
    """Rejects tokens that are read without their marks, of which every one would be perturbed in doubt."""
    slots = pa.array([[{"start": 4, "end": 7}], None, [], [{"start": 13, "end": 18}], []])
    rows = of(bundle, protect="slots:slots").unreleased(TEXTS, slots)
    assert rows.perturbed.tolist() == [False, True, False, False, False, False, True, False]


def test_the_seed_decides_and_versions_are_independent(line: Embedding) -> None:
    texts, ids, laplace = (
        pa.array(["w0 w1 w2 w3 w4"] * 40),
        pa.array(range(40)),
        mechanism("laplace", epsilon=1.0),
    )
    rows = of(line).unreleased(texts)
    once, again = (of(line).released(rows, ids, laplace, versions=2).outputs for _ in range(2))
    np.testing.assert_array_equal(once, again)
    np.testing.assert_array_equal(once[:1], of(line).released(rows, ids, laplace).outputs)
    assert (once[0] != once[1]).mean() > 0.2
    assert (once != of(line, seed=1).released(rows, ids, laplace, versions=2).outputs).mean() > 0.2


@pytest.mark.statistical
def test_outputs_follow_the_law(line: Embedding) -> None:
    """Chi-square of 3,000 outputs of each word, p > 1e-4 for all five at once at a false alarm of 5e-4.

    Rejects another word's law.
    """
    exponential = mechanism("exponential", epsilon=2.0)
    rehearsal = of(line)
    rows = rehearsal.unreleased(pa.array(["w0 w1 w2 w3 w4"] * 3000))
    released = rehearsal.released(rows, pa.array(range(3000)), exponential)
    law = exponential.bind(line, rehearsal.search).probabilities(np.arange(5))  # type: ignore[attr-defined]
    for word in range(5):
        counts = np.bincount(released.outputs[0, rows.inputs == word], minlength=5)
        assert stats.chisquare(counts, 3000 * law[word]).pvalue > 1e-4
        assert stats.chisquare(counts, 3000 * law[(word + 1) % 5]).pvalue < 1e-4


def test_pairs_of_a_corpus_are_those_of_its_texts(line: Embedding) -> None:
    pairs = of(line).pairs(pa.array(["w0 w1", "w1 strange w0"]))
    assert pairs.first.tolist() == [0, 1, 5, 6, 6]
    assert pairs.second.tolist() == [1, 5, 0, 0, 1]


def test_a_column_of_numbers_is_refused(line: Embedding) -> None:
    with pytest.raises(InputError, match="cannot be sanitized"):
        of(line).unreleased(pa.array([1, 2]))
