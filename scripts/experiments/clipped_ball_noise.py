"""Table IV of Feyisetan et al. 2019 with the paper's own construction: noise added in the ball, and clipped.

    OMP_NUM_THREADS=1 python -m scripts.experiments.clipped_ball_noise --poincare BALL --euclidean VECTORS

The paper draws z around the origin with density ((1 - |z|) / (1 + |z|))^epsilon (equation 7), adds it to the
word's coordinates in the ball, and scales what is outside of the ball back to its edge (section V-D). The
product moves the noise to the word by an isometry instead, because nothing is proven of the addition. This
is the addition, as an experiment alone. Printed as Markdown, for each ``--poincare``:

    1  N_w at the paper's epsilons, beside Laplace noise of the same worst case, and the paper's figures
    2  which words come out
    3  what the construction gives away: a loss beyond epsilon * d between words, and at noisy points

and, of no ball, the part of the noise that the other word's never reaches.

Sources are bundles or files, as of ``hyperbolic_table4``. ``--small`` prints one JSON object of a made world.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import click
import numpy as np
from numpy.typing import NDArray
from scipy import special
from threadpoolctl import threadpool_limits

from dptext_spark.accounting.laws import RadialLaw
from dptext_spark.binomial import lower_limit, upper_limit
from dptext_spark.calibration import estimator
from dptext_spark.calibration.transitions import Transitions
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import GeometryName
from dptext_spark.errors import ConfigError
from dptext_spark.geometry.ball import LebesgueRadii
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.guarantee import Claim
from dptext_spark.mechanisms.hyperbolic import BallNoise
from dptext_spark.mechanisms.noisy import NoisyNearest
from dptext_spark.search.exact import ExactSearch
from dptext_spark.search.nearest import Search
from scripts.experiments.hyperbolic_table4 import (
    EPSILONS,
    LAPLACE,
    PAPER,
    RUNS,
    World,
    common,
    opened,
    pair,
    restricted,
    shown,
)
from scripts.experiments.texts import markdown

# Section V-D has 10e-5 "as in" Nickel and Kiela 2017, who have 1e-5.
EDGE: Final = 1e-5
BLOCK: Final = 64
# Of the bounds on losses: pairs that are tried, draws of each word, and how often any bound of a table fails.
PAIRS: Final = 3
DRAWS: Final = 10_000
FALSE_ALARM: Final = 0.01
NEIGHBOURS: Final = {"nearest": 1, "tenth": 10, "median": None}
POINT_WORDS: Final = 20
POINT_DRAWS: Final = 2000
CENTRAL: Final = 0.01
# Of the quadrature over lengths of noise.
NODES: Final = 2000
# Every so many words, for the noise that leaves nearly all of them as they are.
ISOMETRY: Final = 5
# Dimensions and Euclidean distances in the ball, for what holds of every word.
DIMENSIONS: Final = (2, 10, 100)
APART: Final = (1e-4, 1e-3, 1e-2, 0.1, 0.5)
# At which Laplace noise is measured, to find those of equal worst cases.
LAPLACE_EPSILONS: Final = tuple(np.geomspace(0.2, 60.0, 20).tolist())


@dataclass(frozen=True, kw_only=True)
class ClippedNoise(NoisyNearest):
    """Noise added to a word's coordinates in the ball, scaled back to the edge where it leaves the ball.

    Attributes:
        vectors: float64 (V, n), the words' points.
        quantile: Of the noise's hyperbolic radius; |z| = tanh(radius / 2).
    """

    vectors: NDArray[np.float64]
    quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]]

    def in_ball(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give noisy points (t, n), of norm 1 - EDGE where the sum was outside."""
        noise = uniform_directions(uniforms[:, 1:].copy())
        noise *= np.tanh(self.quantile(uniforms[:, 0].copy()) / 2.0)[:, None]
        noise += self.vectors[words]
        lengths = np.sqrt(np.square(noise).sum(axis=1))
        outside = lengths >= 1.0
        noise[outside] *= ((1.0 - EDGE) / lengths[outside])[:, None]
        return noise

    def points(self, words: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give ln q0 and Klein coordinates (t, n + 1), as the search wants them."""
        found = self.in_ball(words, uniforms)
        squares = np.square(found).sum(axis=1)
        logs = np.log1p(squares) - np.log1p(-squares)
        return np.column_stack([logs, 2.0 * found / (1.0 + squares)[:, None]])


class ClippedBall(BallNoise):
    """The paper's construction, for experiments alone: nothing is proven of it, and it claims nothing."""

    name: ClassVar[str] = "clipped"

    def quantile(self, dimension: int) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
        return LebesgueRadii.of(dimension=dimension, epsilon=self.epsilon)

    def claim(self, embedding: Embedding) -> Claim:
        """Refuse: no metric bound holds."""
        raise ConfigError("Noise that is added in the ball's coordinates has no guarantee")

    def bind(self, embedding: Embedding, search: Search) -> ClippedNoise:  # type: ignore[override]
        self.check(embedding)
        return ClippedNoise(
            vectors=embedding.vectors,
            quantile=self.quantile(embedding.dimension),
            search=search.of_words(embedding),
            vickrey=self.t,
        )


@dataclass(frozen=True, kw_only=True)
class AddedLaw(RadialLaw):
    """Loss of the noisy point *before* it is clipped, for words at a Euclidean distance in the ball.

    Noise ends at length 1, so that a part of it is where none of the other word's is: its loss is infinite.
    """

    def bound(self, distance: float) -> float:
        return math.inf

    def radii(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        lengths = np.zeros_like(uniforms)
        inner = uniforms > 0.0
        law = LebesgueRadii.of(dimension=self.dimension, epsilon=self.epsilon)
        lengths[inner] = np.tanh(law(uniforms[inner]) / 2.0)
        return lengths

    def losses(
        self,
        distance: float,
        radii: NDArray[np.float64],
        cosines: NDArray[np.float64],
        *,
        least: bool = False,
    ) -> NDArray[np.float64]:
        """The largest loss of each cell; the distance from the other word is convex in the length."""
        if least:
            raise ValueError("Only the largest losses are computed")
        edges = np.minimum(radii, 1.0)[:, None]
        other = np.sqrt(np.square(edges - distance) + 2.0 * edges * distance * (1.0 - cosines[None]))
        farthest = np.maximum(other[:-1], other[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 2.0 * self.epsilon * (np.arctanh(farthest) - np.arctanh(edges[:-1]))
        return np.where(farthest < 1.0, found, np.inf)

    def delta(self, distance: float, nats: float) -> float:
        """Bound the delta of so many nats from above: for the clipped point and for words as well."""
        losses, masses = self.atoms(distance)
        return float((masses * -np.expm1(np.minimum(nats - losses, 0.0))).sum())

    def unreachable(self, distance: float) -> float:
        """P[the noisy point is where the other word's noise never is], by quadrature over the length.

        It is for lengths above 1 - s alone, of cosines c with c <= (|z|² + s² - 1) / (2 |z| s), where
        (1 + c) / 2 ~ Beta((n - 1) / 2, (n - 1) / 2).
        """
        nodes, weights = special.roots_legendre(NODES)
        root, half = (1.0 + nodes) / 2.0, (self.dimension - 1) / 2.0

        def mass(reach: float, shares: np.ndarray | float) -> float:
            """Over lengths 1 - reach root², where the density is smooth in the root up to the end."""
            gaps = reach * np.square(root)
            logs = (self.dimension - 1) * np.log1p(-gaps) + self.epsilon * np.log(gaps / (2.0 - gaps))
            return float((weights * np.exp(logs) * shares * reach * root).sum())

        most = min(distance, 1.0)
        gaps = most * np.square(root)
        cosines = (distance**2 - gaps * (2.0 - gaps)) / (2.0 * (1.0 - gaps) * distance)
        shares = special.betainc(half, half, np.clip((1.0 + cosines) / 2.0, 0.0, 1.0))
        return mass(most, shares) / mass(1.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the clipped noise made of some words, in RUNS runs at each epsilon.

    Attributes:
        world: The ball and the measured words.
        stays: int64 (epsilons, k), N_w.
        outputs: int64 (epsilons, V), how often each word came out.
        became: int32 (epsilons, k, k), how often each measured word (row) became each of them (column).
    """

    world: World
    stays: np.ndarray
    outputs: np.ndarray
    became: np.ndarray

    @classmethod
    def of(cls, world: World, epsilons: Sequence[float]) -> Counted:
        words, size = world.words, len(world.embedding.words)
        stays = np.zeros((len(epsilons), len(words)), dtype=np.int64)
        outputs = np.zeros((len(epsilons), size), dtype=np.int64)
        became = np.zeros((len(epsilons), len(words), len(words)), dtype=np.int32)
        place = np.full(size, -1)
        place[words] = np.arange(len(words))
        for start in range(0, len(words), BLOCK):
            found = drawn(world, epsilons, words[start : start + BLOCK], runs=RUNS, seed=world.seed)
            at, row, column = found.epsilon_index, place[found.word], place[found.output]
            np.add.at(outputs, (at, found.output), found.count)
            known = column >= 0
            became[at[known], row[known], column[known]] = found.count[known]
        for index in range(len(epsilons)):
            stays[index] = np.diagonal(became[index])
        return cls(world=world, stays=stays, outputs=outputs, became=became)

    def concentration(self, epsilon: int) -> tuple[int, float, np.ndarray]:
        """Words that make up half of the outputs, the share of the ten most frequent ones, and these ten."""
        order = np.argsort(-self.outputs[epsilon], kind="stable")
        shares = np.cumsum(self.outputs[epsilon][order]) / self.outputs[epsilon].sum()
        return int(np.searchsorted(shares, 0.5)) + 1, float(shares[9]), order[:10]

    def suspects(self, epsilon: int, value: float) -> list[tuple[int, int]]:
        """Pairs of measured words: one that stays, and a near one that seldom becomes it; the worst first."""
        distances = self.world.embedding.space.metric().to_all(self.world.words)[:, self.world.words]
        stay = np.log(self.stays[epsilon] + 0.5)
        beyond = stay[None] - np.log(self.became[epsilon] + 0.5) - value * distances
        np.fill_diagonal(beyond, -np.inf)
        others = beyond.argmax(axis=0)
        order = np.argsort(-beyond.max(axis=0), kind="stable")[:PAIRS]
        return [(int(word), int(others[word])) for word in order]


def drawn(world: World, epsilons: Sequence[float], words: np.ndarray, *, runs: int, seed: int) -> Transitions:
    """Draw outputs of words; every word has noise of its own."""
    search = ExactSearch.over(world.embedding)
    mechanisms = [ClippedBall(epsilon=epsilon) for epsilon in epsilons]
    return estimator(mechanisms, world.embedding, search=search, runs=runs, seed=seed)(words, block=0)


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A loss between two words that is surely reached.

    Attributes:
        word: Which stays, and comes out.
        other: Which seldom becomes it.
        hits: In how many of DRAWS runs each came out as ``word``.
        nats: What ln P[word | word] / P[word | other] is at least.
        claimed: epsilon * d, in nats.
    """

    word: str
    other: str
    hits: tuple[int, int]
    nats: float
    claimed: float


def largest_loss(counted: Counted, epsilon: int, value: float, draws: int = DRAWS) -> Loss:
    """Bound the losses of suspected pairs from below, by fresh draws, and give the one farthest off."""
    world = counted.world
    names, metric = world.embedding.words, world.embedding.space.metric()
    tail = FALSE_ALARM / (2 * PAIRS * len(EPSILONS))
    found = []
    for one, two in counted.suspects(epsilon, value):
        word, other = int(world.words[one]), int(world.words[two])
        fresh = drawn(world, [value], np.array([word, other]), runs=draws, seed=world.seed + 1)
        hits = [int(fresh.count[(fresh.word == row) & (fresh.output == word)].sum()) for row in (word, other)]
        least = float(lower_limit(hits[0], draws, tail))
        nats = math.log(least / float(upper_limit(hits[1], draws, tail))) if least else -math.inf
        distance = float(metric.between(np.array([word]), np.array([other]))[0])
        found.append(
            Loss(
                word=names[word].as_py(),
                other=names[other].as_py(),
                hits=(hits[0], hits[1]),
                nats=nats,
                claimed=value * distance,
            )
        )
    return max(found, key=lambda loss: loss.nats - loss.claimed)


def told_apart(world: World, value: float, rank: int | None) -> dict[str, float]:
    """What noisy points tell of a word against the one so near: medians over some words.

    A point is asked on which side it lies of the plane in the middle between the two words' coordinates.
    That answer's probabilities bound delta(epsilon * d) from below, by Clopper and Pearson.
    """
    embedding = world.embedding
    metric, vectors = embedding.space.metric(), embedding.vectors
    words = world.words[:: max(1, len(world.words) // POINT_WORDS)]
    others, distances, _ = metric.nearest(words, [metric.words // 2 if rank is None else rank])
    noise = ClippedBall(epsilon=value).bind(embedding, ExactSearch.over(embedding))
    law = AddedLaw(dimension=embedding.dimension, epsilon=value, cells=(120, 600))
    rng = np.random.default_rng(world.seed)
    rows = []
    for word, other, distance in zip(words, others[:, 0], distances[:, 0], strict=True):
        away, middle = vectors[word] - vectors[other], (vectors[word] + vectors[other]) / 2.0
        sides = []
        for centre in (word, other):
            uniforms = rng.random((POINT_DRAWS, embedding.dimension + 1))
            points = noise.in_ball(np.full(POINT_DRAWS, centre), uniforms)
            sides.append(int(((points - middle) @ away > 0).sum()))
        tail = FALSE_ALARM / 2
        own, foreign = lower_limit(sides[0], POINT_DRAWS, tail), upper_limit(sides[1], POINT_DRAWS, tail)
        apart, claimed = float(np.sqrt(np.square(away).sum())), value * float(distance)
        least = max(0.0, float(own) - math.exp(min(claimed, 700.0)) * float(foreign))
        rows.append((distance, claimed, least, law.delta(apart, claimed), law.unreachable(apart)))
    names = ("distance", "claimed", "least delta", "most delta", "unreachable")
    return dict(zip(names, np.median(rows, axis=0).tolist(), strict=True))


def expected(counted: Counted, flats: dict[str, World]) -> Iterator[str]:
    """Table 1."""
    worst, mean = counted.stays.max(axis=1), counted.stays.mean(axis=1)
    columns: list[list[object]] = [list(EPSILONS), worst.tolist(), [f"{value:.4g}" for value in mean]]
    names = ["ε", "worst case", "average"]
    for title, flat in flats.items():
        curve = flat.curve(LAPLACE, LAPLACE_EPSILONS)
        matched = [curve.epsilon_at(float(value)) for value in worst]
        values = flat.at(LAPLACE, matched)
        columns.append([shown(value) for value in matched])
        columns.append([pair(value).replace(" | ", ", ") for value in values])
        names += [f"laplace ε, {title}", "worst case, average"]
    names += ["paper: worst case", "ball", "GloVe 100-d", "300-d"]
    columns += [[row[place] for row in PAPER] for place in (1, 2, 3, 5)]
    yield markdown(names, zip(*columns, strict=True))
    name = "hyperbolic-icdm"
    some = replace(counted.world, words=counted.world.words[::ISOMETRY])
    curve = some.curve(name, list(EPSILONS))
    rows = [[epsilon, *(f"{value:.4g}" for value in curve.at(epsilon))] for epsilon in EPSILONS]
    yield f"The same density, moved to the word by an isometry (`{name}`):\n"
    yield markdown(["ε", "worst case", "average"], rows)


def what_comes_out(counted: Counted) -> Iterator[str]:
    """Table 2."""
    embedding = counted.world.embedding
    radii = 2.0 * np.arctanh(np.sqrt(np.square(embedding.vectors).sum(axis=1)))
    central = central_words(counted.world)
    yield (
        f"Hyperbolic distance of words from the centre: least {radii.min():.2f}, 5th, 50th and 95th "
        f"percentile {' / '.join(f'{value:.2f}' for value in np.quantile(radii, [0.05, 0.5, 0.95]))}, "
        f"largest {radii.max():.2f}.\n"
    )
    rows = []
    for index, epsilon in enumerate(EPSILONS):
        half, share, ten = counted.concentration(index)
        stays = counted.stays[index]
        names = ", ".join(embedding.words[int(word)].as_py() for word in ten[:5])
        rows.append(
            [
                epsilon,
                half,
                f"{share:.1%}",
                f"{names} ({radii[ten].mean():.2f})",
                f"{stays[central].mean():.4g}",
                f"{stays[~central].mean():.4g}",
                f"{np.median(stays):.4g}",
            ]
        )
    yield markdown(
        [
            "ε",
            "words that are half of the outputs",
            "share of ten",
            "the most frequent (mean radius of the ten)",
            f"N_w of the most central {CENTRAL:.0%}",
            "of the others",
            "median",
        ],
        rows,
    )


def central_words(world: World) -> np.ndarray:
    """bool (k,): which of the measured words are the most central ones."""
    radii = np.square(world.embedding.vectors[world.words]).sum(axis=1)
    central: np.ndarray = radii <= np.sort(radii)[max(1, int(CENTRAL * len(radii))) - 1]
    return central


def given_away(counted: Counted) -> Iterator[str]:
    """Table 3."""
    rows = []
    for index, epsilon in enumerate(EPSILONS):
        loss = largest_loss(counted, index, epsilon)
        hits = f"{loss.hits[0]:,} and {loss.hits[1]:,}"
        rows.append([epsilon, f"{loss.word}, {loss.other}", f"{loss.claimed:.3g}", f"{loss.nats:.3g}", hits])
    yield f"Between words, {1 - FALSE_ALARM:.0%} sure for all rows together:\n"
    yield markdown(
        ["ε", "word, other", "ε d, nats", "loss, at least", f"the word came out of both, of {DRAWS:,}"], rows
    )
    rows = []
    for epsilon in EPSILONS[::2]:
        for name, rank in NEIGHBOURS.items():
            found = told_apart(counted.world, epsilon, rank)
            rows.append(
                [
                    epsilon,
                    name,
                    f"{found['distance']:.3g}",
                    f"{found['claimed']:.3g}",
                    f"{found['least delta']:.3g}",
                    f"{found['most delta']:.3g}",
                    f"{found['unreachable']:.3g}",
                ]
            )
    yield "Between noisy points (medians over words):\n"
    yield markdown(
        [
            "ε",
            "other word",
            "d",
            "t = ε d",
            "δ(t) of the clipped point, at least",
            "at most",
            "δ of every t before clipping",
        ],
        rows,
    )


def without_end() -> Iterator[str]:
    """Table 4: the part of the noise that no noise of the other word reaches, by dimension and distance."""
    rows = [
        [
            dimension,
            epsilon,
            *(f"{AddedLaw(dimension=dimension, epsilon=epsilon).unreachable(s):.3g}" for s in APART),
        ]
        for dimension in DIMENSIONS
        for epsilon in (EPSILONS[0], 1.0, EPSILONS[-1])
    ]
    yield "\n## Part of the noise out of the other word's reach, before clipping\n"
    yield markdown(["n", "ε", *(f"Euclidean distance {s:g}" for s in APART)], rows)


def made_world(folder: Path, words: int = 120, dimension: int = 20, seed: int = 0) -> tuple[World, World]:
    """A ball with few words near the centre and most near the edge, and Gaussian vectors, without meaning."""
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((words, dimension))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    radii = np.append(np.linspace(0.3, 1.0, words // 30), rng.uniform(3.0, 6.0, words - words // 30))
    flat = rng.standard_normal((words, dimension))
    worlds = []
    names = folder / "vocab.txt"
    names.write_text("".join(f"w{i}\n" for i in range(words)), encoding="utf-8")
    ball = directions * np.tanh(radii / 2.0)[:, None]
    sources: tuple[tuple[GeometryName, np.ndarray], ...] = (("poincare", ball), ("euclidean", flat))
    for name, vectors in sources:
        np.save(folder / f"{name}.npy", vectors)
        bundle = build_embedding(folder / f"{name}.npy", folder / name, geometry=name, vocabulary=names)
        worlds.append(World(embedding=bundle, words=np.arange(words), seed=seed))
    return worlds[0], worlds[1]


def small() -> dict[str, float]:
    """The figures of a made world whose direction is known."""
    with tempfile.TemporaryDirectory() as name:
        ball, flat = made_world(Path(name))
        epsilons = [EPSILONS[1], EPSILONS[-1]]
        counted = Counted.of(ball, epsilons)
        laplace = flat.curve(LAPLACE, LAPLACE_EPSILONS)
        worst, mean = counted.stays.max(axis=1), counted.stays.mean(axis=1)
        matched = flat.at(LAPLACE, [laplace.epsilon_at(float(worst[1]))])[0]
        loss = largest_loss(counted, 0, epsilons[0], draws=4000)
        isometry = replace(ball, words=ball.words[::ISOMETRY]).curve("hyperbolic-icdm", epsilons)
        central = central_words(ball)
        middle = len(ball.words) // 30
        frequent = np.argsort(-counted.outputs[1], kind="stable")[:middle]
        law = AddedLaw(dimension=2, epsilon=1.0, cells=(120, 600))
        return {
            "worst": float(worst[1]),
            "average": float(mean[1]),
            "laplace average": math.nan if matched is None else matched[1],
            "isometry average": float(isometry.mean[1]),
            "central average": float(counted.stays[1][central].mean()),
            "central outputs": float((frequent < middle).mean()),
            "loss": loss.nats,
            "claimed": loss.claimed,
            "unreachable": law.unreachable(0.5),
            "delta at 50": law.delta(0.5, 50.0),
        }


@click.command()
@click.option("--poincare", "balls", type=click.Path(exists=True, path_type=Path), multiple=True)
@click.option("--euclidean", "flats", type=click.Path(exists=True, path_type=Path), multiple=True)
@click.option("--words", "count", default=100_000, show_default=True, help="evenly spread; default: all")
@click.option("--limit", type=int, help="take the first common words alone")
@click.option("--seed", default=0, show_default=True)
@click.option("--small", "is_small", is_flag=True, help="a made world, as JSON")
def main(
    balls: tuple[Path, ...],
    flats: tuple[Path, ...],
    count: int,
    limit: int | None,
    seed: int,
    is_small: bool,
) -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        if is_small:
            click.echo(json.dumps(small()))
            return
        folder = Path(name)
        sources = [opened(flat, folder / f"flat {i}", "euclidean") for i, flat in enumerate(flats)]
        for number, source in enumerate(balls):
            ball = opened(source, folder / f"ball {number}", "poincare")
            words = common(ball, sources[0], limit)
            for other in sources[1:]:
                known = set(other.words.to_pylist())
                words = [word for word in words if word in known]
            rows = np.unique(np.linspace(0, len(words) - 1, min(count, len(words))).astype(np.int64))
            world = partial(World, words=rows, seed=seed)
            curved = world(embedding=restricted(ball, words, folder / f"common ball {number}"))
            plain = {
                f"{flat.dimension}-d": world(embedding=restricted(flat, words, folder / f"{number} flat {i}"))
                for i, flat in enumerate(sources)
            }
            apart = curved.distances()
            click.echo(
                f"\n## {curved.embedding.dimension} dimensions, {len(words):,} words, {len(rows):,} of them "
                f"measured; median distance to the nearest word {apart.nearest:.3g}, to the tenth "
                f"{apart.tenth:.3g}\n"
            )
            counted = Counted.of(curved, EPSILONS)
            for part in (expected(counted, plain), what_comes_out(counted), given_away(counted)):
                for line in part:
                    click.echo(line)
        click.echo("\n".join(without_end()))


if __name__ == "__main__":
    main()
