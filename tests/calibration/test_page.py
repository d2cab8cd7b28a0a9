"""What calibration.json, a terminal and the page say; tests/report has what every page must be."""

import json

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


def test_guarantees_are_those_of_each_mechanism(small, found):
    own = Mahalanobis(epsilon=1.0, **{"lambda": 0.5})
    assert found["guarantee"][4] == {"options": own.options, **own.guarantee(small).to_json()}


def test_the_main_numbers_are_said_in_80_columns(found):
    """Rejects a table that does not say which direction is good, and risks below their upper limits."""
    lines = rendered(said(found)).splitlines()
    assert lines[0].startswith("300 of 300 words were measured with 50 runs each. 300 words may be output.")
    at = lines.index("mahalanobis:lambda=0.5 (shared-ray estimator)")
    table = lines[at + 1 : at + 7]
    assert max(map(len, table)) <= 80
    head = ["epsilon", "mean(n_w)", "p95(n_w)", "max(n_w)", "mean(s_w)", "deniability", "risk", "risk_zipf"]
    better = ["better:", *["lower"] * 3, *["higher"] * 2, *["lower"] * 2]
    rest = ["1", "0.25", "0.25", "0.5", "0.5"]
    rows = [[f"{e:g}", f"{n:.4g}", f"{n:.4g}", *rest] for e, n in zip(EPSILONS, N_W, strict=True)]
    assert [row.split() for row in table] == [head, better, *rows]
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


def test_without_a_target_the_ends_of_the_grid_are_said(small):
    (line,) = verdict(facts(small))
    assert line.startswith("laplace: the average n_w is 0.05 at epsilon 1 and 1 at epsilon 64. ")
    rows = [row for row in facts(small)["summary"] if row["epsilon"] == 4.0]
    (line,) = verdict(facts(small, summary=rows))
    assert line.startswith("laplace: the average n_w is 0.2 at epsilon 4. ")


def test_the_page_has_its_sections_and_figures(small, found, tmp_path):
    """Rejects bare numbers: risks come with limits, floors and priors, words with intervals."""
    # And an interval where nothing was left to chance.
    several = page(tmp_path / "several", found)
    assert [a["id"] for a in several.attributes("h2")] == SECTIONS
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
