"""Calibration: what a mechanism does to words at a grid of epsilons, measured before anything is released."""

from dptext_spark.calibration.estimators import ESTIMATORS, Estimator, estimator
from dptext_spark.calibration.statistics import (
    bayes_risk,
    deniability,
    output_statistics,
    summary,
    word_statistics,
)
from dptext_spark.calibration.transitions import Transitions

__all__ = [
    "ESTIMATORS",
    "Estimator",
    "Transitions",
    "bayes_risk",
    "deniability",
    "estimator",
    "output_statistics",
    "summary",
    "word_statistics",
]
