"""What attackers learn on workers: from known rows alone, however they are dealt out."""

from dataclasses import replace

import numpy as np
import pytest
from pyspark.sql import functions as F

from dptext_spark.channel.channel import Channel
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.evaluation.simulate import (
    ATTACKED,
    CHOSEN_ON,
    KNOWN,
    SampledRows,
    count_pairs,
    knowledge_of,
    languages_of,
    third_of,
)
from dptext_spark.mechanisms import Laplace
from dptext_spark.search.exact import ExactSearch
from dptext_spark.spark.bundle_files import BundleFiles
from dptext_spark.tables.batch import ID, ROW
from dptext_spark.tables.columns import TableColumns
from dptext_spark.text.policies import TextPolicy
from tests.helpers.made_texts import sentences

pytestmark = pytest.mark.spark

ROWS = 120


@pytest.fixture(scope="module")
def rows(spark, small):
    """Rows in three thirds."""
    texts = sentences(ROWS, 1)
    df = spark.createDataFrame(
        [(f"r{i}", text) for i, text in enumerate(texts)], "id string, text string"
    )
    columns = TableColumns(text=("text",), keep=(), id="id")
    frame = columns.select(df).withColumn("third", third_of(F.col(ID))).persist()
    bundle = BundleFiles.send(spark, small)
    simulation = Simulation(bundle=bundle, policy=TextPolicy(), search=ExactSearch.over(small))
    assert frame.count() == ROWS
    yield SampledRows(frame=frame, simulation=simulation, ways=columns.field_paths(df.schema))
    frame.unpersist()


@pytest.fixture(scope="module")
def languages(rows):
    thirds = count_pairs(rows)
    counts = {third: thirds[KNOWN].pairs + thirds[third].pairs for third in ATTACKED}
    return languages_of(rows, counts, of_attacked=True), counts


def backwards(rows, *thirds):
    """The same rows, the texts of these thirds with their words in reverse order."""
    words = F.reverse(F.split(F.col(f"{ROW}.text"), " "))
    turned = F.col(ROW).withField("text", F.array_join(words, " "))
    chosen = F.when(F.col("third").isin(*thirds), turned).otherwise(F.col(ROW))
    return replace(rows, frame=rows.frame.withColumn(ROW, chosen))


def weights_of(rows, languages):
    channel = Channel.uniform(300, 200)
    knowledge = knowledge_of(
        rows, languages, channel, Laplace(epsilon=8.0), versions=2, candidates=20
    )
    return {
        (third, versions): weights
        for third, learnt in knowledge.items()
        for versions, weights in learnt.attackers["adaptive"].weights.items()
    }


def test_attackers_learn_from_the_known_third_alone(rows, languages):
    """Rejects shadow rows of an attacked third: its texts then change what guesses are weighed by."""
    # Nor does it matter which task has a row, or in which order.
    by_third, counts = languages
    first = weights_of(rows, by_third)
    assert sorted(first) == [(third, versions) for third in ATTACKED for versions in (1, 2)]
    dealt = replace(rows, frame=rows.frame.repartition(5).orderBy(F.desc(ID)))
    for other in (backwards(rows, *ATTACKED), dealt):
        for key, weights in weights_of(other, by_third).items():
            np.testing.assert_array_equal(weights, first[key])
        again = languages_of(other, counts, of_attacked=True)
        for third, learnt in again.items():
            for one, same in zip(learnt, by_third[third], strict=True):
                np.testing.assert_array_equal(one.triples.keys, same.triples.keys)
                np.testing.assert_array_equal(one.topics.ratios, same.topics.ratios)
    other = weights_of(backwards(rows, KNOWN), by_third)
    assert (other[CHOSEN_ON, 1] != first[CHOSEN_ON, 1]).any()
