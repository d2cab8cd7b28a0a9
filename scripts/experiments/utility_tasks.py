"""Eight tasks on sanitized texts, Table VI of Feyisetan et al. 2019: what is left of their use.

    OMP_NUM_THREADS=1 python -m scripts.experiments.utility_tasks --data senteval --embedding glove-300d \
        --ball ball-10d --ball ball-100d

The data are SentEval's, one Parquet file for each task. Words are perturbed in slots alone, as in the paper,
or all of them. A word is in a slot if the balls and the embedding have it and neither pair of words that it
stands in is a frequent one. Texts to learn from and texts to be judged are both sanitized; features are means
of word vectors (of pairs of texts |u - v| and u * v), the model is logistic regression, and STS14 is judged
by the cosine. Prints Markdown.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dptext_spark.embedding.build import build_embedding
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.rows import SimulatedRows, Simulation
from dptext_spark.guarantee import Distances
from dptext_spark.mechanisms import Mechanism, mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from scripts.experiments.hyperbolic_table4 import restricted
from scripts.experiments.texts import Mean, demo_embedding, demo_queries, markdown

Protected: TypeAlias = Literal["slots", "all"]
Scores: TypeAlias = dict[str, float]
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

RANDOM: Final = "random words"
ORIGINAL: Final = "unperturbed"
PAPERS_EPSILONS: Final = (0.125, 1.0, 8.0)
TESTED: Final = 0.25
# Of standardized features; see the page for what it is worth.
PENALTY: Final = 0.01

# Percent correct, and for STS14 Pearson's and Spearman's correlations.
COLUMNS: Final = ("MR", "CR", "MPQA", "SST-5", "TREC", "SICK-E", "MRPC", "STS14 r", "STS14 ρ")
PAPER: Final[dict[str, tuple[float, ...]]] = {
    RANDOM: (58.19, 77.48, 84.27, 30.81, 75.20, 79.20, 69.86, 0.17, 0.16),
    "ε = 0.125": (58.38, 83.21, 88.53, 41.76, 82.40, 81.00, 74.78, 0.44, 0.45),
    "ε = 1": (63.56, 83.92, 88.62, 42.40, 82.40, 82.38, 75.07, 0.45, 0.46),
    "ε = 8": (74.52, 85.19, 88.98, 42.53, 84.20, 82.34, 75.01, 0.52, 0.53),
    "original, InferSent": (81.10, 86.30, 90.20, 46.30, 88.20, 86.10, 76.20, 0.68, 0.65),
    "original, SkipThought": (79.40, 83.1, 89.30, float("nan"), 88.40, 79.5, float("nan"), 0.44, 0.45),
    "original, fastText": (78.20, 80.20, 88.00, 45.10, 83.40, 78.9, 74.40, 0.65, 0.63),
}
# Label, file, columns of texts, of the label, and of the group that a correlation is taken in.
FILES: Final = (
    ("MR", "mr", ("text",), "label", None),
    ("CR", "cr", ("text",), "label", None),
    ("MPQA", "mpqa", ("text",), "label", None),
    ("SST-5", "sst5", ("text",), "label", None),
    ("TREC", "trec", ("text",), "coarse", None),
    ("SICK-E", "sick", ("sentence_a", "sentence_b"), "entailment", None),
    ("MRPC", "mrpc", ("sentence_a", "sentence_b"), "label", None),
    ("STS14", "sts14", ("sentence_a", "sentence_b"), "score", "subset"),
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """Examples of one or two texts each.

    Attributes:
        name: As in the paper.
        rows: The words of all first texts, then those of all second ones.
        slots: bool (t,), which words are in a slot.
        labels: (e,) of the e examples.
        tested: bool (e,), which examples are for tests; None where the task does not say.
        groups: (e,), for correlations; None where there are classes.
    """

    name: str
    rows: SimulatedRows
    slots: NDArray[np.bool_]
    labels: NDArray[np.generic]
    tested: NDArray[np.bool_] | None
    groups: NDArray[np.generic] | None

    @property
    def sides(self) -> int:
        """Texts of an example, 1 or 2."""
        return (len(self.rows.offsets) - 1) // len(self.labels)

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Which examples of a sample are for tests."""
        if self.tested is None:
            raise ValueError("The task has no examples for tests; a sample of it has.")
        return self.tested

    def sample(self, count: int, rng: np.random.Generator) -> Self:
        """Draw examples, a quarter of them for tests."""
        examples = rng.permutation(len(self.labels))
        tests = int(TESTED * min(count, len(examples)))
        if self.tested is None:
            apart, rest = examples[:tests], examples[tests:]
        else:
            apart, rest = (examples[self.tested[examples] == value] for value in (True, False))
        apart, rest = apart[:tests], rest[: count - tests]
        chosen = np.concatenate([apart, rest])
        texts = (chosen + np.arange(self.sides)[:, None] * len(self.labels)).ravel()
        lengths = np.diff(self.rows.offsets)[texts]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        words = np.arange(offsets[-1]) + np.repeat(self.rows.offsets[texts] - offsets[:-1], lengths)
        return replace(
            self,
            rows=SimulatedRows(
                offsets=offsets,
                inputs=self.rows.inputs[words],
                outputs=self.rows.outputs[:, words],
                perturbed=self.rows.perturbed[words],
            ),
            slots=self.slots[words],
            labels=self.labels[chosen],
            tested=np.arange(len(chosen)) < len(apart),
            groups=None if self.groups is None else self.groups[chosen],
        )

    def scores(self, words: NDArray[np.int64], vectors: NDArray[np.float32]) -> Scores:
        """Learn from and judge texts of other words (t,), -1 for none, in the places of the task's own."""
        texts = means(words, self.rows.offsets, vectors).reshape(self.sides, len(self.labels), -1)
        if self.groups is not None:
            return correlations(self.name, texts, self.labels.astype(np.float64), self.groups)
        features = texts[0]
        if self.sides == 2:
            features = np.hstack([np.abs(texts[0] - texts[1]), texts[0] * texts[1]])
        return {self.name: 100.0 * accuracy(features, self.labels, self.apart)}

    def majority(self) -> Scores:
        """Score whoever always names the most frequent class, or nothing where there are none."""
        if self.groups is not None:
            return dict.fromkeys(correlation_names(self.name), 0.0)
        values, counts = np.unique(self.labels[~self.apart], return_counts=True)
        return {self.name: 100.0 * float((self.labels[self.apart] == values[counts.argmax()]).mean())}


