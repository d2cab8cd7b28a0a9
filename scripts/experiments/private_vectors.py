"""The experiments of Feyisetan and Kasiviswanathan 2021 again: vectors under the paper's Delta and ours.

    OMP_NUM_THREADS=1 python -m scripts.experiments.private_vectors --embedding BUNDLE --data FOLDER

FOLDER has ``opinion_lexicon/{positive,negative}-words.txt`` (Hu and Liu) and SentEval's tasks as
``senteval/NAME.parquet``. Every repetition has a projection of its own; intervals are over projections.

Prints Markdown, or with ``--small`` one JSON object of a run on the demo's words and queries.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import click
import numpy as np
from numpy.typing import NDArray

from dptext_spark.embedding.bundle import Embedding
from scripts.experiments.texts import Mean, demo_embedding, demo_queries, markdown
from scripts.experiments.vector_errors import (
    Errors,
    Pairs,
    distance_bound,
    errors,
    product_bound,
    text_stretch,
)
from scripts.experiments.vector_laws import DISTORTION_DELTA, Law, VocabularyConstants, plain, projected
from scripts.experiments.vector_tasks import (
    CLASSIFIERS,
    READINGS,
    Reading,
    Scores,
    Split,
    Texts,
    evaluate,
    opinion_words,
    senteval,
    support_vectors,
)

LAWS: Final = {
    "plain": "M1: no projection",
    "paper": "M2, paper's Δ",
    "vocabulary": "M2, vocabulary's Δ",
    "spectral": "M2, spectral Δ",
    "orthogonal": "orthonormal rows",
    "principal": "main axes",
}
TASKS: Final = ("mr", "cr", "mpqa", "sst5", "trec")
EPSILONS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
BETAS: Final = (0.5, 0.7, 0.9)
TABLE_EPSILON: Final = 10.0
TABLE_BETA: Final = 0.9
TEXT_WORDS: Final = (5, 20, 100)

# Accuracy in percent on training and test data, of M1 and M2 at epsilon 10, and M2's beta 0.9 (Table 1).
PAPER: Final = {"mr": ((58.10, 55.61), (57.76, 58.11)), "cr": ((68.32, 63.97), (72.52, 71.02))}

Row = list[object]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all parts share.

    Attributes:
        seeds: Of the projections.
        draws: Of noise for each projection, where a draw costs little.
        delta: By which the paper's dimension is chosen.
        classifier: Of texts.
    """

    embedding: Embedding
    constants: VocabularyConstants
    seeds: Sequence[int] = range(5)
    draws: int = 3
    delta: float = DISTORTION_DELTA
    classifier: str = "ridge"
    _known: dict[tuple[float, int], dict[str, Law]] = field(default_factory=dict)
    _errors: dict[tuple[object, ...], Mapping[str, Mean]] = field(default_factory=dict)

    def laws(self, beta: float, seed: int) -> dict[str, Law]:
        """Give all ways to release vectors, for the projection of a seed."""
        if (beta, seed) not in self._known:
            found = projected(self.embedding, self.constants, beta=beta, seed=seed, delta=self.delta)
            self._known[beta, seed] = {"plain": plain(self.embedding.dimension), **found}
        return self._known[beta, seed]

    def constant(self, beta: float, name: str) -> Mean:
        """Summarize a law's Delta over projections."""
        return Mean.of([self.laws(beta, seed)[name].constant for seed in self.seeds])

    def text_stretch(self, beta: float, words: int) -> Mean:
        """Summarize :func:`text_stretch` over projections."""
        return Mean.of(
            [text_stretch(self.laws(beta, seed)["paper"], self.embedding, words) for seed in self.seeds]
        )


def measured_errors(setup: Setup, pairs: Pairs, beta: float, name: str, epsilon: float) -> Mapping[str, Mean]:
    """Release the pairs under one law, ``draws`` times for each projection."""
    key = (None if name == "plain" else beta, name, epsilon)
    if key not in setup._errors:
        found: dict[str, list[float]] = {}
        for seed in setup.seeds:
            law, rngs = setup.laws(beta, seed)[name], np.random.SeedSequence(seed).spawn(setup.draws)
            runs = [errors(law, pairs, epsilon, np.random.default_rng(rng)) for rng in rngs]
            for measure in Errors.__dataclass_fields__:
                mean = float(np.mean([getattr(run, measure) for run in runs]))
                found.setdefault(measure, []).append(mean)
        setup._errors[key] = {measure: Mean.of(values) for measure, values in found.items()}
    return setup._errors[key]


