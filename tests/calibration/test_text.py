"""A calibration's facts as a terminal shows them."""

import pytest

from dptext_spark.calibration.text import said, verdict
from dptext_spark.display import rendered
from dptext_spark.mechanisms import Mahalanobis
from tests.helpers.calibrations import EPSILONS, LAPLACE, MET, N_W, UNMET, WEIGHTED, facts


@pytest.fixture(scope="module")
def found(small):
    """Two mechanisms, with all that a calibration may have."""
    return facts(small, LAPLACE, WEIGHTED, target=[MET, UNMET])


def test_the_main_numbers_are_said_in_80_columns(small, found):
    """Rejects a table that does not say which direction is good, and risks below their upper limits."""
    lines = rendered(said(found)).splitlines()
    own = Mahalanobis(epsilon=1.0, **{"lambda": 0.5})
    assert found["guarantee"][4] == {"options": own.options, **own.guarantee(small).to_json()}
    assert lines[0].startswith(
        "300 of 300 words were measured with 50 runs each. 300 words may be output."
    )
    at = lines.index("mahalanobis:lambda=0.5 (shared-ray estimator)")
    table = lines[at + 1 : at + 7]
    assert max(map(len, table)) <= 80
    head = [
        "epsilon",
        "mean(n_w)",
        "p95(n_w)",
        "max(n_w)",
        "mean(s_w)",
        "deniability",
        "risk",
        "risk_zipf",
    ]
    better = ["better:", *["lower"] * 3, *["higher"] * 2, *["lower"] * 2]
    rest = ["1", "0.25", "0.25", "0.5", "0.5"]
    rows = [[f"{e:g}", f"{n:.4g}", f"{n:.4g}", *rest] for e, n in zip(EPSILONS, N_W, strict=True)]
    assert [row.split() for row in table] == [head, better, *rows]
    release = (
        "dptext privatize --input TABLE --output sanitized --text COLUMN --embedding 'a bundle'"
    )
    assert f"The release: {release} --mechanism laplace --epsilon 3.25" in lines
    assert not any("Not enough runs" in line for line in lines)


def test_epsilons_at_which_new_outputs_come_and_the_ends_of_the_grid_are_named(small):
    """Rejects a remark at an epsilon where runs are enough, and none where they are not."""
    rows = facts(small)["summary"]
    for row in rows:
        if row["statistic"] == "unseen":
            row["mean"] = 0.06 if row["epsilon"] < 5 else 0.05
    lines = rendered(said(facts(small, summary=rows))).splitlines()
    assert "Epsilon 1, 4: Not enough runs for a reliable number; increase --runs." in lines
    assert lines[-1].startswith(
        "laplace: the average n_w is 0.05 at epsilon 1 and 1 at epsilon 64. "
    )
    (line,) = verdict(facts(small, summary=[row for row in rows if row["epsilon"] == 4.0]))
    assert line.startswith("laplace: the average n_w is 0.2 at epsilon 4. ")
