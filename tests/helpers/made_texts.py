"""Texts of a made language, in which words hang together."""

from __future__ import annotations

import numpy as np


def sentences(rows: int, seed: int) -> list[str]:
    """Texts of 3 to 12 words, of which each leaves four for the next one; some are not in the bundle."""
    rng = np.random.default_rng(seed)
    follows = np.random.default_rng(0).integers(0, 60, (60, 4))
    texts = []
    for _ in range(rows):
        words = [int(rng.integers(0, 10))]
        while len(words) < rng.integers(3, 13):
            words.append(int(rng.choice(follows[words[-1]])))
        texts.append(" ".join(f"w{word}" for word in words) + " strange" * int(rng.integers(0, 2)))
    return texts


AROUND = ["zebra", "7", "20", "room 12", "1234", "AB12", "x, 3,"]
"""What may stand next to an identifier."""
