"""What mechanisms keep at equal success of the attack: each at the epsilon where as many words are recovered.

Epsilons of different metrics cannot be compared, so for each mechanism the one is searched for at which the
attacker in context recovers a given share of the words. What is kept there, of the same rows, can be.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from dptext_spark.evaluation.comparison import Comparison, evaluate
from dptext_spark.evaluation.rehearsal import Rehearsal
from dptext_spark.evaluation.released_rows import ReleasedRows
from dptext_spark.evaluation.tally import RANDOM_WORDS
from dptext_spark.mechanisms import Exponential, Laplace, Mechanism
from dptext_spark.mechanisms.mechanism import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from scripts.experiments.texts import demo_embedding, demo_queries

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
        runs, candidates: As for an evaluation.
        seed: Of the noise.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    embedding: Embedding
    search: ExactSearch
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

    def accuracy(self, setting: Mechanism | None) -> tuple[float, float, float]:
        """Labels right, learnt from released texts of one half of the rows, on those of the other.

        Of the texts as they were where there is no mechanism. With an exact interval.
        """
        rehearsal = Rehearsal(
            embedding=self.embedding, policy=TextPolicy(), search=self.search, seed=self.seed
        )
        rows = rehearsal.unreleased(pa.array(self.texts))
        ids = pa.array(range(len(self.texts)))
        read = rows.without_noise() if setting is None else rehearsal.released(rows, ids, setting)
        counts, labels = _counts(read, len(self.embedding.words)), np.array(self.labels)
        right = 0
        for half in range(2):
            tested = np.arange(len(labels)) % 2 == half
            model = LogisticRegression(max_iter=300).fit(counts[~tested], labels[~tested])
            right += int((model.predict(counts[tested]) == labels[tested]).sum())
        trials, tail = len(labels), (1.0 - CONFIDENCE) / 2.0
        low = float(lower_limit(right, trials, tail))
        return right / trials, low, 1.0 - float(lower_limit(trials - right, trials, tail))


def _counts(rows: ReleasedRows, words: int) -> csr_array:
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
        share = float(comparison.outcomes[0].recovered[1].recovered["in-context", 1].ratio[0])
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
    sums, floor = (of.recovered["in-context", 1] for of in (outcome.recovered[1], comparison.guessed))
    low, high = sums.share_interval(CONFIDENCE)
    measures = outcome.measures(comparison.before, CONFIDENCE)
    measures["recovered"] = float(sums.ratio[0]), float(low[0]), float(high[0])
    measures["accuracy"] = world.accuracy(outcome.mechanism)
    floors = {name: value for name, (value, *_) in outcome.floors(comparison.before, CONFIDENCE).items()}
    floors["recovered"] = float(floor.ratio[0])
    floors["accuracy"] = world.accuracy(RANDOM_WORDS)[0]
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
@click.option("--rows", default=1000, help="Evenly spread over the table.")
@click.option("--success", default=(0.2,), multiple=True, help="Share of words that is recovered.")
@click.option("--release-words", default=5000)
@click.option("--runs", default=100, help="Draws from which attackers learn a mechanism.")
@click.option("--small", is_flag=True, help="Seconds, on the demo's data; prints JSON.")
def main(
    embedding: Path | None,
    data: Path | None,
    rows: int,
    success: tuple[float, ...],
    release_words: int,
    runs: int,
    small: bool,
) -> None:
    """Compare mechanisms where attackers have equal success: EMBEDDING is a bundle, the rows are of Snips."""
    if small:
        _print_small()
        return
    if embedding is None or data is None:
        raise click.UsageError("Give EMBEDDING and --data, or --small.")
    whole = pq.read_table(data, columns=["text", "intent"])
    chosen = whole.take(np.linspace(0, len(whole) - 1, rows).astype(np.int64))
    bundle = Embedding.open(embedding)
    world = World(
        texts=chosen["text"].to_pylist(),
        labels=chosen["intent"].to_pylist(),
        embedding=bundle,
        search=ExactSearch.over(bundle, release_words),
        runs=runs,
        candidates=64,
    )
    original = {"recovered": 1.0, "accuracy": world.accuracy(None)[0], "similarity": 1.0, "kept": 1.0}
    ceilings = original | {"distance": 0.0, "word_overlap": 1.0}
    for share in success:
        found: dict[str, Match] = {}
        for name, kind in KINDS.items():
            found[name] = matched(world, kind, share, near=0.005)
            click.echo(f"{name}: {found[name]}", err=True)
        click.echo(f"Recovered in context: {share:.0%}, to within half a point; {rows:,} rows.\n")
        click.echo("\n".join(table(found, ceilings)))


def _print_small() -> None:
    texts, labels = demo_queries(120)
    with tempfile.TemporaryDirectory() as folder:
        bundle = demo_embedding(Path(folder))
        world = World(
            texts=texts,
            labels=labels,
            embedding=bundle,
            search=ExactSearch.over(bundle, 2000),
            runs=30,
            candidates=16,
        )
        starts = {"laplace": 7.5, "laplace, vickrey, t = 0.5": 8.5, "exponential": 3.4}
        found = {n: matched(world, KINDS[n], 0.5, near=0.04, start=start) for n, start in starts.items()}
    values = {
        name: {"epsilon": match.epsilon} | {m: match.measures[m][0] for m in COLUMNS}
        for name, match in found.items()
    }
    click.echo(json.dumps({"found": values, "floors": found["laplace"].floors}, ensure_ascii=False))


if __name__ == "__main__":
    main()
