"""The audit of one world: a searched violation of the claim, and the larger epsilon that it would catch."""

from __future__ import annotations

import hashlib
import shlex
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dptext_spark.audit import sampling
from dptext_spark.audit.sampling import Tally
from dptext_spark.audit.worlds import World
from dptext_spark.binomial import lower_limit, upper_limit
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
# Fixed, so that the events do not depend on the number of pairs.
_CHOICE_LEVEL: Final = 1e-6


def trial(world: World, options: AuditOptions, *, runs: int, alpha: float, tally: Tally) -> dict[str, Any]:
    """Search a world for a violation of its claims.

    Args:
        world, options: What is audited.
        runs: Outputs of each word, an even number; half of them choose events.
        alpha: Probability with which a violation may be found although there is none.
        tally: What sanitizes words.

    Returns:
        JSON-ready facts of the pair that breaks its claim by most, or else comes nearest to it: its words,
        ``event``, ``hits``, loss in ``nats`` and ``claim``; ``violations`` in words, the smallest factor of
        epsilon ``caught``, and the ``command`` that repeats it.
    """
    search, half = options.search_over(world.embedding), runs // 2
    seed = f"dptext audit {options.noise_seed}".encode()  # public: nothing private is perturbed under it
    key = NoiseKey(hashlib.blake2b(seed, digest_size=KEY_BYTES).digest())

    def draw(mechanism: Mechanism) -> tuple[Any, ...]:
        """Draw two independent halves, one to choose events, one to test them: losses, and strays of both."""
        (chosen, strays), (tested, others) = (
            sampling.sampled(world.embedding, mechanism, world.words, half, key.derive(part), search, tally)
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
    given = {
        **({"embedding": options.embedding} if world.name == BUNDLE_WORLD else {}),
        **options.mechanism.to_json(),
        **({} if options.search == ExactSearch.name else {"search": options.search}),
        "world": world.name,
        "pair": f"{one}:{other}",
        "runs": runs,
        "noise-seed": options.noise_seed,
        "confidence": options.confidence,
    }
    parts = ((f"--{name}", str(value)) for name, value in given.items() if value is not None)
    command = shlex.join(["dptext", "audit", *(part for pair in parts for part in pair)])
    return {
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
        "violations": violations,
        "caught": caught,
        "command": command,
    }


def sampled_losses(
    pairs: NDArray[np.int64],
    chosen: NDArray[np.int64],
    tested: NDArray[np.int64],
    runs: int,
    level: float,
    delta: float,
) -> tuple[NDArray[np.float64], list[NDArray[np.int64]], NDArray[np.int64]]:
    """Bound losses by two independent samples; see :func:`loss_bound`.

    Args:
        pairs: int64 (p, 2), rows of the counts.
        chosen: int64 (k, V), counts of ``runs`` outputs of each word, from which events are chosen.
        tested: int64 (k, V), those that bound the events' probabilities.

    Returns:
        Lower bounds of the losses, float64 (p,), in nats; the words of each pair's event, int64 (e,); and how
        many outputs of both words are in it, int64 (p, 2).
    """
    events = []
    for one, other in (chosen[pair] for pair in pairs):
        seen = np.flatnonzero(one)
        order = seen[np.argsort(-(one[seen] + 0.5) / (other[seen] + 0.5), kind="stable")]
        bounds = loss_bound(np.cumsum(one[order]), np.cumsum(other[order]), runs, _CHOICE_LEVEL, delta)
        events.append(np.sort(order[: int(bounds.argmax()) + 1] if len(order) else order))
    hits = np.array([tested[pair][:, event].sum(axis=1) for pair, event in zip(pairs, events, strict=True)])
    return loss_bound(hits[:, 0], hits[:, 1], runs, level, delta), events, hits


def loss_bound(
    hits: NDArray[np.int64], others: NDArray[np.int64], runs: int, level: float, delta: float
) -> NDArray[np.float64]:
    """Bound ln((p - delta) / q) from below, in nats; 0 where no more is known.

    Args:
        hits: int64 (p,), how many of ``runs`` outputs of the one word lie in an event of probability p.
        others: int64 (p,), how many of the other word's do, probability q.
        runs: Outputs of each word.
        level: Probability with which each of the two bounds may fail.
        delta: The claim's.
    """
    gained = np.maximum(lower_limit(hits, runs, level) - delta, 0.0)
    return np.log(np.maximum(gained / upper_limit(others, runs, level), 1.0))
