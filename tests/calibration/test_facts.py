"""What calibration.json says, and what a terminal shows of it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from dptext_spark.calibration.facts import matches, read, said, verdict
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Mahalanobis
from dptext_spark.report.facts import Report, versions
from dptext_spark.report.text import rendered
from tests.helpers.calibrations import EPSILONS, GAIN, LAPLACE, MATCH, MET, N_W, UNMET, WEIGHTED, facts


def test_distances_and_guarantees_are_those_of_each_mechanism(small: Embedding) -> None:
    """Rejects one metric for all mechanisms, and a word that counts as its own neighbour."""
    found = facts(small, LAPLACE, WEIGHTED)
    written = json.loads(Report(facts=found, text="").to_json())
    assert written == {**json.loads(json.dumps(found)), "versions": versions()}
    plain, weighted = found["mechanisms"]
    assert (plain["mechanism"], weighted["mechanism"]) == ("laplace", "mahalanobis:lambda=0.5")
    assert plain["metric"] != weighted["metric"] and plain["words"] == weighted["words"] == 150
    assert [row["neighbour"] for row in plain["neighbours"]] == [1, 2, 5, 10, 20, 50, 100, 200]
    points = small.vectors.astype(np.float64)
    far = np.sort(np.linalg.norm(points[::2, None] - points[None], axis=2), axis=1)
    for row in plain["neighbours"]:
        expected = np.quantile(far[:, row["neighbour"]], [0.0, 0.05, 0.5, 0.95, 1.0], method="inverted_cdf")
        assert [row[name] for name in ("min", "p5", "p50", "p95", "max")] == pytest.approx(list(expected))
    own = Mahalanobis(epsilon=1.0, **{"lambda": 0.5}).guarantee(small).to_json()
    assert found["guarantee"][4] == {"of": "mahalanobis:lambda=0.5", **own}


def terminal(embedding: Embedding, **changes: Any) -> list[str]:
    return rendered(said(facts(embedding, LAPLACE, WEIGHTED, **changes))).splitlines()


def test_the_main_numbers_are_said_in_80_columns(small: Embedding) -> None:
    """Rejects a table that does not say which direction is good, and risks below their upper limits."""
    lines = terminal(
        small,
        gains=[GAIN | {"difference": -0.5, "low": -0.75, "high": -0.25}],
        target=[MET, UNMET],
        matches=[MATCH | {"mechanism": "laplace", "epsilon": e} for e in (None, 2.5)],
    )
    assert lines[0].startswith("300 of 300 words were measured with 50 runs each. 300 words may be output.")
    at = lines.index("mahalanobis:lambda=0.5 (shared-ray estimator)")
    table = lines[at + 1 : at + 7]
    assert max(map(len, table)) <= 80
    assert table[0].split() == [
        *("epsilon", "mean(n_w)", "p95(n_w)", "max(n_w)", "mean(s_w)", "deniability", "risk", "risk_zipf"),
    ]
    assert table[1].split() == ["better:", *["lower"] * 3, *["higher"] * 2, *["lower"] * 2]
    assert [row.split()[:2] for row in table[2:]] == [
        [f"{e:g}", f"{n:.4g}"] for e, n in zip(EPSILONS, N_W, strict=True)
    ]
    assert table[2].split()[3:] == ["1", "0.25", "0.25", "0.5", "0.5"]
    for line in (
        "mahalanobis:lambda=0.5 against laplace, epsilon 4: n_w -0.5 (-0.75 to -0.25)",
        "average N_w 0.25 of tem, epsilon 7: laplace, outside this grid",
        "average N_w 0.25 of tem, epsilon 7: laplace, epsilon 2.5",
        "The release: dptext privatize --input TABLE --output sanitized --text COLUMN "
        "--embedding 'a bundle' --mechanism laplace --epsilon 3.25",
    ):
        assert line in lines, line
    text = " ".join(lines)
    assert "one of all 300 words" in text and "the k-th word has weight 1/k" in text
    assert "right with probability 0.0625 (risk) and 0.0625 (risk_zipf)" in text
    assert "Not enough runs" not in text
    assert lines[-2:] == [
        "laplace: epsilon 3.25 meets p95(n_w) <= 0.5 (90% confidence): measured 0.48, limit 0.499; "
        "epsilon 3.26 misses it.",
        "laplace: no epsilon tried, down to 0.001, meets p95(n_w) <= 0.5 (90% confidence).",
    ]


def test_without_a_target_the_verdict_says_which_epsilon_gives_what(small: Embedding) -> None:
    """By the average over words, linear in the logarithm of epsilon; of a short grid as it was measured."""
    line, *_ = verdict(facts(small))
    at = [np.exp(np.interp(level, N_W, np.log(EPSILONS))) for level in (0.1, 0.5, 0.9)]
    inside = [f"{share}% at epsilon {epsilon:.3g}" for share, epsilon in zip((10, 50, 90), at, strict=True)]
    assert line == f"laplace: words stay unchanged in {', in '.join(inside)} (average of n_w, interpolated)."
    rows = [row for row in facts(small)["summary"] if row["epsilon"] == 4.0]
    (line,) = verdict(facts(small, summary=rows))
    assert line == "laplace: the average n_w is 0.2 at epsilon 4. Smaller epsilons change more words."


def test_epsilons_at_which_new_outputs_come_are_named(small: Embedding) -> None:
    """Rejects a remark at an epsilon where runs are enough, and none where they are not."""
    rows = [dict(row) for row in facts(small)["summary"]]
    for row in rows:
        if row["statistic"] == "unseen":
            row["mean"] = 0.06 if row["epsilon"] < 5 else 0.05
    lines = terminal(small, summary=rows)
    assert "Epsilon 1, 4: Not enough runs for a reliable number; increase --runs." in lines


def test_matches_are_interpolated_in_the_logarithm_of_epsilon(small: Embedding) -> None:
    """Both of the average and of the worst case. Rejects values outside the grid."""
    mine = facts(small)["summary"]
    row = {"mechanism": "tem", "epsilon": 7.0, "statistic": "n_w", "mean": 0.4, "max": 0.01}
    found = list(matches({"summary": [row]}, mine))
    assert [(m["n_w"], m["value"], m["mechanism"]) for m in found] == [
        ("average", 0.4, "laplace"),
        ("worst case", 0.01, "laplace"),
    ]
    assert found[0]["epsilon"] == pytest.approx(8.0) and found[1]["epsilon"] is None


@pytest.mark.parametrize("text", ["", "[]", '{"summary": []}', '{"format_version": 2, "summary": []}'])
def test_what_is_no_calibration_of_this_version_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"out/calibration.json is not a calibration of this version"):
        read("out/", lambda _: text)
