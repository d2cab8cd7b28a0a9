"""Table IV of Feyisetan et al. 2019 again: noise in the Poincaré ball against Laplace noise, both calibrated.

    OMP_NUM_THREADS=1 python scripts/experiments/hyperbolic_table4.py --poincare BALL --euclidean VECTORS

The paper chooses an epsilon in the ball, takes the largest N_w of any word for its worst case, gives the
Euclidean mechanism the epsilon of the same worst case, and compares the averages of N_w. The vocabulary is
the ball's words that the Euclidean embedding has too. Four tables:

    1  as in the paper: at its epsilons, with Laplace noise of the same worst case
    2  every mechanism at the paper's worst cases, where some epsilon reaches them
    3  Laplace noise of the same *proven* loss between words that are typical neighbours
    4  the paper's own figures

``hyperbolic`` exists above n - 1 alone: the paper's epsilons are added to that. Prints Markdown.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import click
import numpy as np
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator, word_statistics
from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.embedding.spaces import GeometryName
from dptext_spark.guarantee import Distances, Guarantee
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch

RUNS: Final = 1000
BLOCK: Final = 512
IN_THE_BALL: Final = ("hyperbolic", "hyperbolic-icdm", "exponential")
LAPLACE: Final = "laplace"
# By shared rays and by exact probabilities many epsilons cost little.
CHEAP: Final = ("exponential", LAPLACE)
STEPS: Final = 12

# Epsilon, worst-case N_w, and the average N_w of the ball and of 100-, 200- and 300-d GloVe, of 1,000 runs.
PAPER: Final = (
    (0.125, 134, 1.25, 38.54, 39.66, 39.88),
    (0.5, 148, 1.62, 42.48, 43.62, 43.44),
    (1.0, 172, 2.07, 48.80, 50.26, 53.82),
    (2.0, 297, 3.92, 92.42, 93.75, 90.90),
    (8.0, 960, 140.67, 602.21, 613.11, 587.68),
)
EPSILONS: Final = tuple(row[0] for row in PAPER)
WORST_CASES: Final = tuple(row[1] for row in PAPER)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """N_w of the same words at some epsilons of one mechanism.

    Attributes:
        epsilons: Ascending.
        worst: float64 (epsilons,), the largest N_w of a word, of 1,000 runs.
        mean: float64 (epsilons,), the average N_w.
    """

    epsilons: np.ndarray
    worst: np.ndarray
    mean: np.ndarray

    def epsilon_at(self, worst: float) -> float:
        """The epsilon of a worst case, between those measured.

        Infinity where a word stays in all runs, as at any larger epsilon; NaN where no epsilon was so low.
        """
        rising = np.maximum.accumulate(self.worst)
        if worst > RUNS - 0.5:
            return math.inf
        if not rising[0] <= worst <= rising[-1]:
            return math.nan
        return float(np.exp(np.interp(worst, rising, np.log(self.epsilons))))

    def at(self, epsilon: float) -> tuple[float, float]:
        """Worst case and average at one of the epsilons."""
        row = int(np.flatnonzero(self.epsilons == epsilon)[0])
        return float(self.worst[row]), float(self.mean[row])


@dataclass(frozen=True, kw_only=True)
class World:
    """A geometry's embedding of the common vocabulary.

    Attributes:
        embedding: The bundle.
        words: int64 (k,), the rows that are measured.
        seed: Of the runs.
    """

    embedding: Embedding
    words: np.ndarray
    seed: int

    def curve(self, name: str, epsilons: Sequence[float]) -> Curve:
        """Measure N_w at epsilons."""
        epsilons = sorted(epsilons)
        draw = estimator(
            [mechanism(name, epsilon=epsilon) for epsilon in epsilons],
            self.embedding,
            search=ExactSearch.over(self.embedding),
            runs=RUNS,
            seed=self.seed,
        )
        size = min(BLOCK, draw.block_words)
        starts = range(0, len(self.words), size)
        tables = [word_statistics(draw(self.words[s : s + size], block=s)) for s in starts]
        stays = RUNS * np.concatenate(
            [table["n_w"].to_numpy().reshape(len(epsilons), -1) for table in tables], axis=1
        )
        return Curve(epsilons=np.array(epsilons), worst=stays.max(axis=1), mean=stays.mean(axis=1))

    def at(self, name: str, epsilons: Sequence[float]) -> list[tuple[float, float] | None]:
        """Worst case and average at each epsilon, in the given order; None where it is not finite."""
        wanted = {epsilon for epsilon in epsilons if math.isfinite(epsilon)}
        curve = self.curve(name, sorted(wanted)) if wanted else None
        return [curve.at(epsilon) if curve and epsilon in wanted else None for epsilon in epsilons]

    def shifted(self, name: str) -> list[float]:
        """The paper's epsilons, above the least."""
        return [self.least(name) + epsilon for epsilon in EPSILONS]

    def least(self, name: str) -> float:
        """The epsilon that every epsilon of a mechanism must be above."""
        return self.embedding.dimension - 1.0 if name == "hyperbolic" else 0.0

    def grid(self, name: str) -> list[float]:
        """Epsilons over which N_w rises from nearly 0 to nearly all runs, where it does so at all."""
        above = np.geomspace(0.02, 20.0, 4 * STEPS if name in CHEAP else STEPS)
        return [*(self.least(name) + above).tolist(), 4.0 * self.embedding.dimension]

    def guarantee(self, name: str, epsilon: float) -> Guarantee:
        return mechanism(name, epsilon=epsilon).guarantee(self.embedding)

    def distances(self) -> Distances:
        return Distances.measure(self.embedding.space.metric())


