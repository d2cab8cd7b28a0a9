"""Evaluations of made texts: of the rows of the choice, and of those of the check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.classes import SCORES, ClassCounts
from dptext_spark.evaluation.comparison import Comparison
from dptext_spark.evaluation.facts import facts_of
from dptext_spark.evaluation.intervals import ClusterSums
from dptext_spark.evaluation.local import evaluate
from dptext_spark.evaluation.measures import LABELS
from dptext_spark.evaluation.target import Target
from dptext_spark.mechanisms import Laplace
from tests.helpers.made_texts import sentences
from tests.helpers.worlds import among

SCRIPT = "<script>alert(1)</script>"
MET = "recovery(top1) <= 0.95"
UNMET = "recovery(top1) <= 0.001"
RUN: dict[str, Any] = {
    "options": {"input": SCRIPT, "where": "given, not kept"},
    "embedding": {
        "source": "made",
        "words": 300,
        "dimension": 50,
        "geometry": "euclidean",
        "normalization": "none",
        "fingerprint": "f" * 16,
    },
    "sample": {"rows": 180, "of": 1000, "known": 60, "attacked": 120, "perturbed": 800},
    "corpus": {"from": "the known rows", "words": 60, "pairs": 200},
    "guarantee": [
        {"options": f"--mechanism laplace --epsilon {epsilon}", "words": "Proven.\nTwice."}
        for epsilon in (5, 1000000)
    ],
    "versions": {"python": "3"},
}


def thirds(embedding: Embedding) -> dict[str, Comparison]:
    """Comparisons of two settings, the second without noise; of ``bare`` rows both are."""
    texts = sentences(120, 1)

    def compared(rows: slice, *epsilons: float) -> Comparison:
        settings = [Laplace(epsilon=e) for e in epsilons]
        options: dict[str, Any] = {"mechanisms": settings, "candidates": 60, "channel_limit": 0.05}
        return evaluate(texts[rows], list(range(120))[rows], embedding=embedding, **options)

    second = slice(60, 120)
    return {
        "first": compared(slice(60), 5.0, 1e6),
        "second": compared(second, 5.0, 1e6),
        "bare": compared(second, 1e6, 1e6),
    }


def facts(found: Mapping[str, Comparison], *names: str, target: str | None) -> dict[str, Any]:
    """The facts of an evaluation that chose on the first of the named thirds and checked on the second."""
    return facts_of(
        [found[name] for name in names or ("first", "second")],
        among(200),
        target=None if target is None else Target.parse(target),
        confidence=0.95,
        command=lambda mechanism, search: (
            f"dptext privatize --where '`id`' --epsilon {mechanism.epsilon:g}"
        ),
        **RUN,
    )


CLASSES = ("ham", "spam, (paid)")
SPAM = CLASSES[1]


def labels(ham: int, spam: int, classes: tuple[str, ...] = CLASSES) -> dict[str, Any]:
    """Sums of a model that gets so many of 870 and of 130 rows right."""
    counts = ClassCounts.empty(classes)
    counts.confusion[:2, :2] = [[ham, 870 - ham], [130 - spam, spam]]
    counts.scores[:, 0, SCORES // 4] = counts.scores[:, 1, SCORES // 2] = 10
    right = ClusterSums.of_rows(ham + spam, 1000)
    return {LABELS: counts, "accuracy": right, "accuracy_on_original": right}


def stated(learnt: Comparison, target: str | None, **changes: Any) -> dict[str, Any]:
    """Facts of an evaluation whose thirds are alike."""
    thirds = {"first": replace(learnt, **changes), "second": replace(learnt, **changes)}
    return facts(thirds, target=target)
