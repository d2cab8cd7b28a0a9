"""Ranks, precision and nearest distances, against naive counts."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.poincare import measure
from dptext_spark.poincare.quality import reconstruction
from tests.helpers.poincare import distance, points, tree


def test_figures_are_those_of_a_naive_count() -> None:
    """Rejects ranks that count other hypernyms, and precision over pairs instead of words."""
    relations, vectors = tree(3), points(15, 2, seed=4)
    ranks, precisions = [], []
    nearest = {
        word: sorted((distance(vectors[word], vectors[other]), other) for other in range(15) if other != word)
        for word in range(15)
    }
    for word in range(1, 15):
        above = set(relations.pairs[relations.pairs[:, 0] == word, 1].tolist())
        hits = [place for place, (_, other) in enumerate(nearest[word], 1) if other in above]
        ranks += [place - number for number, place in enumerate(hits)]
        precisions.append(np.mean([(number + 1) / place for number, place in enumerate(hits)]))
    found = measure(vectors, relations)
    ranked = found["reconstruction"]
    assert ranked["mean_rank"] == pytest.approx(np.mean(ranks))
    assert ranked["mean_average_precision"] == pytest.approx(np.mean(precisions))
    assert ranked["words"] == ranked["all_words"] == len(precisions)
    assert reconstruction(vectors, relations, words=5)["words"] == 5
    distances = np.quantile([near[0][0] for near in nearest.values()], (0.05, 0.5, 0.95))
    np.testing.assert_allclose(found["nearest_distances"], distances, rtol=1e-7)
    for word, near in found["neighbours"].items():
        order = nearest[relations.words.index(word)]
        assert near == [relations.words[other] for _, other in order[: len(near)]]


def test_points_that_all_coincide_have_the_worst_rank() -> None:
    assert reconstruction(np.full((15, 2), 0.1), tree(3), words=100)["mean_rank"] > 10