def as_paper(ball: World, flat: World, measured: dict[str, Curve], laplace: Curve) -> Iterator[str]:
    """Table 1."""
    yield f"\n### Same worst-case N_w, as in the paper's Table IV (counts of {RUNS:,} runs)\n"
    yield "| mechanism | ε | worst case | average | laplace ε | worst case | average |"
    yield "|---|---|---|---|---|---|---|"
    for name, here in measured.items():
        own = [here.at(epsilon) for epsilon in ball.shifted(name)]
        matched = [laplace.epsilon_at(worst) for worst, _ in own]
        for row in zip(ball.shifted(name), own, matched, flat.at(LAPLACE, matched), strict=True):
            yield f"| {name} | {row[0]:g} | {pair(row[1])} | {shown(row[2])} | {pair(row[3])} |"


def at_worst_cases(ball: World, flat: World, laplace: Curve) -> Iterator[str]:
    """Table 2."""
    yield "\n### Average N_w (at ε, worst case measured) of each mechanism at the paper's worst cases\n"
    yield f"| worst-case N_w | {' | '.join((*IN_THE_BALL, LAPLACE))} |"
    yield "|---|" + "---|" * (len(IN_THE_BALL) + 1)
    columns = []
    notes = []
    for world, name in (*((ball, name) for name in IN_THE_BALL), (flat, LAPLACE)):
        curve = laplace if name == LAPLACE else world.curve(name, world.grid(name))
        epsilons = [curve.epsilon_at(worst) for worst in WORST_CASES]
        values = world.at(name, epsilons)
        columns.append([cell(e, v) for e, v in zip(epsilons, values, strict=True)])
        notes.append(
            f"{name}: from ε = {curve.epsilons[0]:.4g} (worst case {curve.worst[0]:.4g}, average "
            f"{curve.mean[0]:.4g}) to ε = {curve.epsilons[-1]:.4g} ({curve.worst[-1]:.4g}, "
            f"{curve.mean[-1]:.4g})"
        )
    for row, worst in enumerate(WORST_CASES):
        yield f"| {worst} | {' | '.join(column[row] for column in columns)} |"
    yield "\nTried: " + "; ".join(notes) + "."


def same_proof(ball: World, flat: World, measured: dict[str, Curve]) -> Iterator[str]:
    """Table 3."""
    yield "\n### Same proven loss between a word and its tenth neighbour (medians)\n"
    yield "| mechanism | ε | proven ε | nats | worst case | average | laplace ε | worst case | average |"
    yield "|---|---|---|---|---|---|---|---|---|"
    unit = flat.guarantee(LAPLACE, 1.0).loss(flat.distances().tenth)
    for name, here in measured.items():
        proofs = [ball.guarantee(name, epsilon) for epsilon in ball.shifted(name)]
        nats = [proof.loss(ball.distances().tenth) for proof in proofs]
        others = flat.at(LAPLACE, [loss / unit for loss in nats])
        for proof, loss, other in zip(proofs, nats, others, strict=True):
            epsilon = proof.configured_epsilon
            yield (
                f"| {name} | {epsilon:g} | {proof.epsilon:g} | {loss:.3g} | {pair(here.at(epsilon))} "
                f"| {loss / unit:.3g} | {pair(other)} |"
            )


