"""Calibration: what a mechanism does to words at a grid of epsilons, measured before anything is released."""

from dptext_spark.calibration.estimators import Estimator, estimator
from dptext_spark.calibration.statistics import word_statistics
from dptext_spark.calibration.transitions import Transitions

__all__ = ["Estimator", "Transitions", "estimator", "word_statistics"]
