"""What mechanisms keep at equal success of the attack: each at the epsilon where as many words are recovered.

Epsilons of different metrics cannot be compared, so for each mechanism the one is searched for at which the
attacker in context recovers a given share of the words. What is kept there, of the same rows, can be.

With ``--ball`` the mechanisms of a Poincaré ball stand beside those of a Euclidean embedding that is
restricted to the ball's words. What is kept is then measured by the Euclidean vectors for both.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logit
from sklearn.linear_model import LogisticRegression

from dptext_spark.binomial import lower_limit
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.measures import RANDOM_WORDS, Totals, kept
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.mechanisms import Exponential, Hyperbolic, HyperbolicIcdm, Laplace, Mechanism
from dptext_spark.mechanisms.mechanism import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from scripts.experiments.hyperbolic_table4 import common, restricted
from scripts.experiments.texts import demo_embedding, demo_queries
from scripts.experiments.utility_tasks import made_ball

CONFIDENCE: Final = 0.95
Kind = Callable[[float], Mechanism]

KINDS: Final[dict[str, Kind]] = {
    "laplace": lambda e: Laplace(epsilon=e),
    "laplace, vickrey, t = 0.5": lambda e: Laplace(epsilon=e, select="vickrey", t=0.5),
    "mahalanobis, λ = 0.5": lambda e: mechanism("mahalanobis", epsilon=e, **{"lambda": 0.5}),
    "mahalanobis, λ = 1": lambda e: mechanism("mahalanobis", epsilon=e, **{"lambda": 1.0}),
    "exponential": lambda e: Exponential(epsilon=e),
    "exponential, γ = 6": lambda e: Exponential(epsilon=e, truncate=6.0),
    "exponential, γ = 4": lambda e: Exponential(epsilon=e, truncate=4.0),
}


def ball_kinds(dimension: int) -> dict[str, Kind]:
    """Give the mechanisms of a ball; ``hyperbolic`` by how far its epsilon is above the least, n - 1."""
    return {
        "hyperbolic": lambda e: Hyperbolic(epsilon=dimension - 1 + e),
        "hyperbolic-icdm": lambda e: HyperbolicIcdm(epsilon=e),
        "exponential, ball": KINDS["exponential"],
    }


COLUMNS: Final = {
    "recovered": "recovered",
    "accuracy": "intents right",
    "similarity": "similarity of texts",
    "kept": "words unchanged",
    "distance": "distance moved",
    "word_overlap": "frequencies of words in common",
}


@dataclass(frozen=True, kw_only=True)
class World:
    """Rows and how they are attacked.

    Attributes:
        texts, labels: Of each row.
        embedding, search: As for a release.
        judge: The same words in the same order; by its vectors it is measured what is kept.
        runs, candidates: As for an evaluation.
        seed: Of the noise.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    embedding: Embedding
    search: ExactSearch
    judge: Embedding
    runs: int
    candidates: int
    seed: int = 0

    def compared(self, setting: Mechanism) -> Comparison:
        """Rehearse and attack one setting."""
        return evaluate(
            self.texts,
            list(range(len(self.texts))),
            embedding=self.embedding,
            mechanisms=[setting],
            search=self.search,
            runs=self.runs,
            candidates=self.candidates,
            seed=self.seed,
        )

    def released(self, setting: Mechanism | None) -> SimulatedRows:
        """Give the very rows that are attacked in the comparison, or those without noise."""
        simulation = Simulation(
            bundle=self.embedding, policy=TextPolicy(), search=self.search, seed=self.seed
        )
        rows = simulation.read(pa.array(self.texts))
        ids = pa.array(range(len(self.texts)))
        return rows.without_noise() if setting is None else simulation.release(rows, ids, setting)

    def kept(self, rows: SimulatedRows, before: PairCounts) -> dict[str, tuple[float, float, float]]:
        """Give each measure of what is left of use, with its interval."""
        words = len(self.judge.words)
        pairs = PairCounts.of_rows(rows.released, rows.offsets, vocabulary=words)
        totals = Totals(sums=kept(rows, self.judge), pairs=pairs)
        return totals.measures(before, CONFIDENCE) | {"accuracy": self.accuracy(rows)}

    def accuracy(self, rows: SimulatedRows) -> tuple[float, float, float]:
        """Labels right, learnt from one half of the rows, on those of the other. With an exact interval."""
        counts, labels = _counts(rows, len(self.embedding.words)), np.array(self.labels)
        right = 0
        for half in range(2):
            tested = np.arange(len(labels)) % 2 == half
            model = LogisticRegression(max_iter=300).fit(counts[~tested], labels[~tested])
            right += int((model.predict(counts[tested]) == labels[tested]).sum())
        trials, tail = len(labels), (1.0 - CONFIDENCE) / 2.0
        low = float(lower_limit(right, trials, tail))
        return right / trials, low, 1.0 - float(lower_limit(trials - right, trials, tail))


