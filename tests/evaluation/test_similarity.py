"""What is left of texts, on rows whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation import similarity as module
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.similarity import similarity
from tests.helpers.hidden_worlds import released


def test_unchanged_texts_keep_all(plane: Embedding) -> None:
    """The ceiling."""
    rows = released([[0, 1], [2, -1, 3], []], np.array([[5, 5, 5, -1, 5]])).without_noise()
    found = similarity(rows, plane)
    assert {name: sums.ratio[0] for name, sums in found.items()} == pytest.approx(
        {"kept": 1.0, "distance": 0.0, "similarity": 1.0}
    )
    assert found["kept"].size[0] == 4
    assert found["similarity"].rows[0] == 2


def test_measures_by_hand(plane: Embedding) -> None:
    """With unprotected words, which count in the text's mean and are not said to be kept."""
    rows = ReleasedRows(
        offsets=np.array([0, 3, 5, 6]),
        inputs=np.array([0, 1, 2, 3, -1, -1]),
        outputs=np.array([[0, 4, 5, 1, -1, -1]]),
        perturbed=np.array([True, True, False, True, False, False]),
    )
    points = plane.vectors.astype(float)
    found = similarity(rows, plane)
    distances = [0.0, np.linalg.norm(points[1] - points[4]), np.linalg.norm(points[3] - points[1])]
    assert found["kept"].ratio[0] == pytest.approx(1 / 3)
    assert found["distance"].ratio[0] == pytest.approx(np.mean(distances))
    before, after = points[0] + points[1] + points[2], points[0] + points[4] + points[2]
    cosines = [
        before @ after / np.linalg.norm(before) / np.linalg.norm(after),
        points[3] @ points[1] / np.linalg.norm(points[3]) / np.linalg.norm(points[1]),
    ]
    assert found["similarity"].ratio[0] == pytest.approx(np.mean(cosines))


def test_the_ball_has_its_own_distance(ball: Embedding) -> None:
    found = similarity(released([[0, 1]], np.array([[3, 1]])), ball)
    expected = ball.space.metric().between(np.array([0]), np.array([3]))[0] / 2
    assert found["distance"].ratio[0] == pytest.approx(expected)


def test_blocks_of_vectors_change_nothing(small: Embedding, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = released(rng.integers(0, 300, (20, 7)).tolist(), rng.integers(0, 200, (1, 140)))
    whole = similarity(rows, small)["similarity"]
    monkeypatch.setattr(module, "_TOKENS", 9)
    assert similarity(rows, small)["similarity"].ratio[0] == pytest.approx(whole.ratio[0], rel=1e-12)
