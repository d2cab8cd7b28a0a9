"""Spark's aggregates of measured cells against brute force, and against an example made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.calibration import Transitions, word_statistics
from dptext_spark.calibration.measure import (
    CELL_SCHEMA,
    batch_means,
    bounded,
    censuses,
    guesses,
    output_statistics,
    with_posterior,
)
from dptext_spark.calibration.statistics import OF_WORD
from dptext_spark.calibration.summary import N_W_EDGES, S_W_EDGES
from dptext_spark.calibration.target import Target, bounded_column, bounding_rank
from tests.helpers import calibration_oracle as oracle

pytestmark = pytest.mark.spark

SIZE = 40
RUNS = 20
GRID = oracle.grid(SIZE, runs=RUNS)
EPSILONS = (2.0, 40.0)


def parts_of(spark: SparkSession, transitions: Transitions) -> DataFrame:
    """Cells as blocks of words leave them."""
    values = (transitions.output, transitions.count.astype(float), transitions.judged.astype(float))
    split = (np.split(column, transitions.starts[1:]) for column in values)
    lists = [[part.tolist() for part in own] for own in zip(*split, strict=True)]
    rows = []
    for word, own in zip(word_statistics(transitions).to_pylist(), lists, strict=True):
        row, epsilon = word["word"], EPSILONS[word["epsilon_index"]]
        rank = int(np.searchsorted(np.unique(transitions.word), row)) + 1
        rows.append(("laplace", row % 16, epsilon, rank, row, *(word[n] for n in OF_WORD), *own))
    return spark.createDataFrame(rows, CELL_SCHEMA).repartition(3)


@pytest.fixture(scope="module")
def transitions() -> Transitions:
    """Few runs of uneven laws, so that many counts are equal or small multiples of each other."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(SIZE, 0.1), size=(2, SIZE))
    draws = [[rng.choice(SIZE, RUNS, p=law) for law in own] for own in laws]
    return oracle.counted(np.array(draws, np.int32), np.arange(SIZE))


@pytest.fixture(scope="module")
def parts(spark: SparkSession, transitions: Transitions) -> DataFrame:
    return parts_of(spark, transitions).cache()


def listed(df: DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.select("epsilon", "word", *names).orderBy("epsilon", "word").collect()]


def exact_of(transitions: Transitions) -> Transitions:
    """The same counts, as if they were expected ones, some of them tiny."""
    count = transitions.count * np.where(transitions.output % 3, 1.0, 1e-9)
    return replace(transitions, count=count, judged=count / 2.0)


