"""One contract for every search: a value, and an answer that hangs on the point alone."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.nearest import SEARCHES, NearestWords, Search

PARAMETERS: dict[str, dict[str, int]] = {"exact": {}, "ivf": {"lists": 8, "probes": 3}}
WORLDS = [("exact", "small"), ("exact", "ball"), ("ivf", "indexed")]

contract = pytest.mark.parametrize("name", sorted(SEARCHES))


def over(name: str, embedding: Embedding, words: int | None = None) -> Search:
    return SEARCHES[name].over(embedding, words, **PARAMETERS[name])


def test_every_search_is_held_to_the_contract() -> None:
    assert PARAMETERS.keys() == SEARCHES.keys() == {name for name, _ in WORLDS}


def noisy_points(embedding: Embedding, search: Search, count: int) -> np.ndarray:
    """Points as a release searches them: mostly noise."""
    name = "laplace" if embedding.space.geometry == "euclidean" else "hyperbolic"
    configured = mechanism(name, epsilon=20.0)
    uniforms = np.random.default_rng(0).random((count, configured.uniforms_per_token(embedding.dimension)))
    bound = configured.bind(embedding, search)
    return bound.points(np.arange(count) % len(embedding.words), uniforms[:, :-1])  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "world"), WORLDS)
def test_answers_hang_on_the_point_alone(name: str, world: str, request: pytest.FixtureRequest) -> None:
    """Rejects a state that is carried from batch to batch, and answers outside the release vocabulary."""
    embedding: Embedding = request.getfixturevalue(world)
    search = over(name, embedding, 12)
    points = noisy_points(embedding, search, 300)
    nearest: NearestWords = search.of_words(embedding)
    found, (two, distances) = nearest(points), nearest.nearest_two(points)
    assert found.dtype == np.int64 and found.min() >= 0 and found.max() < 12
    assert (two[:, 0] == found).all() and (two[:, 0] != two[:, 1]).all()
    assert (np.diff(distances, axis=1) >= 0).all()
    order = np.random.default_rng(1).permutation(len(points))
    np.testing.assert_array_equal(nearest(points[order]), found[order])
    for size in (1, 7):
        cuts = [points[start : start + size] for start in range(0, len(points), size)]
        np.testing.assert_array_equal(np.concatenate([nearest(cut) for cut in cuts]), found)
    again = pickle.loads(pickle.dumps(search))
    assert again == search and hash(again) == hash(search)
    np.testing.assert_array_equal(again.of_words(embedding)(points), found)


@contract
@pytest.mark.parametrize("words", [1, 0, -1, 201])
def test_an_impossible_release_vocabulary_is_refused(name: str, words: int, indexed: Embedding) -> None:
    with pytest.raises(ConfigError, match=f"2 to 200 words of this bundle.*{words}"):
        over(name, indexed, words)
    assert over(name, indexed).release_words == indexed.releasable == 200
