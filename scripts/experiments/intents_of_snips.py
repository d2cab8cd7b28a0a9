"""Snips queries with sanitized slots, the example of Feyisetan et al. 2019: intents kept, values hidden.

    OMP_NUM_THREADS=1 python -m scripts.experiments.intents_of_snips --queries snips.parquet \
        --embedding glove-300d --ball ball-10d --ball ball-100d

The queries are Parquet with ``text``, ``intent``, ``split`` and ``slots_json``: JSON with the ``text`` of
each slot, in order. Words in slots are perturbed where the balls and the embedding have them, and left out
elsewhere. Intents are classified by logistic regression on words; the attacker of slots knows the mechanism
and the other queries as they were. Prints Markdown: both, and what became of the paper's examples.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dptext_spark import demo
from dptext_spark.calibration import estimator
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import Attacker, attack
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.rows import SimulatedRows
from dptext_spark.lookup import joining, look_up
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy
from dptext_spark.text.spans import read_spans
from dptext_spark.text.token_columns import Tokens
from scripts.experiments.texts import Mean, demo_embedding, markdown
from scripts.experiments.utility_tasks import (
    ORIGINAL,
    Setting,
    Task,
    World,
    made_ball,
    settings_of,
    settings_options,
)

Slot = dict[str, int]

DROP: Final = "slots left out"
RUNS: Final = 1000
# The paper's Table I: words of slots, and what it would have them become.
EXAMPLES: Final = (
    ("ohio", "state"),
    ("techno", "music"),
    ("lastfm", "app"),
    ("milladore", "city"),
    ("firebrand", "product"),
    ("manthan", "movie"),
)
COLUMNS: Final = (
    "",
    "slot words kept",
    "queries kept",
    "recovered alone",
    "recovered in context",
    "intents, learned on the originals",
    "intents, learned on sanitized ones",
)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one repetition found, as shares."""

    words_kept: float
    queries_kept: float
    alone: float
    in_context: float
    by_originals: float
    by_sanitized: float

    def __iter__(self) -> Iterator[float]:
        yield from vars(self).values()


def positions(text: str, slots: list[dict[str, str]]) -> list[Slot]:
    """Where slots stand; none if some do not."""
    pattern = ".*?".join(rf"(?<!\w)({re.escape(slot['text'].strip())})(?!\w)" for slot in slots)
    match = re.search(pattern, text, re.DOTALL)
    places = [match.span(number) for number in range(1, len(slots) + 1)] if match else []
    return [{"start": start, "end": end} for start, end in places]


def task_of(
    world: World, texts: list[str], slots: list[list[Slot]], intents: list[str], tested: list[bool]
) -> Task:
    """Cut queries into words."""
    values = pa.array(texts, pa.string())
    spans = read_spans(pa.array(slots), values, "slots")
    tokens = Tokens.of(values, joining(world.large, TextPolicy().tokenizer), spans)
    words = look_up(tokens, world.large)
    rows = SimulatedRows(
        offsets=tokens.offsets,
        inputs=words,
        outputs=np.zeros((0, len(words)), dtype=np.int64),
        perturbed=tokens.marked & (words >= 0),
    )
    return Task(
        name="intents",
        rows=rows,
        slots=tokens.marked,
        labels=np.array(intents),
        tested=np.array(tested),
        groups=None,
    )


