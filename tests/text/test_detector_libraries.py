"""Detectors of spaCy and Presidio, with pipelines of rules; run by scripts/package check detectors."""

import pickle
import shutil

import numpy as np
import pytest

from dptext_spark import Laplace, Release, Sanitizer, TextPolicy
from dptext_spark.embedding.build import build_embedding
from dptext_spark.errors import ConfigError
from dptext_spark.text.detectors import Detector

pytestmark = pytest.mark.long

TEXTS = [
    "Maria Garcia met Bo in New York",
    None,
    "no one",
    "Acme met Maria Garcia",
    "",
    "in Berlin and Berlin",
]
NAMES = [[(0, 12), (17, 19), (23, 31)], [], [], [(9, 21)], [], [(3, 9), (14, 20)]]
PEOPLE = [[(0, 12), (17, 19)], [], [], [(9, 21)], [], []]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pipeline of rules, as a folder."""
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    labels = {"Maria Garcia": "PERSON", "Bo": "PERSON", "New York": "GPE", "Berlin": "GPE"}
    labels["Acme"] = "ORG"
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": label, "pattern": name} for name, label in labels.items()])
    path = tmp_path_factory.mktemp("models") / "rules"
    pipeline.to_disk(path)
    return path


@pytest.mark.parametrize("name", ["spacy", "presidio"])
def test_people_and_places_are_spans_of_their_texts(name, folder):
    """Rejects spans of other rows, other labels, and results that depend on the batch."""
    detector = pickle.loads(pickle.dumps(Detector.of(f"{name}:{folder}")))
    assert detector.spans(TEXTS) == NAMES
    others = Detector.of(f"{name}:{folder}:PERSON")
    assert others.spans(TEXTS[::-1]) == PEOPLE[::-1]
    assert [others.spans([text])[0] for text in TEXTS] == PEOPLE


@pytest.mark.parametrize("name", ["spacy", "presidio"])
def test_a_release_masks_them_and_says_the_versions(name, folder, tmp_path):
    """Rejects a model whose version is in no report: the next one finds something else."""
    words = ["met", "in", "no", "one", "and"]
    lines = [f"{word} {number} {number * number}" for number, word in enumerate(words, 1)]
    source = tmp_path / "source.txt"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    policy = TextPolicy(spans_by=f"{name}:{folder}")
    release = Release.open(
        embedding=build_embedding(source, tmp_path / "bundle"),
        mechanism=Laplace(epsilon=1e6),
        policy=policy,
    )
    result = Sanitizer.open(release).sanitize(TEXTS, np.arange(len(TEXTS)), column="t")
    assert result.values.to_pylist()[0] == "[MASK] met [MASK] in [MASK]"
    assert f"detector {name}:{folder} " in policy.describe()[-1]
    assert "spacy 3." in policy.describe()[-1]


@pytest.mark.parametrize("name", ["spacy", "presidio"])
def test_models_that_hide_nothing_are_refused(name, folder, tmp_path):
    """Rejects a missing model, which Presidio downloads, one without names, and wrong labels."""
    spacy = pytest.importorskip("spacy")
    with pytest.raises(ConfigError, match="no_such_model of --spans-by is not installed"):
        Detector.of(f"{name}:no_such_model")
    spacy.blank("en").to_disk(tmp_path / "empty")
    with pytest.raises(ConfigError, match=r"finds no names.*an empty pipeline"):
        Detector.of(f"{name}:{tmp_path / 'empty'}").spans(["a"])
    with pytest.raises(ConfigError, match=r"lacks labels.*Allowed: .*PERSON.*Got: PERSON,XX"):
        Detector.of(f"{name}:{folder}:PERSON,XX").spans(["a"])


def test_a_folder_that_changes_is_another_version(folder, tmp_path):
    """Rejects a version that a trained folder keeps when it is trained again."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    before = Detector.of(f"spacy:{copy}").version
    copy.joinpath("more").write_text("x", encoding="utf-8")
    assert Detector.of(f"spacy:{copy}").version != before
