"""A summary from sums as Spark gives them, targets, and what a terminal and the page say of them."""

import json
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from dptext_spark.calibration.facts import (
    NUMBERS,
    OF_WORDS,
    STATISTICS,
    Target,
    bounding_rank,
    largest_epsilon,
    said,
    searched,
    summary,
    tuned,
    verdict,
)
from dptext_spark.calibration.facts import page as page_of
from dptext_spark.calibration.statistics import mean_limits
from dptext_spark.errors import ConfigError
from dptext_spark.mechanisms import Exponential, Laplace, Mahalanobis
from dptext_spark.report.text import rendered
from tests.helpers import calibration_oracle as oracle
from tests.helpers.calibration_oracle import grid
from tests.helpers.calibrations import EPSILONS, LAPLACE, MET, N_W, UNMET, WEIGHTED, facts
from tests.helpers.page import drawn

LEVELS = {"min": 1.0, "p5": 1.0, "p50": 2.0, "p95": 4.0, "max": 4.0}


def rows_of(*grids, guesses=None, **values):
    """Rows of a summary; each statistic has ``values``, by default one 0.5."""
    moments = {}
    for name in ("k_w", *OF_WORDS[::-1]):
        own = list(map(Decimal, values.get(name, ["0.5"])))
        row = {"n": len(own), "sum": sum(own), "short_sum": sum(own), **LEVELS}
        moments[name] = row | {"squares": sum(number * number for number in own)}
    won = guesses or dict.fromkeys(
        ("uniform", "uniform_judged", "zipf", "zipf_judged"), Decimal(60)
    )
    outputs = {"k_w": moments.pop("k_w"), **{name: {"sum": sums} for name, sums in won.items()}}
    keys = [(one.name, epsilon) for one in grids for epsilon in one.epsilons]
    return summary(grids, *(dict.fromkeys(keys, own) for own in (moments, outputs)))


