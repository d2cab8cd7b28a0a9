"""Hyperbolic noise after Feyisetan et al. 2019: how often words stay, what is kept, what the sampler samples.

    python -m scripts.experiments.feyisetan_2019 table4 --ball ball --flat glove-50d
    python -m scripts.experiments.feyisetan_2019 clipped --ball ball --flat glove-50d
    python -m scripts.experiments.feyisetan_2019 tasks --ball ball --flat glove-300d --data senteval
    python -m scripts.experiments.feyisetan_2019 slots --ball ball --flat glove-300d --data snips.parquet
    python -m scripts.experiments.feyisetan_2019 sampler

Every comparison is over the words that the ball and the Euclidean embedding have in common. ``table4`` gives
Laplace noise the epsilon at which its largest N_w of any word is that of an epsilon in the ball, and compares
averages. ``clipped`` does the same with the paper's own construction: noise of density ((1 - |z|) / (1 +
|z|))^epsilon (equation 7) is *added* to the word's coordinates, and what leaves the ball is scaled back to
its edge (section V-D). ``tasks`` perturbs words in slots of SentEval's texts (Table VI), ``slots`` those of
voice queries (section II-A).
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import integrate, stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dptext_spark.calibration import estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import Knowledge, attack
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.geometry.ball import LebesgueRadii
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER, Floats, Mean, WordRows, Words

RUNS: Final = 1000
IN_THE_BALL: Final = ("hyperbolic", "hyperbolic-icdm", "exponential")
# Of 1,000 runs: epsilon, worst-case N_w, and the average N_w of the ball and of GloVe in 100 dimensions.
PAPER: Final = (
    (0.125, 134, 1.25, 38.54),
    (0.5, 148, 1.62, 42.48),
    (1.0, 172, 2.07, 48.80),
    (2.0, 297, 3.92, 92.42),
    (8.0, 960, 140.67, 602.21),
)
EPSILONS: Final = tuple(row[0] for row in PAPER)
LAPLACE: Final = tuple(np.geomspace(0.02, 60.0, 40).tolist())
"""At which Laplace noise is measured, to find those of equal worst cases."""
ORIGINAL: Final = "original texts"
RANDOM: Final = "random words"

Setting: TypeAlias = Mechanism | str
"""A mechanism, or ``ORIGINAL`` or ``RANDOM``."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A Euclidean embedding, and its words that a ball has too, in both geometries.

    Attributes:
        large: The Euclidean embedding, whose vectors are the features.
        flat, ball: The common words, in its order.
        ids: int64 (k,), of the common words in the large vocabulary, ascending.
    """

    large: Embedding
    flat: Embedding
    ball: Embedding
    ids: Words

    @classmethod
    def of(cls, ball: Embedding, large: Embedding, folder: Path) -> World:
        """Restrict embeddings to their common words."""
        flat, curved = shared.in_common(folder, large, ball)
        ids = np.flatnonzero(np.isin(large.words.to_pylist(), flat.words.to_pylist()))
        return cls(large=large, flat=flat, ball=curved, ids=ids)

    def space(self, configured: Mechanism) -> Embedding:
        """The embedding that a mechanism works in."""
        return self.flat if configured.name == "laplace" else self.ball

    def perturbed(self, texts: Texts, setting: Setting, seed: int) -> WordRows:
        """Perturb the common words in slots, and drop the other words in slots."""
        if setting == ORIGINAL:
            return texts.words
        words = texts.words.words
        own = np.full(len(self.large.words) + 1, -1)
        own[self.ids] = np.arange(len(self.ids))
        rows = texts.words.having(np.where(texts.slots, own[words], -1))
        if isinstance(setting, Mechanism):
            drawn = shared.releases(rows, [setting], self.space(setting), seed=seed)[0][0].words
        else:
            drawn = np.random.default_rng(seed).integers(len(self.ids), size=len(words))
        return texts.words.having(np.where(rows.known, self.ids[drawn], np.where(texts.slots, -1, words)))


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/feyisetan-2019.md."""


