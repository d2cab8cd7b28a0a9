"""What makes sanitizing words faster, and what it costs: rungs of one release, each against the first.

    python -m scripts.benchmarks.ladder --data DATA

Epsilon is not one scale: equal ones of two mechanisms promise different things. So each rung has the epsilon
at which its guarantee lets as much be lost as that of the first one: nats between a word and its nearest
word, up to an additional probability of 10^-6, as ``dptext privatize --dry-run`` prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from scipy.optimize import brentq
from threadpoolctl import threadpool_limits

from dptext_spark.calibration.recall import RECALL, Recall, search_for
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.guarantee import DELTAS, Distances
from dptext_spark.mechanisms import Exponential, Laplace, Mechanism
from dptext_spark.mechanisms.projected import Projection
from dptext_spark.privatizer import Privatizer
from dptext_spark.search.exact import ExactSearch
from scripts.benchmarks.section import Given, section
from scripts.benchmarks.turns import FirstWords, KnownWords, Turns, compared

# Of the first rung.
EPSILONS: Final = {"glove-300d": 10.0, "glove-50d": 6.0}
DELTA: Final = DELTAS[0]
RELEASED: Final = (20_000, 5_000)
# Finding the exact stretch of more words takes minutes.
STRETCHED: Final = 50_000
BILLIONS: Final = (1, 10, 100)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A way to sanitize words.

    Attributes:
        recall: Of a search that may miss the nearest word.
        turns: Makes the turns of a privatizer.
    """

    name: str
    mechanism: Mechanism
    privatizer: Callable[[], Privatizer]
    turns: Callable[[Callable[[], Privatizer]], Turns]
    recall: Recall | None = None


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """All rungs on one embedding.

    Attributes:
        first: The mechanism of the first rung.
        seconds: Processor time of a turn.
        count: Words of a turn whose lists are to be made, or are made.
    """

    embedding: Embedding
    first: Mechanism
    released: tuple[int, ...]
    seconds: float
    count: int
    distances: Distances = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "distances", Distances.measure(self.embedding.space.metric()))

    def loss(self, mechanism: Mechanism) -> float:
        """Give the loss to the nearest word but for ``DELTA``, nats."""
        guarantee = mechanism.guarantee(self.embedding, self.distances)
        return guarantee.loss_beyond(DELTA, self.distances.nearest)

    def level(self, mechanism: Mechanism) -> Mechanism:
        """Give a mechanism the epsilon at which it loses as much as the first one."""
        wanted, start = self.loss(self.first), self.first.epsilon
        found = brentq(
            lambda epsilon: self.loss(mechanism.at(epsilon)) - wanted, start / 50, start * 50, rtol=1e-4
        )
        return mechanism.at(float(found))

    def rungs(self) -> Iterator[Rung]:
        """Give the rungs, the first one first."""
        vocabulary, columns = self.embedding.releasable, self.embedding.dimension
        yield self._exact(f"exact search, {vocabulary:,} words", self.first)
        for words in self.released:
            yield self._exact(f"{words:,} release words", self.first, words)
        recall = search_for(self.first, self.embedding, vocabulary, RECALL)
        yield self._rung(
            f"search in lists, recall {RECALL:g}", self.first, search=recall.search, recall=recall
        )
        projected = Projection(
            epsilon=1.0,
            dimension=min(54, columns // 2),
            sensitivity="vocabulary" if vocabulary <= STRETCHED else "spectral",
        )
        name = f"projection to {projected.dimension} dimensions, {projected.sensitivity} sensitivity"
        yield self._exact(name, self.level(projected))
        near = round(1.2 * self.distances.nearest, 2)
        for name, own in (
            ("exponential", Exponential(epsilon=1.0)),
            (f"exponential, truncated at {near:g}", Exponential(epsilon=1.0, truncate=near)),
        ):
            level = self.level(own)
            yield self._rung(f"{name}, first words", level, turns=partial(FirstWords, count=self.count))
            yield self._rung(f"{name}, lists made", level, turns=partial(KnownWords, count=self.count))

    def _exact(self, name: str, mechanism: Mechanism, words: int | None = None) -> Rung:
        return self._rung(name, mechanism, search=ExactSearch.over(self.embedding, words))

    def _rung(
        self,
        name: str,
        mechanism: Mechanism,
        *,
        turns: Callable[[Callable[[], Privatizer]], Turns] | None = None,
        recall: Recall | None = None,
        **options: Any,
    ) -> Rung:
        make = partial(Privatizer, embedding=self.embedding, mechanism=mechanism, **options)
        own = turns or partial(Turns, seconds=self.seconds)
        return Rung(name=name, mechanism=mechanism, privatizer=make, turns=own, recall=recall)

    def climb(self, rounds: int) -> Iterator[dict[str, Any]]:
        """Measure the rungs by turns with the first one."""
        rungs = self.rungs()
        first = next(rungs)
        reference = first.turns(first.privatizer)
        for rung in (first, *rungs):
            turns = rung.turns(rung.privatizer)
            found, near = compared(reference, turns, rounds), self.distances.nearest
            guarantee = rung.mechanism.guarantee(self.embedding, self.distances)
            yield {
                "embedding": f"{self.embedding.releasable:,} x {self.embedding.dimension}",
                "rung": rung.name,
                "multiple": found.multiple,
                "words/s": found.words,
                "ε": rung.mechanism.epsilon,
                "loss but for 10⁻⁶, nats": guarantee.loss_beyond(DELTA, near),
                "loss at worst, nats": guarantee.loss(near),
                "N_w": turns.unchanged / turns.words,
                "recall": rung.recall.recall if rung.recall else None,
                **{f"core-hours, {n} bn words": n * 1e9 / found.words / 3600 for n in BILLIONS},
            }


@section
def main(given: Given) -> dict[str, Any]:
    """Climb on both embeddings."""
    rows: list[dict[str, Any]] = []
    with threadpool_limits(1):
        for name, epsilon in EPSILONS.items():
            embedding = given.bundle(name, lists=True)
            half = embedding.releasable // 2
            ladder = Ladder(
                embedding=embedding,
                first=Laplace(epsilon=epsilon),
                released=(half, half // 4) if given.small else RELEASED,
                seconds=0.05 if given.small else 2.0,
                count=2_000 if given.small else 20_000,
            )
            rows += ladder.climb(1 if given.small else 2)
    return {
        "title": "What makes it faster, and what it costs",
        "rows": rows,
        "plots": [
            {
                "title": "Words a second of one core, of the first rung",
                "x": "rung",
                "y": ["multiple"],
                "by": "embedding",
                "log": "y",
            }
        ],
        "notes": [
            "One thread without Spark, processor time, words of Zipf's law; a multiple is the median of "
            "rounds by turns with the first rung, which is `laplace`.",
            "ε is no common scale. Each mechanism has the ε at which its guarantee loses as much as the "
            "first rung between a word and its nearest word (the median distance), up to an additional "
            "probability of 10⁻⁶: that of `dptext privatize --dry-run`. At the worst of all outputs the "
            "losses differ, as the column says, and so do those to farther words, which truncation bounds.",
            "N_w is the share of words that come out as themselves, of those drawn in this run. A word that "
            "is no release word never does.",
            "First words: a new process makes the list of each distinct word. Lists made: the same texts "
            "again. A job is between the two, and the nearer to the second the more words a process sees.",
            "Core-hours are of this machine's cores, and leave Spark out.",
        ],
    }


if __name__ == "__main__":
    main()
