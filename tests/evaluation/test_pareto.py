"""The front against the definition, and what is recommended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dptext_spark.evaluation.pareto import Point, front, recommended


def point(setting: str, risk: float, utility: float, *, width: float = 0.0) -> Point:
    return Point(
        setting=setting, risk=risk, risk_high=risk + width, utility=utility, utility_low=utility - width
    )


VALUES = st.sampled_from([0.1, 0.2, 0.3, 0.4])


@given(st.lists(st.tuples(VALUES, VALUES), max_size=12))
def test_the_front_is_what_nothing_beats(values: list[tuple[float, float]]) -> None:
    """Equal points stay together; every other point is beaten by one of the front."""
    points = [point(str(number), *value) for number, value in enumerate(values)]
    found = front(points)
    assert [p.risk for p in found] == sorted(p.risk for p in found)
    for p in points:
        beaten = any(
            q.risk <= p.risk and q.utility >= p.utility and (q.risk, q.utility) != (p.risk, p.utility)
            for q in points
        )
        assert (p in found) != beaten
        assert not beaten or any(q.beats(p) for q in found)


def test_the_recommended_setting_is_surely_below_the_limit() -> None:
    """Rejects the choice by measured shares: "b" is below the limit by luck, perhaps."""
    points = [point("a", 0.1, 0.5, width=0.05), point("b", 0.19, 0.9, width=0.05), point("c", 0.05, 0.4)]
    best = recommended(points, most_risk=0.2)
    assert best is not None and best.setting == "a"
    assert recommended(points, most_risk=0.01) is None


def test_what_is_kept_for_sure_decides() -> None:
    points = [point("sure", 0.1, 0.5, width=0.01), point("lucky", 0.1, 0.55, width=0.1)]
    best = recommended(points, most_risk=0.3)
    assert best is not None and best.setting == "sure"
