"""Pages of calibrations and evaluations: one file each, that needs no other and escapes what it shows."""

import json
import re
import struct

import matplotlib
import pytest

from dptext_spark.calibration.page import page as calibration_page
from dptext_spark.errors import printable
from dptext_spark.evaluation.page import page as evaluation_page
from dptext_spark.report.page import _drawn, _look
from tests.helpers import calibrations, evaluations
from tests.helpers.page import drawn

HOSTILE = "$\\frac{<b>$\u202e"
FIGURES = {"calibration": ["n_w", "s_w"], "evaluation": ["similarity"]}


@pytest.fixture(scope="module")
def thirds(small):
    return evaluations.thirds(small)


@pytest.fixture(scope="module")
def pages(small, thirds, tmp_path_factory):
    """Each kind with its data and folder; names and options have markup, mathematics and our own marks."""
    own = calibrations.facts(
        small, calibrations.LAPLACE, calibrations.WEIGHTED, target=[calibrations.MET]
    )
    calibration = json.loads(json.dumps(own).replace("laplace", json.dumps(HOSTILE)[1:-1]))
    calibration["options"]["embedding"] = HOSTILE
    evaluation = evaluations.facts(thirds, target=evaluations.MET)
    evaluation["embedding"] = {**evaluation["embedding"], "source": HOSTILE}
    folder = tmp_path_factory.mktemp("pages")
    data = {"calibration": calibration_page(calibration), "evaluation": evaluation_page(evaluation)}
    return {name: (page, folder / name, drawn(folder / name, page)) for name, page in data.items()}


@pytest.mark.parametrize("kind", FIGURES)
def test_a_page_is_self_contained_escapes_what_it_shows_and_can_be_used(pages, kind):
    """Rejects markup, mathematics and our own marks in words, mechanisms, options and commands."""
    # And a wide table that a phone cuts off without a word, and one that a keyboard cannot scroll.
    _, _, page = pages[kind]
    assert not re.search(r"https?:|//cdn|@import|url\(", page.source)
    assert not {"script", "link", "iframe", "object", "b"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        for name in {"src", "srcset", "href"} & attributes.keys():
            assert attributes[name].startswith("data:image/png;base64,"), (tag, name)
    assert printable(HOSTILE) in page.text and "\u202e" not in page.source
    if kind == "calibration":
        # The parser may hand a word over in pieces, but these come whole.
        assert {*calibrations.HOSTILE} - {"a&b", '"quoted"'} <= set(page.of_tag["bdi"])
        assert [text for text in page.of_tag["code"] if "code" in text] == []
    else:
        assert evaluations.SCRIPT in page.text
        assert "The release: dptext privatize --where '`id`' --epsilon 5" in page.text
    ids = [a["id"] for a in page.attributes("h2")]
    assert len(ids) >= 4 and ids == [a["aria-labelledby"] for a in page.attributes("section")]
    assert len(page.attributes("h1")) == 1 and page.attributes("html") == [{"lang": "en"}]
    assert "prefers-color-scheme: dark" in page.source and "width=device-width" in page.source
    regions = [a for a in page.attributes("div") if a.get("class", "").startswith("scroll")]
    assert len(regions) == len(page.attributes("table")) >= 4
    assert all(a["role"] == "region" and a["tabindex"] == "0" and a["aria-label"] for a in regions)
    wide = {a["aria-label"] for a in regions if "wide" in a["class"]}
    assert wide >= {"calibration": {"What an output reveals"}, "evaluation": {"Settings"}}[kind]
    assert 'content: "Scroll sideways' in page.source


@pytest.mark.parametrize("kind", FIGURES)
def test_the_images_beside_a_page_are_those_in_it_and_equal_input_gives_equal_bytes(
    pages, kind, tmp_path
):
    """Also under a user's own style of figures."""
    data, folder, page = pages[kind]
    files, images = sorted((folder / "plots").iterdir()), page.attributes("img")
    assert [f.stem for f in files] == FIGURES[kind]
    assert len(images) == len(files) and all(a["alt"] for a in images)
    for file in files:
        content = file.read_bytes()
        width, height = struct.unpack(">II", content[16:24])
        assert width == 960 and (str(width), str(height)) in {
            (a["width"], a["height"]) for a in images
        }
        assert b"tEXtSoftware" not in content and b"tIME" not in content
    with matplotlib.rc_context(
        {"lines.linewidth": 9.0, "font.size": 30.0, "axes.facecolor": "red"}
    ):
        drawn(tmp_path / "other", data)
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    for name in ("report.html", f"plots/{FIGURES[kind][0]}.png"):
        assert (tmp_path / "other" / name).read_bytes() == (folder / name).read_bytes()


def test_figures_differ_without_colour_and_grow_with_their_legend():
    """Rejects lines told apart by their colours alone, and curves that vanish where many are compared."""
    looks = [(str(look["color"]), str(look["ls"])) for look in map(_look, range(35))]
    assert len(set(looks)) == 35 and len({dash for _, dash in looks[:5]}) == 5
    rest = {
        "x": {"label": "Epsilon"},
        "y": {"label": "N_w"},
        "bars": "x",
        "caption": "",
        "floor": (0, 0),
    }

    def figure(*labels, **changes):
        line = {
            "marks": ["1", "2"],
            "x": [0.1, 0.5],
            "low": [0.1, 0.4],
            "high": [0.2, 0.6],
            "y": [0.2, 0.4],
        }
        return _drawn({**rest, "lines": dict.fromkeys(labels, line | changes)})

    few, many = figure("one"), figure(*(f"a mechanism, number {i}" for i in range(13)))
    assert many["height"] - few["height"] > 12 * 0.09 * 200 and many["width"] == few["width"]
    drawn = [
        few["png"],
        figure("one", high=[0.2, 0.7])["png"],
        figure("one", marks=["1", "3"])["png"],
    ]
    assert len({*drawn}) == 3
