"""Pages as one HTML file each, a template over facts, and their figures.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from dptext_spark.errors import printable

# Narrow, so that letters stay readable where a phone shows a figure 330 pixels wide.
_WIDTH: Final = 4.8
_CHARACTERS: Final = 58  # that fit in it
_DPI: Final = 200

# Okabe and Ito 2008, "Color Universal Design"; yellow is left out, too pale for a line on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES: Final = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS: Final = "os^Dv"

_STYLE: Final = str(Path(__file__).with_name("page.mplstyle"))

_FLOOR: Final = ("Without any output", "Random words")
_CHOSEN: Final = "Recommended"

Spec = Mapping[str, Any]


def write_page(folder: Path, page: Spec) -> None:
    """Write a page, one file that needs no other, and its figures as PNG; equal input gives equal bytes.

    A page names its ``template`` in this folder, its ``plots``, and what else the template reads.
    """
    (folder / "plots").mkdir(exist_ok=True)
    drawn = [_drawn(spec) for spec in page["plots"]]
    for plot in drawn:
        (folder / "plots" / f"{plot['name']}.png").write_bytes(plot["png"])
    environment = Environment(
        loader=PackageLoader("dptext_spark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "marked": _marked, "command": _command}
    environment.filters["form"] = lambda value, form: "–" if value is None else form.format(value)
    html = environment.get_template(page["template"]).render({**page, "plots": drawn})
    (folder / "report.html").write_text(html, encoding="utf-8")


def number(value: float | None) -> str:
    """Write a number of three significant digits, from 1,000 on a whole one; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def _marked(text: str) -> Markup:
    """Write N_w with its index, and what stands between backticks as code."""
    with_index = re.sub(
        r"\b([A-Z])_(w|eta|inf|0)\b", r"\1<sub>\2</sub>", str(escape(printable(text)))
    )
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", with_index))


def _command(line: str) -> Markup:
    """Write a command as code, whose options are not broken at their hyphens."""
    parts = (
        Markup("<span>{}</span>").format(p) if p.startswith("--") else escape(p)
        for p in printable(line).split(" ")
    )
    return Markup("<code>{}</code>").format(Markup(" ").join(parts))


# Figures


def _drawn(spec: Spec) -> dict[str, Any]:
    """Draw a figure that is data: its ``png`` with its size, and as ``address`` what a page shows.

    Its ``lines`` have, by label, ``x``, ``y``, and ``low`` and ``high`` of bars along the axis
    ``bars``; some have ``marks`` next to the spots. An axis has a ``label``, that of y may be
    ``log`` or have ``limits``. ``floor`` is what is on the axes without any release; ``chosen``
    spots are circled.
    """
    file, labels = io.BytesIO(), [*spec["lines"]]
    labels += [*_FLOOR] * ("floor" in spec) + [_CHOSEN] * bool(spec.get("chosen"))
    columns = max(1, min(len(labels), _CHARACTERS // (max(map(len, labels)) + 8)))
    with style.context(["default", _STYLE]):  # not the user's own
        figure = Figure(figsize=(_WIDTH, 3.2 + 0.19 * -(-len(labels) // columns)), dpi=_DPI)
        axes = figure.subplots()
        for i, (label, line) in enumerate(spec["lines"].items()):
            reach = np.abs(np.array([line["low"], line["high"]]) - np.array(line[spec["bars"]]))
            look = {"capsize": 2.0, "elinewidth": 1.0, f"{spec['bars']}err": reach, **_look(i)}
            axes.errorbar(line["x"], line["y"], label=_text(label), **look)
            for mark, x, y in zip(line.get("marks", ()), line["x"], line["y"], strict=False):
                axes.annotate(
                    _text(mark), (x, y), (4, -11), textcoords="offset points", fontsize=8.0
                )
        if "floor" in spec:
            axes.axvline(spec["floor"][0], color="#777777", lw=1.0, ls=":", label=_FLOOR[0])
            axes.axhline(spec["floor"][1], color="#777777", lw=1.0, ls=(0, (1, 3)), label=_FLOOR[1])
        if spec.get("chosen"):
            x, y = zip(*spec["chosen"], strict=True)
            place: dict[str, Any] = {"facecolors": "none", "edgecolors": "#000000", "zorder": 5}
            axes.scatter(x, y, s=220.0, label=_CHOSEN, **place)
        axes.set(title=spec["y"]["label"], xlabel=spec["x"]["label"])
        if spec["y"].get("log"):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
            axes.yaxis.set_minor_formatter(NullFormatter())
        if limits := spec["y"].get("limits"):
            margin = 0.03 * (limits[1] - limits[0])
            axes.set_ylim(limits[0] - margin, limits[1] + margin)
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
        values = {value for line in spec["lines"].values() for value in line["x"]}
        if len(values) == 1:
            axes.set_xticks([*values])
        figure.legend(ncols=columns, handlelength=2.8, loc="outside lower center")
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    width, height = (round(side * _DPI) for side in figure.get_size_inches())
    address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return {**spec, "png": file.getvalue(), "address": address, "width": width, "height": height}


def _look(i: int) -> dict[str, Any]:
    """Colours and dashes repeat after different numbers of lines: 35 lines differ."""
    marker = _MARKERS[i % len(_MARKERS)]
    return {"color": _COLOURS[i % len(_COLOURS)], "ls": _DASHES[i % len(_DASHES)], "marker": marker}


def _text(label: str) -> str:
    """A label in which nothing is mathematics."""
    return label.replace("$", r"\$")
