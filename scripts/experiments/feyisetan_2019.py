"""Hyperbolic noise after Feyisetan et al. 2019: how often words stay, and what is kept.

Every comparison is over the words that the ball and the Euclidean embedding have in common.
``table4`` gives Laplace noise the epsilon at which its largest N_w of any word is that of an
epsilon in the ball, and compares averages. ``clipped`` does the same with the paper's own
construction: noise of density ((1 - |z|) / (1 + |z|))^epsilon (equation 7) is *added* to the word's
coordinates, and what leaves the ball is scaled back to its edge (section V-D). ``tasks`` perturbs
words in slots of SentEval's texts (Table VI), ``slots`` those of voice queries (section II-A).
``hypernyms`` compares the hierarchy that is kept at equal success of a guesser, ``outputs`` shows
what words become.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dptext_spark.channel.local import channel_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.geometry.ball import LebesgueRadii
from dptext_spark.geometry.sphere import uniform_directions
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.poincare import Relations
from dptext_spark.search.exact import ExactSearch
from scripts.experiments import shared
from scripts.experiments.shared import FILE, FOLDER, Floats, WordRows, Words

RUNS: Final = 1000
IN_THE_BALL: Final = ("hyperbolic", "hyperbolic-icdm", "hyperbolic-lebesgue", "exponential")
# Of 1,000 runs: epsilon, worst-case N_w, and the average N_w of the ball and of GloVe in 100
# dimensions.
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
    """A Euclidean embedding, and its words that a ball has too, in both geometries."""

    large: Embedding  # the Euclidean one, whose vectors are the features
    flat: Embedding  # the common words, in its order
    ball: Embedding  # the same
    ids: Words  # of the common words in the large vocabulary, ascending

    @classmethod
    def of(cls, ball: Embedding, large: Embedding, folder: Path) -> World:
        flat, curved = shared.in_common(folder, large, ball)
        ids = np.flatnonzero(np.isin(large.words.to_pylist(), flat.words.to_pylist()))
        return cls(large=large, flat=flat, ball=curved, ids=ids)

    def released(self, rows: WordRows, configured: Mechanism, seed: int = 0) -> Words:
        """Perturb words by a mechanism in the embedding that it works in."""
        space = self.flat if configured.name == "laplace" else self.ball
        return shared.releases(rows, [configured], space, seed=seed)[0][0].words

    def perturbed(self, texts: Texts, setting: Setting, seed: int) -> WordRows:
        """Perturb the common words in slots, and drop the other words in slots."""
        if setting == ORIGINAL:
            return texts.words
        words = texts.words.words
        own = np.full(len(self.large.words) + 1, -1)
        own[self.ids] = np.arange(len(self.ids))
        rows = texts.words.having(np.where(texts.slots, own[words], -1))
        if isinstance(setting, Mechanism):
            drawn = self.released(rows, setting, seed)
        else:
            drawn = np.random.default_rng(seed).integers(len(self.ids), size=len(words))
        return texts.words.having(
            np.where(rows.known, self.ids[drawn], np.where(texts.slots, -1, words))
        )


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


MORE: Final = click.option("--hyperbolic", type=float, multiple=True, help="epsilons; repeatable")


def settings(hyperbolic: Sequence[float]) -> dict[str, Setting]:
    """Give the settings to try: originals, random words, the paper's noise, and other noise."""
    chosen: dict[str, Setting] = {ORIGINAL: ORIGINAL, RANDOM: RANDOM}
    for name, epsilons in {
        "hyperbolic-icdm": (EPSILONS[0], EPSILONS[-1]),
        "hyperbolic-lebesgue": (2.0, 4.0, 8.0),
        "hyperbolic": hyperbolic,
        "laplace": (12.0,),
    }.items():
        chosen |= {f"{name}, ε = {e:g}": mechanism(name, epsilon=e) for e in epsilons}
    return chosen


# Table IV


def n_w(
    name: str, epsilons: Sequence[float], embedding: Embedding, words: Words
) -> tuple[Floats, Floats]:
    """Measure the largest and the average N_w of words, of RUNS, each float64 (epsilons,)."""
    mechanisms = [mechanism(name, epsilon=epsilon) for epsilon in epsilons]
    stays = RUNS * shared.staying(mechanisms, embedding, words, runs=RUNS)["n_w"]
    return stays.max(axis=1), stays.mean(axis=1)


