"""Relations: their order, closure, cycles and depths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dptext_spark.errors import InputError
from dptext_spark.poincare import Relations
from tests.helpers.poincare import tree


def test_the_order_of_the_pairs_leaves_no_trace() -> None:
    pairs = [("dog", "mammal"), ("cat", "mammal"), ("mammal", "animal"), ("dog", "mammal"), ("cat", "cat")]
    seen = [Relations.from_words(*zip(*order, strict=True)) for order in itertools.permutations(pairs)]
    assert {found.fingerprint for found in seen} == {seen[0].fingerprint}
    assert seen[0].words == ("mammal", "animal", "cat", "dog")
    assert seen[0].pairs.tolist() == [[0, 1], [2, 0], [3, 0]]
    ordered = Relations.from_words(*zip(*pairs, strict=True), order=["cat", "zebra", "animal"])
    assert ordered.words == ("cat", "animal", "mammal", "dog")
    with pytest.raises(InputError, match="no is-a pairs"):
        Relations.from_words(["a"], ["a"])


def test_a_word_is_related_to_itself_and_its_hypernyms() -> None:
    relations, words = tree(3), np.array([0, 2, 3, 7, 11])
    pairs = {tuple(pair) for pair in relations.pairs.tolist()}
    low = np.array([*range(15), 3])
    expected = [
        [other == word or (word, other) in pairs for other in words.tolist()] for word in low.tolist()
    ]
    assert relations.are_related(low, words).tolist() == expected


@pytest.mark.parametrize(("size", "links"), [(4, 2), (4, 8), (8, 8), (15, 15), (15, 30)])
def test_closure_cycles_and_depths_agree_with_brute_force(size: int, links: int) -> None:
    names = [f"w{row:02d}" for row in range(size)]
    drawn = np.random.default_rng(size + links).integers(0, size, (links, 2))
    pairs = {(names[a], names[b]) for a, b in drawn if a != b} | {("a", "b")}
    found = Relations.from_words(*zip(*pairs, strict=True))
    closed = set(pairs)
    while more := {(a, d) for a, b in closed for c, d in closed if b == c and a != d} - closed:
        closed |= more
    closure = found.closure()
    assert {(found.words[a], found.words[b]) for a, b in closure.pairs} == closed
    assert closure.pairs.tolist() == sorted(closure.pairs.tolist())
    group = {a: frozenset({a} | {b for b in found.words if {(a, b), (b, a)} <= closed}) for a in found.words}
    circles = {each for each in group.values() if len(each) > 1}
    assert found.cycles() == {
        "groups": len(circles),
        "words": sum(map(len, circles)),
        "pairs": sum(group[a] == group[b] for a, b in pairs),
    }

    def depth(word: str) -> int:
        above = {b for a, b in closed if a in group[word]} - group[word]
        return max((1 + depth(b) for b in above), default=0)

    assert found.depths().tolist() == [depth(word) for word in found.words]
    assert closure.depths().tolist() == found.depths().tolist()


def test_a_closure_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dptext_spark.poincare.relations._LARGEST_CLOSURE", 50)
    with pytest.raises(InputError, match=r"too large.*at most 50"):
        tree(4).closure()
