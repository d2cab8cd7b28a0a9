"""The audit of one world: a searched violation of the claim, and the larger epsilon that it would catch."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.audit.bounds import Losses, sampled_losses
from dptext_spark.audit.sampling import Sampler
from dptext_spark.audit.worlds import World
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.token_columns import PLACEHOLDER

FACTORS: Final = (4.0, 2.0, 1.3, 1.1)
"""Epsilon is multiplied by these to see what would have been caught."""

TOLERANCE: Final = 1e-9
"""Nats by which rounding may move a loss."""

_SHOWN_OUTPUTS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The audit of one world.

    Attributes:
        runs: Outputs of each word, an even number; half of them choose events.
        alpha: Probability with which a violation may be found in this world although there is none.
        sampler: What perturbs the words.
    """

    world: World
    options: AuditOptions
    runs: int
    alpha: float
    sampler: Sampler

    def run(self) -> dict[str, Any]:
        """Search for a violation; give its facts, or those of the pair that comes nearest to its claim."""
        world, embedding, mechanism = self.world, self.world.embedding, self.options.mechanism
        losses, strays = self._draw(mechanism)
        excess = losses.nats - world.claims
        broken = bool((excess > TOLERANCE).any())
        pair = int((excess if broken else losses.nats / np.maximum(world.claims, TOLERANCE)).argmax())
        one, other = (world.word(place) for place in world.pairs[pair])
        event = losses.events[pair]
        facts: dict[str, Any] = {
            "world": world.name,
            "geometry": embedding.space.geometry,
            "dimension": embedding.dimension,
            "words": len(embedding.words),
            "pairs": len(world.pairs),
            "runs": self.runs,
            "pair": [one, other],
            "event": [str(embedding.words[int(row)]) for row in event[:_SHOWN_OUTPUTS]],
            "event_words": len(event),
            "hits": losses.hits[pair].tolist(),
            "nats": float(losses.nats[pair]),
            "claim": float(world.claims[pair]),
            "strays": int(strays.sum()),
        }
        violations = [*([_loss(facts)] if broken else ()), *self._leaks(strays)]
        caught = None
        for factor in () if violations else FACTORS:
            epsilon = mechanism.epsilon * factor
            wrong, _ = self._draw(mechanism.model_copy(update={"epsilon": epsilon}))
            if not (wrong.nats > world.claims + TOLERANCE).any():
                break
            caught = factor
        return {**facts, "violations": violations, "caught": caught, "command": self._command(one, other)}

    def _draw(self, mechanism: Mechanism) -> tuple[Losses, NDArray[np.int64]]:
        """Draw two independent halves: one to choose events, one to test them; and count strays in both."""
        world, half = self.world, self.runs // 2
        search, key = self.options.search_over(world.embedding), noise_key(self.options.noise_seed)
        chosen, tested = (
            self.sampler(world.embedding, mechanism, world.words, half, key.derive(part), search)
            for part in (b"choose", b"test")
        )
        level = self.alpha / (2 * len(world.pairs))  # two bounds for each pair
        losses = sampled_losses(world.pairs, chosen.counts, tested.counts, half, level, world.guarantee.delta)
        return losses, chosen.strays + tested.strays

    def _leaks(self, strays: NDArray[np.int64]) -> Iterator[str]:
        *known, unknown = strays.tolist()
        if any(known):
            word = self.world.word(int(np.argmax(known)))
            yield f"{max(known):,} outputs of {word} are outside the release vocabulary"
        if unknown:
            yield f"{unknown:,} outputs of an unknown word are not {PLACEHOLDER}"

    def _command(self, one: str, other: str) -> str:
        """Write the command that repeats what was seen; the event and its counts come out the same."""
        options, bundle = self.options, self.world.name == BUNDLE_WORLD
        values = {
            **({"embedding": options.embedding} if bundle else {}),
            **options.mechanism.to_json(),
            **({} if options.search == ExactSearch.name else {"search": options.search}),
            "world": self.world.name,
            "pair": f"{one}:{other}",
            "runs": self.runs,
            "noise-seed": options.noise_seed,
            "confidence": options.confidence,
        }
        given = ((f"--{name}", str(value)) for name, value in values.items() if value is not None)
        return shlex.join(["dptext", "audit", *(part for option in given for part in option)])


def noise_key(seed: int) -> NoiseKey:
    """Derive the audit's key from a public number: nothing private is perturbed under it."""
    return NoiseKey(hashlib.blake2b(f"dptext audit {seed}".encode(), digest_size=KEY_BYTES).digest())


def _loss(facts: dict[str, Any]) -> str:
    (one, other), event, (hits, misses) = facts["pair"], facts["event"], facts["hits"]
    listed = ", ".join(event) + (", ..." if facts["event_words"] > len(event) else "")
    what = event[0] if facts["event_words"] == 1 else f"one of {facts['event_words']} words ({listed})"
    return (
        f"{one} becomes {what} {hits:,} times of {facts['runs'] // 2:,}, {other} {misses:,} times: a loss of "
        f"{facts['nats']:.4g} nats or more, but the claim is {facts['claim']:.4g} at most"
    )
