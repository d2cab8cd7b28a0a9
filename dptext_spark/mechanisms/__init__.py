"""Mechanisms: how a word is perturbed, and what is proven about it.

A mechanism is a class with a ``name`` and validated parameters. Its subclasses register themselves:
the command line, configuration, report, audit and contract tests find a new mechanism without another edit.
"""

from dptext_spark.mechanisms.euclidean import Laplace, Mahalanobis
from dptext_spark.mechanisms.exponential import Exponential
from dptext_spark.mechanisms.hyperbolic import Hyperbolic, HyperbolicIcdm
from dptext_spark.mechanisms.projection import Projection
from dptext_spark.mechanisms.protocol import LEAST_EPSILON, MECHANISMS, Mechanism, Perturbation, mechanism

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
