"""The answer of an evaluation: chosen on one third, checked on another, and shown on a page of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.answer import Answer
from dptext_spark.evaluation.answer_page import write_answer
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.evaluation.goal import Goal
from dptext_spark.mechanisms import Laplace
from dptext_spark.options import EvaluateOptions
from dptext_spark.report.page import Axis, Spot, trade_off_plot
from tests.helpers.made_texts import sentences

FACTS: dict[str, Any] = {
    "options": {"input": "<script>alert(1)</script>", "where": "given, not kept"},
    "embedding": {
        "source": "made",
        "words": 300,
        "dimension": 50,
        "geometry": "euclidean",
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


def compared(small: Embedding, rows: slice, epsilons: tuple[float, ...]) -> Comparison:
    texts = sentences(120, 1)[rows]
    settings = [Laplace(epsilon=e) for e in epsilons]
    return evaluate(texts, list(range(120))[rows], embedding=small, mechanisms=settings, runs=50)


@pytest.fixture(scope="module")
def thirds(small: Embedding) -> dict[str, Comparison]:
    return {
        "whole": compared(small, slice(None), (5.0, 1e6)),
        "first": compared(small, slice(60), (5.0, 1e6)),
        "second": compared(small, slice(60, 120), (5.0, 1e6)),
        "bare": compared(small, slice(60, 120), (1e6, 1e6)),
    }


def answer(thirds: dict[str, Comparison], *names: str, target: str | None) -> Answer:
    return Answer.of(
        thirds["whole"],
        [thirds[name] for name in names],
        goal=None if target is None else Goal.parse(target),
        confidence=0.95,
        command=lambda mechanism, search: f"dptext privatize --epsilon {mechanism.epsilon:g}",
        facts=FACTS,
    )


def test_the_choice_is_checked_on_rows_that_it_did_not_see(thirds: dict[str, Comparison]) -> None:
    found = answer(thirds, "first", "second", target="recovery(top1) <= 0.95")
    target = found.value["target"]
    chosen, other = (thirds[name].outcomes[0] for name in ("first", "second"))
    for third, outcome in (("chosen_on", chosen), ("checked_on", other)):
        assert target[third]["measured"] == Risk().of(outcome).ratio[0]
        assert target[third]["rows"] == 60
    assert [row["recommended"] for row in found.value["settings"]] == [True, False]
    assert "take --mechanism laplace --epsilon 5" in found.describe()
    assert "the target is met there, too" in found.describe()
    assert found.describe().endswith("The release: dptext privatize --epsilon 5")


def test_a_choice_that_fails_elsewhere_says_so(thirds: dict[str, Comparison]) -> None:
    """Rejects a check on the rows of the choice: here all is recovered on the other third."""
    found = answer(thirds, "first", "bare", target="recovery(top1) <= 0.95")
    assert not found.value["target"]["checked_on"]["met"]
    assert "THE TARGET IS MISSED THERE" in found.describe()


@pytest.mark.parametrize("names", [("first", "second"), ("first",)])
def test_without_a_safe_setting_or_a_third_nothing_is_chosen(
    thirds: dict[str, Comparison], names: tuple[str, ...]
) -> None:
    found = answer(thirds, *names, target="recovery(top1) <= 0.001")
    target = found.value["target"]
    assert target["options"] is None
    assert "no setting here meets it with 95% confidence" in found.describe()
    if len(names) > 1:
        sums = thirds["first"].outcomes[0].totals.sums["recovered/1/in-context/1"]
        bound = sums.share_interval(1 - 0.05 / 2)[1][0]
        assert target["closest"] == {"options": "--mechanism laplace --epsilon 5", "bound": bound}
        assert f"The closest is --mechanism laplace --epsilon 5: upper limit {bound:.3g}." in found.describe()


def test_what_comes_with_the_choice_is_said(thirds: dict[str, Comparison]) -> None:
    """Of the third that the choice did not see; rejects a recommendation of what keeps nothing, unsaid."""
    found = answer(thirds, "first", "second", target="recovery(top1) <= 0.95")
    beside, second = found.value["target"]["beside"], thirds["second"]
    value, low, high = second.outcomes[0].totals.measures(second.before, 0.95)["similarity"]
    assert (beside["measure"], beside["value"], beside["low"], beside["high"]) == (
        "similarity",
        value,
        low,
        high,
    )
    assert beside["floor"] == second.outcomes[0].floor.measures(second.before, 0.95)["similarity"][0] < low
    said = found.describe()
    assert f"It keeps similarity {value:.3f} ({low:.3f} to {high:.3f}) there" in said
    assert "NO MORE THAN RANDOM WORDS" not in said
    first = thirds["first"].outcomes[0]
    kept = {name: first.floor.sums[name] for name in ("kept", "distance", "similarity")}
    random = replace(first, totals=replace(first.totals, sums={**first.totals.sums, **kept}))
    nothing = replace(thirds["second"], outcomes=(random, second.outcomes[1]))
    told = answer(thirds | {"nothing": nothing}, "first", "nothing", target="recovery(top1) <= 0.95")
    assert "THAT IS NO MORE THAN RANDOM WORDS KEEP" in told.describe()
    use = answer(thirds, "first", "second", target="similarity >= 0.5")
    assert use.value["target"]["beside"]["measure"] == "recovered"
    assert "Share of words recovered there: " in use.describe()


def test_a_long_legend_takes_no_room_from_the_figure() -> None:
    """Rejects a figure of one height, whose curves vanish where many settings are compared."""
    spots = [Spot(mark="1", x=0.1, y=0.2, x_ends=(0.1, 0.2)), Spot(mark="2", x=0.5, y=0.4, x_ends=(0.4, 0.6))]
    x, y = Axis(name="x", label="X"), Axis(name="y", label="Y")
    few, many = (
        trade_off_plot(
            "p", {f"a mechanism of its own, number {i}": spots for i in range(n)}, x, y, floor=(0, 0)
        )
        for n in (1, 13)
    )
    assert many.height - few.height > 12 * 0.15 * 200 and many.width == few.width


@pytest.mark.parametrize("target", [None, "recovery(top1) <= 0.95", "recovery(top1) <= 0.001"])
def test_the_page_is_one_file_that_escapes_what_it_shows(
    thirds: dict[str, Comparison], target: str | None, tmp_path: Path
) -> None:
    value = answer(thirds, "first", "second", target=target).value
    page = write_answer(value, tmp_path).read_text()
    assert write_answer(value, tmp_path).read_text() == page
    assert "<script" not in page and "&lt;script&gt;" in page
    assert page.count("<img ") == page.count("data:image/png") == 2
    assert not re.search(r'(?:src|href)="(?!data:|#)', page)
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    assert ("take --mechanism laplace" in page) == (target == "recovery(top1) <= 0.95")
    assert ("No target was given" in page) == (target is None)
    assert "<strong>Private.</strong>" in page


WIDE = re.compile(r"surely|for sure|worst|at most|best attacker|\bsafer?\b", re.IGNORECASE)
"""What would be said of all attackers, where some were tried."""

ROOT = Path(__file__).parents[2]


def test_success_is_said_of_these_attackers_alone(thirds: dict[str, Comparison], tmp_path: Path) -> None:
    """Rejects an account of attackers, in words, JSON, page, help or guide, that speaks of all attackers."""
    targets = [None, "recovery(top1) <= 0.95", "recovery(top1) <= 0.001", "similarity >= 0.5"]
    accounts = [
        *(answer(thirds, "first", "second", target=target).describe() for target in targets),
        answer(thirds, "first", "bare", target=targets[1]).describe(),
        *(thirds["whole"].describe(most_recovered=share) for share in (0.95, 0.001)),
        answer(thirds, "first", "second", target=None).value["remark"],
    ]
    for target in targets:
        value = answer(thirds, "first", "second", target=target).value
        accounts.append(write_answer(value, tmp_path).read_text())
    fields = EvaluateOptions.model_fields.items()
    about_time = "task"
    told = [field.description or "" for name, field in fields if about_time not in name]
    for name in ("docs/guide/evaluate.md", "conf/evaluate.toml"):
        lines = (ROOT / name).read_text().splitlines()
        told += [line for line in lines if about_time not in line]
    for text in accounts:
        assert STRONGER in text
    for text in (*accounts, *told):
        assert not WIDE.search(re.sub(r"<style>.*?</style>|data:\S+", "", text, flags=re.DOTALL)), text[:500]
