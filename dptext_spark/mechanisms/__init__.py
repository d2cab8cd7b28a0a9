"""Mechanisms: how a word is perturbed, and what is proven about it.

A mechanism is a class with a ``name`` and validated parameters. Its subclasses register themselves:
the command line, configuration, report, audit and contract tests find a new mechanism without
another edit.
"""

from importlib import import_module
from pkgutil import iter_modules

from dptext_spark.accounting.row_budget import LEAST_EPSILON
from dptext_spark.mechanisms.euclidean import Laplace, Mahalanobis
from dptext_spark.mechanisms.exponential import Exponential
from dptext_spark.mechanisms.hyperbolic import Hyperbolic, HyperbolicIcdm
from dptext_spark.mechanisms.lebesgue import HyperbolicLebesgue
from dptext_spark.mechanisms.mechanism import MECHANISMS, Mechanism, Perturbation, mechanism
from dptext_spark.mechanisms.projected import Projection

__all__ = [
    "LEAST_EPSILON",
    "MECHANISMS",
    "Exponential",
    "Hyperbolic",
    "HyperbolicIcdm",
    "HyperbolicLebesgue",
    "Laplace",
    "Mahalanobis",
    "Mechanism",
    "Perturbation",
    "Projection",
    "mechanism",
]

# What a module defines registers itself: a new one needs no other edit.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
