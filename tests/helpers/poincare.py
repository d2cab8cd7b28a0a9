"""Points of the ball, their distances, and trees to embed."""

from __future__ import annotations

import itertools

import numpy as np

from dptext_spark.poincare import Relations, objective

EDGE = float(np.tanh(objective.LARGEST_RADIUS / 2))


def points(count: int, dimension: int, *, largest: float = 0.95, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, dimension))
    return found / np.linalg.norm(found, axis=1)[:, None] * rng.uniform(0, largest, (count, 1))


def distance(u: np.ndarray, v: np.ndarray) -> float:
    return float(np.arccosh(1 + 2 * ((u - v) ** 2).sum() / ((1 - u @ u) * (1 - v @ v))))


def tree(depth: int, branches: int = 2) -> Relations:
    """A balanced tree with its closure; words are the ways down from the root."""
    ways = [
        "r" + "".join(way) for d in range(depth + 1) for way in itertools.product("abcd"[:branches], repeat=d)
    ]
    pairs = [(way, way[:end]) for way in ways for end in range(1, len(way))]
    return Relations.from_words([low for low, _ in pairs], [high for _, high in pairs])
