"""Simulated releases against what goes in and what the mechanism's law says comes out."""

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.rows import Simulation
from dptext_spark.mechanisms import mechanism
from dptext_spark.search.exact import ExactSearch
from dptext_spark.text.policies import TextPolicy

TEXTS = pa.array(["The dog, unheard of", None, "", "new york cat NAÏVE", "unheard"])
SLOTS = pa.array([[{"start": 4, "end": 7}], None, [], [{"start": 13, "end": 18}], []])


def of(bundle, seed=0, **policy):
    embedding = Embedding.of(bundle)
    search = ExactSearch.over(embedding)
    return Simulation(bundle=embedding, policy=TextPolicy(**policy), search=search, seed=seed)


@pytest.mark.parametrize(
    ("protect", "perturbed"),
    [("all", [0, 1, 3, 4, 5, 6]), ("content", [1, 4, 5, 6]), ("slots:slots", [1, 6])],
)
def test_words_are_read_as_a_release_reads_them(bundle, protect, perturbed):
    """Joined words are one word; capitals do not matter; what is unknown is not perturbed."""
    # Rejects tokens that are read without their slots, of which every one would be perturbed in doubt.
    simulation = of(bundle, protect=protect)
    rows = simulation.read(TEXTS, SLOTS if protect.startswith("slots") else None)
    words = simulation.embedding.words.to_pylist()
    read = [words[i] if i >= 0 else None for i in rows.inputs]
    assert read == ["the", "dog", None, "of", "new york", "cat", "naïve", None]
    assert rows.offsets.tolist() == [0, 4, 4, 4, 7, 8]
    assert np.flatnonzero(rows.perturbed).tolist() == perturbed


def test_versions_are_independent_and_outputs_stand_in_their_words_places(line, bundle):
    """With hardly any noise every word comes out as itself. Rejects outputs that close up over gaps."""
    # The seed decides; rejects one version's noise for all.
    rows, ids, loud = of(bundle).read(TEXTS), pa.array(range(40)), mechanism("laplace", epsilon=1e6)
    found = of(bundle).release(rows, ids[:5], loud, versions=2)
    np.testing.assert_array_equal(found.outputs, np.stack([rows.inputs] * 2))
    rows, laplace = (
        of(line).read(pa.array(["w0 w1 w2 w3 w4"] * 40)),
        mechanism("laplace", epsilon=1.0),
    )
    once, again, one, other = (
        of(line, seed=seed).release(rows, ids, laplace, versions=versions).outputs
        for seed, versions in ((0, 2), (0, 2), (0, 1), (1, 2))
    )
    np.testing.assert_array_equal(once, again)
    np.testing.assert_array_equal(once[:1], one)
    assert (once[0] != once[1]).mean() > 0.2 and (once != other).mean() > 0.2


def test_the_corpus_is_cut_as_the_column_is(line):
    corpus = of(line, protect="slots:slots").public
    pairs = corpus.pairs(corpus.read(pa.array(["w0 w1", "w1 strange w0"])))
    assert pairs.first.tolist() == [0, 1, 5, 6, 6] and pairs.second.tolist() == [1, 5, 0, 0, 1]
