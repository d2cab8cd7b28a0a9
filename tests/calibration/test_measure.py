"""Spark's aggregates of measured cells against brute force; posteriors and K_w are in tests/jobs."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dptext_spark.calibration import word_statistics
from dptext_spark.calibration.measure import (
    GUESSES,
    SCHEMA,
    least_protected,
    moments,
    output_statistics,
    quantile_and_bound,
)
from dptext_spark.calibration.statistics import LEVELS, OF_WORD
from dptext_spark.calibration.target import Target, bounding_rank
from tests.helpers import calibration_oracle as oracle

pytestmark = pytest.mark.spark

SIZE, RUNS, EPSILONS = 40, 20, (2.0, 40.0)
GRID = oracle.grid(SIZE, runs=RUNS)


def parts_of(spark, transitions):
    """Cells as blocks of words leave them."""
    values = (transitions.output, transitions.count.astype(float), transitions.judged.astype(float))
    split = (np.split(column, transitions.starts[1:]) for column in values)
    lists = [[part.tolist() for part in own] for own in zip(*split, strict=True)]
    rows = []
    for word, own in zip(word_statistics(transitions).to_pylist(), lists, strict=True):
        row, epsilon = word["word"], EPSILONS[word["epsilon_index"]]
        rows.append(("laplace", epsilon, row + 1, row, *(word[n] for n in OF_WORD), *own))
    return spark.createDataFrame(rows, SCHEMA).repartition(3)


@pytest.fixture(scope="module")
def transitions():
    """Few runs of uneven laws, so that many counts are equal or small multiples of each other."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(SIZE, 0.1), size=(2, SIZE))
    draws = [[rng.choice(SIZE, RUNS, p=law) for law in own] for own in laws]
    return oracle.counted(np.array(draws, np.int32), np.arange(SIZE))


@pytest.fixture(scope="module")
def parts(spark, transitions):
    return parts_of(spark, transitions).cache()


@pytest.mark.parametrize("runs", [2, RUNS])
def test_risks_are_those_of_brute_force(spark, runs):
    """With two runs most outputs that judge were not seen: rejects a guesser who then names no word."""
    draws = np.random.default_rng(runs).integers(0, SIZE, (2, SIZE, runs)).astype(np.int32)
    draws[:, 0, -1] = SIZE - 1  # which no other word gives
    draws[:, :, :-1] %= SIZE - 1
    draws[:, 1:] %= SIZE - 1
    transitions, sample = oracle.counted(draws, np.arange(SIZE), SIZE), replace(GRID, runs=runs)
    found = moments(output_statistics(parts_of(spark, transitions), [sample]), GUESSES)
    for prior in ("uniform", "zipf"):
        for epsilon, own, judged in zip(
            EPSILONS, *oracle.guessed(transitions, sample, prior), strict=True
        ):
            row = found["laplace", epsilon]
            won = [float(row[name]["sum"]) for name in (prior, f"{prior}_judged")]
            assert won == pytest.approx([own, judged])


@pytest.mark.parametrize(
    "text", ["p50(n_w) <= 0.5", "p5(s_w) >= 2", "max(n_w) <= 0.5", "min(entropy) >= 1"]
)
def test_a_quantile_is_bounded_by_the_value_of_its_rank(parts, transitions, text):
    """Rejects the bound of n_w by n_w itself, and ranks that count from the other end or from 0."""
    target, table = Target.parse(text), word_statistics(transitions).slice(0, SIZE)
    measured, bound = quantile_and_bound(parts.where("epsilon = 2"), target, GRID)
    column = target.arguments[0]
    values, limits = (
        table[name].to_numpy() for name in (column, "n_w_high" if target.upper else column)
    )
    assert measured == np.quantile(values, LEVELS[target.measure], method="inverted_cdf")
    assert bound == np.sort(limits)[bounding_rank(target, GRID) - 1]


def test_the_least_protected_words_are_named_and_counted(parts, transitions):
    """Rejects a count that ends on the wrong side of 0.95, and of equals another than the bundle's first."""
    n_w = F.when(F.col("word") == 3, 0.95).when(F.col("word") == 5, 0.9499).otherwise(F.col("n_w"))
    names = pa.array([f"w{i}" for i in range(SIZE)])
    found = least_protected(parts.withColumn("n_w", n_w), names, top=6)
    assert sorted(row["epsilon"] for row in found) == [*EPSILONS]
    for row in found:
        own = (
            word_statistics(transitions)
            .slice(EPSILONS.index(row["epsilon"]) * SIZE, SIZE)
            .to_pylist()
        )
        own[3]["n_w"], own[5]["n_w"] = 0.95, 0.9499
        first = sorted(own, key=lambda word: (-word["n_w"], word["word"]))[:6]
        limits = ("n_w", "n_w_low", "n_w_high")
        assert row["top"] == [
            {"word": f"w{own['word']}"} | {n: own[n] for n in limits} for own in first
        ]
        assert row["staying"] == 1 and row["top"][0]["word"] == "w3"
