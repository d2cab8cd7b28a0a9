"""Rows that stick out, counted on Spark: the numbers of plain arrays, whatever the tasks and batches."""

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from dptext_spark.channel.local import channel_of
from dptext_spark.evaluation.attackers import Knowledge
from dptext_spark.evaluation.language import Language, word_prior
from dptext_spark.evaluation.linkage import linkage, rows_of_lengths
from dptext_spark.evaluation.measures import RANDOM_WORDS, sighted
from dptext_spark.evaluation.rarity import sightings, singled_out
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import ATTACKED, SampledRows, count_pairs, simulate, third_of
from dptext_spark.mechanisms import Exponential
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.batch import ID
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from dptext_spark.word_reader import FEW, rows_with_words
from tests.helpers.made_texts import sentences
from tests.helpers.tables import spark_settings

pytestmark = pytest.mark.spark

TEXTS = [
    *sentences(80, 1),
    "w7 w7",
    "w7",
    "",
    "strange w3",
    *[f"w{number}" for number in range(60, 75)],
]
IDS = [f"r{number}" for number in range(len(TEXTS))]
MECHANISM = Exponential(epsilon=2.0)


@pytest.fixture(scope="module")
def thirds(spark):
    rows = spark.createDataFrame([(name,) for name in IDS], "id string")
    numbered = rows.select("id", third_of(F.col("id")).alias("third")).collect()
    third_by_id = {row["id"]: row["third"] for row in numbered}
    return np.array([third_by_id[name] for name in IDS])


@pytest.fixture(scope="module")
def simulation(spark, small):
    bundle = BundleFiles.send(spark, small)
    return Simulation(bundle=bundle, policy=TextPolicy(), search=ExactSearch.over(small))


@pytest.fixture(scope="module")
def sampled(spark, simulation):
    """Rows in a number of tasks."""
    df = spark.createDataFrame([*zip(IDS, TEXTS, strict=True)], "id string, text string")
    columns = TableColumns(text=("text",), keep=(), id="id")
    selected = columns.select(df).withColumn("third", third_of(F.col(ID)))

    def make(tasks):
        frame = selected.repartition(tasks)
        return SampledRows(frame=frame, simulation=simulation, ways=columns.field_paths(df.schema))

    return make


@pytest.fixture(scope="module")
def rows(simulation):
    return simulation.read(pa.array(TEXTS))


@pytest.fixture(scope="module")
def row_counts(rows, small):
    return rows_with_words(rows.inputs, rows.rows, vocabulary=len(small.words))


@pytest.fixture(scope="module")
def known(simulation, rows, row_counts, small):
    """Attackers that guess nothing; they know the channel."""
    prior = word_prior(simulation.pairs(rows))
    channel = channel_of(MECHANISM, small, simulation.search, prior)
    language = Language(words=prior, pairs=None, triples=None, topics=None)
    knowledge = Knowledge(
        channel=channel, language=language, candidates=5, attackers={}, row_counts=row_counts
    )
    return dict.fromkeys(ATTACKED, knowledge)


def test_words_and_lengths_are_counted_by_rows(sampled, rows, row_counts, thirds):
    """Rejects tokens in place of rows, a third's rows in another one, and rows without words."""
    counted = count_pairs(sampled(3))
    assert np.array_equal(sum(third.row_counts for third in counted), row_counts)
    for third, own in enumerate(counted):
        assert own.lengths == rows_of_lengths(rows.taken(np.flatnonzero(thirds == third)))
        assert own.rows == (thirds == third).sum()


@pytest.mark.parametrize("buckets", [1, 3])
def test_rows_stick_out_by_the_same_numbers_in_any_tasks_and_batches(
    spark, sampled, simulation, rows, row_counts, known, thirds, buckets
):
    """Rejects rarity and originals of a task, of a batch, or of the other attacked third.

    Where many rows have one length each is linked within its bucket, on Spark as here.
    """
    released = simulation.release(rows, pa.array(IDS), MECHANISM)
    parts = {third: np.flatnonzero(thirds == third) for third in ATTACKED}
    alike = {
        third: {
            length: count + 1_000 * (buckets - 1) for length, count in rows_of_lengths(part).items()
        }
        for third, part in {third: rows.taken(places) for third, places in parts.items()}.items()
    }
    with spark_settings(spark, execution_arrow_maxRecordsPerBatch=7):
        many = simulate(sampled(5), MECHANISM, known, 1, alike)
    one = simulate(sampled(1), MECHANISM, known, 1, alike)
    for third, places in parts.items():
        part = released.taken(places)
        ids = pa.array(IDS).take(pa.array(places))
        expected = linkage(part, ids, known[third].channel, alike[third])
        expected |= {f"singled_out({few})": singled_out(part, row_counts, few) for few in FEW}
        expected |= {sighted(few): sightings(part, row_counts, few) for few in FEW}
        for name, sums in expected.items():
            for found in (many, one):
                assert np.array_equal(found[third][name].parts, sums.parts), name
        assert 0 < expected["singled_out(2)"].ratio[0] < expected["singled_out(6)"].ratio[0]
        assert 0 < expected["linked"].ratio[0] < 1
    # Words that another third has, too, are not rare: they would be, counted in one attacked third.
    alone = rows.taken(parts[1])
    of_third = rows_with_words(alone.inputs, alone.rows, vocabulary=len(row_counts))
    own = released.taken(parts[1])
    assert singled_out(own, of_third, 2).ratio[0] > singled_out(own, row_counts, 2).ratio[0]


def test_without_output_rows_are_linked_by_length_alone(spark, sampled, rows, known, thirds):
    """Rejects a floor that sees words; where Spark encrypts no shuffle, nothing is linked."""
    alike = {
        third: rows_of_lengths(rows.taken(np.flatnonzero(thirds == third))) for third in ATTACKED
    }
    nothing = known[1].channel.uniform(len(known[1].language.words), 200)
    floors = dict.fromkeys(
        ATTACKED, Knowledge(channel=nothing, language=known[1].language, candidates=5, attackers={})
    )
    found = simulate(sampled(2), None, floors, 1, alike)
    for third in ATTACKED:  # one row of each length
        assert found[third]["linked"].sums[1, 0] == pytest.approx(len(alike[third]))
    assert not any(
        "linked" in sums for sums in simulate(sampled(2), RANDOM_WORDS, floors, 1).values()
    )
