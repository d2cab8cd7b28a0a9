"""Settings compared on rows in memory: seeds, a corpus, and what is refused."""

import pyarrow as pa
import pytest

from dptext_spark.errors import DptextError
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import Risk
from dptext_spark.mechanisms import Laplace
from tests.helpers.made_texts import sentences

OF_ROWS = ("singled_out(2)", "singled_out(6)", "pieces(figures)", "pieces(codes)", "linked")
QUICK = {"mechanisms": (Laplace(epsilon=5.0),), "candidates": 60, "channel_limit": 0.05}


def test_a_word_that_the_corpus_lacks_is_never_guessed(small):
    found = evaluate(
        sentences(20, 1), list(range(20)), corpus=["w150 w151 w152"], embedding=small, **QUICK
    )
    assert Risk(attacker="in-context").value(found.outcomes[0].sums, 0.95)[0] == 0.0


def test_the_same_seed_gives_the_same_numbers(small):
    """Of token lists too, where tokens that are no words of the bundle are not counted."""
    lists = pa.array(
        [["w1", "the", "w2"], ["w3", None], *(text.split() for text in sentences(10, 3))]
    )
    found = [
        evaluate(lists, list(range(12)), embedding=small, seed=seed, **QUICK) for seed in (1, 1, 2)
    ]
    assert found[0].risk() == found[1].risk() != found[2].risk()
    assert found[0].utility() == found[1].utility() != found[2].utility()
    words = small.words.to_pylist()
    count = sum(token in words for tokens in lists.to_pylist() for token in tokens)
    of_words = [row for row in found[0].risk().to_pylist() if row["attacker"] not in OF_ROWS]
    assert {row["tokens"] for row in of_words} == {count}


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["w1"], {"mechanisms": []}, "no setting"),
        (["w1"], {"versions": 0}, "versions must be at least 1. Got: 0"),
        (["w1"], {"candidates": 4}, "candidates must be at least 5. Got: 4"),
        (["w1"], {"channel_limit": 1.0}, "channel_limit must be above 0 and below 1. Got: 1.0"),
        (["w1"], {"seed": -1}, "seed must be from 0 to .*. Got: -1"),
        (["strange"], {}, "no word of these rows is perturbed"),
        (
            ["w1"],
            {"corpus": ["strange", ""]},
            "The corpus has no word of the embedding. Got: 2 texts",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_refused(small, values, options, message):
    with pytest.raises(DptextError, match=message):
        evaluate(
            values, [1], **{"embedding": small, "mechanisms": (Laplace(epsilon=5.0),)} | options
        )
