"""Settings compared on made texts: known ends, orders that must hold, and what is recommended."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dptext_spark.embedding.bundle import Embedding
from dptext_spark.errors import ConfigError, DptextError, InputError
from dptext_spark.evaluation.comparison import Comparison, Risk, evaluate
from dptext_spark.mechanisms import Exponential, Laplace
from dptext_spark.vectors.projected_vectors import ProjectedVectors
from tests.helpers.made_texts import sentences

ROWS = 150
SETTINGS = (Laplace(epsilon=5.0), Laplace(epsilon=12.0), Laplace(epsilon=1e6), Exponential(epsilon=3.0))


@pytest.fixture(scope="module")
def compared(small: Embedding) -> Comparison:
    texts = sentences(ROWS, 1)
    return evaluate(
        texts, list(range(ROWS)), embedding=small, mechanisms=SETTINGS, versions=3, runs=200, candidates=60
    )


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
        alone = risk(compared, number, "context-free")
        inside = risk(compared, number, "in-context")
        assert alone["recovered"] < inside["recovered"]
        assert inside["recovered"] < risk(compared, number, "in-context", versions=3)["recovered"]
        assert inside["recovered"] < risk(compared, number, "in-context", guesses=5)["recovered"]
        for row in (alone, inside):
            assert row["floor"] < row["low"] < row["recovered"] < row["high"]


def test_what_is_kept_stands_between_floor_and_ceiling(compared: Comparison) -> None:
    low, high = use(compared, 0), use(compared, 1)
    assert set(low) == {
        *("kept", "distance", "similarity"),
        *(f"{kind}_{name}" for kind in ("word", "pair") for name in ("overlap", "agreement", "leaders")),
    }
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


def test_a_setting_is_recommended_that_is_surely_within_the_limit(compared: Comparison) -> None:
    shares = [risk(compared, number, "in-context")["recovered"] for number in range(4)]
    outcomes = compared.outcomes
    assert compared.recommended(1.0) is outcomes[2]
    assert compared.recommended((shares[0] + shares[1]) / 2) is outcomes[0]
    assert compared.recommended(shares[0]) is None  # half the time it would be more
    assert compared.recommended(0.999, Risk(attacker="context-free", keeping="kept")) in outcomes
    front = compared.front()
    assert front[-1] is outcomes[2] and front[0] is outcomes[int(np.argmin(shares))]
    assert repr(outcomes[0]) == "Outcome(Laplace(epsilon=5.0), release_words=200)"


def test_the_limit_holds_although_it_was_searched_for(compared: Comparison) -> None:
    """Rejects the interval of one setting, where four were looked at: at this limit none is surely within."""
    sums = Risk().of(compared.outcomes[0])
    alone, among_four = (sums.share_interval(c)[1][0] for c in (0.95, 1 - 0.05 / 4))
    assert alone < among_four
    assert compared.recommended((alone + among_four) / 2) is None
    assert compared.recommended(among_four) is compared.outcomes[0]


def test_a_risk_that_was_not_measured_is_refused(compared: Comparison) -> None:
    with pytest.raises(ConfigError, match=r"Allowed: .*1 or 3 versions"):
        compared.recommended(0.5, Risk(versions=2))
    with pytest.raises(ConfigError, match="Got: in-context, 10 guesses"):
        compared.front(Risk(guesses=10))


def test_whoever_learns_elsewhere_recovers_less(small: Embedding, compared: Comparison) -> None:
    """The table itself is the worst case; other texts of the same language are nearly as good here."""
    texts = sentences(ROWS, 1)
    options = {"embedding": small, "mechanisms": SETTINGS[:1], "runs": 200, "candidates": 60}
    public = evaluate(texts, list(range(ROWS)), corpus=sentences(ROWS, 2), **options)  # type: ignore[arg-type]
    strange = evaluate(texts, list(range(ROWS)), corpus=["w150 w151 w152 w153"], **options)  # type: ignore[arg-type]
    worst, other = risk(compared, 0, "in-context"), risk(public, 0, "in-context")
    assert other["floor"] < other["recovered"] < worst["recovered"]
    assert risk(strange, 0, "in-context")["recovered"] == 0.0


def test_the_same_seed_gives_the_same_numbers(small: Embedding) -> None:
    texts = sentences(20, 3)
    found = [
        evaluate(texts, list(range(20)), embedding=small, mechanisms=SETTINGS[:1], runs=50, seed=seed)
        for seed in (1, 1, 2)
    ]
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
    ],
)
def test_what_cannot_be_evaluated_is_refused(
    small: Embedding, values: list, options: dict, message: str
) -> None:
    given = {"embedding": small, "mechanisms": SETTINGS[:1], **options}
    with pytest.raises(DptextError, match=message):
        evaluate(values, [1], **given)


def test_ids_are_checked(small: Embedding) -> None:
    with pytest.raises(InputError, match="other rows"):
        evaluate(["w1", "w2"], [1], embedding=small, mechanisms=SETTINGS[:1], runs=10)


def test_token_lists_and_unprotected_words(small: Embedding) -> None:
    """Words that pass are not counted as recovered; the column may hold lists."""
    lists = pa.array([["w1", "the", "w2"], ["w3", None]])
    found = evaluate(lists, [1, 2], embedding=small, mechanisms=SETTINGS[2:3], runs=10)
    assert set(found.risk()["tokens"].to_pylist()) == {3}


def test_what_is_shown_has_no_words(compared: Comparison) -> None:
    """Rejects a dataclass's own repr, which a notebook or a traceback would print with the pairs of words."""
    for value in (compared, compared.outcomes[0], compared.before, compared.outcomes[0].totals):
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
