"""Small embedding files and the bundles built from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding

WORDS = ["the", "of", "naïve", "東京", "new york", "dog", "cat"]
EUCLIDEAN_FILES = [
    "covariance_values.npy",
    "covariance_vectors.npy",
    "half_norms.npy",
    "manifest.json",
    "vectors.npy",
    "words.parquet",
]
POINCARE_FILES = [
    "lorentz_space.npy",
    "lorentz_time.npy",
    "manifest.json",
    "vectors.npy",
    "words.parquet",
]


def vectors_of(rows: int = len(WORDS), n: int = 3, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, n)).astype(np.float32)


def glove(path: Path, words: list[str] = WORDS, vectors: np.ndarray | None = None) -> Path:
    rows = vectors_of(len(words)) if vectors is None else vectors
    lines = (f"{word} " + " ".join(map(str, row)) for word, row in zip(words, rows, strict=True))
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def ball_of(rows: int, n: int, seed: int = 3) -> np.ndarray:
    """Points from the origin to 10^-6 from the edge."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((rows, n))
    points *= ((1 - np.geomspace(1e-6, 1, rows)) / np.linalg.norm(points, axis=1))[:, None]
    return points


def poincare_bundle(tmp_path: Path, points: np.ndarray) -> Embedding:
    np.save(tmp_path / "points.npy", points)
    (tmp_path / "vocab.txt").write_text("".join(f"w{i}\n" for i in range(len(points))))
    vocabulary = tmp_path / "vocab.txt"
    output = tmp_path / f"ball{len(list(tmp_path.iterdir()))}"
    source = tmp_path / "points.npy"
    return build_embedding(source, output, vocabulary=vocabulary, geometry="poincare", strict=True)
