"""What users ask for, and which setting they are given for it."""

from __future__ import annotations

import numpy as np
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.evaluation.goal import Goal
from dptext_spark.mechanisms import Laplace
from tests.helpers.made_texts import sentences

SETTINGS = (Laplace(epsilon=5.0), Laplace(epsilon=8.0), Laplace(epsilon=1e6))


@pytest.fixture(scope="module")
def compared(small: Embedding) -> Comparison:
    return evaluate(
        sentences(80, 1), list(range(80)), embedding=small, mechanisms=SETTINGS, versions=2, runs=100
    )


@pytest.mark.parametrize(
    ("text", "concern", "written"),
    [
        ("recovery(top1) <= 0.2", Risk(), "recovery(top1, in-context, 1) <= 0.2"),
        (
            " recovery( top5 , context-free,3 )<=.5 ",
            Risk(attacker="context-free", versions=3, guesses=5),
            "recovery(top5, context-free, 3) <= 0.5",
        ),
        ("recovery(top1, 2) <= 0.2", Risk(versions=2), "recovery(top1, in-context, 2) <= 0.2"),
        ("similarity >= 0.9", Risk(), "similarity >= 0.9"),
        ("distance <= 3", Risk(), "distance <= 3"),
        ("pair_leaders >= 0.25", Risk(), "pair_leaders >= 0.25"),
    ],
)
def test_goals_are_read_and_written(text: str, concern: Risk, written: str) -> None:
    goal = Goal.parse(text)
    assert (goal.concern, str(goal)) == (concern, written)
    assert Goal.parse(written) == goal


@pytest.mark.parametrize(
    "text",
    [
        *("", "recovery", "recovery <= 0.2", "recovery(top2) <= 0.2", "recovery(top1) >= 0.2"),
        *("recovery(top1) <= 1", "recovery(top1) <= 0", "recovery(top1) <= nan", "recovery(top1, 0) <= 0.2"),
        *("recovery(top1, 2, in-context) <= 0.2", "recovery(top1, in-context, in-context) <= 0.2"),
        *("similarity <= 0.9", "similarity(top1) >= 0.9", "similarity >= 1.5", "distance >= 2", "n_w <= 0.5"),
        "recovery(top1) <= 0.2 and similarity >= 0.9",
    ],
)
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--target has a wrong value.*recovery\(topK\)"):
        Goal.parse(text)


def test_of_safe_settings_the_one_that_keeps_most_is_taken(compared: Comparison) -> None:
    """At a limit between the second and the third setting, the second; rejects the safest of all."""
    shares = [Risk().of(o).ratio[0] for o in compared.outcomes]
    assert shares[0] < shares[1] < shares[2] == 1.0
    limit = (shares[1] + 1.0) / 2
    assert Goal.parse(f"recovery(top1) <= {limit}").choose(compared) is compared.outcomes[1]
    assert Goal.parse(f"recovery(top1) <= {shares[0]}").choose(compared) is None


def test_of_useful_settings_the_one_that_risks_least_is_taken(compared: Comparison) -> None:
    values = [o.totals.measures(compared.before, 0.95)["similarity"][0] for o in compared.outcomes]
    limit = (values[0] + 2 * values[1]) / 3
    assert Goal.parse(f"similarity >= {limit}").choose(compared) is compared.outcomes[1]
    assert Goal.parse("similarity >= 0.999999").choose(compared) is compared.outcomes[2]
    distances = [o.totals.measures(compared.before, 0.95)["distance"][0] for o in compared.outcomes]
    least = Goal.parse(f"distance <= {(distances[1] + distances[0]) / 2}").choose(compared)
    assert least is compared.outcomes[1]


def test_a_measure_without_an_interval_is_its_own_bound(compared: Comparison) -> None:
    goal = Goal.parse("word_overlap >= 0.5")
    found = goal.of(compared, compared.outcomes[0], confidence=0.95)
    assert found.bound == found.measured and not np.isnan(found.bound)
    assert not goal.met(float("nan"))


def test_the_limit_holds_although_it_was_searched_for(compared: Comparison) -> None:
    """Rejects the interval of one setting, where three were looked at."""
    sums = Risk().of(compared.outcomes[0])
    alone, among_three = (sums.share_interval(c)[1][0] for c in (0.95, 1 - 0.05 / 3))
    assert alone < among_three
    assert Goal.parse(f"recovery(top1) <= {(alone + among_three) / 2}").choose(compared) is None
    assert Goal.parse(f"recovery(top1) <= {among_three}").choose(compared) is compared.outcomes[0]


def test_a_risk_that_was_not_measured_is_refused(compared: Comparison) -> None:
    with pytest.raises(ConfigError, match="This risk was not measured"):
        Goal.parse("recovery(top1, 7) <= 0.2").choose(compared)
