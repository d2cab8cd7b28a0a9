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
EPSILONS: Final = next(zip(*PAPER, strict=True))
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
        """Restrict both to the words in common."""
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
        common_ids = np.full(len(self.large.words) + 1, -1)
        common_ids[self.ids] = np.arange(len(self.ids))
        rows = texts.words.having(np.where(texts.slots, common_ids[words], -1))
        if isinstance(setting, Mechanism):
            outputs = self.released(rows, setting, seed)
        else:
            outputs = np.random.default_rng(seed).integers(len(self.ids), size=len(words))
        rest = np.where(texts.slots, -1, words)
        return texts.words.having(np.where(rows.known, self.ids[outputs], rest))


@click.group()
def main() -> None:
    """Print the tables of docs/experiments/feyisetan-2019.md."""


def with_world(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that gets a :class:`World` by its options."""

    @click.option("--ball", type=FOLDER, required=True)
    @click.option("--flat", type=FOLDER, required=True, help="Euclidean")
    @wraps(command)
    def run(ball: Path, flat: Path, **options: Any) -> None:
        with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
            command(World.of(Embedding.open(ball), Embedding.open(flat), Path(name)), **options)

    return run


MORE: Final = click.option("--hyperbolic", type=float, multiple=True, help="epsilons; repeatable")


def settings(hyperbolic: Sequence[float]) -> dict[str, Setting]:
    """Return the settings to try: originals, random words, the paper's noise, and other noise."""
    by_label: dict[str, Setting] = {ORIGINAL: ORIGINAL, RANDOM: RANDOM}
    grids = {
        "hyperbolic-icdm": (EPSILONS[0], EPSILONS[-1]),
        "hyperbolic-lebesgue": (2.0, 4.0, 8.0),
        "hyperbolic": hyperbolic,
        "laplace": (12.0,),
    }
    for name, epsilons in grids.items():
        for epsilon in epsilons:
            by_label[f"{name}, ε = {epsilon:g}"] = mechanism(name, epsilon=epsilon)
    return by_label


# Table IV


def n_w(
    name: str, epsilons: Sequence[float], embedding: Embedding, words: Words
) -> tuple[Floats, Floats]:
    """Measure the largest and the average N_w of words, of RUNS, each float64 (epsilons,)."""
    mechanisms = shared.by_epsilon(name, epsilons)
    stays = RUNS * shared.staying(mechanisms, embedding, words, runs=RUNS)["n_w"]
    return stays.max(axis=1), stays.mean(axis=1)


def of_same_worst_case(
    worst: Sequence[float], embedding: Embedding, words: Words
) -> list[list[str]]:
    """Write epsilon and average N_w of Laplace noise that has these largest ones.

    They are interpolated between those measured.
    """
    largest, mean = n_w("laplace", LAPLACE, embedding, words)
    rising = np.maximum.accumulate(largest)
    logs = np.log(LAPLACE)
    rows = []
    for value in worst:
        if value > RUNS - 0.5:
            rows.append(["any large", "-"])  # a word stays in all runs
        elif not rising[0] <= value <= rising[-1]:
            rows.append(["none", "-"])
        else:
            log = float(np.interp(value, rising, logs))
            rows.append([f"{math.exp(log):.3g}", f"{np.interp(log, logs, mean):.4g}"])
    return rows


@main.command()
@with_world
def table4(world: World) -> None:
    """Print N_w of mechanisms in the ball and of Laplace noise with the same worst case."""
    curved = world.ball
    size = len(world.ids)
    rows = shared.evenly(300, size)
    nearest = np.median(np.sort(curved.space.metric().to_all(rows), axis=1)[:, 1])
    click.echo(
        f"{len(rows)} of {size:,} words; "
        f"median distance to the nearest in the ball {nearest:.3g}.\n"
    )
    lines = []
    for name in IN_THE_BALL:
        least = curved.dimension - 1.0 if name == "hyperbolic" else 0.0
        epsilons = (least + np.array(EPSILONS)).tolist()
        largest, means = n_w(name, epsilons, curved, rows)
        of_laplace = of_same_worst_case(largest.tolist(), world.flat, rows)
        for epsilon, worst, mean, laplace in zip(epsilons, largest, means, of_laplace, strict=True):
            proven = mechanism(name, epsilon=epsilon).guarantee(curved).epsilon
            numbers = [f"{epsilon:g}", f"{proven:g}", f"{worst:.4g}", f"{mean:.4g}"]
            lines.append([name, *numbers, *laplace])
    columns = ("mechanism", "ε", "proven ε", "worst case", "average", "Laplace ε", "average")
    click.echo(shared.markdown(columns, lines))


# The paper's own construction

EDGE: Final = 1e-5  # section V-D has 10e-5 "as in" Nickel and Kiela 2017, who have 1e-5


def clipped_outputs(ball: Embedding, epsilon: float, words: Words) -> NDArray[np.int64]:
    """Draw outputs of words (k,), int64 (k, RUNS): what noise moves out of the ball is scaled back.

    An experiment alone: nothing is proven of it.
    """
    rng = np.random.default_rng(0)
    n = ball.dimension
    nearest = ExactSearch.over(ball).of_words(ball)
    radii = LebesgueRadii.of(dimension=n, epsilon=epsilon)
    outputs = np.empty((len(words), RUNS), dtype=np.int64)
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
        outputs[row] = nearest(np.column_stack([logs, 2.0 * points / (1.0 + squares)[:, None]]))
    return outputs


@main.command()
@with_world
def clipped(world: World) -> None:
    """Print N_w of the paper's own construction, and which words come out."""
    words = world.flat.words.to_pylist()
    rows = shared.evenly(500, len(words))
    stays = []
    most_frequent = []
    for epsilon in EPSILONS:
        outputs = clipped_outputs(world.ball, epsilon, rows)
        stays.append(np.count_nonzero(outputs == rows[:, None], axis=1))
        counts = np.bincount(outputs.ravel(), minlength=len(words))
        ten = np.argsort(-counts, kind="stable")[:10]
        names = ", ".join(words[word] for word in ten[:5])
        most_frequent.append((f"{counts[ten].sum() / counts.sum():.1%}", names))
    worst = np.max(stays, axis=1)
    mean = np.mean(stays, axis=1)
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
    lines: list[Sequence[object]] = []
    for number, paper in enumerate(PAPER):
        epsilon, *of_paper = paper
        of_ball = (worst[number], mean[number], *laplace[number])
        lines.append((epsilon, *of_ball, *of_paper, *most_frequent[number]))
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
    # (texts,), which are for tests; where none is, each sample draws them.
    tested: NDArray[np.bool_]

    def sample(self, count: int, rng: np.random.Generator) -> Texts:
        """Draw texts, a quarter of them for tests."""
        order = rng.permutation(len(self.labels))
        tests = int(TESTED * min(count, len(order)))
        for_tests = np.arange(len(order)) < tests
        if self.tested.any():
            for_tests = self.tested[order]
        tested_rows = order[for_tests][:tests]
        rows = np.concatenate([tested_rows, order[~for_tests][: count - tests]])
        slots = self.words.having(self.slots.astype(np.int64)).take(rows).words > 0
        tested = np.arange(len(rows)) < len(tested_rows)
        return Texts(
            words=self.words.take(rows), slots=slots, labels=self.labels[rows], tested=tested
        )


@main.command()
@with_world
@MORE
@click.option(
    "--data", type=FOLDER, required=True, help="folder of SentEval's tasks, a Parquet file each"
)
def tasks(world: World, hyperbolic: Sequence[float], data: Path) -> None:
    """Print scores of tasks whose words in slots are perturbed, for learning and for tests."""
    texts = {}
    for name, label in FILES.items():
        table = pq.read_table(data / f"{name.lower()}.parquet").to_pydict()
        words = WordRows.of(table["text"], world.large)
        tested = np.array(table.get("split", [""] * words.count)) == "test"
        slots = in_slots(words, world, FREQUENT)
        labels = np.array(table[label])
        texts[name] = Texts(words=words, slots=slots, labels=labels, tested=tested)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))
    learner = model, shared.mean_vectors
    click.echo(tried(texts, world, settings(hyperbolic), learner, rows=ROWS, repetitions=5))


