"""What attackers recover: known answers, and attackers that must do worse."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.evaluation import attackers
from dptext_spark.evaluation.attackers import ContextFree, InContext, Knowledge, attack, bands
from dptext_spark.evaluation.candidates import Candidates
from dptext_spark.evaluation.emissions import Emissions
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.language import PairCounts
from dptext_spark.evaluation.rows import SimulatedRows
from tests.helpers.hidden_worlds import chain, emitting, enumerated, released

START = np.array([0.7, 0.3])
FOLLOWS = np.array([[0.9, 0.1], [0.4, 0.6]])
NOISE = np.array([[0.8, 0.2], [0.35, 0.65]])
CHAIN = chain(START, FOLLOWS)


def share(found: dict[str, ClusterSums], name: str) -> float:
    return float(found[name].ratio[0])


def test_the_attacker_gets_what_the_posterior_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a two-word world whose chain is known: as many words right as the enumerated posterior says.

    600 rows of 8 words; the share's interval at confidence 1 - 1e-4. Rejects the attacker without context,
    whose share is below the interval's lower end, and one that looks at the first of five versions alone.
    Batches change nothing.
    """
    rng, words = np.random.default_rng(1), np.zeros((600, 8), dtype=np.int64)
    words[:, 0] = rng.random(600) > START[0]
    for place in range(1, 8):
        words[:, place] = rng.random(600) > FOLLOWS[words[:, place - 1], 0]
    outputs = (rng.random((5, 4800)) > NOISE[words.ravel(), 0]).astype(np.int64)
    prior = np.array([0.8, 0.2])  # the chain's stationary law
    own = {"context-free": ContextFree(), "in-context": InContext(language=CHAIN)}
    knowledge = Knowledge(emissions=emitting(NOISE), words=prior, attackers=own)
    one, five = (attack(released(words.tolist(), outputs[:k]), knowledge) for k in (1, 5))
    seen = outputs[:1].reshape(1, 600, 8)
    best = [enumerated(CHAIN, NOISE, seen[:, r], np.full(8, -1)).max(axis=1) for r in range(100)]
    low, high = one["in-context/1"].share_interval(1 - 1e-4)
    assert low[0] < np.mean(best) < high[0]
    assert share(one, "context-free/1") < low[0]
    for name in ("context-free/1", "in-context/1"):
        assert share(five, name) > share(one, name) + 0.03
    monkeypatch.setattr(attackers, "_TOKENS", 100)
    for name, sums in attack(released(words.tolist(), outputs), knowledge).items():
        np.testing.assert_array_equal(sums.parts, five[name].parts)


def test_an_attacker_more_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejects an attack that names its attackers itself: a subclass is all that a new one takes.

    And nothing to attack is no error.
    """
    monkeypatch.setattr(attackers, "ATTACKERS", dict(attackers.ATTACKERS))

    class Output(ContextFree):
        name = "output"

        def guess(self, rows: SimulatedRows, candidates: Candidates) -> np.ndarray:
            return rows.outputs[:1].T

    rows = released([[0, 1], [1]], np.array([[0, 0, 1]]))
    pairs = PairCounts.of_rows(rows.inputs, rows.offsets, vocabulary=3)
    found = attack(rows, Knowledge.learn(pairs, Emissions.uniform(3, 3)))
    names = [f"{name}/{top}" for name in ("context-free", "in-context", "output") for top in (1, 5)]
    assert sorted(found) == sorted([*names, "considered"])
    assert share(found, "output/1") == pytest.approx(2 / 3)
    found = attack(released([[-1], []], np.array([[0]])), Knowledge.learn(pairs, Emissions.uniform(3, 3)))
    assert found["considered"].size.sum() == 0 and np.isnan(share(found, "in-context/1"))


def test_bands_are_ranks() -> None:
    found = bands(np.arange(20_000, 0, -1).astype(float))
    assert np.bincount(found).tolist() == [100, 900, 9_000, 10_000]
    assert (np.diff(found) >= 0).all()
