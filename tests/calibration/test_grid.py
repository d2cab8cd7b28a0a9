"""What a calibration measures: how words are dealt out, what names a run, and who need not draw."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from dptext_spark.calibration.grid import BATCHES, Grid, example_ids
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Hyperbolic, Laplace, Mechanism
from dptext_spark.search.exact import ExactSearch
from tests.helpers.tables import ROOT


def of(embedding: Embedding, *mechanisms: Mechanism, words: int | None = None) -> Grid:
    rest = {"runs": 10, "seed": 0, "confidence": 0.95, "eta": 0.05}
    search = ExactSearch.over(embedding)
    return Grid.over(embedding, search, mechanisms, estimator_name="auto", words=words or "all", **rest)


@pytest.mark.parametrize(("words", "blocks"), [(None, 16), (5, 5), (200, 16)])
def test_blocks_deal_out_words_that_are_evenly_spread(
    small: Embedding, words: int | None, blocks: int
) -> None:
    found = of(small, Laplace(epsilon=2.0), words=words)
    assert (found.words, found.blocks) == (words or 300, blocks)
    assert found.whole == (found.words == 300)
    dealt = [found.block(number) for number in range(found.blocks)]
    np.testing.assert_array_equal(np.sort(np.concatenate(dealt)), np.arange(found.words) * 300 // found.words)
    assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


def test_many_words_make_whole_batches_of_blocks(small: Embedding) -> None:
    """Rejects blocks that no two batches share out evenly, and blocks larger than the estimator takes."""
    found = of(small, Exponential(epsilon=2.0))
    assert (found.estimator, found.exact, found.blocks) == ("exact", True, 2 * BATCHES)
    assert found.blocks * 16 >= found.words


def test_an_epsilon_of_its_own_leaves_all_else(small: Embedding, ball: Embedding) -> None:
    """In whatever order epsilons are given; one that comes again counts once."""
    whole = of(small, Laplace(epsilon=4.0), Laplace(epsilon=2.0))
    one = whole.at(3.0, small)
    assert one == replace(whole, mechanisms=(Laplace(epsilon=3.0),))
    assert (whole.epsilons, whole.also_at(one).epsilons) == ([2.0, 4.0], [2.0, 3.0, 4.0])
    assert whole.also_at(whole) == whole
    with pytest.raises(ConfigError):
        of(ball, Hyperbolic(epsilon=4.0)).at(0.5, ball)


def test_words_that_share_noise_weigh_together(small: Embedding) -> None:
    """A block of shared rays is one unit, of plain runs each word is. Rejects ranks in the vocabulary."""
    shared = of(small, Laplace(epsilon=2.0), words=100)
    assert shared.monotone and not of(small, Exponential(epsilon=2.0)).monotone
    zipf = 1.0 / np.arange(1, 101)
    np.testing.assert_allclose(shared.weights("zipf"), zipf / zipf.sum())
    for number in range(shared.blocks):
        ranks = shared.ranks_of(number)
        np.testing.assert_array_equal((ranks - 1) * 3, shared.block(number))
        assert shared.units("zipf")[number] == pytest.approx(shared.weights("zipf")[ranks - 1].sum())
    np.testing.assert_array_equal(replace(shared, estimator="plain").units("uniform"), np.full(100, 0.01))


def test_examples_have_all_their_runs_at_each_epsilon(small: Embedding) -> None:
    found = of(small, Laplace(epsilon=2.0), Laplace(epsilon=40.0)).examples(small, np.array([3, 8]))
    counts = found.group_by(["epsilon", "word"]).aggregate([("count", "sum")])
    assert sorted(map(tuple, map(dict.values, counts.to_pylist()))) == [
        (epsilon, word, 10.0) for epsilon in (2.0, 40.0) for word in (3, 8)
    ]


def test_examples_are_words_of_the_bundle(line: Embedding) -> None:
    assert example_ids(line, ["w4", "w1", "w4"]).tolist() == [1, 4]
    with pytest.raises(ConfigError, match=r"lacks words of --example.*Got: gone, lost"):
        example_ids(line, ["w1", "gone", "lost"])


@pytest.mark.parametrize("module", ["dptext_spark.calibration", "dptext_spark.calibration.measure"])
def test_who_only_measures_loads_nothing_that_draws(module: str) -> None:
    """Workers import these at every start."""
    code = f"import sys, {module}; print({{'matplotlib', 'jinja2', 'scipy.stats'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