def with_world(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command a :class:`World` by its options."""

    @click.option("--ball", type=FOLDER, required=True)
    @click.option("--flat", type=FOLDER, required=True, help="Euclidean")
    @wraps(command)
    def run(ball: Path, flat: Path, **options: Any) -> None:
        with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
            command(World.of(Embedding.open(ball), Embedding.open(flat), Path(name)), **options)

    return run


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the settings to try: originals, random words, the paper's noise, and other noise."""

    @click.option("--hyperbolic", type=float, multiple=True, help="epsilons; repeatable")
    @wraps(command)
    def run(*args: Any, hyperbolic: Sequence[float], **options: Any) -> None:
        chosen: dict[str, Setting] = {ORIGINAL: ORIGINAL, RANDOM: RANDOM}
        grid = {"hyperbolic-icdm": EPSILONS, "hyperbolic": hyperbolic, "laplace": (12.0, 16.0)}
        for name, epsilons in grid.items():
            chosen |= {f"{name}, ε = {e:g}": mechanism(name, epsilon=e) for e in epsilons}
        command(*args, chosen=chosen, **options)

    return run


# Table IV


def n_w(name: str, epsilons: Sequence[float], embedding: Embedding, words: Words) -> tuple[Floats, Floats]:
    """Measure the largest and the average N_w of words, of RUNS, each float64 (epsilons,)."""
    mechanisms = [mechanism(name, epsilon=epsilon) for epsilon in epsilons]
    stays = RUNS * shared.staying(mechanisms, embedding, words, runs=RUNS)["n_w"]
    return stays.max(axis=1), stays.mean(axis=1)


def of_same_worst_case(worst: Sequence[float], embedding: Embedding, words: Words) -> list[list[str]]:
    """Write epsilon and average N_w of Laplace noise that has these largest ones, between those measured."""
    largest, mean = n_w("laplace", LAPLACE, embedding, words)
    rising, logs, rows = np.maximum.accumulate(largest), np.log(LAPLACE), []
    for each in worst:
        if each > RUNS - 0.5:
            rows.append(["any large", "-"])  # a word stays in all runs
        elif not rising[0] <= each <= rising[-1]:
            rows.append(["none", "-"])
        else:
            log = float(np.interp(each, rising, logs))
            rows.append([f"{math.exp(log):.3g}", f"{np.interp(log, logs, mean):.4g}"])
    return rows


@main.command()
@with_world
def table4(world: World) -> None:
    """Print N_w of mechanisms in the ball and of Laplace noise with the same worst case."""
    curved, size = world.ball, len(world.ids)
    rows, lines = shared.evenly(300, size), []
    nearest = np.median(np.sort(curved.space.metric().to_all(rows), axis=1)[:, 1])
    click.echo(f"{len(rows)} of {size:,} words; median distance to the nearest in the ball {nearest:.3g}.\n")
    for name in IN_THE_BALL:
        least = curved.dimension - 1.0 if name == "hyperbolic" else 0.0
        epsilons = [least + epsilon for epsilon in EPSILONS]
        own = n_w(name, epsilons, curved, rows)
        others = of_same_worst_case(own[0].tolist(), world.flat, rows)
        for epsilon, worst, mean, other in zip(epsilons, *own, others, strict=True):
            proven = mechanism(name, epsilon=epsilon).guarantee(curved).epsilon
            lines.append([name, f"{epsilon:g}", f"{proven:g}", f"{worst:.4g}", f"{mean:.4g}", *other])
    columns = ("mechanism", "ε", "proven ε", "worst case", "average", "Laplace ε", "average")
    click.echo(shared.markdown(columns, lines))


# The paper's own construction

EDGE: Final = 1e-5  # section V-D has 10e-5 "as in" Nickel and Kiela 2017, who have 1e-5
PAIRS: Final = 3
DRAWS: Final = 10_000
FALSE_ALARM: Final = 0.01
"""How often any bound of the table of losses fails."""


@dataclass(frozen=True, kw_only=True)
class Clipped:
    """Noise added to a word's coordinates in the ball, scaled back to the edge where it leaves the ball.

    An experiment alone: nothing is proven of it.
    """

    ball: Embedding
    epsilon: float

    def outputs(self, words: Words, runs: int, seed: int) -> NDArray[np.int64]:
        """Draw outputs of words (k,): int64 (k, runs)."""
        rng, n = np.random.default_rng(seed), self.ball.dimension
        nearest = ExactSearch.over(self.ball).of_words(self.ball)
        radii = LebesgueRadii.of(dimension=n, epsilon=self.epsilon)
        found = np.empty((len(words), runs), dtype=np.int64)
        for row, word in enumerate(words):
            points = uniform_directions(rng.random((runs, n)))
            points *= np.tanh(radii(rng.random(runs)) / 2.0)[:, None]
            points += self.ball.vectors[word]
            lengths = np.sqrt(np.square(points).sum(axis=1))
            outside = lengths >= 1.0
            points[outside] *= ((1.0 - EDGE) / lengths[outside])[:, None]
            squares = np.square(points).sum(axis=1)
            # ln q0 and Klein coordinates, as the search takes them.
            logs = np.log1p(squares) - np.log1p(-squares)
            found[row] = nearest(np.column_stack([logs, 2.0 * points / (1.0 + squares)[:, None]]))
        return found

    def largest_loss(
        self, words: Words, outputs: NDArray[np.int64], draws: int = DRAWS
    ) -> tuple[int, int, float, float]:
        """Bound losses between words from below by fresh draws, and give the one farthest beyond epsilon d.

        Tried are PAIRS words that stay, each with a near word that seldom becomes it.

        Returns:
            The word that comes out, the other, what ln P[word | word] / P[word | other] is at least, and
            epsilon d, in nats.
        """
        became = np.array([[np.count_nonzero(row == word) for word in words] for row in outputs])
        metric, logs = self.ball.space.metric(), np.log(became + 0.5)
        beyond = np.diagonal(logs)[None] - logs - self.epsilon * metric.to_all(words)[:, words]
        np.fill_diagonal(beyond, -np.inf)
        tail = FALSE_ALARM / (2 * PAIRS * len(EPSILONS))
        found = []
        for place in np.argsort(-beyond.max(axis=0), kind="stable")[:PAIRS]:
            word, other = int(words[place]), int(words[beyond[:, place].argmax()])
            fresh = self.outputs(np.array([word, other]), draws, seed=1)
            own, foreign = np.count_nonzero(fresh == word, axis=1)
            low = stats.beta.ppf(tail, own, draws - own + 1) if own else 0.0
            high = stats.beta.ppf(1.0 - tail, foreign + 1, draws - foreign) if foreign < draws else 1.0
            claimed = self.epsilon * float(metric.between(np.array([word]), np.array([other]))[0])
            found.append((word, other, math.log(low / high) if low else -math.inf, claimed))
        return max(found, key=lambda loss: loss[2] - loss[3])


@main.command()
@with_world
def clipped(world: World) -> None:
    """Print N_w of the paper's own construction, which words come out, and what it gives away."""
    words = world.flat.words.to_pylist()
    rows, stays, losses = shared.evenly(500, len(words)), [], []
    for epsilon in EPSILONS:
        noise = Clipped(ball=world.ball, epsilon=epsilon)
        outputs = noise.outputs(rows, RUNS, seed=0)
        stays.append(np.count_nonzero(outputs == rows[:, None], axis=1))
        counts = np.bincount(outputs.ravel(), minlength=len(words))
        ten = np.argsort(-counts, kind="stable")[:10]
        word, other, nats, claimed = noise.largest_loss(rows, outputs)
        share, common = f"{counts[ten].sum() / counts.sum():.1%}", ", ".join(words[each] for each in ten[:5])
        losses.append(
            [epsilon, share, common, f"{words[word]}, {words[other]}", f"{claimed:.3g}", f"{nats:.3g}"]
        )
    worst, mean = np.max(stays, axis=1), np.mean(stays, axis=1)
    laplace = of_same_worst_case(worst.tolist(), world.flat, rows)
    columns = [
        "ε",
        "worst case",
        "average",
        "Laplace ε",
        "average",
        "paper: worst case",
        "ball",
        "GloVe 100-d",
    ]
    lines = [
        [paper[0], *own, *flat, *paper[1:]]
        for paper, flat, *own in zip(PAPER, laplace, worst, mean, strict=True)
    ]
    click.echo(shared.markdown(columns, lines))
    columns = ["ε", "share of ten words", "the most frequent", "word, other", "ε d, nats", "loss, at least"]
    click.echo(
        f"Losses are {1 - FALSE_ALARM:.0%} sure for all rows together:\n\n{shared.markdown(columns, losses)}"
    )


# Words in slots

ROWS: Final = 1000
"""Examples of each task, of each repetition."""
QUERIES: Final = 4000
"""To learn from, about."""
TESTED: Final = 0.25
PENALTY: Final = 0.01  # of standardized features
FREQUENT: Final = 10
"""Pairs of words that are seen this often are in no slot."""
FILES: Final = {"CR": "label", "MPQA": "label", "TREC": "coarse"}
"""Tasks of SentEval, and their columns of labels."""
EXAMPLES: Final = (("ohio", "state"), ("techno", "music"))
"""Words of slots, and what the paper would have them become."""
STAY: Final = "words that stay"


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Labelled texts.

    Attributes:
        words: Words of the large vocabulary.
        slots: bool (tokens,), which words are in a slot.
        labels: (texts,).
        tested: bool (texts,), which are for tests; where none is, each sample draws them.
    """

    words: WordRows
    slots: NDArray[np.bool_]
    labels: NDArray[Any]
    tested: NDArray[np.bool_]

    def sample(self, count: int, rng: np.random.Generator) -> Texts:
        """Draw texts, a quarter of them for tests."""
        every = rng.permutation(len(self.labels))
        tests = int(TESTED * min(count, len(every)))
        apart = self.tested[every] if self.tested.any() else np.arange(len(every)) < tests
        own = every[apart][:tests]
        chosen = np.concatenate([own, every[~apart][: count - tests]])
        slots = self.words.having(self.slots.astype(np.int64)).take(chosen).words > 0
        tested = np.arange(len(chosen)) < len(own)
        return Texts(words=self.words.take(chosen), slots=slots, labels=self.labels[chosen], tested=tested)


@main.command()
@with_world
@with_settings
@click.option("--data", type=FOLDER, required=True, help="folder of SentEval's tasks, a Parquet file each")
def tasks(world: World, chosen: Mapping[str, Setting], data: Path) -> None:
    """Print scores of tasks whose words in slots are perturbed, for learning and for tests."""
    every = {}
    for name, label in FILES.items():
        table = pq.read_table(data / f"{name.lower()}.parquet").to_pydict()
        words = WordRows.of(table["text"], world.large)
        tested = np.array(table.get("split", [""] * words.count)) == "test"
        slots, labels = in_slots(words, world, FREQUENT), np.array(table[label])
        every[name] = Texts(words=words, slots=slots, labels=labels, tested=tested)
    found = tried(every, world, chosen, rows=ROWS, seeds=range(5))
    lines = []
    for label, means in found.items():
        above = {name: f" ({means[name] - found[ORIGINAL][name]:+.1f})" for name in every}
        cells = (f"{means[name].mean:.1f}{above[name] if label != ORIGINAL else ''}" for name in every)
        lines.append([label, f"{means[STAY].mean:.1%}", *cells])
    click.echo(shared.markdown(("", STAY, *every), lines))


def in_slots(texts: WordRows, world: World, frequent: int) -> NDArray[np.bool_]:
    """Say which tokens are common words that stand in no pair as frequent as this."""
    inner = texts.rows[1:] == texts.rows[:-1]
    keys = texts.words[:-1] * (len(world.large.words) + 1) + texts.words[1:]
    _, places, counts = np.unique(keys[inner], return_inverse=True, return_counts=True)
    pairs = np.zeros(len(keys), dtype=np.int64)
    pairs[inner] = counts[places]
    both = np.maximum(np.append(pairs, 0), np.append(0, pairs))
    return np.isin(texts.words, world.ids) & (both < frequent)


def tried(
    every: Mapping[str, Texts],
    world: World,
    chosen: Mapping[str, Setting],
    *,
    rows: int,
    seeds: Sequence[int],
) -> dict[str, dict[str, Mean]]:
    """Try each setting on the same samples: share of words that stay, and percent correct by task."""
    samples = {
        seed: {name: texts.sample(rows, np.random.default_rng(seed)) for name, texts in every.items()}
        for seed in seeds
    }

    def measure(setting: Setting, seed: int) -> dict[str, float]:
        scores, stay = {}, []
        for number, (name, texts) in enumerate(samples[seed].items()):
            words = world.perturbed(texts, setting, 1000 * seed + number)
            model = make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=300))
            means = shared.mean_vectors(words, world.large)
            scores[name] = 100.0 * shared.scored(model, means, texts.labels, texts.tested)
            stay.append((words.words == texts.words.words)[texts.slots])
        return {STAY: float(np.concatenate(stay).mean()), **scores}

    return {label: shared.repeated(partial(measure, setting), seeds) for label, setting in chosen.items()}


# Slots of voice queries


@main.command()
@with_world
@with_settings
@click.option("--data", type=FILE, required=True, help="Parquet with text, intent, split and slots_json")
def slots(world: World, chosen: Mapping[str, Setting], data: Path) -> None:
    """Print how many intents and slots of queries are recognized after noise, and what examples become."""
    every = pq.read_table(data).to_pylist()
    rest = [query for query in every if query["split"] != "validate"]
    queries = rest[:: max(1, len(rest) // QUERIES)] + [
        query for query in every if query["split"] == "validate"
    ]
    placed = [(query, positions(query["text"], json.loads(query["slots_json"]))) for query in queries]
    whole = [(query, spans) for query, spans in placed if spans is not None]
    click.echo(
        f"{len(whole):,} of {len(queries):,} queries have their slots as whole words in their order.\n"
    )
    texts = of_queries(
        world,
        [query["text"] for query, _ in whole],
        [spans for _, spans in whole],
        labels=np.array([query["intent"] for query, _ in whole]),
        tested=np.array([query["split"] == "validate" for query, _ in whole]),
    )
    found = attacked(texts, world, chosen, seeds=range(3), runs=100)
    lines = [(label, *(f"{mean:.1%}" for mean in means.values())) for label, means in found.items()]
    click.echo(shared.markdown(("", *found[ORIGINAL]), lines))
    click.echo(examples(world, chosen))


def positions(text: str, slots: list[dict[str, str]]) -> list[tuple[int, int]] | None:
    """Where slots stand as whole words in their order; None if some do not."""
    pattern = ".*?".join(rf"(?<!\w)({re.escape(slot['text'].strip())})(?!\w)" for slot in slots)
    match = re.search(pattern, text, re.DOTALL)
    return [match.span(number) for number in range(1, len(slots) + 1)] if match else None


def of_queries(
    world: World,
    texts: Sequence[str],
    spans: Sequence[Sequence[tuple[int, int]]],
    *,
    labels: NDArray[Any],
    tested: NDArray[np.bool_],
) -> Texts:
    """Cut queries into words, of which those in the spans are in slots."""
    parts: list[tuple[int, bool, str]] = []
    for number, (text, own) in enumerate(zip(texts, spans, strict=True)):
        ends = [0, *(place for span in own for place in span), len(text)]
        parts += [(number, i % 2 == 1, text[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]
    words = WordRows.of([part for _, _, part in parts], world.large)
    rows, marked = (np.array([part[i] for part in parts])[words.rows] for i in range(2))
    whole = WordRows(words=words.words, rows=rows, count=len(texts))
    return Texts(words=whole, slots=marked, labels=labels, tested=tested)


def attacked(
    texts: Texts, world: World, chosen: Mapping[str, Setting], *, seeds: Sequence[int], runs: int
) -> dict[str, dict[str, Mean]]:
    """Classify and attack queries in each setting; models learn from sanitized queries."""
    common = texts.slots & np.isin(texts.words.words, world.ids) & texts.tested[texts.words.rows]

    def measure(setting: Setting, emissions: Emissions | None, seed: int) -> dict[str, float]:
        words = world.perturbed(texts, setting, seed)
        model, bags = (
            LogisticRegression(C=10.0, max_iter=300),
            shared.bag_of_words(words, world.large)[:, :-1].sign(),
        )
        return {
            "slot words that stay": float((words.words == texts.words.words)[common].mean()),
            "recovered": recovered(texts, words, world, emissions) if emissions else 1.0,
            "intents right": shared.scored(model, bags, texts.labels, texts.tested),
        }

    found = {ORIGINAL: shared.repeated(partial(measure, ORIGINAL, None), [0])}
    for label, setting in chosen.items():
        if setting != ORIGINAL:
            emissions = emissions_of(setting, world, texts, runs)
            found[label] = shared.repeated(partial(measure, setting, emissions), seeds)
    return found


def emissions_of(setting: Setting, world: World, texts: Texts, runs: int) -> Emissions:
    """Learn how likely the words of slots become others, with the large vocabulary's ids."""
    size, ids = len(world.large.words), world.ids
    words = np.intersect1d(texts.words.words[texts.slots], ids)
    elsewhere, error = np.zeros((2, size))
    if not isinstance(setting, Mechanism):
        elsewhere[words] = 1.0 / len(ids)
        return replace(Emissions.uniform(size, len(ids)), elsewhere=elsewhere)
    space = world.space(setting)
    draw = estimator([setting], space, search=ExactSearch.over(space), runs=runs, seed=1)
    found = Emissions.measured(draw, np.searchsorted(ids, words), vocabulary=len(ids))
    outputs, inputs = np.divmod(found.keys, len(ids))
    elsewhere[ids], error[ids] = found.elsewhere, found.error
    keys = ids[outputs] * size + ids[inputs]  # ascending, for ids are
    return replace(found, keys=keys, elsewhere=elsewhere, error=error)


def recovered(texts: Texts, words: WordRows, world: World, emissions: Emissions) -> float:
    """Give the share of slot words in tested queries that an attacker who uses context names first.

    The attacker knows the mechanism, the other words of the query, and the other queries as they were.
    """
    test = np.flatnonzero(texts.tested)
    known, own = texts.words.take(np.flatnonzero(~texts.tested)), texts.words.take(test)
    corpus = PairCounts.of_rows(known.words, known.offsets, vocabulary=len(world.large.words))
    slots = texts.words.having(texts.slots.astype(np.int64)).take(test).words > 0
    hidden = np.isin(own.words, world.ids)
    rows = SimulatedRows(
        offsets=own.offsets,
        inputs=np.where(slots & ~hidden, -1, own.words),  # what is dropped is unknown to the attacker too
        outputs=np.maximum(words.take(test).words, 0)[None],
        perturbed=slots & hidden,
    )
    return float(attack(rows, Knowledge.learn(corpus, emissions))["in-context/1"].ratio[0])


def examples(world: World, chosen: Mapping[str, Setting]) -> str:
    """Count in RUNS runs how often slot words become the paper's words, and how many words are nearer."""
    words, rows = world.flat.words.to_pylist(), []
    for word, new in EXAMPLES:
        if {word, new} <= {*words}:
            distances = world.ball.space.metric().to_all(np.array([words.index(word)]))[0]
            nearer = int((distances < distances[words.index(new)]).sum())
            runs = WordRows(words=np.full(RUNS, words.index(word)), rows=np.arange(RUNS), count=RUNS)
            for label, setting in chosen.items():
                if isinstance(setting, Mechanism):
                    outputs = shared.releases(runs, [setting], world.space(setting))[0][0].words
                    rows.append((word, new, nearer, label, np.count_nonzero(outputs == words.index(new))))
    return shared.markdown(("word", "the paper's", "words nearer in the ball", "", f"of {RUNS:,} runs"), rows)


# The paper's sampler

# Dimension, epsilon, and sigma where Sigma = sigma² I; the paper gives none.
SAMPLED: Final = ((2, 4.0, 0.2), (2, 4.0, 0.5), (5, 8.0, 0.2), (5, 8.0, 0.3))
MEASURES: Final = {
    "ball": "equation 7 by Lebesgue measure of the ball (the target)",
    "volume": "equation 7 by hyperbolic volume",
    "hyperboloid": "equation 7 by Lebesgue measure of the hyperboloid's space",
}


@main.command()
@click.option("--chains", default=4000, show_default=True, help="independent results, one from each chain")
@click.option("--steps", default=600, show_default=True, help="of a chain; the last one is its result")
def sampler(chains: int, steps: int) -> None:
    """Test by Kolmogorov-Smirnov which distribution of |x| the paper's Algorithm 2 samples.

    It proposes x' ~ N(x_t, Sigma), lifts x' to the hyperboloid, projects it into the ball and accepts it with
    probability f(x') / f(x_t), f the density of equation 7. The proposal is symmetric in one chart and the
    density belongs to another, with no Hastings correction. It has two readings: N is centred at the ball
    coordinates of x_t, as printed in section V-C, or at the Lorentz coordinates ("x_0 = [1, 0, ..., 0]").
    """
    rows = []
    for (n, epsilon, sigma), reading in product(SAMPLED, ("ball", "hyperboloid")):
        lengths = chain(n, epsilon, sigma, reading, chains, steps)
        for measure, said in MEASURES.items():
            test = stats.kstest(by_measure(n, epsilon, measure)(lengths), "uniform")
            rows.append((n, epsilon, sigma, reading, said, f"{test.statistic:.3f}", f"{test.pvalue:.2g}"))
    click.echo(shared.markdown(("n", "ε", "σ", "reading", "distribution", "distance", "p"), rows))


def chain(n: int, epsilon: float, sigma: float, reading: str, chains: int, steps: int) -> Floats:
    """Run Algorithm 2 many times; give |x| of every chain's last step, so that all are independent."""
    rng, x = np.random.default_rng(1), np.zeros((chains, n))

    def log_density(points: Floats) -> Floats:
        """-epsilon times the hyperbolic distance from the origin."""
        return -2 * epsilon * np.arctanh(np.sqrt(np.square(points).sum(axis=1)))

    for _ in range(steps):
        centre = x if reading == "ball" else 2 * x / (1 - np.square(x).sum(axis=1, keepdims=True))
        lifted = centre + sigma * rng.standard_normal(x.shape)
        proposed = lifted / (1 + np.sqrt(1 + np.square(lifted).sum(axis=1, keepdims=True)))
        accepted = rng.random(chains) <= np.exp(log_density(proposed) - log_density(x))
        x = np.where(accepted[:, None], proposed, x)
    return np.sqrt(np.square(x).sum(axis=1))


def by_measure(n: int, epsilon: float, measure: str) -> Callable[[Floats], Floats]:
    """Distribution function of |x| where equation 7 is the density by a measure."""
    r = np.linspace(1e-6, 80, 400_001)
    log_sinh, log_cosh_half = r + np.log(-np.expm1(-2 * r) / 2), r / 2 + np.log1p(np.exp(-r)) - np.log(2)
    logs = {
        "ball": (n - 1) * np.log(np.tanh(r / 2)) - 2 * log_cosh_half,
        "volume": (n - 1) * log_sinh,
        "hyperboloid": (n - 1) * log_sinh + np.logaddexp(r, -r),
    }[measure] - epsilon * r
    below = integrate.cumulative_simpson(np.exp(logs - logs.max()), x=r, initial=0)
    return lambda rho: np.interp(2 * np.arctanh(rho), r, below / below[-1])


if __name__ == "__main__":
    main()
