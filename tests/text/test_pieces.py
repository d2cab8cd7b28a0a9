"""Places of released texts that look like pieces of identifiers are counted, and nothing else."""

import pyarrow as pa
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.tables.sampling import Coverage
from dptext_spark.text.pieces import PIECES, count_pieces, pieces_text
from dptext_spark.word_reader import WordReader
from tests.helpers import worlds

TEXTS = [
    ("06 12 34 56 78", {"figures": 1}),
    ("at 06-12 and 345/67", {"figures": 2}),
    ("\u0661\u0662 \u0663\u0664", {"figures": 1}),
    ("12 days, 7 8 9, 1234 12, x, 12 [NUMBER] 34, x12 13y", {}),
    ("maria@x C:\\maria s3://maria", {"signs": 3}),
    ("a @ b, 3@4, 1/2: x", {}),
    ("AB12, 7Q and x9Y but mp3 12 NATO", {"codes": 3}),
    ("[EMAIL-3f9a2c51d07be644] [MASK] [PHONE] [DATE-1984-05-17] [K8]", {}),
    ("", {}),
    (None, {}),
]


@pytest.mark.parametrize(("text", "counts"), TEXTS)
def test_each_kind_is_counted(text, counts):
    """Rejects single numbers, marks and words as pieces, and figures of one script alone."""
    values = pa.array([text], pa.string())
    places = {kind: of_rows.tolist() for kind, of_rows in count_pieces(values).items()}
    assert places == {kind: [counts.get(kind, 0)] for kind in PIECES}


def test_elements_of_lists_count_as_a_row():
    """Rejects numbers of two rows, or around a null, as a chain."""
    values = pa.array([["06", "12"], ["34"], None, [], ["56", None, "AB1"]])
    counts = count_pieces(values)
    assert counts["figures"].tolist() == [1, 0, 0, 0, 0]
    assert counts["codes"].tolist() == [0, 0, 0, 0, 1]
    assert count_pieces(values[1:])["figures"].tolist() == [0, 0, 0, 0]


NAMES = ["06", "12", "one", "two", "x1"]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """A bundle with short numbers, far from all other words."""
    vectors = [[100.0, 0], [101, 0], [-100, 0], [-101, 0], [0, 100]]
    return worlds.build(tmp_path_factory.mktemp("numbers"), vectors, NAMES)


def test_a_release_counts_what_comes_out(numbers):
    """Rejects counts of the inputs: noise makes pieces, and takes them away."""
    texts = ["06 12", "one two", "zz 06", "06 12 one"] * 50
    for epsilon in (1e6, 1e-3):
        release = Release.open(
            embedding=numbers,
            mechanism=Laplace(epsilon=epsilon),
            policy=TextPolicy(numbers="words", identifiers="off"),
        )
        result = Sanitizer.open(release, worlds.KEY).sanitize(texts, [*range(200)], column="t")
        outputs = count_pieces(result.values)
        inputs = count_pieces(pa.array(texts))
        assert result.counts.left_figures.tolist() == outputs["figures"].tolist()
        assert (outputs["figures"] == inputs["figures"]).all() == (epsilon > 1)


def test_a_sample_counts_what_would_stay(numbers):
    """Rejects pieces of what becomes a mark, or is unknown."""
    texts = pa.array(["06 12 one", "06 99", "0170 1234567, one", "AB12, 06"])
    counts = {}
    for numbers_policy in ("mask", "words"):
        policy = TextPolicy(numbers=numbers_policy, layout="keep")
        reader = WordReader(bundle=numbers, policy=policy)
        counts[numbers_policy] = Coverage.measure(texts, reader).left
    assert counts["words"] == {"figures": 1, "signs": 0, "codes": 0}
    assert counts["mask"] == {"figures": 1, "signs": 0, "codes": 0}
    kept = WordReader(bundle=numbers, policy=TextPolicy(oov="keep-unprotected"))
    assert Coverage.measure(texts, kept).left == {"figures": 2, "signs": 0, "codes": 1}


def test_nothing_is_said_of_nothing():
    assert pieces_text(dict.fromkeys(PIECES, 0)) == ""
    assert pieces_text({"figures": 1200, "codes": 1}).startswith("1,200 chains of numbers")
