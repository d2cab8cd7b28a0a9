"""Tiny embedding worlds: bundles built from generated text files, as a user would build them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dptext_spark.accounting.row_budget import RowBudget
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey, ReleaseNoise
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.policies import TextPolicy

KEY = NoiseKey(bytes(range(32)))
"""The fixed key that makes every run draw the same noise; worthless outside these tests."""

LABEL = "tests"
"""The label of what is released under it, where the tests go the user's way."""


def words(count: int) -> list[str]:
    return [f"w{row}" for row in range(count)]


def build(
    folder: Path,
    vectors: np.ndarray | Sequence[Any],
    names: list[str] | None = None,
    **options: Any,
) -> Embedding:
    """Write rows in GloVe's text format, in full precision, and build the bundle beside the file."""
    rows = np.asarray(vectors)
    lines = (
        f"{name} {' '.join(map(str, row.tolist()))}\n"
        for name, row in zip(names or words(len(rows)), rows, strict=True)
    )
    source = folder / "source.txt"
    source.write_text("".join(lines), encoding="utf-8")
    return build_embedding(source, folder / "bundle", **options)


def uneven(count: int, dimension: int, *, seed: int = 1, spread: float = 10.0) -> np.ndarray:
    """Correlated vectors (count, dimension) whose standard deviations span a factor of ``spread``."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    scales = np.geomspace(1.0, 1.0 / spread, dimension)
    return ((rng.standard_normal((count, dimension)) * scales) @ axes).astype(np.float32)


def among(words: int) -> Search:
    """The exact search among the first so many words."""
    return ExactSearch(release_words=words)


def sanitizer(
    embedding: Embedding | Path,
    mechanism: Mechanism,
    *,
    key: NoiseKey = KEY,
    name: str = "",
    search: Search | None = None,
    row_budget: RowBudget | None = None,
    **policies: Any,
) -> Sanitizer:
    """Open a release as the jobs do, under the fixed key."""
    release = Release.open(
        embedding=embedding,
        mechanism=mechanism,
        search=search,
        policy=TextPolicy(**policies),
        row_budget=row_budget,
        name=name,
    )
    return Sanitizer.open(release, key)


def release(
    mechanism: Mechanism, embedding: Embedding, *, key: NoiseKey = KEY, salt: str = ""
) -> ReleaseNoise:
    """Derive the noise of a release as the jobs do, from the fixed key."""
    return mechanism.release_noise(
        key, salt=salt, embedding=embedding, search=ExactSearch.over(embedding)
    )