def published() -> Iterator[str]:
    """Table 4."""
    yield "\n### The paper's Table IV (100-d ball)\n"
    yield "| ε | worst case | ball | 100-d GloVe | 200-d | 300-d |"
    yield "|---|---|---|---|---|---|"
    for row in PAPER:
        yield f"| {' | '.join(f'{value:g}' for value in row)} |"


def shown(epsilon: float) -> str:
    return "none" if math.isnan(epsilon) else "any large" if math.isinf(epsilon) else f"{epsilon:.3g}"


def pair(value: tuple[float, float] | None) -> str:
    return "- | -" if value is None else f"{value[0]:.4g} | {value[1]:.4g}"


def cell(epsilon: float, value: tuple[float, float] | None) -> str:
    return "not reached" if value is None else f"{value[1]:.4g} (ε = {epsilon:.3g}, {value[0]:.4g})"


def opened(source: Path, folder: Path, geometry: GeometryName) -> Embedding:
    """Open a bundle, or build one of anything that ``dptext embedding`` reads."""
    if source.is_dir():
        return Embedding.open(source)
    vocabulary = source.with_name("vocab.txt") if source.suffix == ".npy" else None
    return build_embedding(source, folder, geometry=geometry, vocabulary=vocabulary)


def restricted(embedding: Embedding, words: list[str], folder: Path) -> Embedding:
    """Build a bundle of some of an embedding's words, in the given order."""
    rows = {word: row for row, word in enumerate(embedding.words.to_pylist())}
    folder.mkdir()
    np.save(folder / "vectors.npy", embedding.vectors[[rows[word] for word in words]])
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return build_embedding(
        folder / "vectors.npy", folder / "bundle", geometry=embedding.space.geometry, vocabulary=vocabulary
    )


def common(ball: Embedding, flat: Embedding, limit: int | None) -> list[str]:
    """The ball's words that the Euclidean embedding has too, in the ball's order."""
    known = set(flat.words.to_pylist())
    words = [word for word in ball.words.to_pylist() if word in known][:limit]
    if len(words) < 100:
        raise click.UsageError(f"The two embeddings have {len(words)} words in common; 100 are needed.")
    return words


@click.command()
@click.option("--poincare", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--euclidean", type=click.Path(exists=True, path_type=Path), required=True)
@click.option("--words", "count", default=300, show_default=True, help="evenly spread over the vocabulary")
@click.option("--limit", type=int, help="take the first common words alone")
@click.option("--seed", default=0, show_default=True)
def main(poincare: Path, euclidean: Path, count: int, limit: int | None, seed: int) -> None:
    """Print the tables. Sources are bundles or files; the words of a .npy are in vocab.txt beside it."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        ball = opened(poincare, folder / "ball", "poincare")
        flat = opened(euclidean, folder / "flat", "euclidean")
        words = common(ball, flat, limit)
        rows = np.linspace(0, len(words) - 1, min(count, len(words)), dtype=np.int64)
        world = partial(World, words=rows, seed=seed)
        curved = world(embedding=restricted(ball, words, folder / "common ball"))
        plain = world(embedding=restricted(flat, words, folder / "common flat"))
        for title, one in (("ball", curved), ("Euclidean", plain)):
            apart = one.distances()
            click.echo(
                f"{title}: {len(words):,} words x {one.embedding.dimension}, {len(rows)} of them measured; "
                f"median distance to the nearest word {apart.nearest:.3g}, to the tenth {apart.tenth:.3g}\n"
            )
        measured = {name: curved.curve(name, curved.shifted(name)) for name in IN_THE_BALL}
        laplace = plain.curve(LAPLACE, plain.grid(LAPLACE))
        for part in (
            as_paper(curved, plain, measured, laplace),
            at_worst_cases(curved, plain, laplace),
            same_proof(curved, plain, measured),
            published(),
        ):
            click.echo("\n".join(part))


if __name__ == "__main__":
    main()