def stretch_table(setup: Setup, betas: Sequence[float]) -> str:
    """Say what each projection stretches."""
    rows: list[Row] = []
    for beta in betas:
        dimension = setup.laws(beta, setup.seeds[0])["paper"].dimension
        texts = [f"{setup.text_stretch(beta, words):.2f}" for words in TEXT_WORDS]
        two_words = f"{setup.constant(beta, 'vocabulary'):.3f}"
        any_vectors = f"{setup.constant(beta, 'spectral'):.3f}"
        rows.append([beta, dimension, f"{1 + beta:.2f}", two_words, *texts, any_vectors])
    texts = [f"two texts of {words} words" for words in TEXT_WORDS]
    return markdown(["β", "m", "1 + β", "any two words", *texts, "any two vectors"], rows)


def length_table(setup: Setup, betas: Sequence[float]) -> str:
    """Give the noise's mean length at epsilon 1, and its size along one direction."""
    rows: list[Row] = []
    for beta in betas:
        cells: Row = []
        for name in LAWS:
            dimension = setup.laws(beta, setup.seeds[0])[name].dimension
            constant = setup.constant(beta, name).mean
            cells.append(f"{dimension * constant:.0f} ({math.sqrt(dimension + 1) * constant:.1f})")
        rows.append([beta, *cells])
    return markdown(["β", *LAWS.values()], rows)


def error_table(
    setup: Setup,
    pairs: Pairs,
    measure: str,
    betas: Sequence[float],
    bound: Callable[..., float] | None = None,
) -> str:
    """Tabulate one measure of errors over epsilon and beta."""
    rows: list[Row] = []
    for epsilon in (*EPSILONS, math.inf):
        for beta in betas:
            cells: Row = [f"{epsilon:g}" if epsilon < math.inf else "no noise", beta]
            cells += [f"{measured_errors(setup, pairs, beta, name, epsilon)[measure]:.3g}" for name in LAWS]
            if bound is not None:
                law = setup.laws(beta, setup.seeds[0])["paper"]
                cells.append(f"{bound(law, pairs, epsilon, beta=beta, delta=setup.delta):.3g}")
            rows.append(cells)
    return markdown(["ε", "β", *LAWS.values(), *(["paper's bound"] if bound else [])], rows)


def print_errors(setup: Setup) -> Iterator[str]:
    """Figures 1 and 2."""
    yield "**By how much Φ stretches differences.**\n"
    yield stretch_table(setup, BETAS)
    yield "**Mean length of the noise at ε = 1; in brackets its root mean square along one direction.**\n"
    yield length_table(setup, BETAS)
    pairs = Pairs.sample(setup.embedding, 100, seed=0)
    typical = pairs.typical()
    guess = "One public number for all pairs"
    yield f"**Figure 1: mean absolute error of distances.** {guess}: {typical['distance']:.3g}\n"
    yield error_table(setup, pairs, "distance", BETAS, distance_bound)
    yield f"**Figure 2: mean absolute error of inner products.** {guess}: {typical['product']:.3g}\n"
    yield error_table(setup, pairs, "product", BETAS, product_bound)
    yield "**Error of distances after the noise's mean square is taken off.**\n"
    yield error_table(setup, pairs, "corrected", (TABLE_BETA,))
    yield "**Spearman's correlation of released and true distances.**\n"
    yield error_table(setup, pairs, "order", (TABLE_BETA,))


def word_scores(
    setup: Setup,
    words: tuple[NDArray[np.int64], NDArray[np.int64]],
    law: Callable[[int], Law],
    epsilon: float,
) -> list[Scores]:
    """Train and test on released vectors of words: one run for each projection."""
    ids, labels = words
    found = []
    for seed in setup.seeds:
        chosen = law(seed)
        noise = chosen.noise(len(ids), np.random.default_rng(seed))
        released = chosen.images(setup.embedding.vectors[ids]) + noise / epsilon
        found.append(evaluate(released, labels, Split.fold(labels, seed), support_vectors))
    return found


def print_words(setup: Setup, data: Path) -> Iterator[str]:
    """Figure 3."""
    words = opinion_words(data / "opinion_lexicon", setup.embedding)
    names = [name for name in LAWS if name != "orthogonal"]
    tables: dict[str, list[Row]] = {"test": [], "auc": []}
    for epsilon in (1.0, 5.0, 10.0, 20.0, 50.0, math.inf):
        once = word_scores(setup, words, lambda seed: plain(setup.embedding.dimension), epsilon)
        for beta in (0.5, 0.9):
            scores = {
                name: once
                if name == "plain"
                else word_scores(setup, words, lambda seed: setup.laws(beta, seed)[name], epsilon)  # noqa: B023
                for name in names
            }
            for measure, rows in tables.items():
                cells = [Mean.of([getattr(score, measure) for score in scores[name]]) for name in names]
                form = ".1%" if measure == "test" else ".3f"
                label = f"{epsilon:g}" if epsilon < math.inf else "no noise"
                rows.append([label, beta, *(format(cell, form) for cell in cells)])
    columns = ["ε", "β", *(LAWS[name] for name in names)]
    count = len(words[0]) // 2
    yield f"**Figure 3: accuracy of a linear SVM on {count:,} words of each kind.** Chance: 50 %\n"
    yield markdown(columns, tables["test"])
    yield "**Figure 3: area under the ROC curve.** Chance: 0.5\n"
    yield markdown(columns, tables["auc"])


