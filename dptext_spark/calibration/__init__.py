"""Calibration: what a mechanism does to words at a grid of epsilons, before a release."""

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.calibration.statistics import Transitions, word_statistics

__all__ = ["Estimator", "Transitions", "estimator", "word_statistics"]
