"""A calibration's facts on its page."""

import json

import pytest
from matplotlib.figure import Figure

from dptext_spark.calibration.page import page as page_of
from tests.helpers.calibrations import EPSILONS, LAPLACE, MET, N_W, UNMET, WEIGHTED, facts
from tests.helpers.page import drawn


def page(folder, found):
    """The page of what calibration.json says, as read again; its figures are not turned into images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))
        return drawn(folder, page_of(json.loads(json.dumps(found))))


@pytest.fixture(scope="module")
def found(small):
    """Two mechanisms, with all that a calibration may have."""
    return facts(small, LAPLACE, WEIGHTED, target=[MET, UNMET])


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
