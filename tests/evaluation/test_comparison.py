"""Settings compared on made texts: known ends, orders that must hold, and which no other beats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.evaluation.intervals import ClusterSums
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
    first = compared.outcomes[0]
    outcomes = []
    for number, (lost, use) in enumerate(values):
        sums = {"recovered/1/in-context/1": lost, "kept": use}
        shares = {name: ClusterSums.of_rows(round(10 * share), 10) for name, share in sums.items()}
        totals = replace(first.totals, sums={**first.totals.sums, **shares})
        outcomes.append(replace(first, totals=totals, error=float(number)))
    found = replace(compared, outcomes=tuple(outcomes))
    front = [int(outcome.error) for outcome in found.front(Risk(keeping="kept"))]
    assert [values[i][0] for i in front] == sorted(values[i][0] for i in front)
    for number, (lost, kept) in enumerate(values):
        beaten = any(a <= lost and b >= kept and (a, b) != (lost, kept) for a, b in values)
        assert (number in front) != beaten


def test_a_risk_that_was_not_measured_is_refused(compared: Comparison) -> None:
    for risk, message in ((Risk(versions=2), "Allowed: .*1 or 3 versions"), (Risk(guesses=10), "10 guesses")):
        with pytest.raises(ConfigError, match=message):
            compared.front(risk)


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
