"""Words that one thread sanitizes in a second of processor time, by turns: both share what disturbs them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.sanitizer import Sanitizer

LENGTH: Final = 100
"""Tokens of a row."""

MOST: Final = 2_000 * LENGTH


class Texts:
    """Token lists of words by Zipf's law: Zipf-Mandelbrot over the vocabulary's order."""

    def __init__(self, embedding: Embedding) -> None:
        self.words = embedding.words
        self.weights = np.cumsum(1.0 / (np.arange(len(embedding.words)) + 2.7))
        self.rng = np.random.default_rng(0)

    def ids(self, count: int) -> np.ndarray:
        return np.searchsorted(self.weights, self.rng.random(count) * self.weights[-1])

    def rows(self, count: int) -> pa.Array:
        offsets = np.arange(0, count + 1, LENGTH, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), self.words.take(pa.array(self.ids(count))))


def seconds_of(privatizer: Sanitizer, rows: pa.Array) -> float:
    """Processor time for rows."""
    start = time.process_time()
    privatizer.sanitize(rows, pa.array(range(len(rows))), column="tokens")
    return time.process_time() - start


class Turns:
    """Sanitizes texts whose words follow Zipf's law, new ones every turn.

    Attributes:
        count: Words of a turn.
        words: Sanitized in all turns.
        unchanged: Those of them that came out as themselves.
    """

    def __init__(self, make: Callable[[], Sanitizer], *, seconds: float = 1.0, count: int = 0) -> None:
        """Get ready for turns of ``count`` words, or of as many as take about so many seconds."""
        self._make = make
        self._privatizer = make()
        self._texts = Texts(self._privatizer.embedding)
        self.words = self.unchanged = 0
        self.count = count or self._words_of(seconds)

    def _words_of(self, seconds: float) -> int:
        """Find how many words take so many seconds; many, for a search in lists is slow for few."""
        self.count = LENGTH
        self.rate()  # pays for what is made once
        while self.count < (wanted := self.rate() * seconds) / 4 and self.count < MOST:
            self.count *= 2
        return LENGTH * max(1, round(min(wanted, MOST) / LENGTH))

    def rate(self) -> float:
        """Words a second of processor time, over one turn."""
        rows = self._rows()
        privatizer, start = self._next(), time.process_time()
        counts = privatizer.sanitize(rows, pa.array(range(len(rows))), column="tokens").counts
        seconds = time.process_time() - start
        self.words += self.count
        self.unchanged += int(counts.unchanged.sum())
        return self.count / seconds

    def _rows(self) -> pa.Array:
        return self._texts.rows(self.count)

    def _next(self) -> Sanitizer:
        return self._privatizer


class FirstWords(Turns):
    """A new privatizer every turn, that has prepared nothing for any word."""

    def _next(self) -> Sanitizer:
        return self._make()


class KnownWords(Turns):
    """The same texts every turn, after one that does not count."""

    def __init__(self, make: Callable[[], Sanitizer], *, count: int) -> None:
        super().__init__(make, count=count)
        self._known = self._texts.rows(count)
        self.rate()

    def _rows(self) -> pa.Array:
        return self._known


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What turns found.

    Attributes:
        words: A second, the mean of the turns.
        multiple: Of the reference's rate, the median of the rounds.
    """

    words: float
    multiple: float


def compared(reference: Turns, own: Turns, rounds: int) -> Rates:
    """Take turns, each between two of the reference."""
    rates, multiples, before = [], [], reference.rate()
    for _ in range(rounds):
        rates.append(own.rate())
        after = reference.rate()
        multiples.append(2.0 * rates[-1] / (before + after))
        before = after
    return Rates(words=float(np.mean(rates)), multiple=float(np.median(multiples)))
