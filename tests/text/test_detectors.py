"""Detectors that a run calls by batch, with finders of names that the tests write."""

import pickle
import re
import sys

import pyarrow as pa
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.accounting.exposure import recorded_policy
from dptext_spark.errors import ConfigError, InputError
from dptext_spark.text.detectors import Detector
from tests.helpers import worlds

FINDER = """
import re

CALLS = []
{init}

def names(texts):
    CALLS.append(list(texts))
    return [[match.span() for match in re.finditer("[A-Z][a-z]+", text)] for text in texts]

def answer(texts):
    {answer}
"""
INIT = """
INITS = []
def init():
    INITS.append(1)
"""


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """Write a module that can be imported by its name, and return that."""
    monkeypatch.syspath_prepend(tmp_path)
    names = []

    def write(code):
        name = f"finder_{abs(hash(str(tmp_path)))}_{len(names)}"
        tmp_path.joinpath(f"{name}.py").write_text(code, encoding="utf-8")
        names.append(name)
        return name

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def finder(write_module):
    return write_module(FINDER.format(init=INIT, answer="return []"))


def answering(write_module, answer):
    """Return a detector that answers with a Python expression or statement."""
    return Detector.of(write_module(FINDER.format(init="", answer=answer)) + ":answer")


def sanitized(bundle, values, ids=None, **options):
    release = Release.open(
        embedding=bundle, mechanism=Laplace(epsilon=1e6), policy=TextPolicy(**options)
    )
    values = pa.array(values)
    result = Sanitizer.open(release, worlds.KEY).sanitize(
        values, ids or [*range(len(values))], column="t"
    )
    return result.values.to_pylist()


def test_spans_of_a_detector_are_masked(small, finder):
    """Rejects spans that are off by a row, also where rows are null, empty or equal."""
    values = ["w1 Ann w2", None, "w3", "", "w1 Bob Lee", "w3", "w4 Al, w5 Jo"]
    released = ["w1 [MASK] w2", None, "w3", "", "w1 [MASK] [MASK]", "w3", "w4 [MASK] w5 [MASK]"]
    assert sanitized(small, values, spans_by=f"{finder}:names") == released
    assert sanitized(small, values[:1:-1], spans_by=f"{finder}:names") == released[:1:-1]


def test_spans_of_a_detector_are_slots(small, write_module):
    """Rejects slots that are masked, and words outside of them that are perturbed."""
    finder = write_module(FINDER.format(init="", answer="return [[(0, 2)] for text in texts]"))
    release = Release.open(
        embedding=small,
        mechanism=Laplace(epsilon=1e-3),
        policy=TextPolicy(spans_by=f"{finder}:answer", protect="slots"),
    )
    sanitizer = Sanitizer.open(release, worlds.KEY)
    result = sanitizer.sanitize(["w1 W2 Zz"] * 20, [*range(20)], column="t")
    first_words = {text.split()[0] for text in result.values.to_pylist()}
    assert {text.split(" ", 1)[1] for text in result.values.to_pylist()} == {"W2 Zz"}
    assert len(first_words) > 1
    assert result.counts.unprotected.tolist() == [2] * 20


def test_a_process_calls_init_once_and_the_function_by_batch(small, finder):
    """Rejects init for each batch, a call for each text, and one for a text that was seen."""
    options = {"spans_by": f"{finder}:names"}
    sanitized(small, ["w1 Ann", "w2", "w1 Ann", None], **options)
    sanitized(small, ["w2", "w3", "w1 Ann"], **options)
    module = sys.modules[finder]
    assert module.CALLS == [["w1 Ann", "w2"], ["w3"]]
    assert module.INITS == [1]


def test_a_pickled_detector_is_the_same(finder):
    """Rejects a worker that loads a detector again for each batch, which it unpickles."""
    detector = Detector.of(f"{finder}:names")
    copy = pickle.loads(pickle.dumps(detector))
    assert copy == detector
    detector.spans(["Ann"])
    copy.spans(["Ann"])
    assert sys.modules[finder].CALLS == [["Ann"]]


def test_spans_that_overlap_or_have_no_order_are_one(write_module):
    """Rejects spans that are taken as they come."""
    spans = "return [[(6, 8), (0, 2), (1, 4), (4, 5)] for text in texts]"
    assert answering(write_module, spans).spans(["abcdefgh"]) == [[(0, 5), (6, 8)]]


