"""What calibration.json says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dptext_spark.calibration.findings import CalibrationReport
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace, Mahalanobis
from tests.helpers.calibration_oracle import grid

NUMBERS = {"mean": 0.25, "sd": 0.1, "min": 0.0, "p5": 0.125, "p50": 0.5, "p95": 0.75, "max": 1.0}
NUMBERS |= {"low": 0.2, "high": 0.3, "floor": 0.005}
RISKS = ("bayes_risk_uniform", "bayes_risk_zipf")
STATISTICS = ("n_w", "s_w", "entropy", "k_w", "n_w_zipf", "deniability", *RISKS)


def report(embedding: Embedding, **changes: Any) -> CalibrationReport:
    settings = (
        ("lambda=0", (Laplace(epsilon=2.0),)),
        ("lambda=0.5", (Mahalanobis(epsilon=2.0, **{"lambda": 0.5}),)),
    )
    rows = [
        {"mechanism": "laplace", "setting": name, "epsilon": 2.0, "statistic": statistic, **NUMBERS}
        for name, _ in settings
        for statistic in STATISTICS
    ]
    given: dict[str, Any] = {
        "options": {"mechanism": "laplace", "eta": 0.05, "embedding": "a bundle"},
        "facts": {"words": 300},
        "versions": {"python": "3"},
        "summary": rows,
        "gains": [],
        "target": [],
        "other": None,
    }
    return CalibrationReport.of(grid(200, 300, settings=settings), embedding, **given | changes)


def test_distances_and_guarantees_are_those_of_each_setting(small: Embedding) -> None:
    """Rejects one metric for all settings, and a word that counts as its own neighbour."""
    found = json.loads(report(small).to_json())
    plain, weighted = found["distances"]["lambda=0"], found["distances"]["lambda=0.5"]
    assert plain["metric"] != weighted["metric"] and plain["words"] == weighted["words"] == 150
    assert [row["neighbour"] for row in plain["neighbours"]] == [1, 2, 5, 10, 20, 50, 100, 200]
    points = small.vectors.astype(np.float64)
    far = np.sort(np.linalg.norm(points[::2, None] - points[None], axis=2), axis=1)
    for row in plain["neighbours"]:
        expected = np.quantile(far[:, row["neighbour"]], [0.0, 0.05, 0.5, 0.95, 1.0], method="inverted_cdf")
        assert [row[name] for name in ("min", "p5", "p50", "p95", "max")] == pytest.approx(list(expected))
    guarantee = Mahalanobis(epsilon=2.0, **{"lambda": 0.5}).guarantee(small).to_json()
    assert found["guarantee"][1] == json.loads(json.dumps({"setting": "lambda=0.5", **guarantee}))


MET = {"measured": 0.4, "bound": 0.45}


def test_the_main_numbers_are_said(small: Embedding) -> None:
    gain = {"setting": "lambda=0.5", "baseline": "lambda=0", "epsilon": 2.0, "statistic": "n_w"}
    target = {"target": "p95(n_w) <= 0.5", "confidence": 0.9, "setting": "", "epsilon": None}
    target |= {"missed": 0.001, "options": None}
    said = report(
        small,
        gains=[gain | {"difference": -0.5, "low": -0.75, "high": -0.25}],
        target=[target, target | {"epsilon": 1.5, "options": "--mechanism laplace --epsilon 1.5", **MET}],
        other={
            "summary": [{"mechanism": "tem", "setting": "", "epsilon": 7.0, "statistic": "n_w", **NUMBERS}]
        },
    ).describe()
    assert "laplace: 200 of 300 words, 60 runs each, shared-ray estimator, 300 words may be output" in said
    assert "lambda=0.5 against lambda=0, epsilon 2: n_w -0.5 (-0.75 to -0.25)" in said
    assert "Target p95(n_w) <= 0.5, confidence 0.9 of the whole search: not met by any epsilon" in said
    assert "average N_w 0.25 of tem, epsilon 7: laplace, lambda=0.5, epsilon 2" in said
    (row,) = (line for line in said.splitlines() if line.startswith("lambda=0.5   "))
    assert row.split()[1:9] == ["2", "0.25", "0.25", "0.75", "1", "0.25", "0.25", "0.25"]
    assert row.count("0.2 to 0.3") == 2
    assert "one of the 200 measured words. Uniform: all are equally likely" in said
    assert "without a look at the output is right with probability 0.005 and 0.005" in said
    assert "Not enough runs" not in said
    assert said.splitlines()[-1] == (
        "The release: dptext privatize --input TABLE --output sanitized --text COLUMN "
        "--embedding 'a bundle' --mechanism laplace --epsilon 1.5"
    )


def test_epsilons_at_which_new_outputs_come_are_named(small: Embedding) -> None:
    """Rejects a remark at an epsilon where runs are enough, and none where they are not."""
    rows = [
        {"mechanism": "laplace", "setting": "", "epsilon": epsilon, "statistic": name, **NUMBERS}
        | ({"mean": 0.06 if epsilon < 5 else 0.05} if name == "unseen" else {})
        for epsilon in (2.0, 4.0, 8.0)
        for name in (*STATISTICS, "unseen")
    ]
    said = report(small, summary=rows, facts={"words": 200}).describe()
    assert "\nEpsilon 2, 4: Not enough runs for a reliable number; increase --runs." in said
    assert "one of all 200 words" in said
