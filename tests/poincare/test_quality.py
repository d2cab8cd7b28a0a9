"""Ranks, precision and nearest distances, against naive counts."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.poincare import measure, reconstruction
from tests.helpers.poincare import distance, points, tree


def test_ranks_and_precision_are_those_of_a_naive_count() -> None:
    relations, vectors = tree(3), points(15, 2, seed=4)
    ranks, precisions = [], []
    for word in range(1, 15):
        above = set(relations.pairs[relations.pairs[:, 0] == word, 1].tolist())
        if not above:
            continue
        far = sorted((distance(vectors[word], vectors[other]), other) for other in range(15) if other != word)
        hits = [place for place, (_, other) in enumerate(far, 1) if other in above]
        ranks += [place - number for number, place in enumerate(hits)]
        precisions.append(np.mean([(number + 1) / place for number, place in enumerate(hits)]))
    found = reconstruction(vectors, relations, words=100)
    assert found.mean_rank == pytest.approx(np.mean(ranks))
    assert found.mean_average_precision == pytest.approx(np.mean(precisions))
    assert found.words == found.all_words == len(precisions)
    assert reconstruction(vectors, relations, words=5).words == 5


def test_points_that_all_coincide_have_the_worst_rank() -> None:
    relations = tree(3)
    found = reconstruction(np.full((15, 2), 0.1), relations, words=100)
    assert found.mean_rank > 10


def test_the_nearest_distances_are_those_of_a_naive_search() -> None:
    relations, vectors = tree(3), points(15, 3, seed=4)
    nearest = [min(distance(vectors[i], vectors[j]) for j in range(15) if j != i) for i in range(15)]
    found = measure(vectors, relations).nearest_distances
    np.testing.assert_allclose(found, np.quantile(nearest, (0.05, 0.5, 0.95)), rtol=1e-7)