def of_same_worst_case(
    worst: Sequence[float], embedding: Embedding, words: Words
) -> list[list[str]]:
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
    click.echo(
        f"{len(rows)} of {size:,} words; median distance to the nearest in the ball {nearest:.3g}.\n"
    )
    for name in IN_THE_BALL:
        least = curved.dimension - 1.0 if name == "hyperbolic" else 0.0
        epsilons = [least + epsilon for epsilon in EPSILONS]
        own = n_w(name, epsilons, curved, rows)
        others = of_same_worst_case(own[0].tolist(), world.flat, rows)
        for epsilon, worst, mean, other in zip(epsilons, *own, others, strict=True):
            proven = mechanism(name, epsilon=epsilon).guarantee(curved).epsilon
            lines.append(
                [name, f"{epsilon:g}", f"{proven:g}", f"{worst:.4g}", f"{mean:.4g}", *other]
            )
    columns = ("mechanism", "ε", "proven ε", "worst case", "average", "Laplace ε", "average")
    click.echo(shared.markdown(columns, lines))


# The paper's own construction

EDGE: Final = 1e-5  # section V-D has 10e-5 "as in" Nickel and Kiela 2017, who have 1e-5


def clipped_outputs(ball: Embedding, epsilon: float, words: Words) -> NDArray[np.int64]:
    """Draw outputs of words (k,), int64 (k, RUNS): noise is added in the ball, what leaves it scaled back.

    An experiment alone: nothing is proven of it.
    """
    rng, n = np.random.default_rng(0), ball.dimension
    nearest = ExactSearch.over(ball).of_words(ball)
    radii = LebesgueRadii.of(dimension=n, epsilon=epsilon)
    found = np.empty((len(words), RUNS), dtype=np.int64)
    for row, word in enumerate(words):
        points = uniform_directions(rng.random((RUNS, n)))
        points *= np.tanh(radii(rng.random(RUNS)) / 2.0)[:, None]
        points += ball.vectors[word]
        lengths = np.sqrt(np.square(points).sum(axis=1))
        outside = lengths >= 1.0
        points[outside] *= ((1.0 - EDGE) / lengths[outside])[:, None]
        squares = np.square(points).sum(axis=1)
        # ln q0 and Klein coordinates, as the search takes them.
        logs = np.log1p(squares) - np.log1p(-squares)
        found[row] = nearest(np.column_stack([logs, 2.0 * points / (1.0 + squares)[:, None]]))
    return found


@main.command()
@with_world
def clipped(world: World) -> None:
    """Print N_w of the paper's own construction, and which words come out."""
    words = world.flat.words.to_pylist()
    rows, stays, often = shared.evenly(500, len(words)), [], []
    for epsilon in EPSILONS:
        outputs = clipped_outputs(world.ball, epsilon, rows)
        stays.append(np.count_nonzero(outputs == rows[:, None], axis=1))
        counts = np.bincount(outputs.ravel(), minlength=len(words))
        ten = np.argsort(-counts, kind="stable")[:10]
        often.append(
            (f"{counts[ten].sum() / counts.sum():.1%}", ", ".join(words[each] for each in ten[:5]))
        )
    worst, mean = np.max(stays, axis=1), np.mean(stays, axis=1)
    laplace = of_same_worst_case(worst.tolist(), world.flat, rows)
    columns = (
        "ε",
        "worst case",
        "average",
        "Laplace ε",
        "average",
        "paper: worst",
        "ball",
        "GloVe 100-d",
    )
    lines = [
        (paper[0], *own, *flat, *paper[1:], *most)
        for paper, flat, most, *own in zip(PAPER, laplace, often, worst, mean, strict=True)
    ]
    click.echo(shared.markdown((*columns, "share of ten words", "the most frequent"), lines))


# Words in slots

ROWS: Final = 1000  # examples of each task, of each repetition
QUERIES: Final = 4000  # to learn from, about
TESTED: Final = 0.25
FREQUENT: Final = 10  # pairs of words that are seen this often are in no slot
FILES: Final = {"CR": "label", "MPQA": "label", "TREC": "coarse"}
"""Tasks of SentEval, and their columns of labels."""
EXAMPLES: Final = (("ohio", "state"), ("techno", "music"))
"""Words of slots, and what the paper would have them become."""
STAY: Final = "words that stay"


