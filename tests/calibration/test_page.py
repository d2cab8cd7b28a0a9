"""What calibration.json, a terminal and the page say; tests/report has what every page must be."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure

from dptext_spark.calibration.facts import page as page_of
from dptext_spark.calibration.facts import said, verdict
from dptext_spark.mechanisms import Mahalanobis
from dptext_spark.report.text import rendered
from tests.helpers.calibrations import EPSILONS, LAPLACE, MET, N_W, UNMET, WEIGHTED, facts
from tests.helpers.page import drawn

SECTIONS = ["percentiles", "least-protected", "risks", "guarantee", "numbers"]


def page(folder, found):
    """The page of what calibration.json says, as read again; its figures are not turned into images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))
        return drawn(folder, page_of(json.loads(json.dumps(found))))


@pytest.fixture(scope="module")
def found(small):
    """Two mechanisms, with all that a calibration may have."""
    return facts(small, LAPLACE, WEIGHTED, target=[MET, UNMET])


@pytest.fixture(scope="module")
def several(found, tmp_path_factory):
    return page(tmp_path_factory.mktemp("page"), found)


def test_guarantees_are_those_of_each_mechanism(small, found):
    own = Mahalanobis(epsilon=1.0, **{"lambda": 0.5}).guarantee(small).to_json()
    assert found["guarantee"][4] == {"of": "mahalanobis:lambda=0.5", **own}


def test_the_main_numbers_are_said_in_80_columns(found):
    """Rejects a table that does not say which direction is good, and risks below their upper limits."""
    lines = rendered(said(found)).splitlines()
    assert lines[0].startswith("300 of 300 words were measured with 50 runs each. 300 words may be output.")
    at = lines.index("mahalanobis:lambda=0.5 (shared-ray estimator)")
    table = lines[at + 1 : at + 7]
    assert max(map(len, table)) <= 80
    assert [row.split() for row in table[:2]] == [
        ["epsilon", "mean(n_w)", "p95(n_w)", "max(n_w)", "mean(s_w)", "deniability", "risk", "risk_zipf"],
        ["better:", *["lower"] * 3, *["higher"] * 2, *["lower"] * 2],
    ]
    rest = ["1", "0.25", "0.25", "0.5", "0.5"]
    assert [row.split() for row in table[2:]] == [
        [f"{e:g}", f"{n:.4g}", f"{n:.4g}", *rest] for e, n in zip(EPSILONS, N_W, strict=True)
    ]
    release = "dptext privatize --input TABLE --output sanitized --text COLUMN --embedding 'a bundle'"
    assert f"The release: {release} --mechanism laplace --epsilon 3.25" in lines
    assert not any("Not enough runs" in line for line in lines)


def test_epsilons_at_which_new_outputs_come_are_named(small):
    """Rejects a remark at an epsilon where runs are enough, and none where they are not."""
    rows = facts(small)["summary"]
    for row in rows:
        if row["statistic"] == "unseen":
            row["mean"] = 0.06 if row["epsilon"] < 5 else 0.05
    lines = rendered(said(facts(small, summary=rows))).splitlines()
    assert "Epsilon 1, 4: Not enough runs for a reliable number; increase --runs." in lines


def test_epsilons_between_those_of_the_grid_are_interpolated_in_their_logarithm(small):
    """Without a target. Rejects values outside."""
    line, *_ = verdict(facts(small))
    at = [np.exp(np.interp(level, N_W, np.log(EPSILONS))) for level in (0.1, 0.5, 0.9)]
    inside = [f"{share}% at epsilon {epsilon:.3g}" for share, epsilon in zip((10, 50, 90), at, strict=True)]
    assert line == f"laplace: words stay unchanged in {', in '.join(inside)} (average of n_w, interpolated)."
    mine = facts(small)["summary"]
    (line,) = verdict(facts(small, summary=[row for row in mine if row["epsilon"] == 4.0]))
    assert line == "laplace: the average n_w is 0.2 at epsilon 4. Smaller epsilons change more words."


def test_the_page_has_its_sections_and_figures(several):
    """Rejects bare numbers: risks come with limits, floors and priors, words with intervals."""
    assert [a["id"] for a in several.attributes("h2")] == SECTIONS
    alts = [a["alt"] for a in several.attributes("img")]
    assert [alt.partition(" over epsilon")[0] for alt in alts] == ["N_w", "S_w"]
    assert several.of_tag["th"].count("Better") == 2
    for text in (
        "measurements of this mechanism, this embedding and these words, not guarantees",
        "Any of 300 words may be output",
        "epsilon 3.25 meets p95(n_w) <= 0.5 (90% confidence)",
        "no epsilon tried, down to 0.001, meets",
        "--mechanism laplace --epsilon 3.25",
        "0.25 0.125 to 0.5",
        "0.0625",
        "Limits at 90% confidence",
        "one of all 300 words",
        "the k-th word has weight 1/k",
        "each with its 90% interval",
        "0.987 0.900 to 0.999",
        "Nw of 0.95 or more: 3 of 300 words at epsilon 1, 3 of 300",
        "shared-ray: each word's runs are independent",
        *("higher", "lower", "0.05"),
    ):
        assert text in several.text, text


def test_parts_that_are_not_there_are_left_out_or_said(small, tmp_path):
    """Exact probabilities, one epsilon. Rejects an interval where nothing was left to chance."""
    found = facts(small)
    found["mechanisms"][0]["estimator"] = "exact"
    for name in ("summary", "words"):
        found[name] = [row for row in found[name] if row["epsilon"] == 4.0]
    own = page(tmp_path / "out", found)
    assert [a["id"] for a in own.attributes("h2")] == SECTIONS
    assert "exact probabilities" in own.text and "interval" not in own.text
    assert "0.900 to 0.999" not in own.text
    assert own.of_tag["th"].count("Epsilon 4") == 1
