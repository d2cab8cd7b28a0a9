"""Settings compared on made texts: known ends, orders that must hold, and what is recommended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.mechanisms.vectors import ProjectedVectors
from tests.helpers.made_texts import sentences

ROWS = 150
SETTINGS = (Laplace(epsilon=5.0), Laplace(epsilon=12.0), Laplace(epsilon=1e6), Exponential(epsilon=3.0))


@pytest.fixture(scope="module")
def compared(small: Embedding) -> Comparison:
    options: dict[str, Any] = {"mechanisms": SETTINGS, "versions": 3, "runs": 200, "candidates": 60}
    return evaluate(sentences(ROWS, 1), list(range(ROWS)), embedding=small, **options)


def risk(found: Comparison, number: int, attacker: str, versions: int = 1, guesses: int = 1) -> dict:
    """A row of the table of risks, of all words."""
    wanted = {"attacker": attacker, "versions": versions, "guesses": guesses, "words": "all"}
    mechanism = found.outcomes[number].mechanism
    wanted |= {"mechanism": mechanism.name, "epsilon": mechanism.epsilon}
    (row,) = (r for r in found.risk().to_pylist() if wanted.items() <= r.items())
    return row


def use(found: Comparison, number: int) -> dict[str, dict]:
    mechanism = found.outcomes[number].mechanism
    key = {"mechanism": mechanism.name, "epsilon": mechanism.epsilon}
    return {row["measure"]: row for row in found.utility().to_pylist() if key.items() <= row.items()}


def test_hardly_any_noise_gives_all_away_and_keeps_all(compared: Comparison) -> None:
    """The ceilings; 60 candidates are all words of these texts."""
    for attacker in ("context-free", "in-context"):
        row = risk(compared, 2, attacker)
        assert (row["recovered"], row["considered"], row["high"]) == (1.0, 1.0, 1.0)
        assert 0.95 < row["low"] < 1.0
    for name, row in use(compared, 2).items():
        assert row["value"] == pytest.approx(row["ceiling"]), name


def test_risks_stand_in_order(compared: Comparison) -> None:
    """More epsilon, context, versions and guesses give more away, and all of it more than no output does."""
    shares = [risk(compared, number, "in-context")["recovered"] for number in range(3)]
    assert shares[0] + 0.1 < shares[1] < shares[2]
    for number in (0, 1, 3):
        alone, inside = (risk(compared, number, name) for name in ("context-free", "in-context"))
        assert alone["recovered"] < inside["recovered"]
        for more in ({"versions": 3}, {"guesses": 5}):
            assert inside["recovered"] < risk(compared, number, "in-context", **more)["recovered"]
        for row in (alone, inside):
            assert row["floor"] < row["low"] < row["recovered"] < row["high"]


def test_what_is_kept_stands_between_floor_and_ceiling(compared: Comparison) -> None:
    low, high = use(compared, 0), use(compared, 1)
    counts = [f"{kind}_{name}" for kind in ("word", "pair") for name in ("overlap", "agreement", "leaders")]
    assert list(low) == ["kept", "distance", "similarity", *counts]
    for name, row in high.items():
        assert abs(row["value"] - row["ceiling"]) <= abs(low[name]["value"] - row["ceiling"]), name
    for name in ("kept", "distance", "similarity"):
        assert high[name]["low"] < high[name]["value"] < high[name]["high"]
        assert abs(high[name]["value"] - 1) < abs(high[name]["floor"] - 1) or name == "distance"
    assert high["kept"]["floor"] == pytest.approx(1 / 200, abs=0.01)  # 200 words may come out


def test_bands_make_up_all_words(compared: Comparison) -> None:
    table = compared.risk().to_pandas()
    assert set(table["words"]) == {"all", "1-100"}  # the texts have 60 words
    assert (table["rows"] == ROWS).all()
    assert (table["tokens"] == table["tokens"].iloc[0]).all()
    assert list(table["setting"].unique()) == [""]
    errors = dict(zip(table["mechanism"] + table["epsilon"].map(str), table["error"], strict=True))
    assert errors["exponential3.0"] < 1e-9 < errors["laplace1000000.0"] < errors["laplace12.0"]


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.tuples(*[st.sampled_from([0.1, 0.2, 0.3, 0.4])] * 2), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(compared: Comparison, values: list[tuple[float, float]]) -> None:
    """Equal settings stay together, the least risk first."""
    outcomes = tuple(replace(compared.outcomes[0], error=float(v)) for v in range(len(values)))
    found = replace(compared, outcomes=outcomes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Comparison, "_points", lambda *_: [(a, a, b, b) for a, b in values])
        front = [int(outcome.error) for outcome in found.front()]
    assert [values[i][0] for i in front] == sorted(values[i][0] for i in front)
    for number, (lost, kept) in enumerate(values):
        beaten = any(a <= lost and b >= kept and (a, b) != (lost, kept) for a, b in values)
        assert (number in front) != beaten


@pytest.mark.parametrize(
    ("points", "limit", "best"),
    [
        ([(0.1, 0.15, 0.5, 0.45), (0.19, 0.24, 0.9, 0.85), (0.05, 0.05, 0.4, 0.4)], 0.2, 0),
        ([(0.1, 0.15, 0.5, 0.45), (0.19, 0.24, 0.9, 0.85), (0.05, 0.05, 0.4, 0.4)], 0.01, None),
        ([(0.1, 0.11, 0.5, 0.49), (0.1, 0.2, 0.55, 0.45)], 0.3, 0),
    ],
)
def test_the_recommended_setting_is_surely_within_the_limit_and_keeps_most(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch, points: list, limit: float, best: int | None
) -> None:
    """Rejects the choice by measured shares: one is within the limit, or keeps most, by luck perhaps."""
    found = replace(compared, outcomes=compared.outcomes[: len(points)])
    monkeypatch.setattr(Comparison, "_points", lambda *_: points)
    assert found.recommended(limit) is (None if best is None else found.outcomes[best])


def test_the_limit_holds_although_it_was_searched_for(compared: Comparison) -> None:
    """Rejects the interval of one setting, where four were looked at: at this limit none is surely within."""
    outcomes, sums = compared.outcomes, Risk().of(compared.outcomes[0])
    alone, among_four = (sums.share(c)[2] for c in (0.95, 1 - 0.05 / 4))
    assert alone < among_four
    assert compared.recommended((alone + among_four) / 2) is None
    assert compared.recommended(among_four) is outcomes[0]
    assert compared.recommended(1.0) is outcomes[2]
    assert compared.recommended(0.999, Risk(attacker="context-free", keeping="kept")) in outcomes
    shares = [risk(compared, number, "in-context")["recovered"] for number in range(4)]
    assert (compared.front()[0], compared.front()[-1]) == (outcomes[int(np.argmin(shares))], outcomes[2])


def test_a_risk_that_was_not_measured_is_refused(compared: Comparison) -> None:
    with pytest.raises(ConfigError, match=r"Allowed: .*1 or 3 versions"):
        compared.recommended(0.5, Risk(versions=2))
    with pytest.raises(ConfigError, match="Got: in-context, 10 guesses"):
        compared.front(Risk(guesses=10))


def test_who_learns_elsewhere_recovers_less(small: Embedding, compared: Comparison) -> None:
    """The table itself is the worst case; other texts of the same language are nearly as good here."""
    options: dict[str, Any] = {"mechanisms": SETTINGS[:1], "runs": 200, "candidates": 60}
    public, strange = (
        evaluate(sentences(ROWS, 1), list(range(ROWS)), corpus=corpus, embedding=small, **options)
        for corpus in (sentences(ROWS, 2), ["w150 w151 w152 w153"])
    )
    worst, other = risk(compared, 0, "in-context"), risk(public, 0, "in-context")
    assert other["floor"] < other["recovered"] < worst["recovered"]
    assert risk(strange, 0, "in-context")["recovered"] == 0.0


def test_the_same_seed_gives_the_same_numbers(small: Embedding) -> None:
    options: dict[str, Any] = {"embedding": small, "mechanisms": SETTINGS[:1], "runs": 50}
    found = [evaluate(sentences(20, 3), list(range(20)), seed=seed, **options) for seed in (1, 1, 2)]
    assert found[0].risk() == found[1].risk() != found[2].risk()
    assert found[0].utility() == found[1].utility() != found[2].utility()


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (["w1"], {"mechanisms": []}, "no setting"),
        (["w1"], {"versions": 0}, "impossible"),
        (["w1"], {"candidates": 4}, "5 candidates or more"),
        (["w1"], {"seed": -1}, "impossible"),
        (["w1"], {"runs": 0}, "impossible"),
        (["w1"], {"mechanisms": [ProjectedVectors(epsilon=1.0)]}, "do not release words"),
        (["strange"], {}, "no word of these rows is perturbed"),
        ([1], {}, "cannot be sanitized"),
        (["w1", "w2"], {}, "other rows"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    small: Embedding, values: list, options: dict, message: str
) -> None:
    given = {"embedding": small, "mechanisms": SETTINGS[:1], "runs": 10, **options}
    with pytest.raises(DptextError, match=message):
        evaluate(values, [1], **given)


def test_token_lists_and_unprotected_words(small: Embedding) -> None:
    """Words that pass are not counted as recovered; the column may hold lists."""
    lists = pa.array([["w1", "the", "w2"], ["w3", None]])
    found = evaluate(lists, [1, 2], embedding=small, mechanisms=SETTINGS[2:3], runs=10)
    assert set(found.risk()["tokens"].to_pylist()) == {3}


def test_what_is_shown_has_no_words(compared: Comparison) -> None:
    """Rejects a dataclass's own repr, which a notebook or a traceback would print with the pairs of words."""
    outcome = compared.outcomes[0]
    assert repr(outcome) == "Outcome(Laplace(epsilon=5.0), release_words=200)"
    for value in (compared, compared.before, outcome.totals):
        assert "array" not in repr(value)


def test_plain_words_say_the_numbers_and_the_choice(compared: Comparison) -> None:
    first, *settings, last = compared.describe(most_recovered=0.9999).splitlines()
    assert "private" in first
    assert [line.partition(":")[0] for line in settings] == [
        *("--mechanism laplace --epsilon 5", "--mechanism laplace --epsilon 12"),
        *("--mechanism laplace --epsilon 1000000", "--mechanism exponential --epsilon 3"),
    ]
    row = risk(compared, 0, "in-context")
    assert f"{row['recovered']:.1%} of {row['tokens']:,} words are recovered" in settings[0]
    assert f"; {row['floor']:.1%} without any output)" in settings[0]
    assert "No other beats it." in settings[2]
    assert last.startswith("Take --mechanism") and "100.0% of words recovered with 95%" in last
    alone = compared.describe(Risk(attacker="context-free"), most_recovered=0.0).splitlines()
    assert f"{risk(compared, 0, 'context-free')['recovered']:.1%} of" in alone[1]
    assert alone[-1].startswith("No setting here stays within 0.0% of words recovered")