def test_rows_come_in_the_order_of_mechanisms_epsilons_and_statistics():
    """Not by name; n_w has limits by units of noise, unless it is exact, and counts have none."""
    # Rejects numbers of one grid for another's rows, a variance over n - 1, and rounding that leaves one
    # where all values are equal.
    weighted = tuple(Mahalanobis(epsilon=e, **{"lambda": 0.9}) for e in (2.0, 40.0))
    sample, given = grid(mechanisms=weighted), {"s_w": ["1", "3", "2", "4"], "h_0": ["0.1"] * 3}
    rows = rows_of(
        sample, replace(grid(), estimator="exact"), **given, n_w=["0.25"] * 4, posterior=["0.1"]
    )
    assert [(row["mechanism"], row["epsilon"], row["statistic"]) for row in rows] == [
        (name, epsilon, statistic)
        for name in ("mahalanobis:lambda=0.9", "laplace")
        for epsilon in (2.0, 40.0)
        for statistic in STATISTICS
    ]
    assert list(rows[0]) == ["mechanism", "epsilon", "statistic", *NUMBERS]
    for name in ("n_w", "bayes_risk_uniform"):
        certain = {
            row["mechanism"]
            for row in rows
            if row["statistic"] == name and row["low"] == row["high"]
        }
        assert certain == {"laplace"}
    found = {row["statistic"]: row for row in rows[: len(rows) // 4]}
    first = found["s_w"]
    assert (first["mean"], first["sd"]) == (2.5, 1.25**0.5)
    assert (found["h_0"]["mean"], found["h_0"]["sd"]) == (0.1, 0.0)
    assert {name: first[name] for name in LEVELS} == LEVELS
    assert first["low"] is first["high"] is first["floor"] is None
    limits = mean_limits(0.25, 60, float(sample.units("uniform").max()), 0.025)
    assert [found["n_w"][n] for n in ("mean", "low", "high")] == pytest.approx([0.25, *limits])
    row = [found["deniability"][n] for n in ("mean", "low", "high", "floor")]
    assert row == pytest.approx([10.0, None, None, 64.0])


def test_a_risk_lies_between_what_a_guesser_won_and_what_all_runs_say_of_themselves():
    """By hand. Rejects runs that judge what they taught, their number in either limit, and a single unit."""
    weights, sample = (
        1.0 / np.arange(1, 9) / (1.0 / np.arange(1, 9)).sum(),
        grid(8, runs=60, estimator="plain"),
    )
    sums = {"zipf": 0.8 * 60 / weights[0], "zipf_judged": 0.6 * 30 / weights[0]}
    rows = rows_of(sample, guesses=sums | {"uniform": 0.2 * 8 * 60, "uniform_judged": 0.0})
    found = {row["statistic"]: [row[n] for n in ("mean", "low", "high", "floor")] for row in rows}
    low, _ = mean_limits(0.6, 30, weights[0], 0.025)
    high, alike = (
        math.sqrt(math.log(40.0) * squares / 120) for squares in (np.square(weights).sum(), 1 / 8)
    )
    assert weights[0] < low < 0.6 < 0.8 + high < 1.0
    assert found["bayes_risk_zipf"] == pytest.approx([0.6, low, 0.8 + high, weights[0]])
    assert found["bayes_risk_uniform"] == pytest.approx([1 / 8, 1 / 8, 0.2 + alike, 1 / 8])


NEAR = stats.norm.pdf(np.arange(60) / 5.0, np.arange(12)[:, None], 0.6)
ENDS = ((0, ""), (1, "_judged"))
WORLDS = {
    "spread": np.full((12, 300), 1.0 / 300),  # nothing is told: every word becomes any of 300
    "kept": np.eye(12),
    "near": NEAR / NEAR.sum(axis=1, keepdims=True),
}


@pytest.mark.statistical
@pytest.mark.parametrize("prior", ["uniform", "zipf"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_true_risk_lies_between_the_limits(world, prior):
    """300 seeds of 8 and of 60 runs, at 95 %: false alarm 1e-4. Refused: what runs say of themselves."""
    law, weights = WORLDS[world], np.ones(12) if prior == "uniform" else 1.0 / np.arange(1, 13)
    truth, laws = oracle.risk(law, weights), np.cumsum(law, axis=1)
    for runs in (8, 60):
        rows, own, sample = [], [], grid(12, runs=runs, estimator="plain")
        for seed in range(300):
            rng = np.random.default_rng(seed)
            draws = [np.searchsorted(each / each[-1], rng.random(runs)) for each in laws]
            counted = oracle.counted(
                np.array([draws], np.int32), np.arange(12), release_words=law.shape[1]
            )
            won = {name: oracle.guessed(counted, sample, name) for name in ("uniform", "zipf")}
            sums = {f"{name}{end}": each[i][0] for name, each in won.items() for i, end in ENDS}
            found = {row["statistic"]: row for row in rows_of(sample, guesses=sums)}
            rows.append(found[f"bayes_risk_{prior}"])
            own.append(sums["uniform"] / (12 * runs))
        missed = sum(
            not row["low"] <= truth * (1 + 1e-12) <= row["high"] * (1 + 2e-12) for row in rows
        )
        assert stats.binomtest(missed, 300, 0.05, "greater").pvalue > 1e-4
        if (world, prior) == ("spread", "uniform"):
            assert stats.ttest_1samp(own, 1.2 * truth, alternative="greater").pvalue < 1e-6


@pytest.mark.parametrize(
    ("text", "written", "met", "missed"),
    [
        (" p95( n_w )<=0.50", "p95(n_w) <= 0.5", 0.5, 0.51),
        ("min(s_w) >= 20", "min(s_w) >= 20", 20.0, 19.0),
        *(
            (text, None, None, None)
            for text in ("mean(n_w) <= 0.5", "p95(k_w) >= 5", "p95() <= 0.5")
        ),
        *(
            (text, None, None, None)
            for text in ("p95(n_w) >= 0.5", "p5(s_w) <= 20", "p95(n_w) <= 1")
        ),
    ],
)
def test_a_target_is_read_and_written_or_refused(text, written, met, missed):
    """Rejects a limit on the wrong side."""
    if written is None:
        with pytest.raises(ConfigError, match=r"--target has a wrong value.*STATISTIC"):
            Target.parse(text)
        return
    target = Target.parse(text)
    assert str(target) == written and Target.parse(written) == target
    assert target.met(met) and not target.met(missed) and not target.met(math.nan)


LOOKS = 2 + 24  # the grid's epsilons, and twelve doublings and twelve halvings
VICKREY = tuple(Laplace(epsilon=e, select="vickrey", t=0.5) for e in (2.0, 40.0))
EXACT = {"mechanisms": tuple(Exponential(epsilon=e) for e in (2.0, 40.0)), "estimator": "exact"}


def rank(text, words, *, whole=False, **changes):
    target = Target.parse(text)
    return bounding_rank(
        target, searched(target, grid(words, words if whole else 2 * words, **changes))
    )


@pytest.mark.parametrize(
    ("text", "changes", "looks"),
    [
        ("p95(n_w) <= 0.5", {}, 1),
        ("p95(n_w) <= 0.5", {"mechanisms": VICKREY}, LOOKS),
        ("p5(entropy) >= 2", {}, LOOKS),
        ("p50(n_w) <= 0.5", EXACT, LOOKS),
        ("p50(n_w) <= 0.5", {"vocabulary": 64, **EXACT}, 1),
    ],
)
def test_what_grows_with_epsilon_is_searched_at_full_confidence_and_all_else_shares_it(
    text, changes, looks
):
    asked = grid(64, **{"vocabulary": 128} | changes)
    assert 1.0 - searched(Target.parse(text), asked).confidence == pytest.approx(0.05 / looks)


@pytest.mark.parametrize("words", [150, 10_000])
def test_a_sample_bounds_a_quantile_by_the_binomial_law(words):
    each = 0.05 / LOOKS
    for changes, level, error in (
        (EXACT, 0.95, each),
        ({}, 0.95 + 0.05 * 0.025, 0.05),  # counted runs: the limits of some words are too low
    ):
        upper = rank("p95(n_w) <= 0.5", words, **changes)
        assert (
            stats.binom.sf(upper - 1, words, level)
            <= error
            < stats.binom.sf(upper - 2, words, level)
        )
    lower = rank("p50(s_w) >= 5", words)
    assert stats.binom.cdf(lower - 1, words, 0.5) <= each < stats.binom.cdf(lower, words, 0.5)
    for text in ("max(n_w) <= 0.5", "min(s_w) >= 5"):
        with pytest.raises(ConfigError, match="words are too few"):
            rank(text, words)


@pytest.mark.parametrize(
    ("text", "words", "changes", "expected"),
    [
        ("p95(n_w) <= 0.5", 100, EXACT, 95),
        ("max(n_w) <= 0.5", 100, {}, 100),
        ("p50(n_w) <= 0.5", 9, EXACT, 5),
        ("min(s_w) >= 5", 100, {}, 1),
        # Of 51 words at or above the median some upper limits are too low: up to 3 but for a chance of 5%.
        ("p50(n_w) <= 0.5", 100, {}, 50 + int(stats.binom.isf(0.05, 51, 0.025))),
    ],
)
def test_all_words_are_no_sample(text, words, changes, expected):
    assert rank(text, words, whole=True, **changes) == expected


@pytest.mark.parametrize(
    ("most", "epsilons", "expected"),
    [
        *(
            (11.37, own, (11.3, 11.4))
            for own in ([5.0], [0.01], [900.0], [1.0, 12.0, 300.0], [11.3], [11.4])
        ),
        (4.5, [9.0], (4.5, 4.51)),
        (math.inf, [8.0], (1.33e8, None)),
        (-math.inf, [8.0], (None, 4.75e-07)),
        (4.001, [9.0], (None, 4.01)),
    ],
)
def test_the_largest_epsilon_has_three_digits(most, epsilons, expected):
    """A mechanism refuses 4 and less: such epsilons bound the search, none is tried twice."""
    tried = []

    def meets(epsilon):
        tried.append(epsilon)
        if epsilon <= 4.0 < most < 5.0:
            raise ConfigError("The epsilon is too low")
        return epsilon <= most

    assert largest_epsilon(meets, epsilons) == expected
    assert len(set(tried)) == len(tried) <= 25


def test_a_found_epsilon_comes_with_its_numbers_and_the_options_of_its_release():
    """Judged by its bound, not as measured. Rejects an epsilon in the options that nobody measured."""
    target = Target.parse("p50(n_w) <= 0.5")
    found = tuned(
        target, grid(), lambda epsilon: (epsilon / 20.0, epsilon / 10.0), release_words=30
    )
    assert found == {
        "target": "p50(n_w) <= 0.5",
        "confidence": 0.95,
        "mechanism": "laplace",
        "epsilon": 5.0,
        "missed": 5.01,
        "measured": 0.25,
        "bound": 0.5,
        "options": "--mechanism laplace --epsilon 5 --release-words 30",
    }
    none = tuned(target, grid(), lambda _: (1.0, 1.0), release_words=None)
    assert none["epsilon"] is none["measured"] is none["bound"] is none["options"] is None
    exact = grid(mechanisms=(Mahalanobis(epsilon=11.3456789, **{"lambda": 0.25}),))
    found = tuned(target, exact, lambda e: (0.1, float(e > 11.3456789)), release_words=None)
    assert found["options"] == "--mechanism mahalanobis:lambda=0.25 --epsilon 11.3456789"


def page(folder, found):
    """The page of what calibration.json says, as read again; its figures are not turned into images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))
        return drawn(folder, page_of(json.loads(json.dumps(found))))


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


def test_the_page_has_its_sections_and_figures(small, found, tmp_path):
    """Rejects bare numbers: risks come with limits, floors and priors, words with intervals."""
    # And an interval where nothing was left to chance.
    several = page(tmp_path / "several", found)
    sections = ["percentiles", "least-protected", "risks", "guarantee", "numbers"]
    assert [a["id"] for a in several.attributes("h2")] == sections
    line = {"x": [*EPSILONS], "low": [n / 2 for n in N_W], "y": [*N_W], "high": [*N_W]}
    assert page_of(found)["plots"][0]["lines"]["laplace"] == line
    alts = [a["alt"] for a in several.attributes("img")]
    assert [alt.partition(" over epsilon")[0] for alt in alts] == ["N_w", "S_w"]
    for text in (
        "measurements of this mechanism, this embedding and these words, not guarantees",
        "epsilon 3.25 meets p95(n_w) <= 0.5 (90% confidence)",
        "no epsilon tried, down to 0.001, meets",
        "--mechanism laplace --epsilon 3.25",
        "0.25 0.125 to 0.5",
        "0.0625",
        "Limits at 90% confidence",
        "one of all 300 words",
        "0.987 0.900 to 0.999",
        "Nw of 0.95 or more: 3 of 300 words at epsilon 1, 3 of 300",
        "shared-ray: each word's runs are independent",
    ):
        assert text in several.text, text
    found = facts(small)
    found["mechanisms"][0]["estimator"] = "exact"
    own = page(tmp_path / "exact", found)
    assert "exact probabilities" in own.text
    assert "interval" not in own.text and "0.900 to 0.999" not in own.text