def _counts(rows: SimulatedRows, words: int) -> csr_array:
    """How often each word is in each row (rows, words)."""
    known = rows.released >= 0
    ones: NDArray[np.float64] = np.ones(int(known.sum()))
    return csr_array((ones, (rows.rows[known], rows.released[known])), shape=(len(rows.offsets) - 1, words))


@dataclass(frozen=True, kw_only=True)
class Match:
    """A mechanism at the epsilon where the attack has the success that is wanted.

    Attributes:
        epsilon: That one.
        measures: Value and interval of each measure, NaN where there is none.
        floors: Values of random words, and of what is recovered without any output.
    """

    epsilon: float
    measures: Mapping[str, tuple[float, float, float]]
    floors: Mapping[str, float]


def matched(world: World, kind: Kind, success: float, *, near: float, start: float = 4.0) -> Match:
    """Search the epsilon by log-odds that are linear in its logarithm, between the two ends known so far."""
    known: dict[float, tuple[float, Comparison]] = {}
    wanted, log_epsilon = float(logit(success)), float(np.log(start))
    while True:
        comparison = world.compared(kind(float(np.exp(log_epsilon))))
        share = float(Risk().of(comparison.outcomes[0]).ratio[0])
        if abs(share - success) <= near:
            return _match(world, comparison)
        known[log_epsilon] = float(logit(np.clip(share, 1e-3, 1 - 1e-3))) - wanted, comparison
        below = max((e for e, (odds, _) in known.items() if odds < 0), default=None)
        above = min((e for e, (odds, _) in known.items() if odds > 0), default=None)
        if below is None or above is None:
            log_epsilon += -0.5 if below is None else 0.5
            continue
        low, high = known[below][0], known[above][0]
        log_epsilon = below + (above - below) * float(np.clip(-low / (high - low), 0.1, 0.9))


def _match(world: World, comparison: Comparison) -> Match:
    (outcome,) = comparison.outcomes
    measures = world.kept(world.released(outcome.mechanism), comparison.before)
    measures["recovered"] = Risk().of(outcome).share(CONFIDENCE)
    random = world.kept(world.released(RANDOM_WORDS), comparison.before)
    floors = {name: value for name, (value, *_) in random.items()} | {"recovered": Risk().floor(outcome)}
    return Match(epsilon=outcome.mechanism.epsilon, measures=measures, floors=floors)


def shown(value: float, low: float = float("nan"), high: float = float("nan"), digits: int = 3) -> str:
    """Write a number with its interval, if it has one."""
    ends = "" if np.isnan(low) else f" ({low:.{digits}f} to {high:.{digits}f})"
    return f"{value:.{digits}f}{ends}"


def table(found: Mapping[str, Match], ceilings: Mapping[str, float]) -> Iterator[str]:
    """Write a table of Markdown, that of the best accuracy first, floors and ceilings last."""
    yield f"| mechanism | ε | {' | '.join(COLUMNS.values())} |"
    yield "|---" * (len(COLUMNS) + 2) + "|"
    for name, match in sorted(found.items(), key=lambda item: -item[1].measures["accuracy"][0]):
        cells = [shown(*match.measures[measure]) for measure in COLUMNS]
        yield f"| {name} | {match.epsilon:.3g} | {' | '.join(cells)} |"
    floors = next(iter(found.values())).floors
    yield f"| random words | | {' | '.join(shown(floors[measure]) for measure in COLUMNS)} |"
    yield f"| the original | | {' | '.join(shown(ceilings[measure]) for measure in COLUMNS)} |"


