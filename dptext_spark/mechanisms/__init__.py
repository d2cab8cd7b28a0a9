"""Mechanisms: how a word is perturbed, and what is proven about it.

A mechanism is a class with a ``name`` and validated parameters. Its subclasses register themselves:
the command line, configuration, report, audit and contract tests find a new mechanism without another edit.
"""

from dptext_spark.mechanisms.euclidean import Laplace, Mahalanobis
from dptext_spark.mechanisms.exponential import Exponential
from dptext_spark.mechanisms.hyperbolic import Hyperbolic, HyperbolicIcdm
from dptext_spark.mechanisms.mechanism import LEAST_EPSILON, MECHANISMS, Mechanism, Perturbation, mechanism
from dptext_spark.mechanisms.projected import Projection

__all__ = [
    "LEAST_EPSILON",
    "MECHANISMS",
    "Exponential",
    "Hyperbolic",
    "HyperbolicIcdm",
    "Laplace",
    "Mahalanobis",
    "Mechanism",
    "Perturbation",
    "Projection",
    "mechanism",
]
