"""Rows under a budget: an epsilon that nothing but the number of words decides, all columns together."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark import Exponential, Laplace, RowBudget
from dptext_spark.search.exact import ExactSearch
from tests.helpers import worlds

pytest.importorskip("pyspark")
from dptext_spark.tables.batch import FieldPaths
from dptext_spark.tables.columns import _sanitize_batches, shared
from dptext_spark.tables.sampling import _words_of_persons

BUDGET = RowBudget(loss=2.0, within=1.0)
WEAK = Exponential(epsilon=50.0)


class Recorder:
    """Stands for a bound mechanism and writes down what it is asked for."""

    def __init__(self, release):
        self.epsilons = []
        self.words = []
        self.uniforms = []
        inner = release._perturb

        def record(words, uniforms, epsilons):
            self.epsilons += epsilons.tolist()
            self.words += words.tolist()
            self.uniforms += [*uniforms.copy()]
            return inner(words, uniforms, epsilons)

        vars(release)["_perturb"] = record


def epsilon_of(release, words):
    assert release.release.row_epsilons is not None
    return release.release.row_epsilons.epsilon(words)


def test_all_columns_of_a_row_share_one_budget(line):
    """A text of two words, an array of two texts, a list of four: together they keep to the budget."""
    # Rejects an epsilon by one column's words, by one element's, and that of a row of a word.
    release = worlds.sanitizer(line, WEAK, row_budget=BUDGET)
    row = {"text": "w1 w3", "turns": ["w0 w1", "w2"], "words": ["w0", "w4", "w2", "w3"]}
    batch = pa.RecordBatch.from_pydict({"row": pa.array([row]), "id": pa.array(["7"])})
    ways = FieldPaths(paths={"text": ("text",), "turns[]": ("turns", None), "words": ("words",)})
    recorder = Recorder(release)
    shared.cache_clear()
    assert sum(part.num_rows for part in _sanitize_batches(release, ways, [batch])) == 1
    assert len(recorder.words) == 9 and {*recorder.epsilons} == {epsilon_of(release, 9)}
    # The largest loss where each word becomes one that near, over all words and outputs.
    points = np.asarray(line.vectors, dtype=np.float64)
    apart, spent = np.linalg.norm(points[:, None] - points[None], axis=2), 0.0
    for word, epsilon in zip(recorder.words, recorder.epsilons, strict=True):
        bound = Exponential(epsilon=epsilon).bind(line, ExactSearch.over(line))
        law = np.log(bound.probabilities(np.arange(len(points))))
        spent += np.abs(law[word] - law[apart[word] <= BUDGET.within]).max()
    assert 0.3 * BUDGET.loss < spent <= BUDGET.loss


def test_slots_of_elements(line):
    """All that reads a row gives an element its own slots; rejects those of the first one, or of the row."""
    release = worlds.sanitizer(line, WEAK, row_budget=BUDGET, protect="slots:turns[].marks")
    turns = [("w1 w2 w3", [(3, 5)]), ("w4 nope", [(0, 2)]), (None, None), ("w0", [(0, 9)])]
    said, marks = zip(*turns, strict=True)
    marks = [each and [{"start": s, "end": e} for s, e in each] for each in marks]
    rows = [[*range(4)], [0], None, []]
    columns = {
        "row": [{"turns": row and [{"said": said[n]} for n in row]} for row in rows],
        "slots": [row and [{"marks": marks[n]} for n in row] for row in rows],
    }
    arrays = {name: pa.array(each) for name, each in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays | {"id": pa.array([*"1234"])})
    ways = FieldPaths(paths={"turns[].said": ("turns", None, "said")}, slots=(None, "marks"))
    words = release.visible_words(pa.array(said), pa.array(marks)).tolist()
    (counted,) = _words_of_persons(release.release.reader, ways, [batch])
    assert counted["words"].to_pylist() == [sum(words), words[0], 0, 0] and sum(words) == 6
    shared.cache_clear()
    (made,) = _sanitize_batches(release, ways, [batch])
    for row_id, row, numbers in zip("12", made["row"].to_pylist(), rows, strict=False):
        expected = release.sanitize(
            pa.array([said[n] for n in numbers]),
            pa.array([row_id] * len(numbers)),
            column="turns[].said",
            slots=pa.array([marks[n] for n in numbers]),
            positions=np.array(numbers)[:, None],
            words=np.full(len(numbers), sum(words[n] for n in numbers)),
        )
        assert [turn["said"] for turn in row["turns"]] == expected.values.to_pylist()
    assert made["row"][0].as_py()["turns"][0]["said"].split()[::2] == ["w1", "w3"]


@pytest.mark.parametrize("oov", ["mask", "drop", "random", "keep-unprotected"])
@pytest.mark.parametrize(
    ("protect", "layout"), [("all", "words"), ("content", "words"), ("content", "keep")]
)
def test_which_words_a_row_has_does_not_matter(line, oov, protect, layout):
    """Rows of one shape have one epsilon, whichever of their words are known, or stop words."""
    release = worlds.sanitizer(
        line, WEAK, row_budget=BUDGET, oov=oov, protect=protect, layout=layout
    )
    recorder, texts = (
        Recorder(release),
        ["w0 w1 w2 w3", "w0 zzz w2 yyy", "w0 the of w3", "W4, zzz! the - w1"],
    )
    if oov == "drop":  # what is left out is in no shape
        texts = ["w0 w1", "w0 zzz w2 yyy xxx", "zzz w0 w3", "W4, zzz!, - w1"]
    release.sanitize(texts, list(range(len(texts))), column="text")
    assert {*recorder.epsilons} == {epsilon_of(release, 2 if oov == "drop" else 4)}


def test_no_noise_is_used_at_two_epsilons(small):
    """A text that stays while another column of its row grows; rejects noise by id and content alone."""
    # With it two outputs at two epsilons would give the word away.
    release = worlds.sanitizer(small, Laplace(epsilon=50.0), row_budget=BUDGET)
    recorder = Recorder(release)
    for words in (2, 3, 40, 3):
        release.sanitize(["w5 w6"], [1], column="text", words=np.array([words]))
    first = recorder.uniforms[::2]
    assert all(
        np.abs(one - other).max() > 0.5 for one, other in itertools.combinations(first[:3], 2)
    )
    assert len({*recorder.epsilons}) == 3 and np.array_equal(first[1], first[3])


@pytest.mark.parametrize(("oov", "unknown"), [("drop", 0), ("mask", 1)])
def test_visible_words(line, oov, unknown):
    release = worlds.sanitizer(line, Laplace(epsilon=3.0), row_budget=BUDGET, oov=oov)
    texts = pa.array([None, "", "w0 zzz w1", "zzz"])
    assert release.visible_words(texts).tolist() == [0, 0, 2 + unknown, unknown]
    lists = pa.array([None, [], ["w0", "zzz", None, ""]], pa.list_(pa.string()))
    assert release.visible_words(lists).tolist() == [0, 0, 3 + unknown]
    assert release.sanitize([None, ""], [1, 2], column="text").values.to_pylist() == [None, ""]