def in_slots(texts: WordRows, world: World, frequent: int) -> NDArray[np.bool_]:
    """Return which tokens are common words that stand in no pair as frequent as this."""
    inner = texts.rows[1:] == texts.rows[:-1]
    keys = texts.words[:-1] * (len(world.large.words) + 1) + texts.words[1:]
    _, places, counts = np.unique(keys[inner], return_inverse=True, return_counts=True)
    pairs = np.zeros(len(keys), dtype=np.int64)
    pairs[inner] = counts[places]
    both = np.maximum(np.append(pairs, 0), np.append(0, pairs))
    return np.isin(texts.words, world.ids) & (both < frequent)


def tried(
    tasks: Mapping[str, Texts],
    world: World,
    settings: Mapping[str, Setting],
    learner: tuple[Any, Callable[[WordRows, Embedding], Any]],
    *,
    rows: int,
    repetitions: int,
) -> str:
    """Try each setting on the same samples: words in slots that stay, and percent correct by task.

    The learner is a model of scikit-learn and what makes features of texts. Differences are to the
    originals.
    """
    model, features = learner

    def measure(setting: Setting, seed: int) -> dict[str, float]:
        """Score all tasks under a setting."""
        scores = {}
        stay = []
        for number, (name, texts) in enumerate(tasks.items()):
            sample = texts.sample(rows, np.random.default_rng(seed))
            words = world.perturbed(sample, setting, 1000 * seed + number)
            of_texts = features(words, world.large)
            scores[name] = 100.0 * shared.scored(model, of_texts, sample.labels, sample.tested)
            is_perturbed = sample.slots & np.isin(sample.words.words, world.ids)
            stay.append((words.words == sample.words.words)[is_perturbed])
        return {STAY: float(np.concatenate(stay).mean()), **scores}

    seeds = range(repetitions)
    means = {}
    for label, setting in settings.items():
        means[label] = shared.repeated(partial(measure, setting), seeds)
    lines = []
    for label, of_setting in means.items():
        cells = [f"{of_setting[name].mean:.1f}" for name in tasks]
        if label != ORIGINAL:
            for place, name in enumerate(tasks):
                cells[place] += f" ({of_setting[name] - means[ORIGINAL][name]:+.1f})"
        lines.append([label, f"{of_setting[STAY].mean:.1%}", *cells])
    return shared.markdown(("", STAY, *tasks), lines)


