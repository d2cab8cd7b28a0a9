"""Released texts read back: what the mechanism gave, marks aside, and words that are no outputs."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.estimates.reading import ASIDE, OutputReader
from dptext_spark.mechanisms import Laplace
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.text.policies import TextPolicy
from tests.helpers import worlds

TEXTS = [
    "call me at 0170 1234567 or it's over",
    "Don't book the movie on 12/03/2024, please",
    None,
    "",
    "xyzzyx phone number 123456",
]
UNNOISY = Laplace(epsilon=1e9)
READING = TextPolicy(identifiers="off", numbers="words")


def released(bundle, values, **policy):
    """Texts as a release gives them whose noise changes no word, and the words that it gave."""
    release = Release.open(embedding=bundle, mechanism=UNNOISY, policy=TextPolicy(**policy))
    column = pa.array(values)
    sanitizer = Sanitizer.open(release, worlds.KEY)
    texts = sanitizer.sanitize(column, list(range(len(values))), column="text").values
    words = [run.word_ids[run.known] for run in release.reader.runs(column)]
    return texts, np.concatenate(words)


@pytest.mark.parametrize("layout", ["words", "keep"])
@pytest.mark.parametrize("oov", ["mask", "drop"])
def test_released_words_are_read_as_they_were_given(demo_bundle, layout, oov):
    """Rejects [PHONE] that is read as the word phone, and capitals that hide a word."""
    texts, words = released(demo_bundle, TEXTS, layout=layout, oov=oov)
    reader = OutputReader(bundle=demo_bundle, policy=READING, outputs=demo_bundle.releasable)
    rows = reader.read(texts, column="text")
    assert "[PHONE]" in texts[0].as_py() and "phone" in texts[4].as_py().lower()
    assert rows.outputs[rows.outputs != ASIDE].tolist() == words.tolist()
    unknown = oov == "mask"
    assert rows.marks.tolist() == [1, 1, 0, 0, 1 + unknown]
    assert len(rows.offsets) == len(TEXTS) + 1 and rows.offsets[2] == rows.offsets[4]


def test_surrogates_lists_and_raw_words_are_aside(demo_bundle):
    """Rejects tags of surrogates as words, elements that are cut, and words beyond the outputs."""
    reader = OutputReader(bundle=demo_bundle, policy=READING, outputs=100)
    names = demo_bundle.words.to_pylist()
    text = f"the [EMAIL-3f9a2c51d07be644] {names[100]} qwrtz of"
    rows = reader.read(pa.array([text]), column="text")
    assert rows.outputs.tolist() == [names.index("the"), ASIDE, ASIDE, ASIDE, names.index("of")]
    assert rows.marks.tolist() == [1]
    lists = pa.array([["the", "[PHONE]", None, "of"], None, []])
    rows = reader.read(lists, column="tokens")
    assert rows.outputs.tolist() == [names.index("the"), ASIDE, ASIDE, names.index("of")]
    assert (rows.marks.tolist(), rows.offsets.tolist()) == ([1, 0, 0], [0, 4, 4, 4])


def test_a_mark_keeps_words_apart(tmp_path):
    """Rejects a mark that is cut out, so that the words around it become a joined one."""
    vectors = np.eye(4)
    bundle = worlds.build(tmp_path, vectors, names=["new", "york", "new_york", "old"])
    reader = OutputReader(bundle=bundle, policy=READING, outputs=4)
    rows = reader.read(pa.array(["new [MASK] york", "new york"]), column="text")
    assert rows.outputs.tolist() == [0, ASIDE, 1, 2]
