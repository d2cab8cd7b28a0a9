"""The page of a calibration: what it holds, for whom, and what it must not need."""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from dptext_spark.calibration.page import page as page_of
from dptext_spark.embedding.bundle import Embedding
from dptext_spark.report.page import Axis, percentile_plot, write_page
from tests.helpers.calibrations import HOSTILE, LAPLACE, MET, UNMET, WEIGHTED, facts

SECTIONS = ["percentiles", "histograms", "least-protected", "risks", "substitutions"]
ALWAYS = [*SECTIONS, "neighbours", "guarantee", "numbers"]


# The page as a reader's machine sees it

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Tags, attributes and text; closing tags must match."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.of_tag: dict[str, list[str]] = defaultdict(list)
        self.feed(self.source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)
        if self.open:
            self.of_tag[self.open[-1]].append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def drawn(folder: Path, found: dict[str, Any]) -> Page:
    """The page of what calibration.json says, as read again."""
    folder.mkdir(exist_ok=True)
    write_page(folder, page_of(json.loads(json.dumps(found))), name="report.html", plots="plots")
    return Page(folder / "report.html")


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not turned into images, which takes most of the time."""
    monkeypatch.setattr(Figure, "savefig", lambda self, file, **options: file.write(b"no image"))


GAIN = {"mechanism": "mahalanobis:lambda=0.5", "baseline": "laplace", "epsilon": 4.0, "statistic": "n_w"}
MATCH = {"n_w": "average", "other": {"mechanism": "tem", "epsilon": 2.0}, "value": 0.25}


@pytest.fixture(scope="module")
def several(small: Embedding, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Page]:
    """Two mechanisms, with all that a calibration may have, and its folder."""
    found = facts(
        small,
        LAPLACE,
        WEIGHTED,
        target=[MET, UNMET],
        gains=[GAIN | {"difference": -0.0312, "low": -0.05, "high": -0.01}],
        matches=[MATCH | {"mechanism": "laplace", "epsilon": epsilon} for epsilon in (None, 2.5)],
    )
    folder = tmp_path_factory.mktemp("page") / "several"
    return folder, drawn(folder, found)


def test_the_page_has_its_sections_and_figures_with_findings(several: tuple[Path, Page]) -> None:
    _, page = several
    ids = [a["id"] for a in page.attributes("h2")]
    assert ids == [*SECTIONS, "target", "gains", "matches", *ALWAYS[5:]]
    assert [a["aria-labelledby"] for a in page.attributes("section")] == ids
    assert len(page.attributes("h1")) == 1 and page.attributes("html") == [{"lang": "en"}]
    alts = [a["alt"] or "" for a in page.attributes("img")]
    assert len(alts) == 5
    for alt in alts:
        assert re.search(r"laplace.*mahalanobis:lambda=0\.5", alt) and re.search(r"\d", alt)
    assert alts[0].startswith(
        "laplace: median N_w rises from 0.05 at epsilon 1 to 1.00 at epsilon 64, "
        "where the middle 90% of words lie from 0.50 to 1.00."
    )
    assert "At epsilon 16, laplace, the highest bar is N_w 0.00 to 0.05: 297 of 300 words." in alts[2]


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
        "higher",
        "lower",
        "17",
        "34.0%",
    ],
)
def test_the_page_says(several: tuple[Path, Page], said: str) -> None:
    """Rejects bare numbers: risks come with limits, floors and priors, words with intervals."""
    assert said in several[1].text, said


def test_tables_scroll_with_a_name_and_say_which_direction_is_good(several: tuple[Path, Page]) -> None:
    """Rejects a wide table that a phone cuts off without a word, and one that a keyboard cannot scroll."""
    _, page = several
    regions = [a for a in page.attributes("div") if (a.get("class") or "").startswith("scroll")]
    assert len(regions) == len(page.attributes("table"))
    assert all(a["role"] == "region" and a["tabindex"] == "0" and a["aria-label"] for a in regions)
    wide = {a["aria-label"] for a in regions if "wide" in (a["class"] or "")}
    assert {"What an output reveals", "Distributions over words and outputs"} <= wide
    assert 'content: "Scroll sideways' in page.source
    heads = page.of_tag["th"]
    assert heads.count("Better") == 2


def test_the_page_is_self_contained(several: tuple[Path, Page]) -> None:
    _, page = several
    assert not re.search(r"https?:|//cdn|@import|url\(", page.source)
    assert not {"script", "link", "iframe", "object"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            if name in ("src", "srcset", "href"):
                assert (value or "").startswith("data:image/png;base64,"), (tag, name)


def test_the_images_beside_the_page_are_those_in_it(several: tuple[Path, Page]) -> None:
    folder, page = several
    files = sorted((folder / "plots").iterdir())
    assert [f.stem for f in files] == ["n_w", "n_w_histogram", "neighbours", "s_w", "s_w_histogram"]
    sizes = {(a["width"], a["height"]) for a in page.attributes("img")}
    for file in files:
        content = file.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert width == 960 and (str(width), str(height)) in sizes
        assert b"tEXtSoftware" not in content and b"tIME" not in content


def test_equal_input_gives_equal_bytes(small: Embedding, tmp_path: Path) -> None:
    """Also under a user's own style of figures."""
    drawn(tmp_path / "one", facts(small))
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}):
        drawn(tmp_path / "other", facts(small))
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    for name in ("report.html", "plots/n_w.png"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_words_and_names_are_escaped(small: Embedding, tmp_path: Path) -> None:
    """Rejects markup, mathematics and our own marks in words, mechanisms and options."""
    wrong = "$\\frac{<b>$"
    found = json.loads(json.dumps(facts(small, LAPLACE, WEIGHTED, target=[MET])).replace("laplace", "$<b>$"))
    found["options"]["embedding"] = wrong
    page = drawn(tmp_path / "out", found)
    assert page.attributes("b") == [] and not page.attributes("script")
    # The parser may hand a word over in pieces, but these come whole.
    assert {*HOSTILE} - {"a&b", '"quoted"'} <= set(page.of_tag["bdi"])
    assert [a for a in page.of_tag["code"] if "code" in a] == []


@pytest.mark.usefixtures("undrawn")
def test_parts_that_are_not_there_are_left_out_or_said(small: Embedding, tmp_path: Path) -> None:
    page = drawn(tmp_path / "out", facts(small, examples=[]))
    assert [a["id"] for a in page.attributes("h2")] == ALWAYS
    assert "name some: dptext calibrate --example WORD" in page.text and "Becomes" not in page.text


@pytest.mark.usefixtures("undrawn")
def test_exact_probabilities_have_no_interval(small: Embedding, tmp_path: Path) -> None:
    found = facts(small)
    found["mechanisms"][0]["estimator"] = "exact"
    page = drawn(tmp_path / "out", found)
    assert "exact probabilities" in page.text and "interval" not in page.text
    assert "0.900 to 0.999" not in page.text


@pytest.mark.usefixtures("undrawn")
def test_one_epsilon_gives_a_page(small: Embedding, tmp_path: Path) -> None:
    found = facts(small)
    for name in ("summary", "words", "examples"):
        found[name] = [row for row in found[name] if row["epsilon"] == 4.0]
    alt = drawn(tmp_path / "out", found).attributes("img")[0]["alt"]
    assert alt == "Median N_w is 0.20 at epsilon 4, where the middle 90% of words lie from 0.10 to 0.20."


def test_the_finding_of_a_curve_says_where_it_stays() -> None:
    flat = {"x": [1.0, 2.0], "p5": [0.0, 0.0], "p50": [0.001, 0.002], "p95": [1.0, 1.0]}
    y, epsilon = Axis(name="N_w", label="N_w", digits=2), Axis(name="epsilon", label="Epsilon")
    plot = percentile_plot("flat", {"": flat}, epsilon, y)
    assert plot.alt.startswith("Median N_w stays 0.00 from epsilon 1 to epsilon 2, where")


def test_figures_differ_without_colour() -> None:
    """Rejects lines told apart by their colours alone."""
    from dptext_spark.report.page import _look

    looks = [(str(look["color"]), str(look["ls"])) for look in map(_look, range(35))]
    assert len(set(looks)) == 35
    assert len({dash for _, dash in looks[:5]}) == 5
