"""Parameters of mechanisms and policies in Python: wrong ones are one error in the one form."""

import math
import re

import pytest

from dptext_spark import Laplace, Mahalanobis, Projection, TextPolicy
from dptext_spark.errors import BundleError, ConfigError
from dptext_spark.mechanisms import Hyperbolic, mechanism
from dptext_spark.release import Release
from dptext_spark.search.exact import ExactSearch


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Laplace(8), r".*by name\. Allowed: epsilon, .* Got: 1 without a name.*"),
        (lambda: TextPolicy(8), r".*by name\. Allowed: oov, .* Got: 1 without a name.*"),
        (Laplace, r"Parameter epsilon of mechanism laplace is missing\."),
        (lambda: Laplace(epsilon={"private": 1}), r".*Allowed: a valid number\. Got: dict\."),
        (lambda: Mahalanobis(epsilon=1, lambda_=2), r"Parameter lambda_ .*1 or less\. Got: 2\."),
        (
            lambda: Projection(epsilon=1, sensitivity="all"),
            r".*paper, vocabulary or spectral\. Got: 'all'\.",
        ),
        (
            lambda: TextPolicy(oof="mask"),
            r"TextPolicy takes its .*Allowed: oov, protect, .* Got: oof\. Perhaps you meant oov\.",
        ),
        (lambda: TextPolicy(oov=3), r"The out-of-vocabulary policy .* Got: 3\."),
        (
            lambda: Laplace(eps=3, select="both"),
            "Parameters of mechanism laplace are wrong:\n"
            r"  Parameter epsilon .* is missing\.\n"
            r"  Parameter select .* has a wrong value\. Allowed: nearest or vickrey\. Got: 'both'\.\n"
            r"  Parameter eps .* is unknown\. Allowed: epsilon, select, t\. Perhaps you meant epsilon\.",
        ),
    ],
)
def test_wrong_parameters_are_said_all_at_once(make, message):
    """Rejects Python's TypeError, and a number that counts as epsilon although nothing says so."""
    with pytest.raises(ConfigError) as caught:
        make()
    assert re.fullmatch(message, str(caught.value))


@pytest.mark.parametrize(
    ("spec", "parameter", "values"),
    [
        ("laplace", "epsilon", [0, -1, 1e-13, math.nan, math.inf, -math.inf, "x", "1", True, None]),
        ("mahalanobis", "lambda", [-1e-9, 1 + 1e-9, math.nan, "0.5", True, None]),
        ("exponential", "truncate", [0, -1.0, math.nan, math.inf, "1", True]),
        ("laplace", "select", ["vickrey"]),
        ("laplace:select=nearest", "t", [0.5]),
        ("laplace:select=vickrey", "t", [-0.1, 1.1]),
        ("projection", "beta", [0.0, 1.0, -0.1, math.nan, "0.5", True]),
        ("projection", "delta", [0.0, 1.0, math.nan, None]),
        ("projection", "dimension", [0, -3, 5.0, "5", True]),
        ("projection", "seed", [-1, 1.0, 2**63, None]),
    ],
)
def test_impossible_parameters_are_refused(spec, parameter, values):
    for value in values:
        with pytest.raises(ConfigError):
            mechanism(spec, **{"epsilon": 1.0, parameter: value})


def test_a_path_stands_for_its_bundle(small):
    laplace = Laplace(epsilon=4.0)
    for path in (small.path, str(small.path)):
        assert (
            Release.open(embedding=path, mechanism=laplace).embedding.fingerprint
            == small.fingerprint
        )
        assert ExactSearch.over(path, 7).release_words == 7
        assert laplace.guarantee(path) == laplace.guarantee(small)


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"embedding": "no/such/bundle"}, BundleError, "not an embedding bundle"),
        ({"embedding": None}, ConfigError, "the path of its bundle; got NoneType"),
        ({"mechanism": "laplace"}, ConfigError, "epsilon is missing"),
        (
            {"mechanism": Hyperbolic(epsilon=99.0)},
            ConfigError,
            "does not work on this embedding bundle",
        ),
    ],
)
def test_what_is_no_part_is_refused(small, parts, error, message):
    with pytest.raises(error, match=message):
        Release.open(**{"embedding": small, "mechanism": Laplace(epsilon=4.0), **parts})
