"""Which settings no other one beats, and which one to take for a limit of risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Point:
    """What a setting gives away and what it keeps, with the ends of their intervals.

    Attributes:
        setting: What it is called.
        risk, risk_high: The less, the better.
        utility, utility_low: The more, the better.
    """

    setting: str
    risk: float
    risk_high: float
    utility: float
    utility_low: float

    def beats(self, other: Point) -> bool:
        """Whether this one risks no more and keeps no less, and is not equal in both."""
        no_worse = self.risk <= other.risk and self.utility >= other.utility
        return no_worse and (self.risk, self.utility) != (other.risk, other.utility)


def front(points: Sequence[Point]) -> list[Point]:
    """Give the points that no other one beats, by what was measured, the least risk first."""
    ordered = sorted(points, key=lambda point: (point.risk, -point.utility))
    return [point for point in ordered if not any(other.beats(point) for other in points)]


def recommended(points: Sequence[Point], *, most_risk: float) -> Point | None:
    """Give the point with the largest lower end of use among those whose upper end of risk is within a limit.

    With intervals that all hold at once (for s settings, each at a confidence of 1 - (1 - c) / s: Bonferroni)
    the limit holds for the one that is chosen, although the choice looked at all of them.

    Returns:
        None where no upper end is within the limit.
    """
    safe = [point for point in points if point.risk_high <= most_risk]
    return max(safe, key=lambda point: (point.utility_low, -point.risk_high), default=None)