@pytest.mark.parametrize("exact", [False, True])
def test_a_posterior_is_of_each_run_by_all_others(
    spark: SparkSession, transitions: Transitions, exact: bool
) -> None:
    """Rejects a run that counts itself, and outputs that weigh alike."""
    chosen = exact_of(transitions) if exact else transitions
    sample = replace(GRID, estimator="exact" if exact else "plain")
    found = listed(with_posterior(parts_of(spark, chosen), sample), "posterior")
    expected = oracle.posterior(chosen).ravel()
    np.testing.assert_allclose([row[2] for row in found], expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("exact", [False, True])
def test_outputs_have_at_least_one_input(spark: SparkSession, transitions: Transitions, exact: bool) -> None:
    """Of those that hardly ever come too. Rejects the expected number whether or not the output comes."""
    chosen = exact_of(transitions) if exact else transitions
    sample = replace(GRID, estimator="exact" if exact else "plain")
    found = [row[2] for row in listed(output_statistics(parts_of(spark, chosen), sample), "k_w")]
    assert min(found) >= 1.0
    np.testing.assert_allclose(found, oracle.output_statistics(chosen)["k_w"].to_numpy(), rtol=1e-6)
    assert not exact or chosen.seen.min() < 1e-7


@pytest.mark.parametrize("runs", [2, RUNS])
def test_risks_are_those_of_brute_force(spark: SparkSession, runs: int) -> None:
    """With two runs most outputs that judge were not seen: rejects a guesser who then names no word."""
    draws = np.random.default_rng(runs).integers(0, SIZE, (2, SIZE, runs)).astype(np.int32)
    draws[:, 0, -1] = SIZE - 1  # which no other word gives
    draws[:, :, :-1] %= SIZE - 1
    draws[:, 1:] %= SIZE - 1
    transitions, sample = oracle.counted(draws, np.arange(SIZE), SIZE), replace(GRID, runs=runs)
    outputs = output_statistics(parts_of(spark, transitions), sample)
    found = sorted(guesses(outputs), key=lambda row: row["epsilon"])
    for prior in ("uniform", "zipf"):
        weights = sample.weights(prior)
        own, won = oracle.guessed(transitions, weights)
        for row, mine, judged in zip(found, own, won, strict=True):
            assert float(row[prior]) * weights[0] / runs == pytest.approx(mine)
            assert float(row[f"{prior}_judged"]) * weights[0] / (runs // 2) == pytest.approx(judged)


def test_batches_are_every_sixteenth_block(parts: DataFrame, transitions: Transitions) -> None:
    table = word_statistics(transitions)
    found = batch_means(parts, ["n_w", "s_w", "n_w_zipf"])
    assert list(found) == [("laplace", epsilon) for epsilon in EPSILONS]
    for index, epsilon in enumerate(EPSILONS):
        for name in ("n_w", "s_w"):
            values = table[name].to_numpy().reshape(2, -1)[index]
            means = [values[batch::16].mean() for batch in range(16)]
            assert found["laplace", epsilon][name] == pytest.approx(np.array(means), rel=1e-12)
        zipf = table["n_w"].to_numpy().reshape(2, -1)[index] / np.arange(1, SIZE + 1)
        weighted = found["laplace", epsilon]["n_w_zipf"] * found["laplace", epsilon]["n"]
        assert weighted.sum() == pytest.approx(zipf.sum())
        assert found["laplace", epsilon]["n"].tolist() == [3.0] * 8 + [2.0] * 8


@pytest.mark.parametrize("text", ["p50(n_w) <= 0.5", "p5(s_w) >= 2", "max(n_w) <= 0.5", "min(entropy) >= 1"])
def test_a_quantile_is_bounded_by_the_value_of_its_rank(
    parts: DataFrame, transitions: Transitions, text: str
) -> None:
    """Rejects the bound of n_w by n_w itself, and ranks that count from the other end or from 0."""
    target = Target.parse(text)
    table = word_statistics(transitions).slice(0, SIZE)
    measured, bound = bounded(parts.where("epsilon = 2"), target, GRID)
    level = {"min": 0.0, "p5": 0.05, "p50": 0.5, "max": 1.0}[target.measure]
    assert measured == np.quantile(table[target.arguments[0]].to_numpy(), level, method="inverted_cdf")
    rank = bounding_rank(target, GRID)
    assert rank is not None
    assert bound == np.sort(table[bounded_column(target)].to_numpy())[rank - 1]


def test_a_census_counts_all_words_and_names_the_least_protected(
    parts: DataFrame, transitions: Transitions
) -> None:
    """Rejects bars that end on the wrong side of a number, and of equals another than the bundle's first."""
    names = pa.array([f"w{i}" for i in range(SIZE)])
    table = word_statistics(transitions)
    found = censuses(parts, names, top=5)
    assert [(row["mechanism"], row["epsilon"]) for row in found] == [("laplace", e) for e in EPSILONS]
    for index, row in enumerate(found):
        own = table.slice(index * SIZE, SIZE)
        for name, edges in (("n_w", N_W_EDGES), ("s_w", S_W_EDGES)):
            assert row[name] == np.histogram(own[name].to_numpy(), edges)[0].tolist()
        assert row["n_w"][-1] == (own["n_w"].to_numpy() >= 0.95).sum()
        first = sorted(own.to_pylist(), key=lambda word: (-word["n_w"], word["word"]))[:5]
        shown = ("n_w", "n_w_low", "n_w_high")
        expected = [{"word": f"w{word['word']}"} | {n: word[n] for n in shown} for word in first]
        assert row["top"] == expected
