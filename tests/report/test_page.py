"""Pages of calibrations and evaluations: one file each, that needs no other and escapes what it shows."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from dptext_spark.calibration.page import page as calibration_page
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.evaluation.attackers import STRONGER
from dptext_spark.evaluation.page import page as evaluation_page
from dptext_spark.report.page import _drawn, _look
from tests.helpers import calibrations, evaluations
from tests.helpers.page import Page, drawn

HOSTILE = "$\\frac{<b>$"
FIGURES = {
    "calibration": ["n_w", "s_w"],
    "evaluation": ["kept", "similarity"],
}

Drawn = tuple[dict[str, Any], Path, Page]


@pytest.fixture(scope="module")
def pages(small: Embedding, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Drawn]:
    """Each kind with its data and folder; names and options have markup, mathematics and our own marks."""
    own = calibrations.facts(small, calibrations.LAPLACE, calibrations.WEIGHTED, target=[calibrations.MET])
    calibration = json.loads(json.dumps(own).replace("laplace", json.dumps(HOSTILE)[1:-1]))
    calibration["options"]["embedding"] = HOSTILE
    evaluation = evaluations.facts(evaluations.thirds(small), target=evaluations.MET)
    evaluation["embedding"] = {**evaluation["embedding"], "source": HOSTILE}
    folder = tmp_path_factory.mktemp("pages")
    data = {"calibration": calibration_page(calibration), "evaluation": evaluation_page(evaluation)}
    return {name: (page, folder / name, drawn(folder / name, page)) for name, page in data.items()}


@pytest.fixture(params=FIGURES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_page_is_self_contained_and_escapes_what_it_shows(pages: dict[str, Drawn], kind: str) -> None:
    """Rejects markup, mathematics and our own marks in words, mechanisms, options and commands."""
    _, _, page = pages[kind]
    assert not re.search(r"https?:|//cdn|@import|url\(", page.source)
    assert not {"script", "link", "iframe", "object", "b"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name in {"src", "srcset", "href"} & attributes.keys():
            assert attributes[name].startswith("data:image/png;base64,"), (tag, name)
    assert HOSTILE in page.text
    if kind == "calibration":
        # The parser may hand a word over in pieces, but these come whole.
        assert {*calibrations.HOSTILE} - {"a&b", '"quoted"'} <= set(page.of_tag["bdi"])
        assert [text for text in page.of_tag["code"] if "code" in text] == []
    else:
        assert evaluations.SCRIPT in page.text
        assert "The release: dptext privatize --where '`id`' --epsilon 5" in page.text


def test_a_page_has_titled_sections_and_tables_that_scroll(pages: dict[str, Drawn], kind: str) -> None:
    """Rejects a wide table that a phone cuts off without a word, and one that a keyboard cannot scroll."""
    data, _, page = pages[kind]
    ids = [section["id"] for section in data["sections"]]
    assert ids == [a["id"] for a in page.attributes("h2")]
    assert ids == [a["aria-labelledby"] for a in page.attributes("section")]
    assert len(page.attributes("h1")) == 1 and page.attributes("html") == [{"lang": "en"}]
    assert "prefers-color-scheme: dark" in page.source and "width=device-width" in page.source
    regions = [a for a in page.attributes("div") if a.get("class", "").startswith("scroll")]
    assert len(regions) == len(page.attributes("table")) >= 5
    assert all(a["role"] == "region" and a["tabindex"] == "0" and a["aria-label"] for a in regions)
    wide = {a["aria-label"] for a in regions if "wide" in a["class"]}
    assert wide >= {"calibration": {"What an output reveals"}, "evaluation": {"Settings"}}[kind]
    assert 'content: "Scroll sideways' in page.source


def test_the_images_beside_a_page_are_those_in_it(pages: dict[str, Drawn], kind: str) -> None:
    _, folder, page = pages[kind]
    files = sorted((folder / "plots").iterdir())
    assert [f.stem for f in files] == FIGURES[kind]
    images = page.attributes("img")
    assert len(images) == len(files) and all(re.search(r"\d", a["alt"]) for a in images)
    for file in files:
        content = file.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert width == 960 and (str(width), str(height)) in {(a["width"], a["height"]) for a in images}
        assert b"tEXtSoftware" not in content and b"tIME" not in content


def test_equal_input_gives_equal_bytes(pages: dict[str, Drawn], kind: str, tmp_path: Path) -> None:
    """Also under a user's own style of figures."""
    data, folder, _ = pages[kind]
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        drawn(tmp_path / "other", data)
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    for name in ("report.html", f"plots/{FIGURES[kind][0]}.png"):
        assert (tmp_path / "other" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("target", [None, evaluations.MET, evaluations.UNMET])
def test_the_page_of_an_evaluation_has_its_answer_first(
    small: Embedding, target: str | None, tmp_path: Path
) -> None:
    page = drawn(
        tmp_path / "out", evaluation_page(evaluations.facts(evaluations.thirds(small), target=target))
    )
    lead, answer = page.text.split("The answer", 1)
    assert "Private. These numbers were measured on private rows" in lead and STRONGER in lead
    assert [a["id"] for a in page.attributes("h2")] == ["answer", "front", "settings", "run"]
    answer, rest = answer.split("What is kept for what is given away")
    assert ("take --mechanism laplace --epsilon 5" in answer) == (target == evaluations.MET)
    assert ("Add the filter --where" in answer) == (target == evaluations.MET)
    assert ("no setting here meets it" in answer) == (target == evaluations.UNMET)
    assert ("No target was given" in answer) == (target is None)
    assert "No other setting beats these" in answer and "--mechanism laplace --epsilon 1000000" in answer
    assert ("(recommended)" in rest) == (target == evaluations.MET)
    assert [a["class"] for a in page.attributes("tr") if "class" in a] == ["marked"] * (
        target == evaluations.MET
    )
    for text in ("What attackers recover, laplace", "What is kept, laplace"):
        assert any(a.get("aria-label", "").startswith(text) for a in page.attributes("div"))
    for text in (
        "in-context",
        "Nothing released, or random words",
        "The original",
        "Words that stay",
        "Proven.",
    ):
        assert text in rest


def test_the_finding_of_a_curve_says_where_it_stays() -> None:
    flat = {"x": [1.0, 2.0], "p5": [0.0, 0.0], "p50": [0.001, 0.002], "p95": [1.0, 1.0]}
    axes = {"x": {"name": "epsilon", "label": "Epsilon"}, "y": {"name": "N_w", "label": "N_w", "digits": 2}}
    (said,) = _drawn({"kind": "percentiles", "curves": {"": flat}, "caption": "", **axes})["findings"]
    assert said.startswith("Median N_w stays 0.00 from epsilon 1 to epsilon 2, where")


def test_figures_differ_without_colour() -> None:
    """Rejects lines told apart by their colours alone."""
    looks = [(str(look["color"]), str(look["ls"])) for look in map(_look, range(35))]
    assert len(set(looks)) == 35
    assert len({dash for _, dash in looks[:5]}) == 5


def test_a_long_legend_takes_no_room_from_the_figure() -> None:
    """Rejects a figure of one height, whose curves vanish where many settings are compared."""
    line = {"marks": ["1", "2"], "x": [0.1, 0.5], "low": [0.1, 0.4], "high": [0.2, 0.6], "y": [0.2, 0.4]}
    rest = {"x": {"name": "x", "label": "X"}, "y": {"name": "y", "label": "Y"}, "floor": (0, 0), "chosen": []}
    few, many = (
        _drawn(
            {
                "kind": "trade_off",
                "caption": "",
                "lines": {f"a mechanism, number {i}": line for i in range(n)},
            }
            | rest
        )
        for n in (1, 13)
    )
    assert many["height"] - few["height"] > 12 * 0.09 * 200 and many["width"] == few["width"]
