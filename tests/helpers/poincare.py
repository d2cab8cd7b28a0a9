"""Files of is-a pairs, a tree of them, and points and distances in the ball."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from dptext_spark.geometry import Floats
from dptext_spark.poincare import Relations


def write_tsv(path: Path, rows: Iterable[Iterable[Any]], header: str = "", end: str = "\n") -> str:
    text = header + "".join("\t".join(map(str, row)) + end for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def points(count: int, dimension: int, *, largest: float = 0.95, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    found = rng.standard_normal((count, dimension))
    norms = np.linalg.norm(found, axis=1)[:, None]
    return found / norms * rng.uniform(0, largest, (count, 1))


def distance(u: Floats, v: Floats) -> float:
    return float(np.arccosh(1 + 2 * ((u - v) ** 2).sum() / ((1 - u @ u) * (1 - v @ v))))


def tree(depth: int) -> Relations:
    """A balanced tree of two branches with its closure; words are the ways down from the root."""
    ways = [
        "r" + "".join(way) for d in range(depth + 1) for way in itertools.product("ab", repeat=d)
    ]
    pairs = [(way, way[:end]) for way in ways for end in range(1, len(way))]
    return Relations.from_words([low for low, _ in pairs], [high for _, high in pairs])