WRONG = {
    "one result less": ("return [[] for text in texts][1:]", "1 lists for 2 texts"),
    "one result more": ("return [[] for text in texts] + [[]]", "3 lists for 2 texts"),
    "after the end": ("return [[(0, 99)] for text in texts]", "0 to 99 in a text of"),
    "before the start": ("return [[(-1, 2)] for text in texts]", "-1 to 2 in a text"),
    "empty": ("return [[(1, 1)] for text in texts]", "1 to 1 in a text"),
    "turned round": ("return [[(2, 1)] for text in texts]", "2 to 1 in a text"),
    "three numbers": ("return [[(0, 1, 2)] for text in texts]", "no pair of whole numbers"),
    "a fraction": ("return [[(0.0, 1.5)] for text in texts]", "no pair of whole numbers"),
    "texts": ("return [[text[:2]] for text in texts]", "no pair of whole numbers"),
    "nothing": ("return None", "failed.*TypeError in "),
    "no spans": ("return [None for text in texts]", "failed.*TypeError in "),
    "an exception": ("raise ValueError(texts[0])", r"failed.*ValueError in finder_\w+\.py, line"),
    "later": ("yield [(0, 1)]; raise ValueError(texts[0])", "failed.*ValueError in finder"),
}


@pytest.mark.parametrize(("answer", "message"), WRONG.values(), ids=WRONG)
def test_wrong_answers_are_refused_without_the_text(answer, message, write_module):
    """Rejects results cut to the shorter of two lists, spans that are clipped, and quoted texts."""
    detector = answering(write_module, answer)
    with pytest.raises(InputError, match=f"{detector}.*({message})") as refusal:
        detector.spans(["Secret one", "Secret two"])
    assert "Secret" not in str(refusal.value)
    assert refusal.value.__cause__ is None
    assert refusal.value.__context__ is None or refusal.value.__suppress_context__


def test_an_init_that_fails_is_refused(write_module):
    """Rejects a run that goes on without what init loads."""
    module = write_module(
        "def init():\n    raise OSError('x')\ndef find(texts):\n    return texts\n"
    )
    with pytest.raises(InputError, match=f"init of detector {module}:find failed.*OSError in "):
        Detector.of(f"{module}:find").spans(["a"])


REFUSED = [
    ({"spans_by": "no_such_module:find"}, "Module no_such_module .*cannot be imported.*PYTHONPATH"),
    ({"spans_by": "json:no_such"}, "Module json of spans_by lacks the function"),
    ({"spans_by": "builtins:list"}, "has no version and no source"),
    ({"spans_by": "json"}, "is unknown. Allowed: spacy:MODEL, presidio:MODEL, MODULE:FUNCTION"),
    ({"spans_by": "spacy"}, "is unknown"),
    ({"protect": "slots"}, "Slots without a column need a detector"),
    ({"spans_by": "json:loads", "mask_spans": "names"}, "do not go together.*names"),
    ({"spans_by": "json:loads", "protect": "slots:names"}, "do not go together.*names"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_wrong_options_are_refused_before_the_first_task(options, message):
    """Rejects a detector that is first looked for on a worker, and two sources of spans."""
    with pytest.raises(ConfigError, match=message):
        TextPolicy(**options)


def test_token_lists_are_refused(small, finder):
    """Rejects spans of texts for elements of lists."""
    with pytest.raises(ConfigError, match=r"reads texts, not token lists.*list<.*Give the texts"):
        sanitized(small, [["w1", "Ann"]], spans_by=f"{finder}:names")


def test_a_worker_with_another_version_is_refused(write_module):
    """Rejects a release whose record names another detector than the one that ran."""
    module = write_module("__version__ = '1'\ndef find(texts):\n    return [[] for _ in texts]\n")
    detector = Detector.of(f"{module}:find")
    sys.modules[module].__version__ = "2"
    with pytest.raises(InputError, match=r"another one on a worker.*version 1.*Got: 2"):
        detector.spans(["a"])


def test_name_and_version_are_in_context_ledger_and_reports(small, write_module):
    """Rejects releases of two versions of a detector that share noise or a record."""
    keys = set()
    records = set()
    for version in ("1", "2"):
        module = write_module(
            f"__version__ = {version!r}\ndef find(texts):\n    return [[] for _ in texts]\n"
        )
        for options in ({}, {"protect": "slots"}):
            policy = TextPolicy(spans_by=f"{module}:find", **options)
            assert f"detector {module}:find {version}" in " ".join(policy.describe())
            sanitizer = worlds.sanitizer(small, Laplace(epsilon=1.0), **dict(policy))
            ((key, *_),) = sanitizer.contexts(["w1 w2"], [1], column="t")
            keys.add(key)
            records.add(str(recorded_policy(policy)))
    assert len(keys) == len(records) == 4


def test_without_a_detector_nothing_changes(small):
    """Rejects a context or a record of a policy without a detector that says so."""
    policy = TextPolicy(mask_spans="s")
    assert "by " not in policy.marks_identity
    assert set(recorded_policy(policy)) == set(recorded_policy(TextPolicy()))
    assert not re.search("detector", " ".join(TextPolicy().describe()))
