"""Is-a pairs: their closure and cycles, and how well vectors reconstruct them, against naive counts."""

import itertools

import numpy as np
import pytest

from dptext_spark.errors import InputError
from dptext_spark.poincare import Relations, measure
from dptext_spark.poincare.relations import reconstruction
from tests.helpers.poincare import distance, points, tree


def test_the_order_of_the_pairs_leaves_no_trace():
    pairs = [
        ("dog", "mammal"),
        ("cat", "mammal"),
        ("mammal", "animal"),
        ("dog", "mammal"),
        ("cat", "cat"),
    ]
    seen = [
        Relations.from_words(*zip(*order, strict=True)) for order in itertools.permutations(pairs)
    ]
    assert len({(found.words, found.pairs.tobytes()) for found in seen}) == 1
    assert seen[0].words == ("mammal", "animal", "cat", "dog")
    assert seen[0].pairs.tolist() == [[0, 1], [2, 0], [3, 0]]
    ordered = Relations.from_words(*zip(*pairs, strict=True), order=["cat", "zebra", "animal"])
    assert ordered.words == ("cat", "animal", "mammal", "dog")
    with pytest.raises(InputError, match="no is-a pairs"):
        Relations.from_words(["a"], ["a"])


@pytest.mark.parametrize(("size", "links"), [(4, 2), (4, 8), (15, 15), (15, 30)])
def test_closure_and_cycles_agree_with_brute_force(size, links):
    names = [f"w{row:02d}" for row in range(size)]
    drawn = np.random.default_rng(size + links).integers(0, size, (links, 2))
    pairs = {(names[a], names[b]) for a, b in drawn if a != b} | {("a", "b")}
    found = Relations.from_words(*zip(*pairs, strict=True))
    closed = set(pairs)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c and a != d} - closed:
        closed |= more
    closure, rows = found.closure(), np.arange(len(found.words))
    assert {(found.words[a], found.words[b]) for a, b in closure.pairs} == closed
    related = {
        (found.words[a], found.words[b]) for a, b in np.argwhere(closure.are_related(rows, rows))
    }
    assert related == closed | {(word, word) for word in found.words}
    assert closure.pairs.tolist() == sorted(closure.pairs.tolist())
    group = {
        a: frozenset({a} | {b for b in found.words if {(a, b), (b, a)} <= closed})
        for a in found.words
    }
    circles = {each for each in group.values() if len(each) > 1}
    inside = sum(group[a] == group[b] for a, b in pairs)
    assert found.cycles() == {
        "groups": len(circles),
        "words": sum(map(len, circles)),
        "pairs": inside,
    }


def test_a_closure_that_would_be_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("dptext_spark.poincare.relations._LARGEST_CLOSURE", 50)
    with pytest.raises(InputError, match=r"too large.*at most 50"):
        tree(4).closure()


def test_figures_are_those_of_a_naive_count():
    """Rejects ranks that count other hypernyms, and precision over pairs instead of words."""
    relations, vectors = tree(3), points(15, 2, seed=4)
    ranks, precisions = [], []
    apart = np.array([[distance(u, v) for v in vectors] for u in vectors])
    np.fill_diagonal(apart, np.inf)
    nearest = np.argsort(apart, axis=1)[:, :-1]
    for word in range(1, 15):
        above = relations.pairs[relations.pairs[:, 0] == word, 1]
        hits = np.flatnonzero(np.isin(nearest[word], above)) + 1
        ranks += (hits - np.arange(len(hits))).tolist()
        precisions.append(np.mean((np.arange(len(hits)) + 1) / hits))
    found = measure(vectors, relations)
    ranked = found["reconstruction"]
    assert ranked["mean_rank"] == pytest.approx(np.mean(ranks))
    assert ranked["mean_average_precision"] == pytest.approx(np.mean(precisions))
    assert ranked["words"] == ranked["all_words"] == len(precisions)
    assert reconstruction(vectors, relations, words=5)["words"] == 5
    distances = np.quantile(apart.min(axis=1), (0.05, 0.5, 0.95))
    np.testing.assert_allclose(found["nearest_distances"], distances, rtol=1e-7)
    for word, near in found["neighbours"].items():
        order = nearest[relations.words.index(word)]
        assert near == [relations.words[other] for other in order[: len(near)]]
    # Points that all coincide have the worst rank.
    assert reconstruction(np.full((15, 2), 0.1), relations, words=100)["mean_rank"] > 10