@click.command()
@click.argument("embedding", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="Parquet table of Snips, 2017")
@click.option(
    "--ball", type=click.Path(exists=True, path_type=Path), help="Bundle to compare with, see above."
)
@click.option("--rows", default=1000, help="Evenly spread over the table.")
@click.option("--success", default=(0.2,), multiple=True, help="Share of words that is recovered.")
@click.option("--release-words", default=5000)
@click.option("--runs", default=100, help="Draws from which attackers learn a mechanism.")
@click.option("--small", is_flag=True, help="Seconds, on the demo's data; prints JSON.")
def main(
    embedding: Path | None,
    data: Path | None,
    ball: Path | None,
    rows: int,
    success: tuple[float, ...],
    release_words: int,
    runs: int,
    small: bool,
) -> None:
    """Compare mechanisms where attackers have equal success: EMBEDDING is a bundle, the rows are of Snips."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if small:
            click.echo(json.dumps(_small(folder), ensure_ascii=False))
            return
        if embedding is None or data is None:
            raise click.UsageError("Give EMBEDDING and --data, or --small.")
        whole = pq.read_table(data, columns=["text", "intent"])
        chosen = whole.take(np.linspace(0, len(whole) - 1, rows).astype(np.int64))
        flat = Embedding.open(embedding)
        of_ball = None if ball is None else Embedding.open(ball)
        if of_ball is not None:
            flat, of_ball = _of_common_words(flat, of_ball, folder)
        world = World(
            texts=chosen["text"].to_pylist(),
            labels=chosen["intent"].to_pylist(),
            embedding=flat,
            search=ExactSearch.over(flat, release_words),
            judge=flat,
            runs=runs,
            candidates=64,
        )
        kinds = {name: (world, kind) for name, kind in KINDS.items()}
        if of_ball is not None:
            kinds = _beside_ball(world, of_ball)
        original_rows = world.released(None)
        known = (original_rows.inputs >= 0).mean()
        click.echo(
            f"{len(original_rows.inputs):,} words, {known:.0%} of them among the {len(flat.words):,}.\n"
        )
        original = {
            "recovered": 1.0,
            "accuracy": world.accuracy(original_rows)[0],
            "similarity": 1.0,
            "kept": 1.0,
        }
        ceilings = original | {"distance": 0.0, "word_overlap": 1.0}
        for share in success:
            found: dict[str, Match] = {}
            for name, (where, kind) in kinds.items():
                found[name] = matched(where, kind, share, near=0.005)
                click.echo(f"{name}: {found[name]}", err=True)
            click.echo(f"Recovered in context: {share:.0%}, to within half a point; {rows:,} rows.\n")
            click.echo("\n".join(table(found, ceilings)))


def _of_common_words(flat: Embedding, ball: Embedding, folder: Path) -> tuple[Embedding, Embedding]:
    """Restrict both to the words that both have, in the order of the Euclidean one."""
    words = common(flat, ball, None)
    return restricted(flat, words, folder / "flat"), restricted(ball, words, folder / "ball")


def _beside_ball(world: World, ball: Embedding) -> dict[str, tuple[World, Kind]]:
    """Give the mechanisms of a world and of a ball that has the same words in the same order."""
    curved = replace(world, embedding=ball, search=ExactSearch.over(ball, world.search.release_words))
    kinds = {name: (world, KINDS[name]) for name in ("laplace", "exponential")}
    return kinds | {name: (curved, kind) for name, kind in ball_kinds(ball.dimension).items()}


def _small(folder: Path) -> dict[str, object]:
    texts, labels = demo_queries(120)
    bundle = demo_embedding(folder)
    world = World(
        texts=texts,
        labels=labels,
        embedding=bundle,
        search=ExactSearch.over(bundle, 2000),
        judge=bundle,
        runs=30,
        candidates=16,
    )
    kinds = {name: (world, KINDS[name]) for name in ("laplace", "laplace, vickrey, t = 0.5")}
    kinds |= _beside_ball(world, made_ball(bundle, 10, 1.0, folder / "made"))
    starts = {
        "laplace": 7.5,
        "laplace, vickrey, t = 0.5": 8.5,
        "exponential": 3.4,
        "hyperbolic": 18.5,
        "exponential, ball": 26.0,
    }
    found = {name: matched(*kinds[name], 0.5, near=0.04, start=start) for name, start in starts.items()}
    values = {
        name: {"epsilon": match.epsilon} | {m: match.measures[m][0] for m in COLUMNS}
        for name, match in found.items()
    }
    return {"found": values, "floors": {name: match.floors for name, match in found.items()}}


if __name__ == "__main__":
    main()
