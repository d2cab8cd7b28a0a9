"""Blocks of words, measured in Python workers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptext_spark import __version__
from dptext_spark.calibration import Estimator, Transitions, estimator, word_statistics
from dptext_spark.calibration.estimators import EstimatorName
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Mechanism
from dptext_spark.search.nearest import Search
from dptext_spark.spark.distribution import BundleFiles

WORDS: Final = ("n_w", "n_w_low", "n_w_high", "s_w", "s_eta", "entropy", "h_0", "h_inf")
CELLS: Final = ("outputs", "counts", "seen")

SCHEMA: Final = "setting string, block int, epsilon double, word int, " + ", ".join(
    f"{name} double" for name in WORDS
)
CELL_SCHEMA: Final = f"{SCHEMA}, outputs array<int>, counts array<double>, seen array<double>"

# Words per Arrow batch: each brings its outputs along.
_ROWS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a worker needs to measure a block of words; with the bundle's content it decides every number.

    Attributes:
        bundle: Where the embedding is.
        settings: The mechanism at each epsilon, under the name of its other parameters.
        estimator: How transitions are estimated.
        search: How released words are searched, and how many there are.
        runs: Runs of each word at each epsilon.
        seed: Public; the noise follows from it.
        words: Words of the sample, evenly spread over the vocabulary.
        blocks: Blocks that the sample is dealt out to, word by word.
        confidence: Of each word's interval.
        eta: Mass that s_eta may leave out.
    """

    bundle: BundleFiles
    settings: tuple[tuple[str, tuple[Mechanism, ...]], ...]
    estimator: EstimatorName
    search: Search
    runs: int
    seed: int
    words: int
    blocks: int
    confidence: float
    eta: float

    def identity(self) -> str:
        """Hash what decides the numbers."""
        value = asdict(replace(self, settings=())) | {
            "version": __version__,
            "bundle": self.bundle.fingerprint,
            "settings": [(m.name, m.model_dump(mode="json")) for _, grid in self.settings for m in grid],
        }
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]

    def block(self, number: int, vocabulary: int) -> NDArray[np.int64]:
        """Rows of the words of a block."""
        return np.arange(number, self.words, self.blocks) * vocabulary // self.words

    def measured(self, setting: int, block: int, *, cells: bool) -> pa.Table:
        """Measure a block of words: a row for each epsilon and word, with its transitions if asked for."""
        name, grid = self.settings[setting]
        words = self.block(block, len(opened(self.bundle).words))
        transitions = estimator_of(self, setting)(words, block=block)
        table = word_statistics(transitions, confidence=self.confidence, eta=self.eta)
        epsilons = np.array([m.epsilon for m in grid])[table["epsilon_index"].to_numpy()]
        columns = {
            "setting": pa.repeat(name, len(table)),
            "block": np.full(len(table), block, dtype=np.int32),
            "epsilon": epsilons,
            **{column: table[column].combine_chunks() for column in ("word", *WORDS)},
        }
        return pa.table(columns | (_lists(transitions) if cells else {}))


@lru_cache(maxsize=2)
def opened(bundle: BundleFiles) -> Embedding:
    return bundle.open()


@lru_cache(maxsize=2)
def estimator_of(plan: Plan, setting: int) -> Estimator:
    return estimator(
        plan.settings[setting][1],
        opened(plan.bundle),
        search=plan.search,
        runs=plan.runs,
        seed=plan.seed,
        name=plan.estimator,
    )


def _lists(transitions: Transitions) -> dict[str, pa.Array]:
    """The cells of each epsilon and word as lists."""
    keys = transitions.epsilon_index.astype(np.int64) << 32 | transitions.word
    offsets = pa.array(np.flatnonzero(np.diff(keys, prepend=-1, append=-1)), pa.int32())
    values = (transitions.output, transitions.count.astype(np.float64), transitions.seen)
    lists = (pa.ListArray.from_arrays(offsets, pa.array(column)) for column in values)
    return dict(zip(CELLS, lists, strict=True))


def measure_batches(plan: Plan, cells: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Measure (setting, block) pairs; runs in Python workers."""
    for batch in batches:
        for setting, block in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield from plan.measured(setting, block, cells=cells).to_batches(max_chunksize=_ROWS)


def name_batches(
    bundle: BundleFiles, columns: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Put words for their rows in the bundle; runs in Python workers."""
    words = opened(bundle).words
    for batch in batches:
        named = [
            words.take(column) if name in columns else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(named, names=batch.schema.names)
