"""What the page of a calibration says; tests/report/test_page.py has what every page must be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from dptext_spark.calibration.page import page as page_of
from dptext_spark.embedding.bundle import Embedding
from tests.helpers.calibrations import GAIN, LAPLACE, MATCH, MET, UNMET, WEIGHTED, facts
from tests.helpers.page import Page, drawn

SECTIONS = ["percentiles", "histograms", "least-protected", "risks", "substitutions"]
MORE = ["target", "gains", "matches"]
ALWAYS = ["neighbours", "guarantee", "numbers"]


def page(folder: Path, found: dict[str, Any]) -> Page:
    """The page of what calibration.json says, as read again; its figures are not turned into images."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))
        return drawn(folder, page_of(json.loads(json.dumps(found))))


@pytest.fixture(scope="module")
def several(small: Embedding, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Two mechanisms, with all that a calibration may have."""
    found = facts(
        small,
        LAPLACE,
        WEIGHTED,
        target=[MET, UNMET],
        gains=[GAIN | {"difference": -0.0312, "low": -0.05, "high": -0.01}],
        matches=[MATCH | {"mechanism": "laplace", "epsilon": epsilon} for epsilon in (None, 2.5)],
    )
    return page(tmp_path_factory.mktemp("page"), found)


def test_the_page_has_its_sections_and_figures_with_findings(several: Page) -> None:
    assert [a["id"] for a in several.attributes("h2")] == [*SECTIONS, *MORE, *ALWAYS]
    alts = [a["alt"] for a in several.attributes("img")]
    assert len(alts) == 5 and all(re.search(r"laplace.*mahalanobis:lambda=0\.5", alt) for alt in alts)
    assert alts[0].startswith(
        "laplace: median N_w rises from 0.05 at epsilon 1 to 1.00 at epsilon 64, "
        "where the middle 90% of words lie from 0.50 to 1.00."
    )
    assert "At epsilon 16, laplace, the highest bar is N_w 0.00 to 0.05: 297 of 300 words." in alts[2]
    assert several.of_tag["th"].count("Better") == 2


@pytest.mark.parametrize(
    "said",
    [
        "measurements of this mechanism, this embedding and these words, not guarantees",
        "Any of 300 words may be output",
        "n_w -0.0312 (-0.05 to -0.01)",
        "epsilon 3.25 meets p95(n_w) <= 0.5 (90% confidence)",
        "no epsilon tried, down to 0.001, meets",
        "--mechanism laplace --epsilon 3.25",
        "laplace, outside this grid",
        "0.25 0.125 to 0.5",
        "0.0625",
        "Limits at 90% confidence",
        "one of all 300 words",
        "the k-th word has weight 1/k",
        "each with its 90% interval",
        "0.987 0.900 to 0.999",
        "Nw of 0.95 or more: 3 of 300 words at epsilon 1, 3 of 300",
        "shared-ray: each word's runs are independent",
        *("higher", "lower", "17", "34.0%"),
    ],
)
def test_the_page_says(several: Page, said: str) -> None:
    """Rejects bare numbers: risks come with limits, floors and priors, words with intervals."""
    assert said in several.text, said


def test_parts_that_are_not_there_are_left_out_or_said(small: Embedding, tmp_path: Path) -> None:
    """No example, exact probabilities, one epsilon. Rejects an interval where nothing was left to chance."""
    found = facts(small, examples=[])
    found["mechanisms"][0]["estimator"] = "exact"
    for name in ("summary", "words"):
        found[name] = [row for row in found[name] if row["epsilon"] == 4.0]
    own = page(tmp_path / "out", found)
    assert [a["id"] for a in own.attributes("h2")] == [*SECTIONS, *ALWAYS]
    assert "name some: dptext calibrate --example WORD" in own.text and "Becomes" not in own.text
    assert "exact probabilities" in own.text and "interval" not in own.text
    assert "0.900 to 0.999" not in own.text
    assert own.attributes("img")[0]["alt"] == (
        "Median N_w is 0.20 at epsilon 4, where the middle 90% of words lie from 0.10 to 0.20."
    )