# Slots of voice queries


@main.command()
@with_world
@MORE
@click.option(
    "--data", type=FILE, required=True, help="Parquet with text, intent, split and slots_json"
)
def slots(world: World, hyperbolic: Sequence[float], data: Path) -> None:
    """Print how many intents are recognized after noise in slots, and what examples become."""
    train: list[dict[str, Any]] = []
    validate: list[dict[str, Any]] = []
    for query in pq.read_table(data).to_pylist():
        part = validate if query["split"] == "validate" else train
        part.append(query)
    queries = train[:: max(1, len(train) // QUERIES)] + validate
    for query in queries:
        query["spans"] = positions(query["text"], json.loads(query["slots_json"]))
    with_slots = [query for query in queries if query["spans"] is not None]
    count = len(with_slots)
    click.echo(f"{count:,} of {len(queries):,} queries have their slots as whole words in order.\n")
    tested = np.array([query["split"] == "validate" for query in with_slots])
    texts = {"intents": of_queries(world, with_slots, tested)}
    learner = LogisticRegression(C=10.0, max_iter=300), known_words
    click.echo(tried(texts, world, settings(hyperbolic), learner, rows=count, repetitions=3))
    click.echo(examples(world, settings(hyperbolic)))


def known_words(texts: WordRows, embedding: Embedding) -> Any:
    """Return which words of the vocabulary texts have."""
    return shared.bag_of_words(texts, embedding)[:, :-1].sign()


def positions(text: str, slots: list[dict[str, str]]) -> list[tuple[int, int]] | None:
    """Return where slots stand as whole words in their order; None if some do not."""
    pattern = ".*?".join(rf"(?<!\w)({re.escape(slot['text'].strip())})(?!\w)" for slot in slots)
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        return None
    return [match.span(number) for number in range(1, len(slots) + 1)]


def of_queries(
    world: World, queries: Sequence[Mapping[str, Any]], tested: NDArray[np.bool_]
) -> Texts:
    """Cut queries (``text``, ``intent``, ``spans``) into words; those in the spans are in slots."""
    numbers: list[int] = []
    in_slot: list[bool] = []
    parts: list[str] = []
    for number, query in enumerate(queries):
        text = query["text"]
        start = 0
        for first, end in query["spans"]:
            numbers += [number, number]
            in_slot += [False, True]
            parts += [text[start:first], text[first:end]]
            start = end
        numbers.append(number)
        in_slot.append(False)
        parts.append(text[start:])
    words = WordRows.of(parts, world.large)
    rows = np.array(numbers)[words.rows]
    labels = np.array([query["intent"] for query in queries])
    return Texts(
        words=replace(words, rows=rows, count=len(queries)),
        slots=np.array(in_slot)[words.rows],
        labels=labels,
        tested=tested,
    )


def examples(world: World, settings: Mapping[str, Setting]) -> str:
    """Count in RUNS runs how often slot words become the paper's words, and the nearer words."""
    words = world.flat.words.to_pylist()
    rows = []
    for word, new in EXAMPLES:
        if word not in words or new not in words:
            continue
        place = words.index(word)
        new_place = words.index(new)
        distances = world.ball.space.metric().to_all(np.array([place]))[0]
        nearer = int((distances < distances[new_place]).sum())
        runs = WordRows(words=np.full(RUNS, place), rows=np.arange(RUNS), count=RUNS)
        for label, setting in settings.items():
            if isinstance(setting, Mechanism):
                outputs = world.released(runs, setting)
                rows.append((word, new, nearer, label, np.count_nonzero(outputs == new_place)))
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
        hyponyms = table.column(0).to_pylist()
        relations = Relations.from_words(hyponyms, table.column(1).to_pylist())
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

    def statistics(self, configured: Mechanism) -> list[str]:
        """Measure N_w and S_w of DRAWS runs, and the inputs of an output, all and those below it.

        K_w is the mean, over runs, of how many different words gave the output of the run.
        """
        words, outputs = self.drawn(configured)
        stays = (words == outputs).reshape(-1, DRAWS).mean(axis=1)
        pairs = np.unique(np.column_stack([outputs, words]), axis=0)
        sizes = np.bincount(pairs[:, 1], minlength=len(self.ball.words))[self.words]
        is_below = self.ancestors[pairs[:, 1], pairs[:, 0]] > 0.0
        is_below &= pairs[:, 0] != pairs[:, 1]
        inputs = np.bincount(pairs[:, 0], minlength=len(self.ball.words))
        below = np.bincount(pairs[is_below, 0], minlength=len(self.ball.words))
        return [
            f"{stays.mean():.3f}",
            f"{stays.max():.3f}",
            f"{sizes.mean():.1f}",
            f"{inputs[outputs].mean():.1f}",
            f"{below[outputs].mean():.1f}",
        ]

    def kept(self, configured: Mechanism) -> list[str]:
        """Measure words that stay, hypernyms, common ancestors, and the two most frequent words."""
        words, outputs = self.drawn(configured)
        both = self.ancestors[words].multiply(self.ancestors[outputs]).sum(axis=1)
        counts = self.ancestors.sum(axis=1)
        shares = both / (counts[words] + counts[outputs] - both)
        stay = words == outputs
        above = (self.ancestors[words, outputs] > 0.0) & ~stay
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
        for target in success:
            for name in ("hyperbolic-lebesgue", "exponential"):
                configured, share = of_success(hierarchy, name, target)
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


@main.command()
@click.option("--ball", type=FOLDER, required=True)
@click.option("--pairs", type=FILE, required=True, help="TSV of the ball's is-a pairs")
@click.option("--transitive-closure", is_flag=True, help="add the pairs that follow from others")
@click.option("--words", type=int, default=2000, show_default=True, help="that are measured")
@click.option("--epsilon", type=float, multiple=True, default=(1.0, 2.0, 4.0, 8.0))
def figure5(
    ball: Path, pairs: Path, transitive_closure: bool, words: int, epsilon: Sequence[float]
) -> None:
    """Print N_w, S_w, and K_w with and without the order of the hierarchy: inputs below outputs."""
    hierarchy = Hierarchy.of(Embedding.open(ball), pairs, words, closure=transitive_closure)
    lines = []
    with threadpool_limits(1):
        for name in ("hyperbolic-lebesgue", "exponential"):
            for value in epsilon:
                configured = mechanism(name, epsilon=value)
                lines.append([name, f"{value:g}", *hierarchy.statistics(configured)])
    columns = ("mechanism", "ε", "mean N_w", "max N_w", "mean S_w", "K_w", "K_w of hyponyms")
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
