"""The audit of one world: words perturbed many times, and a search for a violation of the claim."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptext_spark.calibration.statistics import lower_limit, upper_limit
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, Space
from dptext_spark.errors import ConfigError
from dptext_spark.geometry import Floats, Ints
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms import Mechanism
from dptext_spark.noise import KEY_BYTES, NoiseKey
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.release import Release
from dptext_spark.sanitizer import Sanitizer
from dptext_spark.search.nearest import Search
from dptext_spark.text.columns import PLACEHOLDER
from dptext_spark.text.tokens import lookup_form

_ANGLES: Final = np.arange(8) * np.pi / 4.0
# Points by world; the claimed loss of two words is their distance. The claims of the crowd in "clusters" are
# small, so a leak of the input shows at once. Where a law is normalized, a crowd against one word loses all
# that is claimed, not half of it.
_LAYOUTS: Final[dict[str, Floats]] = {
    "line": np.arange(-3.5, 4.0)[:, None],
    "star": 2.0 * np.array([(0.0, 0.0), *zip(np.cos(_ANGLES), np.sin(_ANGLES), strict=True)]),
    "clusters": np.array([*product((-0.05, 0.0, 0.05), repeat=2), (4.0, 0.0)]),
}


@dataclass(frozen=True, kw_only=True)
class World:
    """Words whose outputs are compared, and what is claimed about them."""

    name: str  # as option ``--world`` has it
    embedding: Embedding
    guarantee: Guarantee
    words: Ints  # (k,), rows of the words that are perturbed
    pairs: Ints  # (p, 2), places in ``words``: the first is favoured over the second
    claims: Floats  # (p,), the most nats by which it may be

    def word(self, place: int) -> str:
        """Give the word at a place of ``words``."""
        return str(self.embedding.words[int(self.words[place])])


def row_of(embedding: Embedding, word: str) -> int:
    """Find a word of the vocabulary in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.forms, lookup_form(word)).as_py())


def worlds(options: AuditOptions, folder: Path) -> Iterator[World]:
    """Build the worlds of an audit, the small ones in each geometry that the mechanism has."""
    mechanism = options.mechanism
    for name in options.worlds:
        if name == BUNDLE_WORLD:
            embedding = Embedding.open(
                cast(Path, options.embedding)
            )  # options of world bundle have one
            yield _world(name, embedding, mechanism, _neighbours(embedding, mechanism))
            continue
        for space in mechanism.spaces:
            embedding = _small_world(name, space, mechanism, folder)
            yield _world(name, embedding, mechanism, [*combinations(range(len(_LAYOUTS[name])), 2)])


def _world(
    name: str, embedding: Embedding, mechanism: Mechanism, pairs: Sequence[tuple[int, int]]
) -> World:
    """Compare pairs of the bundle's rows, both ways."""
    mechanism.prepare(embedding)
    guarantee = mechanism.guarantee(embedding)
    ordered = np.array(list(dict.fromkeys([*pairs, *((b, a) for a, b in pairs)])), dtype=np.int64)
    distances = mechanism.metric(embedding).between(ordered[:, 0], ordered[:, 1])
    words, places = np.unique(ordered.ravel(), return_inverse=True)
    return World(
        name=name,
        embedding=embedding,
        guarantee=guarantee,
        words=words,
        pairs=places.reshape(ordered.shape),
        claims=np.array([guarantee.loss(float(distance)) for distance in distances]),
    )


def _small_world(name: str, space: type[Space], mechanism: Mechanism, folder: Path) -> Embedding:
    """Build a small world in the dimension that suits it, or else in the fewest that the mechanism takes."""
    refusal = ConfigError(f"World {name} cannot be built")
    for n in (_LAYOUTS[name].shape[1], *(1 << power for power in range(11))):
        embedding = _bundle(folder, name, space, n, 1.0 / mechanism.epsilon)
        try:
            mechanism.prepare(embedding)
            proven = mechanism.guarantee(embedding).epsilon
        except ConfigError as error:
            refusal = error
            continue
        if proven != mechanism.epsilon:
            embedding = _bundle(folder, name, space, n, 1.0 / proven)
        return embedding
    raise refusal


