"""Facts of calibrations that nobody made, as calibration.json has them."""

from __future__ import annotations

from typing import Any

from dptext_spark.calibration.facts import facts_of
from dptext_spark.calibration.summary import STATISTICS
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.mechanisms import Laplace, Mechanism, mechanism
from dptext_spark.report.facts import embedding_json
from tests.helpers.calibration_oracle import grid

EPSILONS = (1.0, 4.0, 16.0, 64.0)
N_W = (0.05, 0.2, 0.6, 1.0)
HOSTILE = (
    "<script>alert(1)</script>",
    "a&b",
    '"quoted"',
    "$x^2$",
    "كلمة",
    "{{ 7 * 7 }}",
    "`code`",
    "N_w",
)
LAPLACE = tuple(Laplace(epsilon=e) for e in EPSILONS)
WEIGHTED = tuple(mechanism("mahalanobis:lambda=0.5", epsilon=e) for e in EPSILONS)
TARGET = {
    "target": "p95(n_w) <= 0.5",
    "confidence": 0.9,
    "looks": 1,
    "mechanism": "laplace",
    "tried": [],
}
MET = TARGET | {"epsilon": 3.25, "missed": 3.26, "measured": 0.48, "bound": 0.499}
MET |= {"options": "--mechanism laplace --epsilon 3.25"}
UNMET = TARGET | {
    "epsilon": None,
    "missed": 0.001,
    "measured": None,
    "bound": None,
    "options": None,
}


def facts(embedding: Embedding, *several: tuple[Mechanism, ...], **changes: Any) -> dict[str, Any]:
    """Facts of mechanisms at ``EPSILONS``, with n_w of ``N_W``; all other numbers are between 0 and 1."""
    whole = len(embedding.words)
    grids = [grid(whole, mechanisms=own, confidence=0.9, runs=50) for own in several or (LAPLACE,)]
    summary, words = [], []
    for one in grids:
        for epsilon, n_w in zip(EPSILONS, N_W, strict=True):
            key = {"mechanism": one.name, "epsilon": epsilon}
            for name in STATISTICS:
                value = n_w if name == "n_w" else 0.25
                row: dict[str, Any] = {
                    "mean": value,
                    "low": 0.125,
                    "high": 0.5,
                    "floor": 0.0625,
                    "sd": 0.1,
                }
                row |= {"min": 0.0, "p5": value / 2, "p50": value, "p95": value, "max": 1.0}
                if name.startswith(("deniability", "bayes_risk")):
                    row |= dict.fromkeys(("sd", "min", "p5", "p50", "p95", "max"))
                summary.append(
                    key | {"statistic": name} | row | ({"mean": 0.0} if name == "unseen" else {})
                )
            top = [
                {"word": word, "n_w": 0.987, "n_w_low": 0.9, "n_w_high": 0.999} for word in HOSTILE
            ]
            words.append(key | {"staying": 3, "top": top})
    given: dict[str, Any] = {
        "options": {"mechanism": [one.name for one in grids], "eta": 0.05, "embedding": "a bundle"},
        "embedding": embedding_json(embedding),
        "versions": {"python": "3.11"},
        "summary": summary,
        "words": words,
        "target": [],
    }
    return facts_of(grids, embedding, **given | changes)
