"""What users ask for, and which setting they are given for it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.comparison import Comparison, evaluate
from dptext_spark.evaluation.measures import MEASURES, Risk
from dptext_spark.evaluation.target import Target
from dptext_spark.mechanisms import Laplace
from tests.helpers.made_texts import sentences

SETTINGS = (Laplace(epsilon=5.0), Laplace(epsilon=8.0), Laplace(epsilon=1e6))


@pytest.fixture(scope="module")
def compared(small: Embedding) -> Comparison:
    options = {"mechanisms": SETTINGS, "versions": 2, "runs": 100}
    return evaluate(sentences(80, 1), list(range(80)), embedding=small, **options)


FREE = Risk(attacker="context-free", versions=3, guesses=5)


@pytest.mark.parametrize(
    ("text", "risk", "written"),
    [
        ("recovery(top1) <= 0.2", Risk(), "recovery(top1, in-context, 1) <= 0.2"),
        (" recovery( top5 , context-free,3 )<=.5 ", FREE, "recovery(top5, context-free, 3) <= 0.5"),
        ("recovery(top1, 2) <= 0.2", Risk(versions=2), "recovery(top1, in-context, 2) <= 0.2"),
        *(
            (text, Risk(), text)
            for name, own in MEASURES.items()
            if name != "recovery"
            for text in [f"{name} {'<=' if own.better == 'lower' else '>='} 0.5"]
        ),
        ("distance <= 3", Risk(), "distance <= 3"),
    ],
)
def test_targets_are_read_and_written(text: str, risk: Risk, written: str) -> None:
    """Of all that is registered, each measure with the sign that makes sense; the refusal names them."""
    target = Target.parse(text)
    assert (target.risk, str(target)) == (risk, written)
    assert Target.parse(written) == target and not target.met(math.nan)
    assert target.measure in Target.allowed


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
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--target has a wrong value.*recovery\(topK\)"):
        Target.parse(text)


def test_the_best_setting_within_the_limit_is_taken(compared: Comparison) -> None:
    """Of safe ones what keeps most, of useful ones what risks least: rejects the safest, the most useful.

    By limits of confidence that allow for the search: rejects what was measured, and one setting's interval
    where three were looked at.
    """
    sums = Risk().sums(compared.outcomes[0].totals)
    shares = [Risk().sums(o.totals).ratio[0] for o in compared.outcomes]
    assert shares[0] < shares[1] < shares[2] == 1.0
    measures = [o.totals.measures(compared.before, 0.95) for o in compared.outcomes]
    similar, far = ([own[name][0] for own in measures] for name in ("similarity", "distance"))
    alone, among_three = (sums.share(c)[2] for c in (0.95, 1 - 0.05 / 3))
    assert shares[0] < alone < among_three
    for text, number in (
        (f"recovery(top1) <= {(shares[1] + 1.0) / 2}", 1),
        (f"recovery(top1, context-free) <= {(shares[1] + 1.0) / 2}", 1),
        (f"similarity >= {(similar[0] + 2 * similar[1]) / 3}", 1),
        ("similarity >= 0.999999", 2),
        (f"distance <= {(far[1] + far[0]) / 2}", 1),
        (f"recovery(top1) <= {shares[0]}", None),
        (f"recovery(top1) <= {(alone + among_three) / 2}", None),
        (f"recovery(top1) <= {among_three}", 0),
    ):
        wanted = None if number is None else compared.outcomes[number]
        assert Target.parse(text).choose(compared) is wanted, text
    # A measure without an interval is its own bound.
    measured, bound = Target.parse("word_overlap >= 0.5").of(compared, compared.outcomes[0], confidence=0.95)
    assert bound == measured and not math.isnan(bound)


def test_of_safe_settings_the_use_that_is_asked_for_decides_by_its_lower_limit(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rejects what keeps most as measured, perhaps by luck, and similarity where another use is asked for."""
    first, second, _ = compared.outcomes
    for name, values in {
        "kept": {id(first.totals): (0.5, 0.49, 0.51), id(second.totals): (0.55, 0.45, 0.65)},
        "similarity": {id(first.totals): (0.1, 0.1, 0.1), id(second.totals): (0.9, 0.9, 0.9)},
    }.items():
        own = type(MEASURES[name])
        monkeypatch.setattr(own, "value", lambda _, totals, *rest, of=values: of[id(totals)])
    two = replace(compared, outcomes=(first, second))
    target = Target.parse("recovery(top1) <= 0.999")
    assert replace(target, keeping="kept").choose(two) is first
    assert target.choose(two) is second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recovery(top1, 7) <= 0.2", r"This risk was not measured.*Allowed: .*1 or 2 versions"),
        ("attribution <= 0.2", "This risk was not measured.*--author"),
        ("accuracy >= 0.2", "This use was not measured.*--label"),
    ],
)
def test_what_was_not_measured_is_refused(compared: Comparison, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Target.parse(text).choose(compared)
    with pytest.raises(ConfigError, match="10 guesses"):
        compared.front(Risk(guesses=10))