Found = dict[tuple[str, str, float], list[Scores]]


def text_scores(
    setup: Setup, texts: Texts, released: Mapping[Reading, Sequence[str]], epsilons: Sequence[float]
) -> Found:
    """Train and test on released vectors of texts, by reading, law and epsilon; one run each projection."""
    found: Found = {}
    model, means = CLASSIFIERS[setup.classifier], texts.means(setup.embedding)
    for seed in setup.seeds:
        laws, split = setup.laws(TABLE_BETA, seed), texts.split(seed)
        clean = {name: law.images(means) for name, law in laws.items()}
        for reading, names in released.items():
            noise: dict[int, NDArray[np.float64]] = {}
            for name in names:
                law = laws[name]
                if law.dimension not in noise:
                    noise[law.dimension] = texts.noise(law, reading, np.random.default_rng(seed))
                for epsilon in epsilons:
                    features = clean[name] + noise[law.dimension] * (law.constant / epsilon)
                    score = evaluate(features, texts.labels, split, model)
                    found.setdefault((reading, name, epsilon), []).append(score)
    return found


def clean_scores(setup: Setup, texts: Texts, name: str) -> list[Scores]:
    """Train and test on projections without noise."""
    model, means = CLASSIFIERS[setup.classifier], texts.means(setup.embedding)
    return [
        evaluate(setup.laws(TABLE_BETA, seed)[name].images(means), texts.labels, texts.split(seed), model)
        for seed in setup.seeds
    ]


def random_scores(setup: Setup, texts: Texts, dimension: int) -> list[Scores]:
    """Train and test on vectors that know nothing of the texts."""
    model, shape = CLASSIFIERS[setup.classifier], (len(texts.labels), dimension)
    return [
        evaluate(np.random.default_rng(seed).standard_normal(shape), texts.labels, texts.split(seed), model)
        for seed in setup.seeds
    ]


def _percent(scores: Sequence[Scores]) -> str:
    return format(Mean.of([100.0 * score.test for score in scores]), ".1f")


