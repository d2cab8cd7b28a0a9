"""Golden bytes: under one key the same words, bundles and contexts, whatever was changed in the code."""

import json

import numpy as np
import pytest

from tests.helpers.released import RELEASED, bundles, described, released, stored, trained

GOLDEN = json.loads(RELEASED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return bundles(tmp_path_factory.mktemp("golden"))


def different(found, golden):
    return sorted(
        name for name in found.keys() | golden.keys() if found.get(name) != golden.get(name)
    )


def test_bundles_have_the_same_words_and_vectors(made):
    assert different(described(made), GOLDEN["bundles"]) == []


def test_training_gives_the_stored_points():
    words, points = trained()
    stored_words, stored_points = stored()
    assert words == stored_words
    # NumPy's exp and log differ in the last bits between processors: 2.5e-10 was seen after the training.
    assert np.abs(points - stored_points).max() <= 1e-7


@pytest.mark.versions
def test_releases_have_the_same_words(made):
    """A change here is a change of noise: it needs a line under Privacy in the changelog."""
    assert different(released(made), GOLDEN["released"]) == []


def test_another_label_releases_other_words(made, monkeypatch):
    """All hashes depend on the context: a case that releases nothing of its own would be none."""
    monkeypatch.setattr("tests.helpers.released.LABEL", "another")
    found = released(made)
    assert len(different(found, GOLDEN["released"])) == len(found)