def means(
    words: NDArray[np.int64], offsets: NDArray[np.int64], vectors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Average the vectors of the words of each row, float32 (rows, n); 0 for a row without any."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[words >= 0]
    shape = (len(offsets) - 1, len(vectors))
    counts = sparse.csr_array((np.ones(len(rows), dtype=np.float32), (rows, words[words >= 0])), shape=shape)
    total: NDArray[np.float32] = counts @ vectors
    sizes = np.maximum(np.bincount(rows, minlength=shape[0]), 1).astype(np.float32)
    average: NDArray[np.float32] = total / sizes[:, None]
    return average


def accuracy(features: NDArray[np.float32], labels: NDArray[np.generic], tested: NDArray[np.bool_]) -> float:
    """Give the share of the tested examples that logistic regression gets right."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=PENALTY, max_iter=300))
    return float(model.fit(features[~tested], labels[~tested]).score(features[tested], labels[tested]))


def correlation_names(task: str) -> tuple[str, str]:
    return f"{task} r", f"{task} ρ"


def correlations(
    task: str, texts: NDArray[np.float32], scores: NDArray[np.float64], groups: NDArray[np.generic]
) -> Scores:
    """Correlate cosines of pairs (2, e, n) with scores, in each group, and average over the examples."""
    lengths = np.linalg.norm(texts, axis=2)
    cosines = (texts[0] * texts[1]).sum(axis=1) / np.maximum(lengths[0] * lengths[1], 1e-9)
    found = np.zeros(2)
    for group in np.unique(groups):
        one = groups == group
        both = [measure(cosines[one], scores[one]).statistic for measure in (stats.pearsonr, stats.spearmanr)]
        found += one.mean() * np.array(both)
    return dict(zip(correlation_names(task), found.tolist(), strict=True))


@dataclass(frozen=True, kw_only=True)
class World:
    """Embeddings of one vocabulary in several geometries, and the large one that it is taken from.

    Attributes:
        large: The Euclidean embedding, whose vectors are the features.
        flat: Its words that all balls have.
        balls: The same words in the balls, by dimension.
        large_ids: int64 (k,), the ids of the common words in the large vocabulary.
    """

    large: Embedding
    flat: Embedding
    balls: Mapping[int, Embedding]
    large_ids: NDArray[np.int64]

    @classmethod
    def of(cls, large: Embedding, balls: Sequence[Embedding], folder: Path) -> World:
        """Restrict embeddings to their common words."""
        places = [pc.index_in(large.words, value_set=ball.words).is_valid() for ball in balls]
        common = np.logical_and.reduce([place.to_numpy(zero_copy_only=False) for place in places])
        ids = np.flatnonzero(common)
        words = large.words.take(pa.array(ids)).to_pylist()
        return cls(
            large=large,
            flat=restricted(large, words, folder / "flat"),
            balls={
                ball.dimension: restricted(ball, words, folder / f"ball {ball.dimension}") for ball in balls
            },
            large_ids=ids,
        )

    def read(self, texts: Sequence[str]) -> SimulatedRows:
        """Cut texts into words of the large vocabulary."""
        return simulation(self.large).read(pa.array(texts, pa.string()))

    def slots(self, rows: SimulatedRows, frequent: int) -> NDArray[np.bool_]:
        """Say which words (t,) are in slots: common words, no pair of theirs as frequent as this."""
        size = len(self.large.words)
        pairs = simulation(self.large).pairs(rows)
        words = np.where(rows.inputs < 0, size, rows.inputs)
        before = np.concatenate([[size + 1], words[:-1]])[: len(words)]
        before[rows.offsets[:-1][np.diff(rows.offsets) > 0]] = size + 1
        keys = pairs.first * (size + 2) + pairs.second
        with_previous = pairs.count[np.searchsorted(keys, before * (size + 2) + words)]
        with_next = np.append(np.where(before[1:] < size + 1, with_previous[1:], 0), 0)
        is_common = np.isin(rows.inputs, self.large_ids)
        return is_common & (with_previous < frequent) & (with_next < frequent)


def simulation(embedding: Embedding, seed: int = 0) -> Simulation:
    """Make what sanitizes texts by a public seed: nobody is to be protected here."""
    return Simulation(bundle=embedding, policy=TextPolicy(), search=ExactSearch.over(embedding), seed=seed)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to sanitize texts.

    Attributes:
        protected: Words in slots; or all, of which those that the mechanism's vocabulary lacks are left out.
        mechanism: Of the ball of this dimension, or of the Euclidean embedding; None for random words.
    """

    protected: Protected
    mechanism: Mechanism | None
    dimension: int | None = None

    @property
    def label(self) -> str:
        if self.mechanism is None:
            return RANDOM
        ball = f", {self.dimension}-d ball" if self.dimension else ""
        return f"`{self.mechanism.name}`{ball}, ε = {self.mechanism.epsilon:g}"

    def hidden(self, task: Task) -> NDArray[np.bool_]:
        """Say which words (t,) of a task are not released as they are."""
        return task.slots if self.protected == "slots" else task.rows.inputs >= 0

    def words(self, task: Task, world: World, seed: int) -> NDArray[np.int64]:
        """Sanitize a task's words (t,): ids in the large vocabulary, -1 for none."""
        inputs, hidden = task.rows.inputs, self.hidden(task)
        whole = self.protected == "all" and self.dimension is None
        ids = np.arange(len(world.large.words)) if whole else world.large_ids
        if self.mechanism is None:
            drawn = np.random.default_rng(seed).integers(len(ids), size=len(inputs))
            return np.where(hidden, ids[drawn], inputs)
        embedding = world.balls[self.dimension] if self.dimension else world.large if whole else world.flat
        of_large = np.full(len(world.large.words) + 1, -1)
        of_large[ids] = np.arange(len(ids))
        own = of_large[inputs]
        rows = replace(task.rows, inputs=own, perturbed=hidden & (own >= 0))
        texts = pa.array(np.arange(len(rows.offsets) - 1))
        found = simulation(embedding, seed).release(rows, texts, self.mechanism).outputs[0]
        return np.where(rows.perturbed, ids[found], np.where(hidden, -1, inputs))


def read(folder: Path, world: World, frequent: int) -> Iterator[Task]:
    """Read the tasks."""
    for name, file, texts, label, group in FILES:
        table = pq.read_table(folder / f"{file}.parquet")
        rows = world.read([text for column in texts for text in table[column].to_pylist()])
        tested = np.array(table["split"].to_pylist()) == "test" if "split" in table.column_names else None
        yield Task(
            name=name,
            rows=rows,
            slots=world.slots(rows, frequent),
            labels=np.array(table[label].to_pylist()),
            tested=tested,
            groups=np.array(table[group].to_pylist()) if group else None,
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a setting.

    Attributes:
        scores: By column, of each repetition.
        kept: Share of the words to be perturbed that came out as they are, of each repetition.
    """

    scores: dict[str, list[float]]
    kept: list[float]

    def mean(self, column: str) -> Mean:
        return Mean.of(self.scores[column])


def tried(
    tasks: Sequence[Task], world: World, settings: Iterable[Setting], *, rows: int, seeds: Sequence[int]
) -> Iterator[tuple[Setting | str, Found]]:
    """Try the originals, the most frequent class and each setting, on the same samples."""
    samples = {seed: [task.sample(rows, np.random.default_rng(seed)) for task in tasks] for seed in seeds}
    vectors = np.asarray(world.large.vectors, dtype=np.float32)

    def found(scores: Iterable[Scores], kept: Iterable[float]) -> Found:
        columns: dict[str, list[float]] = {}
        for one in scores:
            for column, score in one.items():
                columns.setdefault(column, []).append(score)
        return Found(scores=columns, kept=list(kept))

    every = [task for sample in samples.values() for task in sample]
    yield ORIGINAL, found((task.scores(task.rows.inputs, vectors) for task in every), [1.0])
    yield "most frequent class", found((task.majority() for task in every), [float("nan")])
    for setting in settings:
        scores, kept = [], []
        for seed, sample in samples.items():
            same = hidden = 0
            for number, task in enumerate(sample):
                words = setting.words(task, world, 1000 * seed + number)
                scores.append(task.scores(words, vectors))
                chosen = (task.slots if setting.protected == "slots" else task.rows.inputs >= 0) & (
                    words >= 0
                )
                same += int((words == task.rows.inputs)[chosen].sum())
                hidden += int(chosen.sum())
            kept.append(same / hidden)
        yield setting, found(scores, kept)


def written(one: Found, original: Found | None, column: str) -> str:
    """Write a mean, and how much it is above that of the originals in the same samples."""
    digits = 2 if column.startswith("STS") else 1
    if original is None:
        return format(one.mean(column), f".{digits}f")
    above = Mean.of(np.subtract(one.scores[column], original.scores[column]))
    return f"{one.mean(column).mean:.{digits}f} ({above.mean:+.{digits}f} ± {above.half:.{digits}f})"


def about(tasks: Sequence[Task], world: World) -> str:
    """Count words and slots."""
    rows = [
        [
            task.name,
            f"{len(task.labels):,}",
            f"{len(task.slots):,}",
            f"{(task.rows.inputs >= 0).mean():.1%}",
            f"{np.isin(task.rows.inputs, world.large_ids).mean():.1%}",
            f"{task.slots.mean():.1%}",
        ]
        for task in tasks
    ]
    spaces = {"Euclidean": world.flat, **{f"{n}-d ball": ball for n, ball in world.balls.items()}}
    nearest = (
        f"{name} {Distances.measure(each.space.metric()).nearest:.3g}" for name, each in spaces.items()
    )
    sizes = (
        f"{len(world.large.words):,} words, {len(world.large_ids):,} of them in the balls. Median distance "
        f"of these to the nearest of them: {', '.join(nearest)}"
    )
    columns = ("task", "examples", "words", "in the embedding", "in the balls too", "in slots")
    return f"The embedding has {sizes}.\n\n{markdown(columns, rows)}"


def part_of_the_way(score: float, floor: float, ceiling: float) -> float:
    """Where a score lies between random words in slots and the original."""
    return (score - floor) / (ceiling - floor)


def table(found: Mapping[Setting | str, Found]) -> str:
    """Draw one line for each setting, and the bounds."""
    rows = []
    for setting, one in found.items():
        label = setting if isinstance(setting, str) else setting.label
        kept = "" if isinstance(setting, str) else f"{Mean.of(one.kept).mean:.1%}"
        original = None if setting == ORIGINAL else found[ORIGINAL]
        rows.append([label, kept, *(written(one, original, column) for column in COLUMNS)])
    return markdown(("", "words kept", *COLUMNS), rows)


def ways(found: Mapping[Setting | str, Found]) -> str:
    """Draw how far each setting is from random words in slots to the original, the paper's beside ours."""
    floor, ceiling = list(PAPER[RANDOM]), list(PAPER["original, InferSent"])
    rows = []
    for label in ("ε = 0.125", "ε = 1", "ε = 8"):
        parts = [part_of_the_way(*three) for three in zip(PAPER[label], floor, ceiling, strict=True)]
        rows.append([f"paper, {label}", "", *(f"{part:.0%}" for part in parts)])
    bounds = {
        setting if isinstance(setting, str) else setting.label: one
        for setting, one in found.items()
        if isinstance(setting, str) or setting.mechanism is None
    }
    floor, ceiling = ([bounds[name].mean(column).mean for column in COLUMNS] for name in (RANDOM, ORIGINAL))
    for setting, one in found.items():
        if isinstance(setting, Setting) and setting.mechanism:
            own = [one.mean(column).mean for column in COLUMNS]
            parts = [part_of_the_way(*three) for three in zip(own, floor, ceiling, strict=True)]
            rows.append([setting.label, f"{Mean.of(one.kept).mean:.1%}", *(f"{part:.0%}" for part in parts)])
    return markdown(("", "words kept", *COLUMNS), rows)


def published() -> str:
    """Draw the paper's Table VI."""
    return markdown(
        ("paper", *COLUMNS),
        [[label, *("-" if np.isnan(value) else value for value in row)] for label, row in PAPER.items()],
    )


def made_ball(embedding: Embedding, dimension: int, radius: float, folder: Path) -> Embedding:
    """Lay an embedding's words in a ball by its main directions: data for a small run, no is-a pairs."""
    vectors = np.asarray(embedding.vectors, dtype=np.float64)
    vectors = vectors - vectors.mean(axis=0)
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    flat = vectors @ directions[:, -dimension:]
    lengths = np.linalg.norm(flat, axis=1, keepdims=True)
    folder.mkdir()
    np.save(folder / "vectors.npy", flat / lengths * np.tanh(0.5 * radius * lengths / lengths.max()))
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("".join(f"{word}\n" for word in embedding.words.to_pylist()), encoding="utf-8")
    return build_embedding(
        folder / "vectors.npy", folder / "ball", geometry="poincare", vocabulary=vocabulary
    )


def small(folder: Path) -> dict[str, float]:
    """Tell the intents of the demo's queries, in a few seconds."""
    large = demo_embedding(folder)
    world = World.of(large, [made_ball(large, 10, 1.0, folder / "made")], folder)
    texts, intents = demo_queries()
    rows = world.read(texts)
    task = Task(
        name="intents",
        rows=rows,
        slots=world.slots(rows, 20),
        labels=np.array(intents),
        tested=None,
        groups=None,
    )
    settings: dict[str, Setting] = {}
    for protected in ("slots", "all"):
        choices = {
            "random": Setting(protected=protected, mechanism=None),
            "hyperbolic low": Setting(
                protected=protected, mechanism=mechanism("hyperbolic-icdm", epsilon=0.125), dimension=10
            ),
            "hyperbolic high": Setting(
                protected=protected, mechanism=mechanism("hyperbolic-icdm", epsilon=60.0), dimension=10
            ),
            "laplace low": Setting(protected=protected, mechanism=mechanism("laplace", epsilon=4.0)),
            "laplace high": Setting(protected=protected, mechanism=mechanism("laplace", epsilon=16.0)),
        }
        settings |= {f"{protected} {name}": setting for name, setting in choices.items()}
    found = dict(tried([task], world, settings.values(), rows=len(intents), seeds=[0]))
    figures = {str(name): found[name].mean("intents").mean for name in (ORIGINAL, "most frequent class")}
    for name, setting in settings.items():
        figures[name] = found[setting].mean("intents").mean
        figures[f"{name}, kept"] = found[setting].kept[0]
    return figures


def settings_of(
    protected: Protected,
    balls: Iterable[int],
    paper: Sequence[float],
    *,
    noise: Sequence[float],
    exponential: Sequence[float],
    laplace: Sequence[float],
) -> Iterator[Setting]:
    """List what is tried: the paper's noise in all balls, other noise in that of fewest dimensions."""
    balls = sorted(balls)
    yield Setting(protected=protected, mechanism=None)
    for ball in balls:
        for epsilon in paper:
            chosen = mechanism("hyperbolic-icdm", epsilon=epsilon)
            yield Setting(protected=protected, mechanism=chosen, dimension=ball)
    for name, epsilons in (("hyperbolic", noise), ("exponential", exponential)):
        for epsilon in epsilons:
            chosen = mechanism(name, epsilon=epsilon)
            yield Setting(protected=protected, mechanism=chosen, dimension=balls[0])
    for epsilon in laplace:
        yield Setting(protected=protected, mechanism=mechanism("laplace", epsilon=epsilon))


def settings_options(command: CommandT) -> CommandT:
    """Add the options that :func:`settings_of` takes, and those of the embeddings."""
    existing = click.Path(exists=True, path_type=Path)
    for option in (
        click.option("--laplace", type=float, multiple=True, default=(8.0, 12.0, 16.0), show_default=True),
        click.option("--exponential", type=float, multiple=True, help="epsilons of it, in the ball"),
        click.option("--hyperbolic", "noise", type=float, multiple=True, help="epsilons of it, above n - 1"),
        click.option(
            "--epsilon", "paper", type=float, multiple=True, default=PAPERS_EPSILONS, show_default=True
        ),
        click.option("--ball", "balls", type=existing, multiple=True),
        click.option("--embedding", "bundle", type=existing, help="Euclidean"),
    ):
        command = option(command)
    return command


@click.command()
@click.option("--data", type=click.Path(exists=True, path_type=Path), help="folder of SentEval's tasks")
@settings_options
@click.option("--protected", type=click.Choice(["slots", "all"]), default="slots", show_default=True)
@click.option("--rows", default=1500, show_default=True, help="examples of each task, of each repetition")
@click.option("--repetitions", default=3, show_default=True)
@click.option("--frequent", default=10, show_default=True, help="pairs seen this often are no slots")
@click.option("--small", "is_small", is_flag=True, help="a few seconds on the demo's queries, as JSON")
def main(
    data: Path | None,
    bundle: Path | None,
    balls: tuple[Path, ...],
    paper: tuple[float, ...],
    noise: tuple[float, ...],
    exponential: tuple[float, ...],
    laplace: tuple[float, ...],
    protected: Protected,
    rows: int,
    repetitions: int,
    frequent: int,
    is_small: bool,
) -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        if is_small:
            click.echo(json.dumps(small(folder)))
            return
        if not (data and bundle and balls):
            raise click.UsageError("--data, --embedding and --ball are needed, or --small")
        world = World.of(Embedding.open(bundle), [Embedding.open(ball) for ball in balls], folder)
        tasks = list(read(data, world, frequent))
        click.echo(about(tasks, world))
        settings = settings_of(
            protected, world.balls, paper, noise=noise, exponential=exponential, laplace=laplace
        )
        found = dict(tried(tasks, world, settings, rows=rows, seeds=range(repetitions)))
        if protected == "all":
            click.echo(f"### All words\n\n{table(found)}")
            return
        click.echo(f"### The paper's Table VI\n\n{published()}")
        click.echo(f"### Words in slots\n\n{table(found)}")
        click.echo(f"### From random words in slots (0 %) to the original (100 %)\n\n{ways(found)}")


if __name__ == "__main__":
    main()
