"""Spark's aggregates of measured cells against brute force, and against an example made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from dptext_spark.calibration import Transitions, word_statistics
from dptext_spark.calibration.target import Target
from dptext_spark.spark.measuring.aggregates import (
    batch_means,
    bounded,
    guesses,
    output_statistics,
    with_deniability,
)
from dptext_spark.spark.measuring.blocks import CELL_SCHEMA, WORDS
from tests.helpers import calibration_oracle as oracle

pytestmark = pytest.mark.spark

SIZE = 40
RUNS = 20
GRID = oracle.grid(SIZE, runs=RUNS)
EPSILONS = (2.0, 40.0)


def parts_of(spark: SparkSession, transitions: Transitions) -> DataFrame:
    """Cells as blocks of words leave them."""
    values = (transitions.output, transitions.count.astype(float), transitions.seen)
    split = (np.split(column, transitions.starts[1:]) for column in values)
    lists = [[part.tolist() for part in own] for own in zip(*split, strict=True)]
    rows = []
    for word, own in zip(word_statistics(transitions).to_pylist(), lists, strict=True):
        row = word["word"]
        rows.append(("", row % 16, EPSILONS[word["epsilon_index"]], row, *(word[n] for n in WORDS), *own))
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


@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0, 4.0, 1e9])
def test_deniability_counts_the_words_that_are_as_likely(
    parts: DataFrame, transitions: Transitions, gamma: float
) -> None:
    """Rejects a word that does not count itself, rounding at the border, and outputs that weigh alike."""
    found = np.array(listed(with_deniability(parts, gamma, RUNS), "deniability", "deniability_p5"))
    mean, low = oracle.deniability(transitions, gamma)
    np.testing.assert_allclose(found[:, 2].reshape(2, -1), mean, rtol=1e-12)
    np.testing.assert_array_equal(found[:, 3].reshape(2, -1), low)


def test_outputs_and_risks_of_an_example(spark: SparkSession) -> None:
    outputs = output_statistics(parts_of(spark, oracle.counted()))
    expected = [(0, 1.0), (1, 2.0), (2, 3.0)] + [(y, 1.0) for y in (3, 4, 5, 6, 8, 9)]
    assert [row[1:] for row in listed(outputs, "k_w")] == expected
    # Output 1: word 1, six times; 2: word 2, ten times; all else word 7, eight times.
    (found,) = guesses(outputs)
    assert found["uniform"] == 6 + 10 + 8
    assert float(found["zipf"]) == pytest.approx(6 / 2 + 10 / 3 + 8 / 8)


def test_batches_are_every_sixteenth_block(parts: DataFrame, transitions: Transitions) -> None:
    table = word_statistics(transitions)
    found = batch_means(parts, ["n_w", "s_w"])
    assert list(found) == [("", epsilon) for epsilon in EPSILONS]
    for index, epsilon in enumerate(EPSILONS):
        for name in ("n_w", "s_w"):
            values = table[name].to_numpy().reshape(2, -1)[index]
            means = [values[batch::16].mean() for batch in range(16)]
            assert found["", epsilon][name] == pytest.approx(np.array(means), rel=1e-12)
        assert found["", epsilon]["n"].tolist() == [3.0] * 8 + [2.0] * 8


@pytest.mark.parametrize("text", ["p50(n_w) <= 0.5", "p5(s_w) >= 2", "max(n_w) <= 0.5", "min(entropy) >= 1"])
def test_a_quantile_is_bounded_by_the_value_of_its_rank(
    parts: DataFrame, transitions: Transitions, text: str
) -> None:
    """Rejects the bound of n_w by n_w itself, and ranks that count from the other end or from 0."""
    target = Target.parse(text)
    table = word_statistics(transitions).slice(0, SIZE)
    measured, bound = bounded(parts.where("epsilon = 2"), target, GRID)
    level = {"min": 0.0, "p5": 0.05, "p50": 0.5, "max": 1.0}[target.statistic]
    assert measured == np.quantile(table[target.column].to_numpy(), level, method="inverted_cdf")
    rank = target.rank(GRID)
    assert rank is not None
    assert bound == np.sort(table[target.bounded_column].to_numpy())[rank - 1]
