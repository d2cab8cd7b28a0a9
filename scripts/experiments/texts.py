"""What experiments with texts share: the demo's texts, sanitizing, intervals and tables of Markdown."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from dptext_spark import demo
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import NoiseKey
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy


def demo_embedding(folder: Path) -> Embedding:
    """Build the demo's bundle, 8,000 words in 50 dimensions, in ``folder``."""
    return build_embedding(demo.GLOVE, folder / "demo-glove")


def demo_queries(count: int | None = None) -> tuple[list[str], list[str]]:
    """Give the demo's queries, or ``count`` of them evenly spread, and the intent of each."""
    table = pq.read_table(demo.QUERIES)
    texts, intents = table["text"].to_pylist(), table["intent"].to_pylist()
    step = max(1, len(texts) // count) if count else 1
    return texts[::step][:count], intents[::step][:count]


def sanitized(
    texts: Sequence[str],
    embedding: Embedding,
    mechanism: Mechanism,
    *,
    seed: int | str,
    policy: TextPolicy | None = None,
) -> list[str]:
    """Sanitize texts by a key that the seed makes: for experiments, where nobody is to be protected."""
    key = NoiseKey(hashlib.sha256(f"experiment {seed}".encode()).digest())
    noise = mechanism.release_noise(key, salt="", embedding=embedding, search=ExactSearch.over(embedding))
    privatizer = Sanitizer(embedding=embedding, mechanism=mechanism, noise=noise, policy=policy)
    found = privatizer.sanitize(list(texts), range(len(texts)), column="text")
    return [text or "" for text in found.values.to_pylist()]


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean of repetitions with its 95 % interval (Student's t).

    Attributes:
        mean: Of the repetitions.
        half: Half the interval's width; NaN for a single repetition.
    """

    mean: float
    half: float

    @classmethod
    def of(cls, repetitions: ArrayLike) -> Mean:
        """Summarize repetitions, which are independent."""
        values: NDArray[np.float64] = np.asarray(repetitions, dtype=np.float64)
        if values.size < 2:
            return cls(mean=float(values.mean()), half=float("nan"))
        spread = float(stats.sem(values) * stats.t.ppf(0.975, values.size - 1))
        return cls(mean=float(values.mean()), half=spread)

    def __format__(self, form: str) -> str:
        """Write both by the same form, such as ``.1f`` or ``.1%``."""
        both = format(self.mean, form)
        return both if np.isnan(self.half) else f"{both} ± {format(self.half, form)}"


def share(hits: int, of: int) -> tuple[float, float, float]:
    """Give a share of independent trials and its 95 % interval (Wilson 1927)."""
    found = stats.binomtest(hits, of).proportion_ci(method="wilson")
    return hits / of, float(found.low), float(found.high)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Draw a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"
