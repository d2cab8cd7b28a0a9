"""The audit of one world: a searched violation of the claim, and the larger epsilon that it would catch."""

from __future__ import annotations

import hashlib
import shlex
from typing import Any, Final

import numpy as np

from dptext_spark.audit.bounds import sampled_losses
from dptext_spark.audit.sampling import Sampler
from dptext_spark.audit.worlds import World
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.columns import PLACEHOLDER

FACTORS: Final = (4.0, 2.0, 1.3, 1.1)
"""Epsilon is multiplied by these to see what would have been caught."""

TOLERANCE: Final = 1e-9
"""Nats by which rounding may move a loss."""

_SHOWN_OUTPUTS: Final = 10


def trial(
    world: World, options: AuditOptions, *, runs: int, alpha: float, sampler: Sampler
) -> dict[str, Any]:
    """Search a world for a violation of its claims.

    Args:
        world, options: What is audited.
        runs: Outputs of each word, an even number; half of them choose events.
        alpha: Probability with which a violation may be found although there is none.
        sampler: What perturbs the words.

    Returns:
        JSON-ready facts of the pair that breaks its claim by most, or else comes nearest to it: its words,
        ``event``, ``hits``, loss in ``nats`` and ``claim``; ``violations`` in words, the smallest factor of
        epsilon ``caught``, and the ``command`` that repeats it.
    """
    search, key, half = options.search_over(world.embedding), noise_key(options.noise_seed), runs // 2

    def draw(mechanism: Mechanism) -> tuple[Any, ...]:
        """Draw two independent halves, one to choose events, one to test them: losses, and strays of both."""
        (chosen, strays), (tested, others) = (
            sampler(world.embedding, mechanism, world.words, half, key.derive(part), search)
            for part in (b"choose", b"test")
        )
        level = alpha / (2 * len(world.pairs))  # two bounds for each pair
        losses = sampled_losses(world.pairs, chosen, tested, half, level, world.guarantee.delta)
        return *losses, strays + others

    nats, events, hits, strays = draw(options.mechanism)
    excess = nats - world.claims
    is_broken = bool((excess > TOLERANCE).any())
    pair = int((excess if is_broken else nats / np.maximum(world.claims, TOLERANCE)).argmax())
    one, other = (world.word(place) for place in world.pairs[pair])
    event = [str(world.embedding.words[int(row)]) for row in events[pair]]
    facts: dict[str, Any] = {
        "world": world.name,
        "geometry": world.embedding.space.geometry,
        "dimension": world.embedding.dimension,
        "words": len(world.embedding.words),
        "pairs": len(world.pairs),
        "runs": runs,
        "pair": [one, other],
        "event": event[:_SHOWN_OUTPUTS],
        "event_words": len(event),
        "hits": hits[pair].tolist(),
        "nats": float(nats[pair]),
        "claim": float(world.claims[pair]),
        "strays": int(strays.sum()),
    }
    violations = []
    if is_broken:
        listed = ", ".join(event[:_SHOWN_OUTPUTS]) + (", ..." if len(event) > _SHOWN_OUTPUTS else "")
        what = listed if len(event) == 1 else f"one of {len(event)} words ({listed})"
        often, less = hits[pair]
        violations.append(
            f"{one} becomes {what} {often:,} times of {half:,}, {other} {less:,} times: "
            f"a loss of {nats[pair]:.4g} nats or more, but the claim is {world.claims[pair]:.4g} at most"
        )
    if (worst := strays[:-1].max()) > 0:
        word = world.word(int(strays[:-1].argmax()))
        violations.append(f"{worst:,} outputs of {word} are outside the release vocabulary")
    if strays[-1]:
        violations.append(f"{strays[-1]:,} outputs of an unknown word are not {PLACEHOLDER}")
    caught = None
    for factor in () if violations else FACTORS:
        wrong = options.mechanism.model_copy(update={"epsilon": options.mechanism.epsilon * factor})
        if not (draw(wrong)[0] > world.claims + TOLERANCE).any():
            break
        caught = factor
    command = _command(world, options, runs, f"{one}:{other}")
    return {**facts, "violations": violations, "caught": caught, "command": command}


def _command(world: World, options: AuditOptions, runs: int, pair: str) -> str:
    """Write the command that repeats what was seen; the event and its counts come out the same."""
    values = {
        **({"embedding": options.embedding} if world.name == BUNDLE_WORLD else {}),
        **options.mechanism.to_json(),
        **({} if options.search == ExactSearch.name else {"search": options.search}),
        "world": world.name,
        "pair": pair,
        "runs": runs,
        "noise-seed": options.noise_seed,
        "confidence": options.confidence,
    }
    given = ((f"--{name}", str(value)) for name, value in values.items() if value is not None)
    return shlex.join(["dptext", "audit", *(part for option in given for part in option)])


def noise_key(seed: int) -> NoiseKey:
    """Derive the audit's key from a public number: nothing private is perturbed under it."""
    return NoiseKey(hashlib.blake2b(f"dptext audit {seed}".encode(), digest_size=KEY_BYTES).digest())