@dataclass(frozen=True, kw_only=True)
class Texts:
    words: WordRows  # of the large vocabulary
    slots: NDArray[np.bool_]  # (tokens,), which are in a slot
    labels: NDArray[Any]
    tested: NDArray[
        np.bool_
    ]  # (texts,), which are for tests; where none is, each sample draws them

    def sample(self, count: int, rng: np.random.Generator) -> Texts:
        """Draw texts, a quarter of them for tests."""
        every = rng.permutation(len(self.labels))
        tests = int(TESTED * min(count, len(every)))
        apart = self.tested[every] if self.tested.any() else np.arange(len(every)) < tests
        own = every[apart][:tests]
        chosen = np.concatenate([own, every[~apart][: count - tests]])
        slots = self.words.having(self.slots.astype(np.int64)).take(chosen).words > 0
        tested = np.arange(len(chosen)) < len(own)
        return Texts(
            words=self.words.take(chosen), slots=slots, labels=self.labels[chosen], tested=tested
        )


@main.command()
@with_world
@MORE
@click.option(
    "--data", type=FOLDER, required=True, help="folder of SentEval's tasks, a Parquet file each"
)
def tasks(world: World, hyperbolic: Sequence[float], data: Path) -> None:
    """Print scores of tasks whose words in slots are perturbed, for learning and for tests."""
    every = {}
    for name, label in FILES.items():
        table = pq.read_table(data / f"{name.lower()}.parquet").to_pydict()
        words = WordRows.of(table["text"], world.large)
        tested = np.array(table.get("split", [""] * words.count)) == "test"
        slots, labels = in_slots(words, world, FREQUENT), np.array(table[label])
        every[name] = Texts(words=words, slots=slots, labels=labels, tested=tested)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
    learner = model, shared.mean_vectors
    click.echo(tried(every, world, settings(hyperbolic), learner, rows=ROWS, repetitions=5))


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
    learner: tuple[Any, Callable[[WordRows, Embedding], Any]],
    *,
    rows: int,
    repetitions: int,
) -> str:
    """Try each setting on the same samples: share of words in slots that stay, and percent correct by task.

    The learner is a model of scikit-learn and what makes features of texts. Differences are to the
    originals.
    """
    model, features = learner

    def measure(setting: Setting, seed: int) -> dict[str, float]:
        scores, stay = {}, []
        for number, (name, texts) in enumerate(every.items()):
            own = texts.sample(rows, np.random.default_rng(seed))
            words = world.perturbed(own, setting, 1000 * seed + number)
            scores[name] = 100.0 * shared.scored(
                model, features(words, world.large), own.labels, own.tested
            )
            stay.append(
                (words.words == own.words.words)[own.slots & np.isin(own.words.words, world.ids)]
            )
        return {STAY: float(np.concatenate(stay).mean()), **scores}

    seeds, lines = range(repetitions), []
    found = {name: shared.repeated(partial(measure, each), seeds) for name, each in chosen.items()}
    for label, means in found.items():
        above = {name: f" ({means[name] - found[ORIGINAL][name]:+.1f})" for name in every}
        cells = (
            f"{means[name].mean:.1f}{above[name] if label != ORIGINAL else ''}" for name in every
        )
        lines.append([label, f"{means[STAY].mean:.1%}", *cells])
    return shared.markdown(("", STAY, *every), lines)


# Slots of voice queries