def _bundle(folder: Path, name: str, space: type[Space], n: int, unit: float) -> Embedding:
    """Lay a world out in ``n`` dimensions, one nat being ``unit`` of the metric where that is possible."""
    layout = _LAYOUTS[name]
    # Bundles refuse vectors that are shorter or longer; points of the ball run together farther out.
    unit = min(max(unit, 1e-8), 1e10 if space is EuclideanSpace else 2.0)
    # On a line, points of the plane lie side by side.
    onto = np.eye(layout.shape[1], n) if n >= layout.shape[1] else np.array([[1.0], [0.3]])
    points = unit * layout @ onto
    if space is EuclideanSpace:
        # Away from the origin, for bundles refuse vectors of length 0.
        points += 16.0 * unit * np.eye(1, n)
    else:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        points *= np.tanh(lengths / 2.0) / np.where(lengths > 0.0, lengths, 1.0)
    place = Path(tempfile.mkdtemp(dir=folder))
    np.save(place / "points.npy", points)
    (place / "vocab.txt").write_text(
        "".join(f"w{row}\n" for row in range(len(points))), encoding="utf-8"
    )
    return build_embedding(
        place / "points.npy", place / "bundle", geometry=space.geometry, strict=True
    )


def _neighbours(embedding: Embedding, mechanism: Mechanism) -> list[tuple[int, int]]:
    """Pair a frequent word and one from the middle with their nearest and 10th nearest words."""
    words, pairs = len(embedding.words), []
    for row in (words // 10, words // 2):
        (order,), _, _ = mechanism.metric(embedding).nearest(np.array([row]), range(min(11, words)))
        others = order[order != row]
        pairs += [(row, int(others[rank - 1])) for rank in sorted({1, min(10, words - 1)})]
    # Both must be words that looking up the words of a table can find.
    usable = [
        pair for pair in pairs if all(row_of(embedding, str(embedding.words[r])) == r for r in pair)
    ]
    if not usable:
        raise ConfigError(
            "This bundle's words cannot be paired", do="Name small worlds, with --world"
        )
    return usable


FACTORS: Final = (4.0, 2.0, 1.3, 1.1)
"""Epsilon is multiplied by these to see what would have been caught."""

_TOLERANCE: Final = 1e-9  # nats by which rounding may move a loss
_ROW_WORDS: Final = 200
_SHOWN_OUTPUTS: Final = 10
_CHOICE_LEVEL: Final = 1e-6  # fixed, so that the events do not depend on the number of pairs


def trial(world: World, options: AuditOptions, *, runs: int, alpha: float) -> dict[str, Any]:
    """Search a world for a violation of its claims, which may be found with ``alpha`` where there is none.

    Half of the ``runs`` choose events. The facts are of the pair that breaks its claim by most, or else comes
    nearest to it, with the smallest factor of epsilon ``caught``.
    """
    search, half = options.search_over(world.embedding), runs // 2
    seed = (
        f"dptext audit {options.noise_seed}".encode()
    )  # public: nothing private is perturbed under it
    key = NoiseKey(hashlib.blake2b(seed, digest_size=KEY_BYTES).digest())

    def draw(mechanism: Mechanism) -> tuple[Any, ...]:
        """Draw two independent halves, one to choose events, one to test them: losses, and strays of both."""
        (chosen, strays), (tested, others) = (
            sampled(world.embedding, mechanism, world.words, half, key.derive(part), search)
            for part in (b"choose", b"test")
        )
        level = alpha / (2 * len(world.pairs))  # two bounds for each pair
        losses = sampled_losses(world.pairs, chosen, tested, half, level)
        return *losses, strays + others

    nats, events, hits, strays = draw(options.mechanism)
    excess = nats - world.claims
    is_broken = bool((excess > _TOLERANCE).any())
    pair = int((excess if is_broken else nats / np.maximum(world.claims, _TOLERANCE)).argmax())
    one, other = (world.word(place) for place in world.pairs[pair])
    event = [str(world.embedding.words[int(row)]) for row in events[pair]]
    violations = []
    if is_broken:
        listed = ", ".join(event[:_SHOWN_OUTPUTS]) + (
            ", ..." if len(event) > _SHOWN_OUTPUTS else ""
        )
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
        wrong = draw(options.mechanism.at(options.mechanism.epsilon * factor))[0]
        if not (wrong > world.claims + _TOLERANCE).any():
            break
        caught = factor
    return {
        "world": world.name,
        "geometry": world.embedding.space.geometry,
        "dimension": world.embedding.dimension,
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
    }


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: Ints,
    runs: int,
    key: NoiseKey,
    search: Search,
) -> tuple[Ints, Ints]:
    """Perturb words (k,), ascending rows of the bundle, so many times each, and an unknown word likewise.

    Gives counts of each word's outputs (k, release_words) and of forbidden outputs (k + 1,): of each word,
    words outside the release vocabulary; last, of the unknown word, anything but the placeholder.
    """
    unknown = "unheardof"
    while row_of(embedding, unknown) >= 0:
        unknown += "x"
    texts = [*embedding.words.take(pa.array(words)).to_pylist(), unknown]
    sizes = [min(_ROW_WORDS, runs - start) for start in range(0, runs, _ROW_WORDS)]
    ids = pa.array([f"{word}-{row}" for word in (*words, -1) for row in range(len(sizes))])
    lists = pa.array([[text] * size for text in texts for size in sizes], pa.list_(pa.string()))
    release = Release(bundle=embedding, mechanism=mechanism, search=search, name="audit")
    outputs = Sanitizer.open(release, key).sanitize(lists, ids, column="tokens").values.flatten()
    places = np.repeat(np.arange(len(texts)), runs)
    rows = (
        pc.index_in(outputs, value_set=embedding.words[: embedding.releasable])
        .fill_null(-1)
        .to_numpy()
    )
    masked = pc.equal(outputs, PLACEHOLDER).fill_null(False).to_numpy(zero_copy_only=False)
    found = np.zeros((len(words) + 1, embedding.releasable + 1), dtype=np.int64)
    np.add.at(found, (places, rows), ~((places == len(words)) & masked))
    return found[:-1, :-1], np.append(found[:-1, -1], found[-1].sum())


