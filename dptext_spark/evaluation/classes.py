"""How well a model learns classes: counts of rows that add up, and the numbers reported of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from dptext_spark.errors import ConfigError
from dptext_spark.evaluation.intervals import ClusterSums, Interval
from dptext_spark.geometry import Floats, Ints

SCORES: Final = 512
"""Scores that are distinguished: cells of a public grid over the log-odds, of every model."""

# Cells for one unit of the log-odds; those at the ends have all that lies beyond.
_CELLS: Final = 16.0

NOTHING: Final[Interval] = (math.nan, 0.0, 1.0)
"""What is known of a number that has no rows."""


def score_of(probability: Floats) -> Ints:
    """Return the cells, 0 to SCORES - 1, of probabilities of any shape."""
    with np.errstate(divide="ignore"):
        log_odds = np.log(probability) - np.log1p(-probability)
    cells = np.floor(log_odds * _CELLS) + SCORES // 2
    return np.asarray(np.clip(cells, 0, SCORES - 1).astype(np.int64))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)  # classes are private values
class ClassCounts:
    """Rows by their class and by the one that a model predicts, of the C classes that it knows.

    Every row is one independent unit.
    """

    classes: tuple[str, ...]  # of the rows that the model learnt from, the most frequent first
    # int64 (C + 1, C + 1), by true and by predicted class; the last one is any class that the model
    # lacks.
    confusion: Ints
    # int64 (C, 2, SCORES), of each class the rows of other classes, and its own, by the cell of the
    # probability that the model gives to this class.
    scores: Ints

    @classmethod
    def empty(cls, classes: Sequence[str]) -> ClassCounts:
        """Return the counts of no rows."""
        number = len(classes)
        return cls(
            classes=tuple(classes),
            confusion=np.zeros((number + 1, number + 1), dtype=np.int64),
            scores=np.zeros((number, 2, SCORES), dtype=np.int64),
        )

    def __add__(self, other: ClassCounts) -> ClassCounts:
        """Add the counts of other rows, judged by a model that knows the same classes."""
        return replace(
            self, confusion=self.confusion + other.confusion, scores=self.scores + other.scores
        )

    def precision(self, name: str, confidence: float) -> Interval:
        """Return the share of rows of a class among those for which it is predicted."""
        place = self._place(name)
        return _share(self.confusion[place, place], self.confusion[:, place].sum(), confidence)

    def recall(self, name: str, confidence: float) -> Interval:
        """Return the share of a class's rows for which it is predicted."""
        place = self._place(name)
        return _share(self.confusion[place, place], self.confusion[place].sum(), confidence)

    def f1(self, name: str, confidence: float) -> Interval:
        """Return the harmonic mean of precision and recall of a class.

        It grows with the share of hits among rows that are of the class or predicted to be, whose
        interval is that of any share. Source: Hand, Christen and Kirielle 2021, "F*: an
        interpretable transformation of the F-measure", section 2.
        """
        place = self._place(name)
        hits = self.confusion[place, place]
        either = self.confusion[place].sum() + self.confusion[:, place].sum() - hits
        value, low, high = _share(hits, either, confidence)
        return _harmonic(value), _harmonic(low), _harmonic(high)

    def balanced_accuracy(self, confidence: float) -> Interval:
        """Return the mean recall of all classes that have rows here.

        The interval is that of a mean of independent shares by their own intervals. Source: Zou,
        Huang and Zhang 2009, "A note on confidence interval estimation for a linear function of
        binomial proportions".
        """
        recalls = _numbers([self.recall(name, confidence) for name in self.classes])
        if not len(recalls):
            return NOTHING
        values, low, high = recalls.T
        mean = float(values.mean())
        below = float(np.sqrt(np.square(values - low).sum())) / len(values)
        above = float(np.sqrt(np.square(high - values).sum())) / len(values)
        return mean, mean - below, mean + above

    def auc(self, name: str, confidence: float) -> Interval:
        """Return how often a row of a class has a higher score than a row of others.

        Equal scores count half. The score is the probability that the model gives to the class: the
        area under the ROC curve. The interval has all areas from which this one is no farther than
        their standard errors allow, which are those of Hanley and McNeil. They are raised where
        scores of one class spread more than that assumes.

        Source: Newcombe 2006, "Confidence intervals for an effect size measure based on the
        Mann-Whitney statistic, part 2", method 5; the spread of scores by DeLong, DeLong and
        Clarke-Pearson 1988, "Comparing the areas under two or more correlated receiver operating
        characteristic curves".
        """
        rest, of_class = self.scores[self._place(name)]
        rows = int(rest.sum()), int(of_class.sum())
        if not all(rows):
            return NOTHING
        below = 2 * (np.cumsum(rest) - rest) + rest
        area = int((of_class * below).sum()) / (2 * rows[0] * rows[1])
        raised = 1.0
        if 0.0 < area < 1.0:
            assumed = area * (1.0 - area) * _spread(area, *rows)
            raised = max(1.0, _variance(rest, of_class) / assumed)
        factor = float(scipy.special.ndtri(0.5 + confidence / 2.0)) ** 2 * raised
        low = _least_area(area, *rows, factor)
        return area, low, 1.0 - _least_area(1.0 - area, *rows, factor)

    def mean_auc(self, confidence: float) -> Interval:
        """Return the mean area of all classes that have rows here, each against the rest.

        The areas belong together, those of two classes as closely as can be. So the ends of the
        interval are the means of the classes' ends.
        """
        areas = _numbers([self.auc(name, confidence) for name in self.classes])
        if not len(areas):
            return NOTHING
        value, low, high = areas.mean(axis=0).tolist()
        return value, low, high

    def rows_of(self, name: str) -> int:
        """Return how many rows there are of a class."""
        return int(self.confusion[self._place(name)].sum())

    def _place(self, name: str) -> int:
        """Return the number of a class."""
        if name not in self.classes:
            raise unknown_class(name, len(self.classes))
        return self.classes.index(name)