def read(path: Path, world: World, count: int) -> Task:
    """Read the queries whose slots stand in them as whole words in their order, and those without slots.

    All that are for tests, and about ``count`` to learn from, evenly spread.
    """
    rows = pq.read_table(path).to_pylist()
    tested = [row for row in rows if row["split"] == "validate"]
    rest = [row for row in rows if row["split"] != "validate"]
    rows = rest[:: max(1, len(rest) // count)] + tested
    found = [(row, positions(row["text"], json.loads(row["slots_json"]))) for row in rows]
    placed = [(row, slots) for row, slots in found if slots or not json.loads(row["slots_json"])]
    click.echo(f"{len(placed):,} of {len(rows):,} queries have their slots as whole words in their order.")
    return task_of(
        world,
        [row["text"] for row, _ in placed],
        [slots for _, slots in placed],
        [row["intent"] for row, _ in placed],
        [row["split"] == "validate" for row, _ in placed],
    )


def part(task: Task, tested: bool) -> Task:
    """Take the examples for tests, or those to learn from."""
    chosen = np.flatnonzero(task.apart == tested)
    lengths = np.diff(task.rows.offsets)[chosen]
    words = (task.apart == tested)[task.rows.rows]
    return replace(
        task,
        rows=SimulatedRows(
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            inputs=task.rows.inputs[words],
            outputs=task.rows.outputs[:, words],
            perturbed=task.rows.perturbed[words],
        ),
        slots=task.slots[words],
        labels=task.labels[chosen],
        tested=task.apart[chosen],
    )


def bags(words: NDArray[np.int64], task: Task, vocabulary: int) -> sparse.csr_array:
    """Say which words (t,) stand in each query, (queries, V)."""
    known = words >= 0
    cells = np.ones(known.sum()), (task.rows.rows[known], words[known])
    found = sparse.csr_array(cells, shape=(len(task.labels), vocabulary))
    found.data[:] = 1.0
    return found


def learned(words: NDArray[np.int64], task: Task, vocabulary: int) -> LogisticRegression:
    """Learn intents from the words (t,) of the queries that are not for tests."""
    apart = task.apart
    model = LogisticRegression(C=10.0, max_iter=300)
    return model.fit(bags(words, task, vocabulary)[~apart], task.labels[~apart])


def emissions_of(setting: Setting, world: World, words: NDArray[np.int64], runs: int) -> Emissions:
    """Learn how likely words (k,) become others, with the large vocabulary's ids."""
    size, ids = len(world.large.words), world.large_ids
    if setting.mechanism is None:
        return replace(Emissions.uniform(size, len(ids)), elsewhere=without_output(world, words))
    embedding = world.balls[setting.dimension] if setting.dimension else world.flat
    search = ExactSearch.over(embedding)
    draw = estimator([setting.mechanism], embedding, search=search, runs=runs, seed=1)
    own = np.searchsorted(ids, words)
    found = Emissions.measured(draw, own, vocabulary=len(ids))
    outputs, inputs = np.divmod(found.keys, len(ids))
    elsewhere, error = np.zeros(size), np.zeros(size)
    elsewhere[ids], error[ids] = found.elsewhere, found.error
    return Emissions(
        keys=ids[outputs] * size + ids[inputs],  # ascending, for ids are
        probability=found.probability,
        elsewhere=elsewhere,
        error=error,
        outputs=found.outputs,
    )


def without_output(world: World, words: NDArray[np.int64]) -> NDArray[np.float64]:
    """Let all outputs of words (k,) be equally likely, and no other word be behind any, float64 (V,)."""
    elsewhere = np.zeros(len(world.large.words))
    elsewhere[words] = 1.0 / len(world.large_ids)
    return elsewhere


def recovered(
    task: Task, words: NDArray[np.int64], world: World, emissions: Emissions
) -> tuple[float, float]:
    """Give the shares of slot words that an attacker names, each alone and with its neighbours' help."""
    of_texts = part(task, False).rows
    corpus = PairCounts.of_rows(of_texts.inputs, of_texts.offsets, vocabulary=len(world.large.words))
    common = np.isin(task.rows.inputs, world.large_ids)
    hidden = task.slots & common
    # What is left out is unknown to the attacker too.
    inputs = np.where(task.slots & ~common, -1, task.rows.inputs)
    both = replace(task, rows=replace(task.rows, inputs=inputs, outputs=words[None], perturbed=hidden))
    found = attack(part(both, True).rows, Attacker.learn(corpus, emissions))
    return float(found["context-free/1"].ratio[0]), float(found["in-context/1"].ratio[0])


def figures_of(
    task: Task,
    words: NDArray[np.int64],
    world: World,
    emissions: Emissions | None,
    by_originals: LogisticRegression,
) -> Figures:
    """Judge sanitized words (t,); no emissions where all came out as they were, and all are recovered."""
    tested = task.apart[task.rows.rows]
    common = task.slots & np.isin(task.rows.inputs, world.large_ids) & tested
    same = words == task.rows.inputs

    def counted(which: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(task.rows.rows[which], minlength=len(task.labels))

    # Queries all of whose slot words may be perturbed.
    whole = (counted(common) > 0) & (counted(task.slots & tested) == counted(common))
    alone, in_context = 1.0, 1.0
    if emissions is not None:
        alone, in_context = recovered(task, np.maximum(words, 0), world, emissions)
    vocabulary = len(world.large.words)
    by_sanitized = by_originals if emissions is None else learned(words, task, vocabulary)
    queries, intents = bags(words, task, vocabulary)[task.apart], task.labels[task.apart]
    return Figures(
        words_kept=float(same[common].mean()),
        queries_kept=float((counted(common & ~same) == 0)[whole].mean()),
        alone=alone,
        in_context=in_context,
        by_originals=float(by_originals.score(queries, intents)),
        by_sanitized=float(by_sanitized.score(queries, intents)),
    )


def tried(
    task: Task, world: World, settings: Sequence[Setting], *, seeds: Sequence[int], runs: int
) -> Iterator[tuple[str, list[Figures]]]:
    """Try the originals, queries without their slots, and each setting."""
    inputs = task.rows.inputs
    model = learned(inputs, task, len(world.large.words))
    yield ORIGINAL, [figures_of(task, inputs, world, None, model)]
    slot_words = np.intersect1d(inputs[task.slots], world.large_ids)
    nothing = emissions_of(Setting(protected="slots", mechanism=None), world, slot_words, runs)
    yield DROP, [figures_of(task, np.where(task.slots, -1, inputs), world, nothing, model)]
    for setting in settings:
        emissions = emissions_of(setting, world, slot_words, runs)
        yield (
            setting.label,
            [figures_of(task, setting.words(task, world, seed), world, emissions, model) for seed in seeds],
        )


def table(found: Mapping[str, list[Figures]]) -> str:
    """Draw one line for each setting."""
    columns = {
        name: [Mean.of(values) for values in zip(*figures, strict=True)] for name, figures in found.items()
    }
    return markdown(COLUMNS, [[name, *(f"{mean:.1%}" for mean in means)] for name, means in columns.items()])


def about(task: Task, world: World) -> str:
    """Count queries and slot words."""
    common = np.isin(task.rows.inputs, world.large_ids) & task.slots
    return (
        f"{(~task.apart).sum():,} queries to learn from, {task.apart.sum():,} to be judged. Of "
        f"{len(task.slots):,} words {task.slots.sum():,} are in slots, {task.rows.perturbed.sum():,} of "
        f"these in the embedding's {len(world.large.words):,} words, {common.sum():,} in the "
        f"{len(world.large_ids):,} words of the balls too.\n"
    )


def ranks(world: World) -> str:
    """Draw where the paper's new words are among the words around the slots' words."""
    spaces = {**{f"{n}-d ball": ball for n, ball in world.balls.items()}, "embedding": world.flat}
    words = world.flat.words.to_pylist()
    rows = []
    for word, new in EXAMPLES:
        known = word in words and new in words
        cells = ["not in the balls"] * len(spaces)
        if known:
            row, other = words.index(word), words.index(new)
            distances = [space.space.metric().to_all(np.array([row]))[0] for space in spaces.values()]
            cells = [f"{int((each < each[other]).sum()):,}" for each in distances]
        rows.append([word, new, *cells])
    return markdown(("word of a slot", "the paper's new word", *spaces), rows)


def examples(world: World, settings: Sequence[Setting]) -> str:
    """Count what the paper's examples become in 1,000 runs."""
    words = world.large.words.to_pylist()
    rows = []
    for setting in settings:
        for word, new in EXAMPLES:
            if not {word, new} <= {words[number] for number in world.large_ids}:
                continue
            inputs = np.full(RUNS, words.index(word))
            task = Task(
                name=word,
                rows=SimulatedRows(
                    offsets=np.arange(RUNS + 1),
                    inputs=inputs,
                    outputs=np.zeros((0, RUNS), dtype=np.int64),
                    perturbed=np.ones(RUNS, dtype=bool),
                ),
                slots=np.ones(RUNS, dtype=bool),
                labels=inputs,
                tested=None,
                groups=None,
            )
            outputs, counts = np.unique(setting.words(task, world, 0), return_counts=True)
            often = {words[output]: int(count) for output, count in zip(outputs, counts, strict=True)}
            most = sorted(often, key=often.__getitem__, reverse=True)[:4]
            shown = ", ".join(f"{output} {often[output]}" for output in most)
            rows.append([setting.label, word, f"{new} **{often.get(new, 0)}**", shown])
    return markdown(("", "word", "the paper's new word", "most frequent outputs"), rows)


def small(folder: Path) -> dict[str, dict[str, float]]:
    """Tell and attack the demo's queries, in a few seconds."""
    large = demo_embedding(folder)
    world = World.of(large, [made_ball(large, 10, 1.0, folder / "made")], folder)
    queries = pq.read_table(demo.QUERIES).to_pylist()[::4]
    task = task_of(
        world,
        [query["text"] for query in queries],
        [query["slots"] for query in queries],
        [query["intent"] for query in queries],
        [number % 3 == 0 for number in range(len(queries))],
    )
    settings = {
        "random": Setting(protected="slots", mechanism=None),
        "hyperbolic low": Setting(
            protected="slots", mechanism=mechanism("hyperbolic-icdm", epsilon=0.125), dimension=10
        ),
        "laplace low": Setting(protected="slots", mechanism=mechanism("laplace", epsilon=4.0)),
        "laplace high": Setting(protected="slots", mechanism=mechanism("laplace", epsilon=16.0)),
    }
    found = dict(tried(task, world, list(settings.values()), seeds=[0], runs=50))
    named = {**{name: found[name] for name in (ORIGINAL, DROP)}}
    named |= {name: found[setting.label] for name, setting in settings.items()}
    return {name: vars(figures) for name, (figures,) in named.items()}


@click.command()
@click.option("--queries", "source", type=click.Path(exists=True, path_type=Path))
@settings_options
@click.option("--rows", "count", default=4000, show_default=True, help="queries to learn from, about")
@click.option("--repetitions", default=3, show_default=True)
@click.option("--runs", default=100, show_default=True, help="of each word, for the attacker to learn from")
@click.option("--small", "is_small", is_flag=True, help="a few seconds on the demo's queries, as JSON")
def main(
    source: Path | None,
    bundle: Path | None,
    balls: tuple[Path, ...],
    paper: tuple[float, ...],
    noise: tuple[float, ...],
    exponential: tuple[float, ...],
    laplace: tuple[float, ...],
    count: int,
    repetitions: int,
    runs: int,
    is_small: bool,
) -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        if is_small:
            click.echo(json.dumps(small(folder)))
            return
        if not (source and bundle and balls):
            raise click.UsageError("--queries, --embedding and --ball are needed, or --small")
        world = World.of(Embedding.open(bundle), [Embedding.open(ball) for ball in balls], folder)
        task = read(source, world, count)
        click.echo(about(task, world))
        settings = list(
            settings_of("slots", world.balls, paper, noise=noise, exponential=exponential, laplace=laplace)
        )
        found = dict(tried(task, world, settings, seeds=range(repetitions), runs=runs))
        click.echo(f"### Intents and slots\n\n{table(found)}")
        click.echo(f"### How many words are nearer than the paper's new word\n\n{ranks(world)}")
        click.echo(f"### The paper's examples, in {RUNS:,} runs\n\n{examples(world, settings[1:])}")


if __name__ == "__main__":
    main()