def sampled_losses(
    pairs: Ints, chosen: Ints, tested: Ints, runs: int, level: float
) -> tuple[Floats, list[Ints], Ints]:
    """Bound losses of pairs (p, 2) by two samples' counts (k, V), of which the first chooses events.

    Gives lower bounds (p,) in nats, the words of each pair's event, and how many outputs are in it, (p, 2).
    """
    events = []
    for one, other in (chosen[pair] for pair in pairs):
        seen = np.flatnonzero(one)
        order = seen[np.argsort(-(one[seen] + 0.5) / (other[seen] + 0.5), kind="stable")]
        bounds = loss_bound(np.cumsum(one[order]), np.cumsum(other[order]), runs, _CHOICE_LEVEL)
        events.append(np.sort(order[: int(bounds.argmax()) + 1] if len(order) else order))
    hits = np.array(
        [tested[pair][:, event].sum(axis=1) for pair, event in zip(pairs, events, strict=True)]
    )
    return loss_bound(hits[:, 0], hits[:, 1], runs, level), events, hits


def loss_bound(hits: Ints, others: Ints, runs: int, level: float) -> Floats:
    """Bound ln(p / q) from below, in nats, by hits (p,) in an event; two bounds at ``level``."""
    return np.log(
        np.maximum(lower_limit(hits, runs, level) / upper_limit(others, runs, level), 1.0)
    )