def unknown_class(name: str, classes: int) -> ConfigError:
    """Return the error about a class that no model knows; it names no other one."""
    return ConfigError(
        "No known row has this class of the label",
        allowed=f"one of the {classes:,} classes that the known third of the rows has",
        got=repr(name),
        do="Write it as the column has it, or evaluate more rows (--sample)",
    )


def _share(hits: int, rows: int, confidence: float) -> Interval:
    """Return a share of rows with its interval."""
    return ClusterSums.of_rows(int(hits), int(rows)).share(confidence)


def _harmonic(share: float) -> float:
    """Return F1 where this share of the rows in question are hits."""
    return 2.0 * share / (1.0 + share)


def _numbers(intervals: Sequence[Interval]) -> Floats:
    """Return the intervals of what has rows: float64 (n, 3)."""
    numbers = [interval for interval in intervals if not math.isnan(interval[0])]
    return np.array(numbers, dtype=np.float64).reshape(-1, 3)


def _variance(rest: Ints, of_class: Ints) -> float:
    """Return the variance of an area by how scores lie among those of the other kind of rows."""
    total = 0.0
    for rows, against, sign in ((of_class, rest, 1), (rest, of_class, -1)):
        ordered = against[::sign]
        below = (np.cumsum(ordered) - ordered)[::sign] + against / 2.0
        share = below / against.sum()
        number = rows.sum()
        if number > 1:
            mean = (rows * share).sum() / number
            total += float((rows * np.square(share - mean)).sum() / (number - 1) / number)
    return total


def _spread(area: float, rest: int, of_class: int) -> float:
    """Return the variance of an area over area x (1 - area), if scores of both spread alike."""
    rows = (rest + of_class) / 2.0 - 1.0
    return (1.0 + rows * ((1.0 - area) / (2.0 - area) + area / (1.0 + area))) / (rest * of_class)


def _least_area(area: float, rest: int, of_class: int, factor: float) -> float:
    """Return the least area whose variance, times a factor, reaches to the measured one."""
    if area == 0.0:
        return 0.0

    def excess(trial: float) -> float:
        """Return how far the measured area lies beyond what a trial's variance allows."""
        spread = factor * trial * _spread(trial, rest, of_class)
        if area == 1.0:  # over 1 - trial
            return (1.0 - trial) - spread
        return (area - trial) ** 2 - (1.0 - trial) * spread

    return float(scipy.optimize.brentq(excess, 0.0, area))
