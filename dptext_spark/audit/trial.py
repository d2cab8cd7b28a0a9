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
from dptext_spark.text.policies import WORDS_ALONE
from dptext_spark.text.tokens import lookup_form

_DIMENSIONS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_ANGLES: Final = np.arange(8) * np.pi / 4.0
_STAR: Final = [(0.0, 0.0), *zip(np.cos(_ANGLES), np.sin(_ANGLES), strict=True)]
_CLUSTERS: Final = [*product((-0.05, 0.0, 0.05), repeat=2), (4.0, 0.0)]
# Points by world; the claimed loss of two words is their distance. The claims of the crowd in
# "clusters" are small, so a leak of the input shows at once. Where a law is normalized, a crowd
# against one word loses all that is claimed, not half of it.
_LAYOUTS: Final[dict[str, Floats]] = {
    "line": np.arange(-3.5, 4.0)[:, None],
    "star": 2.0 * np.array(_STAR),
    "clusters": np.array(_CLUSTERS),
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
        """Return the word at a place of ``words``."""
        return str(self.embedding.words[int(self.words[place])])


def row_of(embedding: Embedding, word: str) -> int:
    """Return the row of a word in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.forms, lookup_form(word)).as_py())


def worlds(options: AuditOptions, folder: Path) -> Iterator[World]:
    """Build the worlds of an audit, the small ones in each geometry that the mechanism has."""
    mechanism = options.mechanism
    for name in options.worlds:
        if name == BUNDLE_WORLD:
            path = cast(Path, options.embedding)  # options of world bundle have one
            embedding = Embedding.open(path)
            yield _world(name, embedding, mechanism, _neighbours(embedding, mechanism))
            continue
        pairs = [*combinations(range(len(_LAYOUTS[name])), 2)]
        for space in mechanism.spaces:
            embedding = _small_world(name, space, mechanism, folder)
            yield _world(name, embedding, mechanism, pairs)


def _world(
    name: str, embedding: Embedding, mechanism: Mechanism, pairs: Sequence[tuple[int, int]]
) -> World:
    """Build a world that compares pairs of the bundle's rows, both ways."""
    mechanism.prepare(embedding)
    guarantee = mechanism.guarantee(embedding)
    reversed_pairs = [(second, first) for first, second in pairs]
    ordered = np.array([*dict.fromkeys([*pairs, *reversed_pairs])], dtype=np.int64)
    distances = mechanism.metric(embedding).between(ordered[:, 0], ordered[:, 1])
    claims = [guarantee.loss(float(distance)) for distance in distances]
    words, places = np.unique(ordered.ravel(), return_inverse=True)
    return World(
        name=name,
        embedding=embedding,
        guarantee=guarantee,
        words=words,
        pairs=places.reshape(ordered.shape),
        claims=np.array(claims),
    )


def _small_world(name: str, space: type[Space], mechanism: Mechanism, folder: Path) -> Embedding:
    """Build a small world in the dimension that suits it, or in the fewest that are accepted."""
    refusal = ConfigError(f"World {name} cannot be built")
    for n in (_LAYOUTS[name].shape[1], *_DIMENSIONS):
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
    """Build a world in ``n`` dimensions, one nat being ``unit`` of the metric where possible."""
    layout = _LAYOUTS[name]
    is_flat = space is EuclideanSpace
    # Bundles refuse vectors that are shorter or longer; in the ball, points run together farther
    # out.
    largest_unit = 1e10 if is_flat else 2.0
    unit = min(max(unit, 1e-8), largest_unit)
    onto = np.array([[1.0], [0.3]])  # on a line, points of the plane lie side by side
    if n >= layout.shape[1]:
        onto = np.eye(layout.shape[1], n)
    points = unit * layout @ onto
    if is_flat:
        # Away from the origin, for bundles refuse vectors of length 0.
        points += 16.0 * unit * np.eye(1, n)
    else:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        points *= np.tanh(lengths / 2.0) / np.where(lengths > 0.0, lengths, 1.0)
    place = Path(tempfile.mkdtemp(dir=folder))
    np.save(place / "points.npy", points)
    lines = "".join(f"w{row}\n" for row in range(len(points)))
    (place / "vocab.txt").write_text(lines, encoding="utf-8")
    return build_embedding(
        place / "points.npy", place / "bundle", geometry=space.geometry, strict=True
    )


def _neighbours(embedding: Embedding, mechanism: Mechanism) -> list[tuple[int, int]]:
    """Pair a frequent word and one from the middle with their nearest and 10th nearest words."""
    words = len(embedding.words)
    metric = mechanism.metric(embedding)
    pairs: list[tuple[int, int]] = []
    for row in (words // 10, words // 2):
        (order,), _, _ = metric.nearest(np.array([row]), range(min(11, words)))
        neighbours = order[order != row]
        for rank in sorted({1, min(10, words - 1)}):
            neighbour = int(neighbours[rank - 1])
            if _is_found(embedding, row) and _is_found(embedding, neighbour):
                pairs.append((row, neighbour))
    if not pairs:
        raise ConfigError(
            "This bundle's words cannot be paired", do="Name small worlds, with --world"
        )
    return pairs


def _is_found(embedding: Embedding, row: int) -> bool:
    """Return whether looking up the words of a table can find the word of a row."""
    return row_of(embedding, str(embedding.words[row])) == row


FACTORS: Final = (4.0, 2.0, 1.3, 1.1)
"""Epsilon is multiplied by these to see what would have been caught."""

_TOLERANCE: Final = 1e-9  # nats by which rounding may move a loss
_ROW_WORDS: Final = 200
_SHOWN_OUTPUTS: Final = 10
_CHOICE_LEVEL: Final = 1e-6  # fixed, so that the events do not depend on the number of pairs


def trial(world: World, options: AuditOptions, *, runs: int, alpha: float) -> dict[str, Any]:
    """Search a world for a violation of its claims; a false one is found with ``alpha``.

    Half of the ``runs`` choose events. The facts are of the pair that breaks its claim by most, or
    else comes nearest to it, with the smallest factor of epsilon ``caught``.
    """
    half = runs // 2
    search = options.search_over(world.embedding)
    # Public: nothing private is perturbed under it.
    seed = f"dptext audit {options.noise_seed}".encode()
    key = NoiseKey(hashlib.blake2b(seed, digest_size=KEY_BYTES).digest())
    level = alpha / (2 * len(world.pairs))  # two bounds for each pair

    def draw(mechanism: Mechanism) -> tuple[Floats, list[Ints], Ints, Ints]:
        """Draw two independent halves; return losses, events, hits, and strays of both.

        The first half chooses events, the second one tests them.
        """
        choosing, choosing_strays = sampled(
            world.embedding, mechanism, world.words, half, key.derive(b"choose"), search
        )
        testing, testing_strays = sampled(
            world.embedding, mechanism, world.words, half, key.derive(b"test"), search
        )
        losses, events, hits = sampled_losses(world.pairs, choosing, testing, half, level)
        return losses, events, hits, choosing_strays + testing_strays

    losses, events, hits, strays = draw(options.mechanism)
    excess = losses - world.claims
    is_broken = bool((excess > _TOLERANCE).any())
    pair = int((losses / np.maximum(world.claims, _TOLERANCE)).argmax())
    if is_broken:
        pair = int(excess.argmax())
    event = [str(world.embedding.words[int(row)]) for row in events[pair]]
    violations = []
    if is_broken:
        violations.append(_violation(world, pair, event, hits[pair], losses[pair], half))
    violations += _strays(world, strays)
    caught = None
    if not violations:
        for factor in FACTORS:
            wrong_losses = draw(options.mechanism.at(options.mechanism.epsilon * factor))[0]
            if not (wrong_losses > world.claims + _TOLERANCE).any():
                break
            caught = factor
    return {
        "world": world.name,
        "geometry": world.embedding.space.geometry,
        "dimension": world.embedding.dimension,
        "pairs": len(world.pairs),
        "runs": runs,
        "pair": [*map(world.word, world.pairs[pair])],
        "event": event[:_SHOWN_OUTPUTS],
        "event_words": len(event),
        "hits": hits[pair].tolist(),
        "nats": float(losses[pair]),
        "claim": float(world.claims[pair]),
        "strays": int(strays.sum()),
        "violations": violations,
        "caught": caught,
    }


def _violation(
    world: World, pair: int, event: Sequence[str], hits: Ints, loss: float, runs: int
) -> str:
    """Return in words that a pair breaks its claim."""
    first, second = map(world.word, world.pairs[pair])
    listed = ", ".join(event[:_SHOWN_OUTPUTS])
    if len(event) > _SHOWN_OUTPUTS:
        listed += ", ..."
    output = listed
    if len(event) != 1:
        output = f"one of {len(event)} words ({listed})"
    first_hits, second_hits = hits
    return (
        f"{first} becomes {output} {first_hits:,} times of {runs:,}, "
        f"{second} {second_hits:,} times: "
        f"a loss of {loss:.4g} nats or more, but the claim is {world.claims[pair]:.4g} at most"
    )


def _strays(world: World, strays: Ints) -> Iterator[str]:
    """Yield in words which forbidden outputs came, by counts of :func:`sampled`."""
    of_words = strays[:-1]
    most = of_words.max()
    if most > 0:
        word = world.word(int(of_words.argmax()))
        yield f"{most:,} outputs of {word} are outside the release vocabulary"
    if strays[-1]:
        yield f"{strays[-1]:,} outputs of an unknown word are not {PLACEHOLDER}"


def sampled(
    embedding: Embedding,
    mechanism: Mechanism,
    words: Ints,
    runs: int,
    key: NoiseKey,
    search: Search,
) -> tuple[Ints, Ints]:
    """Perturb words (k,), ascending rows of the bundle, and an unknown word in so many runs.

    Returns counts of each word's outputs (k, release_words) and of forbidden outputs (k + 1,): of
    each word, words outside the release vocabulary; last, of the unknown word, anything but the
    placeholder.
    """
    unknown = "unheardof"
    while row_of(embedding, unknown) >= 0:
        unknown += "x"
    texts = [*embedding.words.take(pa.array(words)).to_pylist(), unknown]
    sizes = [min(_ROW_WORDS, runs - start) for start in range(0, runs, _ROW_WORDS)]
    ids = []
    lists = []
    for word, text in zip((*words, -1), texts, strict=True):
        ids += [f"{word}-{row}" for row in range(len(sizes))]
        lists += [[text] * size for size in sizes]
    release = Release(
        bundle=embedding, mechanism=mechanism, search=search, policy=WORDS_ALONE, name="audit"
    )
    table = pa.array(lists, pa.list_(pa.string()))
    sanitized = Sanitizer.open(release, key).sanitize(table, pa.array(ids), column="tokens")
    outputs = sanitized.values.flatten()
    places = np.repeat(np.arange(len(texts)), runs)
    released = embedding.words[: embedding.releasable]
    rows = pc.index_in(outputs, value_set=released).fill_null(-1).to_numpy()
    is_masked = pc.equal(outputs, PLACEHOLDER).fill_null(False).to_numpy(zero_copy_only=False)
    is_unknown = places == len(words)
    counts = np.zeros((len(words) + 1, embedding.releasable + 1), dtype=np.int64)
    np.add.at(counts, (places, rows), ~(is_unknown & is_masked))
    return counts[:-1, :-1], np.append(counts[:-1, -1], counts[-1].sum())


def sampled_losses(
    pairs: Ints, chosen: Ints, tested: Ints, runs: int, level: float
) -> tuple[Floats, list[Ints], Ints]:
    """Bound losses of pairs (p, 2) by two samples' counts (k, V); the first chooses events.

    Returns lower bounds (p,) in nats, the words of each pair's event, and how many outputs are in
    it, (p, 2).
    """
    events = []
    hits = []
    for pair in pairs:
        first, second = chosen[pair]
        outputs = np.flatnonzero(first)
        odds = (first[outputs] + 0.5) / (second[outputs] + 0.5)
        order = outputs[np.argsort(-odds, kind="stable")]
        bounds = loss_bound(np.cumsum(first[order]), np.cumsum(second[order]), runs, _CHOICE_LEVEL)
        if len(order):
            order = order[: int(bounds.argmax()) + 1]
        event = np.sort(order)
        events.append(event)
        hits.append(tested[pair][:, event].sum(axis=1))
    counts = np.array(hits)
    return loss_bound(counts[:, 0], counts[:, 1], runs, level), events, counts


def loss_bound(hits: Ints, misses: Ints, runs: int, level: float) -> Floats:
    """Bound ln(p / q) from below, in nats, by hits (p,) of two words in an event.

    Both bounds are at ``level``.
    """
    ratio = lower_limit(hits, runs, level) / upper_limit(misses, runs, level)
    return np.log(np.maximum(ratio, 1.0))
