"""The audit of one world: what is found in it, and what would have been."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.audit.bounds import Losses, code_losses, exact_losses, sampled_losses
from dptext_spark.audit.power import DRAWS, Share
from dptext_spark.audit.sampling import Sampler, Samples, released, rows_of
from dptext_spark.audit.worlds import World
from dptext_spark.binomial import tail_probability
from dptext_spark.mechanisms import Mechanism
from dptext_spark.mechanisms.mechanism import KnownLaw
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from dptext_spark.text.token_columns import PLACEHOLDER

FACTORS: Final = (4.0, 2.0, 1.3, 1.1)
"""Epsilon is multiplied by these to see what would have been found."""

TOLERANCE: Final = 1e-9
"""Nats by which rounding may move a loss."""

SHOWN_OUTPUTS: Final = 10
"""Outputs of an event that a witness names."""

_REPEAT_ROWS: Final = 120
_REPEAT_WORDS: Final = 50

Kind: TypeAlias = Literal["loss", "probabilities", "leak", "repeat", "joint"]


@dataclass(frozen=True, kw_only=True)
class Witness:
    """What was found against a mechanism, and how to find it again.

    Attributes:
        kind: ``loss`` (more than claimed), ``probabilities`` (outputs do not follow those stated), ``leak``
            (an output that no release may have), ``repeat`` (noise that is not independent) or ``joint``
            (more than claimed by several releases together).
        pair: Two input words, or what is released of them; the first is favoured.
        event: Output words, or joint outputs, the first few.
        event_words: How many there are.
        evidence: Outputs in the event, of the first and of the second word, or exact probabilities.
        runs: Outputs of each word.
        nats: Loss that is shown.
        claim: Loss that is claimed at most.
        message: All of it in words.
        command: What repeats it.
    """

    world: str
    kind: Kind
    pair: tuple[str, str]
    event: tuple[str, ...] = ()
    event_words: int = 0
    evidence: tuple[float, ...] = ()
    runs: int
    nats: float | None = None
    claim: float | None = None
    message: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one world showed.

    Attributes:
        world: Its name.
        dimension: Dimension of its vectors.
        words: Words in its vocabulary.
        pairs: Pairs that were compared, both ways.
        runs: Outputs of each word, half of which choose events where probabilities are not known.
        closest: The pair that comes nearest to its claim, or goes farthest beyond.
        nats: Loss that is shown for it.
        claim: Loss that is claimed for it at most.
        caught: Smallest tried factor by which epsilon, if multiplied, would have been found too large in most
            draws; None for none of them.
        power: In how many draws of their own it was, by one pair of words; None where it was in none, and
            where probabilities are known.
        witnesses: What was found, the worst of each kind.
    """

    world: str
    geometry: str
    dimension: int
    words: int
    pairs: int
    runs: int
    closest: tuple[str, str]
    nats: float
    claim: float
    caught: float | None
    power: Share | None
    witnesses: tuple[Witness, ...]

    def describe(self) -> str:
        """Say it in plain words."""
        power = f"could not have caught even epsilon x {max(FACTORS):g}"
        if self.caught:
            power = f"would have caught epsilon x {self.caught:g}"
        if self.power:
            power += f" {self.power.describe()}"
        one, other = self.closest
        return (
            f"{self.world} ({self.geometry}, {self.words:,} words, n={self.dimension}, {self.runs:,} runs): "
            f"{one} against {other} loses {self.nats:.3g} nats or more, at most {self.claim:.3g} claimed; "
            f"{'VIOLATION' if self.witnesses else power}"
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The audit of one world.

    Attributes:
        runs: Outputs of each word, an even number; half of them choose events.
        alpha: Probability with which something may be found in this world although there is nothing.
        sampler: What perturbs the words.
        draws: How often what would have been found is drawn again.
    """

    world: World
    options: AuditOptions
    runs: int
    alpha: float
    sampler: Sampler
    draws: int = DRAWS

    def run(self) -> Outcome:
        """Look for violations, and for what would have been one."""
        mechanism, embedding = self.world.mechanism, self.world.embedding
        probabilities = self._probabilities(mechanism)
        samples = self._samples(mechanism, self.world.words)
        losses = self._losses(probabilities, samples)
        pair = self._worst(losses)
        found = [
            *self._excess(losses, pair, exact=probabilities is not None),
            *self._strays(samples),
            *([] if probabilities is None else self._disagreement(probabilities, samples)),
            *self._repeats(),
        ]
        caught, power = (None, None) if found else self._caught()
        return Outcome(
            world=self.world.name,
            geometry=embedding.space.geometry,
            dimension=embedding.dimension,
            words=len(embedding.words),
            pairs=len(self.world.pairs),
            runs=self.runs,
            closest=self._names(pair),
            nats=float(losses.nats[pair]),
            claim=float(self.world.claims[pair]),
            caught=caught,
            power=power,
            witnesses=tuple(found),
        )

    @cached_property
    def _search(self) -> Search:
        return self.options.search_over(self.world.embedding)

    def _probabilities(self, mechanism: Mechanism) -> NDArray[np.float64] | None:
        bound = mechanism.bind(self.world.embedding, self._search)
        return bound.probabilities(self.world.words) if isinstance(bound, KnownLaw) else None

    def _samples(self, mechanism: Mechanism, words: NDArray[np.int64], *draw: bytes) -> list[Samples]:
        """Draw two independent halves: one to choose events, one to test them."""
        key = noise_key(self.options.noise_seed)
        embedding, half = self.world.embedding, self.runs // 2
        return [
            self.sampler(embedding, mechanism, words, half, key.derive(part, *draw), self._search)
            for part in (b"choose", b"test")
        ]

    def _losses(self, probabilities: NDArray[np.float64] | None, samples: Sequence[Samples]) -> Losses:
        if probabilities is not None:
            return exact_losses(self.world.pairs, probabilities, self.world.guarantee.delta)
        return self._sampled_losses(self.world.pairs, samples)

    def _sampled_losses(self, pairs: NDArray[np.int64], samples: Sequence[Samples]) -> Losses:
        chosen, tested = (half.counts for half in samples)
        level = self.alpha / 2.0 / (2 * len(self.world.pairs))
        return sampled_losses(pairs, chosen, tested, self.runs // 2, level, self.world.guarantee.delta)

    def _caught(self) -> tuple[float | None, Share | None]:
        """Find the least factor of epsilon that would have been found in most draws, and in how many.

        One draw of all pairs, from the largest factor on, tells by which pair; further draws are of it alone.
        """
        shown: dict[float, int] = {}
        for factor in FACTORS:
            wrong = self._multiplied(factor)
            probabilities = self._probabilities(wrong)
            samples = self._samples(wrong, self.world.words) if probabilities is None else ()
            losses = self._losses(probabilities, samples)
            if not self._exceeded(losses).any():
                break
            shown[factor] = self._worst(losses)
        for factor in sorted(shown):
            wrong = self._multiplied(factor)
            if self._probabilities(wrong) is not None:
                return factor, None
            if power := self._power(wrong, shown[factor]):
                return factor, power
        return None, None

    def _multiplied(self, factor: float) -> Mechanism:
        mechanism = self.world.mechanism
        return mechanism.model_copy(update={"epsilon": mechanism.epsilon * factor})

    def _power(self, wrong: Mechanism, pair: int) -> Share | None:
        """Count the draws in which a pair shows more than is claimed, if they are most of them."""
        words, places = np.unique(self.world.words[self.world.pairs[pair]], return_inverse=True)
        found = missed = 0
        while found + missed < self.draws:
            draw = (found + missed).to_bytes(8, "little")
            samples = self._samples(wrong, words, b"power", draw)
            nats = self._sampled_losses(places.reshape(1, 2), samples).nats[0]
            exceeded = bool(nats > self.world.claims[pair] + TOLERANCE)
            found, missed = found + exceeded, missed + (not exceeded)
            if 2 * missed >= self.draws:
                return None
        return Share.of(found, self.draws)

    def _exceeded(self, losses: Losses) -> NDArray[np.bool_]:
        return losses.nats > self.world.claims + TOLERANCE

    def _worst(self, losses: Losses) -> int:
        """Give the pair that goes farthest beyond its claim, or else comes nearest to it."""
        if self._exceeded(losses).any():
            return int((losses.nats - self.world.claims).argmax())
        return int((losses.nats / np.maximum(self.world.claims, TOLERANCE)).argmax())

    # What is found

    def _excess(self, losses: Losses, pair: int, *, exact: bool) -> Iterator[Witness]:
        if not self._exceeded(losses)[pair]:
            return
        nats, claim = float(losses.nats[pair]), float(self.world.claims[pair])
        (one, other), (hits, misses) = self._names(pair), losses.evidence[pair].tolist()
        often = (
            f"with probability {hits:.4g}, {other} with {misses:.4g}"
            if exact
            else f"{hits:,.0f} times of {self.runs // 2:,}, {other} {misses:,.0f} times"
        )
        event = losses.events[pair]
        words = tuple(str(self.world.embedding.words[int(row)]) for row in event[:SHOWN_OUTPUTS])
        listed = ", ".join(words) + (", ..." if len(event) > len(words) else "")
        what = words[0] if len(event) == 1 else f"one of {len(event)} words ({listed})"
        yield self._witness(
            "loss",
            (one, other),
            f"{one} becomes {what} {often}: "
            f"a loss of {nats:.4g} nats or more, where at most {claim:.4g} are claimed",
            event=words,
            event_words=len(event),
            evidence=(hits, misses),
            nats=nats,
            claim=claim,
        )

    def _strays(self, samples: Sequence[Samples]) -> Iterator[Witness]:
        strays = np.sum([half.strays for half in samples], axis=0)
        if not strays.any():
            return
        place = int(strays.argmax())
        pair = self._pair_of(place)
        yield self._witness(
            "leak",
            pair,
            f"in rows of {pair[0]}, {strays[place]:,} outputs are outside the release vocabulary, "
            f"or stand for an unknown word and are not {PLACEHOLDER}",
            evidence=(float(strays[place]),),
        )

    def _disagreement(
        self, probabilities: NDArray[np.float64], samples: Sequence[Samples]
    ) -> Iterator[Witness]:
        """Hold the counts against the probabilities that the mechanism states."""
        counts: NDArray[np.int64] = np.sum([half.counts for half in samples], axis=0)
        chances = tail_probability(counts, probabilities, self.runs)
        place, output = (int(i) for i in np.unravel_index(int(chances.argmin()), chances.shape))
        chance, share = float(chances[place, output]), float(probabilities[place, output])
        if chance >= self.alpha / 4.0 / (2 * chances.size):
            return
        pair, count = self._pair_of(place), counts[place, output]
        word = str(self.world.embedding.words[output])
        yield self._witness(
            "probabilities",
            pair,
            f"{pair[0]} becomes {word} {count:,} times of {self.runs:,}, "
            f"where the mechanism states probability {share:.4g}: "
            f"by chance with probability {max(chance, 1e-300):.1g}",
            event=(word,),
            event_words=1,
            evidence=(float(count), share),
        )

    def _repeats(self) -> Iterator[Witness]:
        """Hold pairs of outputs where noise could be shared against pairs where it could not be."""
        sequences = self._sequences()
        bounds = 2 * 2 * 2 * len(_JOINED)  # two looks at each, two ways, two bounds
        for name, near, far in _JOINED:
            nats = 0.0
            for look in (_agreement, _both):
                chosen, tested = ([look(near(half)), look(far(half))] for half in sequences)
                losses = code_losses(chosen, tested, self.alpha / 4.0 / bounds)
                nats = max(nats, float(losses.nats.max()))
            if nats > TOLERANCE:
                yield self._witness(
                    "repeat",
                    self._names(0),
                    f"outputs of {name} are not independent: a loss of {nats:.4g} nats or more tells "
                    "them from outputs that nothing joins",
                    nats=nats,
                    claim=0.0,
                )

    def _sequences(self) -> list[NDArray[np.int64]]:
        """Outputs of the first pair's words, two of int64 (2, rows, positions), in this process."""
        embedding, mechanism = self.world.embedding, self.world.mechanism
        words = self.world.words[self.world.pairs[0]]
        rows = rows_of(embedding, words, _REPEAT_ROWS * _REPEAT_WORDS, _REPEAT_WORDS)
        key = noise_key(self.options.noise_seed).derive(b"repeat")
        outputs = pc.index_in(
            released(embedding, mechanism, rows, key, self._search).flatten(), value_set=embedding.words
        )
        codes: NDArray[np.int64] = pc.fill_null(outputs, -1).to_numpy().astype(np.int64)
        return np.split(codes.reshape(2, _REPEAT_ROWS, _REPEAT_WORDS + 1)[:, :, :-1], 2, axis=1)

    def _names(self, pair: int) -> tuple[str, str]:
        one, other = self.world.pairs[pair]
        return self.world.word(one), self.world.word(other)

    def _pair_of(self, place: int) -> tuple[str, str]:
        return self._names(int(np.flatnonzero(self.world.pairs[:, 0] == place)[0]))

    def _witness(self, kind: Kind, pair: tuple[str, str], message: str, **evidence: Any) -> Witness:
        return Witness(
            world=self.world.name,
            kind=kind,
            pair=pair,
            runs=self.runs,
            message=message,
            command=repeating(self.options, self.world.name, self.runs, pair),
            **evidence,
        )


Pairs: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def _agreement(pairs: Pairs) -> NDArray[np.int64]:
    return np.equal(*pairs).ravel().astype(np.int64)


def _both(pairs: Pairs) -> NDArray[np.int64]:
    """Code both outputs, of which -1 is no word, in one number."""
    one, other = (outputs.ravel() + 1 for outputs in pairs)
    codes: NDArray[np.int64] = np.bitwise_or(one << 32, other)
    return codes


def _aside(outputs: NDArray[np.int64]) -> Pairs:
    return outputs[0, ::2, ::2], outputs[0, 1::2, 1::2]


# What a fault could join: outputs (2, rows, positions) to such pairs, none in two of them, and to pairs of
# other rows and positions.
_Look: TypeAlias = Callable[[NDArray[np.int64]], Pairs]
_JOINED: Final[tuple[tuple[str, _Look, _Look], ...]] = (
    ("words of one row", lambda o: (o[0, :, ::2], o[0, :, 1::2]), _aside),
    ("words at one place in two rows", lambda o: (o[0, ::2], o[0, 1::2]), _aside),
    ("two words at one place", lambda o: (o[0], o[1]), lambda o: (o[0, :-1, :-1], o[1, 1:, 1:])),
)


def noise_key(seed: int) -> NoiseKey:
    """Derive the audit's key from a public number: nothing private is perturbed under it."""
    return NoiseKey(hashlib.blake2b(f"dptext audit {seed}".encode(), digest_size=KEY_BYTES).digest())


def repeating(
    options: AuditOptions, world: str, runs: int | None, pair: tuple[str, str] | None = None
) -> str:
    """Write the command that repeats what was seen in a world; its events and counts come out the same."""
    parameters = options.mechanism.model_dump(mode="json", by_alias=True, exclude_unset=True)
    values = {
        **({"embedding": options.embedding} if world == BUNDLE_WORLD else {}),
        "mechanism": options.mechanism.name,
        **parameters,
        **({} if options.search == ExactSearch.name else {"search": options.search}),
        **{name: value for name in ("probes", "recall") if (value := getattr(options, name)) is not None},
        "world": world,
        **({} if pair is None else {"pair": ":".join(pair)}),
        **({} if runs is None else {"runs": runs}),
        "noise-seed": options.noise_seed,
        "confidence": options.confidence,
    }
    return shlex.join(["dptext", "audit", *(part for n, v in values.items() for part in (f"--{n}", str(v)))])
