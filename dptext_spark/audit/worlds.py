"""Where words are compared: small worlds in which an audit has power, and words of a bundle."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Final, cast

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import EuclideanSpace, Space
from dptext_spark.errors import ConfigError
from dptext_spark.guarantee import Guarantee
from dptext_spark.mechanisms import Mechanism
from dptext_spark.options import BUNDLE_WORLD, AuditOptions
from dptext_spark.text.tokens import lookup_form

_ANGLES: Final = np.arange(8) * np.pi / 4.0
# Points by world; the claimed loss of two words is their distance. The claims of the crowd in "clusters" are
# small, so a leak of the input shows at once. Where a law is normalized, a crowd against one word loses all
# that is claimed, not half of it.
_LAYOUTS: Final[dict[str, NDArray[np.float64]]] = {
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
    words: NDArray[np.int64]  # (k,), rows of the words that are perturbed
    pairs: NDArray[np.int64]  # (p, 2), places in ``words``: the first is favoured over the second
    claims: NDArray[np.float64]  # (p,), the most nats by which it may be

    def word(self, place: int) -> str:
        """Give the word at a place of ``words``."""
        return str(self.embedding.words[int(self.words[place])])


def row_of(embedding: Embedding, word: str) -> int:
    """Find a word of the vocabulary in the form in which tables' words are looked up; -1 for none."""
    return int(pc.index(embedding.forms, lookup_form(word)).as_py())


def worlds(options: AuditOptions, folder: Path) -> Iterator[World]:
    """Build the worlds of an audit, in the geometries that the mechanism has, the bundle's last."""
    mechanism, bundle = options.mechanism, []
    if BUNDLE_WORLD in options.worlds:
        # First what may be refused.
        embedding = Embedding.open(cast(Path, options.embedding))  # options of world bundle have one
        mechanism.check(embedding)
        pairs = [_named_pair(embedding, pair) for pair in options.pair] or _neighbours(embedding, mechanism)
        bundle.append(_world(BUNDLE_WORLD, embedding, mechanism, pairs))
    for space, name in product(mechanism.spaces, options.worlds):
        if name in _LAYOUTS:
            embedding = _small_world(name, space, mechanism, folder)
            pairs = [] if bundle else [_named_pair(embedding, pair) for pair in options.pair]
            yield _world(name, embedding, mechanism, pairs or [*combinations(range(len(_LAYOUTS[name])), 2)])
    yield from bundle


def _world(name: str, embedding: Embedding, mechanism: Mechanism, pairs: Sequence[tuple[int, int]]) -> World:
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
    (place / "vocab.txt").write_text("".join(f"w{row}\n" for row in range(len(points))), encoding="utf-8")
    return build_embedding(place / "points.npy", place / "bundle", geometry=space.geometry, strict=True)


def _neighbours(embedding: Embedding, mechanism: Mechanism) -> list[tuple[int, int]]:
    """Pair a frequent word and one from the middle with their nearest and 10th nearest words."""
    words, pairs = len(embedding.words), []
    for row in (words // 10, words // 2):
        (order,), _, _ = mechanism.metric(embedding).nearest(np.array([row]), range(min(11, words)))
        others = order[order != row]
        pairs += [(row, int(others[rank - 1])) for rank in sorted({1, min(10, words - 1)})]
    # Both must be words that looking up the words of a table can find.
    usable = [pair for pair in pairs if all(row_of(embedding, str(embedding.words[r])) == r for r in pair)]
    if not usable:
        raise ConfigError("This bundle's words cannot be paired by themselves", do="Name pairs with --pair")
    return usable


def _named_pair(embedding: Embedding, pair: str) -> tuple[int, int]:
    """Read a pair WORD:WORD; words may have colons themselves."""
    for cut in (place for place, letter in enumerate(pair) if letter == ":"):
        rows = row_of(embedding, pair[:cut]), row_of(embedding, pair[cut + 1 :])
        if min(rows) >= 0 and rows[0] != rows[1]:
            return rows
    raise ConfigError(
        "Option --pair does not name two words that can be compared",
        allowed=f"WORD:WORD, two different words of the {len(embedding.words):,} of this vocabulary",
        got=pair,
    )
