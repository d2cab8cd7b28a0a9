"""The grammar of targets, in those of a calibration; tests/evaluation/test_target.py has the others."""

import math

import pytest

from dptext_spark.calibration.target import Target
from dptext_spark.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "written", "met", "missed"),
    [
        (" p95( n_w )<=0.50", "p95(n_w) <= 0.5", 0.5, 0.51),
        ("min(s_w) >= 20", "min(s_w) >= 20", 20.0, 19.0),
    ],
)
def test_a_target_is_read_and_written(text, written, met, missed):
    """Rejects a limit that is met from the wrong side, or by no number."""
    target = Target.parse(text)
    assert str(target) == written and Target.parse(written) == target
    assert target.met(met) and not target.met(missed) and not target.met(math.nan)


@pytest.mark.parametrize(
    "text",
    [
        *("mean(n_w) <= 0.5", "p95(k_w) >= 5", "p95() <= 0.5"),
        *("p95(n_w) >= 0.5", "p5(s_w) <= 20", "p95(n_w) <= 1"),
    ],
)
def test_what_is_no_target_is_refused(text):
    """Rejects a limit on the wrong side."""
    with pytest.raises(ConfigError, match=r"--target has a wrong value.*STATISTIC"):
        Target.parse(text)