def print_texts(setup: Setup, data: Path) -> Iterator[str]:
    """Table 1."""
    tasks = {name: senteval(data / "senteval", name, setup.embedding) for name in TASKS}
    # The vocabulary's Delta covers differences of two words, not those of two averages.
    of_averages = [name for name in LAWS if name != "vocabulary"]
    released: dict[Reading, Sequence[str]] = {"word": list(LAWS), "token": list(LAWS), "text": of_averages}
    found: dict[str, Found] = {}
    limits: list[Row] = []
    for task, texts in tasks.items():
        dimension = setup.laws(TABLE_BETA, setup.seeds[0])["paper"].dimension
        ceilings = [
            clean_scores(setup, texts, name) for name in ("paper", "orthogonal", "principal", "plain")
        ]
        floor = [f"{100 * texts.majority():.1f}", _percent(random_scores(setup, texts, dimension))]
        limits.append([task.upper(), *floor, *map(_percent, ceilings)])
        found[task] = text_scores(setup, texts, released, (TABLE_EPSILON,))
        click.echo(f"{task} is done", err=True)
    columns = ["", "commonest class", "random vectors", "Φ, no noise", "orthonormal rows, no noise"]
    yield "**Test accuracy, %: floor and ceiling.**\n"
    yield markdown([*columns, "main axes, no noise", "vectors as they are"], limits)
    for reading, names in released.items():
        meaning = READINGS[reading]
        yield f"**Table 1, test accuracy, %, at ε = {TABLE_EPSILON:g}, β = {TABLE_BETA:g}: {meaning}.**\n"
        rows: list[Row] = [
            [task.upper(), *(_percent(found[task][reading, name, TABLE_EPSILON]) for name in names)]
            for task in TASKS
        ]
        yield markdown(["", *(LAWS[name] for name in names)], rows)
    yield "**The paper's own cells: accuracy, %, beside ours on test data.**\n"
    rows = []
    for task, numbers in PAPER.items():
        for name, (train, test) in zip(("plain", "paper"), numbers, strict=True):
            ours = [_percent(found[task][reading, name, TABLE_EPSILON]) for reading in READINGS]
            rows.append([task.upper(), LAWS[name], f"{train}", f"{test}", *ours])
    yield markdown(
        ["", "", "paper, training", "paper, test", *(f"here, a vector per {each}" for each in READINGS)], rows
    )
    names = ["plain", "paper", "spectral", "orthogonal", "principal"]
    epsilons = (5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
    swept = text_scores(setup, tasks["cr"], {"token": names, "text": names}, epsilons)
    for reading in released:
        if reading != "word":
            yield f"**CR over ε, test accuracy, %: {READINGS[reading]}.**\n"
            rows = [[f"{e:g}", *(_percent(swept[reading, name, e]) for name in names)] for e in epsilons]
            yield markdown(["ε", *(LAWS[name] for name in names)], rows)


def small_figures() -> dict[str, object]:
    """Run everything in seconds on the demo's words and queries."""
    epsilons, names = (2.0, 20.0, 200.0), list(LAWS)
    with tempfile.TemporaryDirectory() as folder:
        embedding = demo_embedding(Path(folder))
        # A delta that leaves half of the demo's 50 dimensions; the paper's would leave 46.
        setup = Setup(
            embedding=embedding, constants=VocabularyConstants(embedding), seeds=(0,), draws=3, delta=0.01
        )
        pairs = Pairs.sample(embedding, 60, seed=0)
        laws = setup.laws(TABLE_BETA, 0)
        measured = {
            name: [measured_errors(setup, pairs, TABLE_BETA, name, epsilon) for epsilon in epsilons]
            for name in names
        }
        # Made labels: the side of a plane through the words' centre.
        ids = np.arange(0, len(embedding.vectors), 10, dtype=np.int64)
        scores = embedding.vectors[ids] @ np.random.default_rng(0).standard_normal(embedding.dimension)
        words = (ids, (scores > np.median(scores)).astype(np.int64))
        texts = Texts.of(*demo_queries(500), embedding)
        some = ("plain", "paper", "spectral")
        found = text_scores(setup, texts, dict.fromkeys(READINGS, some), epsilons[::2])
        return {
            "epsilons": epsilons,
            "dimensions": {name: law.dimension for name, law in laws.items()},
            "constants": {name: law.constant for name, law in laws.items()},
            "stretch": laws["paper"].stretch,
            "text_stretch": text_stretch(laws["paper"], embedding, 1000),
            "typical": pairs.typical(),
            "bound": [
                distance_bound(laws["paper"], pairs, epsilon, beta=TABLE_BETA, delta=setup.delta)
                for epsilon in epsilons
            ],
            **{
                measure: {name: [run[measure].mean for run in runs] for name, runs in measured.items()}
                for measure in Errors.__dataclass_fields__
            },
            "words": {
                name: [
                    _mean_test(word_scores(setup, words, partial(_law, setup, name), epsilon))
                    for epsilon in (*epsilons, math.inf)
                ]
                for name in some
            },
            "texts": {
                reading: {
                    name: [_mean_test(found[reading, name, epsilon]) for epsilon in epsilons[::2]]
                    for name in some
                }
                for reading in READINGS
            },
            "ceiling": _mean_test(clean_scores(setup, texts, "plain")),
            "projected": _mean_test(clean_scores(setup, texts, "paper")),
            "random": _mean_test(random_scores(setup, texts, laws["paper"].dimension)),
            "majority": texts.majority(),
        }


def _law(setup: Setup, name: str, seed: int) -> Law:
    return setup.laws(TABLE_BETA, seed)[name]


def _mean_test(scores: Sequence[Scores]) -> float:
    return Mean.of([score.test for score in scores]).mean


PARTS: Final[dict[str, Callable[[Setup, Path], Iterator[str]]]] = {
    "errors": lambda setup, _: print_errors(setup),
    "words": print_words,
    "texts": print_texts,
}


@click.command()
@click.option("--embedding", "path", type=click.Path(path_type=Path), help="a bundle of 300 dimensions")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="folder of the data sets")
@click.option("--part", "parts", type=click.Choice(list(PARTS)), multiple=True, default=list(PARTS))
@click.option("--constants", type=click.Path(path_type=Path), help="keep the vocabulary's constants here")
@click.option("--classifier", type=click.Choice(list(CLASSIFIERS)), default="ridge", help="of texts")
@click.option("--small", is_flag=True, help="run in seconds on the demo's data, and print JSON")
def main(
    path: Path | None,
    data: Path | None,
    parts: tuple[str, ...],
    constants: Path | None,
    classifier: str,
    small: bool,
) -> None:
    """Print the tables of the asked parts."""
    if small:
        click.echo(json.dumps(small_figures()))
        return
    if path is None or data is None:
        raise click.UsageError("Give --embedding and --data, or --small")
    embedding = Embedding.open(path, verify=False)
    setup = Setup(
        embedding=embedding, constants=VocabularyConstants(embedding, constants), classifier=classifier
    )
    for part in parts:
        for piece in PARTS[part](setup, data):
            click.echo(piece)


if __name__ == "__main__":
    main()
