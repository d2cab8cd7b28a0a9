"""Rows under a budget: an epsilon that nothing but the number of words decides, all columns together."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark import Embedding, Exponential, Laplace, RowBudget, Sanitizer
from dptext_spark.mechanisms.mechanism import Mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds
from tests.helpers.worlds import KEY

pytest.importorskip("pyspark")
from dptext_spark.tables.batch import Fields
from dptext_spark.tables.columns import _sanitize_batches, shared

BUDGET = RowBudget(loss=2.0, within=1.0)


def privatizer(
    embedding: Embedding, mechanism: Mechanism, budget: RowBudget = BUDGET, **policies: str
) -> Sanitizer:
    return worlds.sanitizer(embedding, mechanism, key=KEY, row_budget=budget, **policies)


@dataclass
class Recorder:
    """Stands for a bound mechanism and writes down what it is asked for."""

    epsilons: list[float]
    words: list[int]
    uniforms: list[np.ndarray]

    @classmethod
    def of(cls, release: Sanitizer) -> Recorder:
        found, inner = cls([], [], []), release._perturb

        def record(words: np.ndarray, uniforms: np.ndarray, epsilons: np.ndarray) -> np.ndarray:
            found.epsilons += epsilons.tolist()
            found.words += words.tolist()
            found.uniforms += [*uniforms.copy()]
            return inner(words, uniforms, epsilons)

        vars(release)["_perturb"] = record
        return found


class OneByOne(Sanitizer):
    """Sanitizes each column as if it were alone."""

    by_words = False  # type: ignore[assignment]


def epsilon_of(release: Sanitizer, words: int) -> float:
    assert release.release.row_epsilons is not None
    return release.release.row_epsilons.epsilon(words)


def spent(embedding: Embedding, recorder: Recorder, *, within: float) -> float:
    """Enumerate the largest loss of a row whose words each become one that near: all words, all outputs."""
    points = np.asarray(embedding.vectors, dtype=np.float64)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    total = 0.0
    for word, epsilon in zip(recorder.words, recorder.epsilons, strict=True):
        bound = Exponential(epsilon=epsilon).bind(embedding, ExactSearch.over(embedding))
        law = np.log(bound.probabilities(np.arange(len(points))))
        near = np.flatnonzero(apart[word] <= within)
        total += max(float(np.abs(law[word] - law[other]).max()) for other in near)
    return total


def row_of(release: Sanitizer) -> list[dict[str, Any]]:
    """One row: a text of two words, an array of texts of two and one, a list of four words."""
    row = {"text": "w1 w3", "turns": ["w0 w1", "w2"], "words": ["w0", "w4", "w2", "w3"]}
    batch = pa.RecordBatch.from_pydict({"row": pa.array([row]), "id": pa.array(["7"])})
    ways = Fields(routes=(("text", (0,)), ("turns[]", (1, -1)), ("words", (2,))))
    shared.cache_clear()
    return [row for part in _sanitize_batches(release, ways, [batch]) for row in part.to_pylist()]


def test_all_columns_of_a_row_share_one_budget(line: Embedding) -> None:
    """Nine words in three columns and two elements: their enumerated loss keeps to the budget.

    Rejects an epsilon by one column's words, by one element's, and that of a row of a word.
    """
    release = privatizer(line, Exponential(epsilon=50.0))
    recorder = Recorder.of(release)
    row_of(release)
    assert len(recorder.words) == 9
    assert {*recorder.epsilons} == {epsilon_of(release, 9)}
    loss = spent(line, recorder, within=BUDGET.within)
    assert 0.3 * BUDGET.loss < loss <= BUDGET.loss

    apart = OneByOne(release=release.release, noise=release.noise)
    wrong = Recorder.of(apart)
    row_of(apart)
    assert spent(line, wrong, within=BUDGET.within) > BUDGET.loss
    wrong.epsilons = [epsilon_of(release, 1)] * 9
    assert spent(line, wrong, within=BUDGET.within) > 2 * BUDGET.loss


@pytest.mark.parametrize("oov", ["mask", "drop", "random", "keep-unprotected"])
@pytest.mark.parametrize("protect", ["all", "content"])
@pytest.mark.parametrize("layout", ["words", "keep"])
def test_which_words_a_row_has_does_not_matter(line: Embedding, oov: str, protect: str, layout: str) -> None:
    """Rows of one shape have one epsilon, whichever of their words are known, or stop words."""
    release = privatizer(line, Exponential(epsilon=50.0), oov=oov, protect=protect, layout=layout)
    recorder = Recorder.of(release)
    texts = ["w0 w1 w2 w3", "w0 zzz w2 yyy", "w0 the of w3", "W4, zzz! the - w1"]
    if oov == "drop":  # what is left out is in no shape
        texts = ["w0 w1", "w0 zzz w2 yyy xxx", "zzz w0 w3", "W4, zzz!, - w1"]
    release.sanitize(texts, list(range(len(texts))), column="text")
    assert {*recorder.epsilons} == {epsilon_of(release, 2 if oov == "drop" else 4)}


def test_no_noise_is_used_at_two_epsilons(small: Embedding) -> None:
    """A text that stays while another column of its row grows; rejects noise by id and content alone.

    With it two outputs at two epsilons would give the word away.
    """
    release = privatizer(small, Laplace(epsilon=50.0))
    recorder = Recorder.of(release)
    for words in (2, 3, 40):
        release.sanitize(["w5 w6"], [1], column="text", words=np.array([words]))
    pairs = itertools.combinations([recorder.uniforms[i] for i in (0, 2, 4)], 2)
    assert all(np.abs(one - other).max() > 0.5 for one, other in pairs)
    assert len({*recorder.epsilons}) == 3
    again = Recorder.of(release)
    release.sanitize(["w5 w6"], [1], column="text", words=np.array([3]))
    assert np.array_equal(again.uniforms[0], recorder.uniforms[2])


def test_budgets_share_no_noise(small: Embedding) -> None:
    def key(budget: RowBudget | None) -> bytes:
        return worlds.sanitizer(small, Laplace(epsilon=3.0), row_budget=budget).noise.key.secret

    budgets = [None, BUDGET, RowBudget(loss=3.0, within=1.0), RowBudget(loss=4.0, within=2.0)]
    assert len({key(budget) for budget in budgets}) == 4


@pytest.mark.parametrize("mechanism", [Laplace(epsilon=50.0), Exponential(epsilon=50.0, truncate=1.0)])
def test_batches_change_nothing(small: Embedding, mechanism: Mechanism) -> None:
    """Rows of all lengths, one by one and together: the same words; rejects a neighbour's epsilon."""
    rng = np.random.default_rng(5)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 300, n)) for n in [*range(20), 700, 3, 1]]
    release = privatizer(small, mechanism, RowBudget(loss=40.0, within=1.0))
    whole = release.sanitize(texts, list(range(len(texts))), column="text").values.to_pylist()
    alone = [
        release.sanitize([text], [number], column="text").values.to_pylist()[0]
        for number, text in enumerate(texts)
    ]
    assert whole == alone
    other = privatizer(small, mechanism.at(epsilon_of(release, 5)), RowBudget(loss=1e6, within=1.0))
    assert whole != other.sanitize(texts, list(range(len(texts))), column="text").values.to_pylist()


def test_told_words(line: Embedding) -> None:
    release = privatizer(line, Laplace(epsilon=3.0), oov="drop")
    assert release.visible_words([None, "", "w0 zzz w1", "zzz"]).tolist() == [0, 0, 2, 0]
    lists = [None, [], ["w0", "zzz", None, ""]]
    assert release.visible_words(pa.array(lists, pa.list_(pa.string()))).tolist() == [0, 0, 3]
    release = privatizer(line, Laplace(epsilon=3.0))
    assert release.visible_words([None, "", "w0 zzz w1", "zzz"]).tolist() == [0, 0, 3, 1]
    assert release.sanitize([None, ""], [1, 2], column="text").values.to_pylist() == [None, ""]