@main.command()
@with_world
@MORE
@click.option(
    "--data", type=FILE, required=True, help="Parquet with text, intent, split and slots_json"
)
def slots(world: World, hyperbolic: Sequence[float], data: Path) -> None:
    """Print how many intents of queries are recognized after noise in slots, and what examples become."""
    parted: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for query in pq.read_table(data).to_pylist():
        parted[query["split"] == "validate"].append(query)
    queries = parted[False][:: max(1, len(parted[False]) // QUERIES)] + parted[True]
    for query in queries:
        query["spans"] = positions(query["text"], json.loads(query["slots_json"]))
    whole = [query for query in queries if query["spans"] is not None]
    click.echo(
        f"{len(whole):,} of {len(queries):,} queries have their slots as whole words in order.\n"
    )
    every = {
        "intents": of_queries(world, whole, np.array([q["split"] == "validate" for q in whole]))
    }
    learner = LogisticRegression(C=10.0, max_iter=300), known_words
    click.echo(tried(every, world, settings(hyperbolic), learner, rows=len(whole), repetitions=3))
    click.echo(examples(world, settings(hyperbolic)))


def known_words(texts: WordRows, embedding: Embedding) -> Any:
    return shared.bag_of_words(texts, embedding)[:, :-1].sign()


def positions(text: str, slots: list[dict[str, str]]) -> list[tuple[int, int]] | None:
    """Where slots stand as whole words in their order; None if some do not."""
    pattern = ".*?".join(rf"(?<!\w)({re.escape(slot['text'].strip())})(?!\w)" for slot in slots)
    match = re.search(pattern, text, re.DOTALL)
    return [match.span(number) for number in range(1, len(slots) + 1)] if match else None


def of_queries(
    world: World, queries: Sequence[Mapping[str, Any]], tested: NDArray[np.bool_]
) -> Texts:
    """Cut queries (``text``, ``intent``, ``spans``) into words, of which those in the spans are in slots."""
    parts: list[tuple[int, bool, str]] = []
    for number, query in enumerate(queries):
        text, ends = query["text"], [0, *(place for span in query["spans"] for place in span)]
        both = zip(ends, [*ends[1:], len(text)], strict=True)
        parts += [(number, i % 2 == 1, text[start:end]) for i, (start, end) in enumerate(both)]
    words = WordRows.of([part for _, _, part in parts], world.large)
    rows, marked = (np.array([part[i] for part in parts])[words.rows] for i in range(2))
    whole, labels = (
        replace(words, rows=rows, count=len(queries)),
        np.array([q["intent"] for q in queries]),
    )
    return Texts(words=whole, slots=marked, labels=labels, tested=tested)


def examples(world: World, chosen: Mapping[str, Setting]) -> str:
    """Count in RUNS runs how often slot words become the paper's words, and how many words are nearer."""
    words, rows = world.flat.words.to_pylist(), []
    for word, new in EXAMPLES:
        if {word, new} <= {*words}:
            distances = world.ball.space.metric().to_all(np.array([words.index(word)]))[0]
            nearer = int((distances < distances[words.index(new)]).sum())
            runs = WordRows(
                words=np.full(RUNS, words.index(word)), rows=np.arange(RUNS), count=RUNS
            )
            for label, setting in chosen.items():
                if isinstance(setting, Mechanism):
                    became = np.count_nonzero(world.released(runs, setting) == words.index(new))
                    rows.append((word, new, nearer, label, became))
    return shared.markdown(
        ("word", "the paper's", "words nearer in the ball", "", f"of {RUNS:,} runs"), rows
    )


# The hierarchy

DRAWS: Final = 200  # of each word
ENDS: Final = (0.01, 200.0)  # epsilons between which a success is searched
STEPS: Final = 14


@dataclass(frozen=True, kw_only=True)
class Hierarchy:
    """Some words of a ball, each as likely as any other, and the hypernyms of all words."""

    ball: Embedding
    words: Words
    ancestors: sparse.csr_array  # (V, V), each word among its own

    @classmethod
    def of(cls, ball: Embedding, pairs: Path, count: int, *, closure: bool) -> Hierarchy:
        names = ball.words.to_pylist()
        table = csv.read_csv(pairs, parse_options=csv.ParseOptions(delimiter="\t"))
        hyponyms, hypernyms = (table.column(column).to_pylist() for column in range(2))
        relations = Relations.from_words(hyponyms, hypernyms)
        if closure:
            relations = relations.closure()
        rank = {name: row for row, name in enumerate(names)}
        rows = np.array([rank.get(word, -1) for word in relations.words])[relations.pairs]
        rows = rows[(rows >= 0).all(axis=1)]
        every = np.arange(len(names))
        rows = np.concatenate([rows, np.column_stack([every, every])])
        entries = np.ones(len(rows)), (rows[:, 0], rows[:, 1])
        ancestors = sparse.csr_array(entries, shape=(len(names), len(names)))
        return cls(ball=ball, words=shared.evenly(count, len(names)), ancestors=ancestors)

    def drawn(self, configured: Mechanism) -> tuple[Words, Words]:
        """Draw outputs of each word: the words, and what they become, (t,) each."""
        words = np.repeat(self.words, DRAWS)
        rows = WordRows(words=words, rows=np.arange(len(words)), count=len(words))
        return words, shared.releases(rows, [configured], self.ball)[0][0].words

    def success(self, configured: Mechanism) -> float:
        """Compute how often the best guess of a word by its output is right."""
        prior = np.zeros(len(self.ball.words))
        prior[self.words] = 1.0 / len(self.words)
        search = ExactSearch.over(self.ball)
        channel = channel_of(configured, self.ball, search, prior)
        words, outputs = self.drawn(configured)
        distinct, places = np.unique(outputs, return_inverse=True)
        guesses = self.words[channel.table(distinct, self.words).argmax(axis=1)]
        return float((guesses[places] == words).mean())

    def kept(self, configured: Mechanism) -> list[str]:
        """Measure words that stay, hypernyms, ancestors in common, and the two most frequent words."""
        words, outputs = self.drawn(configured)
        both = self.ancestors[words].multiply(self.ancestors[outputs]).sum(axis=1)
        counts = self.ancestors.sum(axis=1)
        shares = both / (counts[words] + counts[outputs] - both)
        stay = words == outputs
        above = (both == counts[outputs]) & ~stay
        often = np.sort(np.bincount(outputs))[-2:].sum() / len(outputs)
        return [
            f"{stay.mean():.3f}",
            f"{above.mean():.3f}",
            f"{shares.mean():.3f}",
            f"{often:.3f}",
        ]


@main.command()
@click.option("--ball", type=FOLDER, required=True)
@click.option("--pairs", type=FILE, required=True, help="TSV of the ball's is-a pairs")
@click.option("--transitive-closure", is_flag=True, help="add the pairs that follow from others")
@click.option("--words", type=int, default=2000, show_default=True, help="that are measured")
@click.option("--success", type=float, multiple=True, default=(0.25,), show_default=True)
def hypernyms(
    ball: Path, pairs: Path, transitive_closure: bool, words: int, success: Sequence[float]
) -> None:
    """Print how many outputs are hypernyms at equal success of a guesser who sees one output."""
    hierarchy = Hierarchy.of(Embedding.open(ball), pairs, words, closure=transitive_closure)
    lines = []
    with threadpool_limits(1):
        for wanted in success:
            for name in ("hyperbolic-lebesgue", "exponential"):
                configured, share = of_success(hierarchy, name, wanted)
                claim = configured.guarantee(hierarchy.ball)
                nats = claim.losses()[0]["pure"]
                numbers = (f"{configured.epsilon:.3g}", f"{claim.epsilon:.3g}", f"{nats:.3g}")
                lines.append([name, *numbers, f"{share:.3f}", *hierarchy.kept(configured)])
    columns = (
        "mechanism",
        "ε",
        "proven ε",
        "nats to the nearest word",
        "guessed",
        STAY,
        "hypernyms",
        "ancestors in common",
        "two most frequent words",
    )
    click.echo(shared.markdown(columns, lines))


def of_success(hierarchy: Hierarchy, name: str, success: float) -> tuple[Mechanism, float]:
    """Search the epsilon at which a guesser has this success, by halves of its logarithm."""
    low, high = np.log(ENDS)
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        configured = mechanism(name, epsilon=float(f"{math.exp(middle):.3g}"))
        share = hierarchy.success(configured)
        if abs(share - success) < 0.005:
            break
        if share < success:
            low = middle
        else:
            high = middle
    return configured, share


@main.command()
@click.option("--ball", type=FOLDER, required=True)
@click.option("--epsilon", type=float, multiple=True, required=True)
@click.argument("words", nargs=-1, required=True)
def outputs(ball: Path, epsilon: Sequence[float], words: Sequence[str]) -> None:
    """Print the most frequent outputs of words in 10 times RUNS runs of ``hyperbolic-lebesgue``."""
    embedding = Embedding.open(ball)
    names = embedding.words.to_pylist()
    lines = []
    with threadpool_limits(1):
        for word in words:
            for value in epsilon:
                configured = mechanism("hyperbolic-lebesgue", epsilon=value)
                count = 10 * RUNS
                rows = WordRows(
                    words=np.full(count, names.index(word)), rows=np.arange(count), count=count
                )
                drawn = shared.releases(rows, [configured], embedding)[0][0].words
                counts = np.bincount(drawn)
                most = np.argsort(-counts, kind="stable")[:5]
                cells = [f"{names[row]} {counts[row] / count:.2f}" for row in most]
                lines.append([word, f"{value:g}", ", ".join(cells)])
    click.echo(shared.markdown(("word", "ε", "becomes"), lines))


if __name__ == "__main__":
    main()
