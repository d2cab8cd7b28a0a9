"""Pages as one HTML file each, a template over facts, and their figures.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.axes import Axes
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
    """Write a page, one file that needs no other, and its figures as PNG; equal input, equal bytes.

    A page names its ``template`` in this folder, its ``plots``, and what else the template reads.
    """
    (folder / "plots").mkdir(exist_ok=True)
    figures = [_drawn(spec) for spec in page["plots"]]
    for figure in figures:
        (folder / "plots" / f"{figure['name']}.png").write_bytes(figure["png"])
    environment = Environment(
        loader=PackageLoader("dptext_spark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["marked"] = _marked
    environment.filters["command"] = _command
    environment.filters["form"] = _formatted
    html = environment.get_template(page["template"]).render({**page, "plots": figures})
    (folder / "report.html").write_text(html, encoding="utf-8")


def number(value: float | None) -> str:
    """Write a number of three significant digits, from 1,000 on a whole one; a dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _shown(value: Any) -> Any:
    """Return a value of a template as it is shown: a text without unseen characters."""
    if type(value) is str:  # no Markup, which is escaped already
        return printable(value)
    return value


def _formatted(value: Any, form: str) -> str:
    """Write a value in a form; a dash for None."""
    if value is None:
        return "–"
    return form.format(value)


def _marked(text: str) -> Markup:
    """Write N_w with its index, and what stands between backticks as code."""
    escaped = str(escape(printable(text)))
    with_index = re.sub(r"\b([A-Z])_(w|eta|inf|0)\b", r"\1<sub>\2</sub>", escaped)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", with_index))


def _command(line: str) -> Markup:
    """Write a command as code, whose options are not broken at their hyphens."""
    words = []
    for word in printable(line).split(" "):
        form = Markup("<span>{}</span>") if word.startswith("--") else Markup("{}")
        words.append(form.format(word))
    return Markup("<code>{}</code>").format(Markup(" ").join(words))


# Figures


def _drawn(spec: Spec) -> dict[str, Any]:
    """Draw a figure that is data: its ``png`` with its size, and as ``address`` what a page shows.

    Its ``lines`` have, by label, ``x``, ``y``, and ``low`` and ``high`` of bars along the axis
    ``bars``; some have ``marks`` next to the spots. An axis has a ``label``, that of y may be
    ``log`` or have ``limits``. ``floor`` is what is on the axes without any release; ``chosen``
    spots are circled.
    """
    file = io.BytesIO()
    labels = _legend(spec)
    fitting = _CHARACTERS // (max(map(len, labels)) + 8)
    columns = max(1, min(len(labels), fitting))
    inches = 3.2 + 0.19 * math.ceil(len(labels) / columns)
    with style.context(["default", _STYLE]):  # not the user's own
        figure = Figure(figsize=(_WIDTH, inches), dpi=_DPI)
        axes = figure.subplots()
        _draw_lines(axes, spec)
        if "floor" in spec:
            x, y = spec["floor"]
            axes.axvline(x, color="#777777", lw=1.0, ls=":", label=_FLOOR[0])
            axes.axhline(y, color="#777777", lw=1.0, ls=(0, (1, 3)), label=_FLOOR[1])
        if spec.get("chosen"):
            _circle(axes, spec["chosen"])
        _scale(axes, spec)
        figure.legend(ncols=columns, handlelength=2.8, loc="outside lower center")
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    width, height = (round(side * _DPI) for side in figure.get_size_inches())
    address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return {**spec, "png": file.getvalue(), "address": address, "width": width, "height": height}


def _legend(spec: Spec) -> list[str]:
    """Return the labels of a figure's legend."""
    labels = [*spec["lines"]]
    if "floor" in spec:
        labels += _FLOOR
    if spec.get("chosen"):
        labels.append(_CHOSEN)
    return labels


def _draw_lines(axes: Axes, spec: Spec) -> None:
    """Draw the lines of a figure with their bars and marks."""
    for i, (label, line) in enumerate(spec["lines"].items()):
        limits = np.array([line["low"], line["high"]])
        reach = np.abs(limits - np.array(line[spec["bars"]]))
        look = {"capsize": 2.0, "elinewidth": 1.0, f"{spec['bars']}err": reach, **_look(i)}
        axes.errorbar(line["x"], line["y"], label=_text(label), **look)
        for mark, x, y in zip(line.get("marks", ()), line["x"], line["y"], strict=False):
            axes.annotate(_text(mark), (x, y), (4, -11), textcoords="offset points", fontsize=8.0)


def _circle(axes: Axes, spots: Sequence[tuple[float, float]]) -> None:
    """Draw a circle around each spot."""
    x, y = zip(*spots, strict=True)
    look: dict[str, Any] = {"facecolors": "none", "edgecolors": "#000000", "zorder": 5}
    axes.scatter(x, y, s=220.0, label=_CHOSEN, **look)


def _scale(axes: Axes, spec: Spec) -> None:
    """Label the axes of a figure, and set their limits and ticks."""
    axes.set(title=spec["y"]["label"], xlabel=spec["x"]["label"])
    if spec["y"].get("log"):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    limits = spec["y"].get("limits")
    if limits:
        margin = 0.03 * (limits[1] - limits[0])
        axes.set_ylim(limits[0] - margin, limits[1] + margin)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    values: set[float] = set()
    for line in spec["lines"].values():
        values.update(line["x"])
    if len(values) == 1:
        axes.set_xticks([*values])


def _look(i: int) -> dict[str, Any]:
    """Return colour, dashes and marker of a line; dashes repeat later, so 35 lines differ."""
    marker = _MARKERS[i % len(_MARKERS)]
    return {"color": _COLOURS[i % len(_COLOURS)], "ls": _DASHES[i % len(_DASHES)], "marker": marker}


def _text(label: str) -> str:
    """Escape a label so that nothing in it is mathematics."""
    return label.replace("$", r"\$")
