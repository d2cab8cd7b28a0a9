"""Pages as one HTML file each, a template over facts, and their figures.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
import io
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
from dptext_spark.report.drawing import HTML, PLOTS

# Narrow, so that letters stay readable where a phone shows a figure 330 pixels wide.
_WIDTH: Final = 4.8
_CHARACTERS: Final = 58  # that fit in it
_DPI: Final = 200

# Okabe and Ito 2008, "Color Universal Design"; yellow is left out, too pale for a line on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHADE: Final[dict[str, Any]] = {"color": _COLOURS[0], "alpha": 0.2, "lw": 0.0}
_DASHES: Final = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS: Final = "os^Dv"

_STYLE: Final = str(Path(__file__).with_name("page.mplstyle"))

_LINES: Final = ("Without any output", "Random words")
_CHOSEN: Final = "Recommended"
_PANELS: Final = {"p95": "95th percentile", "p50": "Median", "p5": "5th percentile"}

Spec = Mapping[str, Any]


def write_page(folder: Path, page: Spec) -> None:
    """Write a page, one file that needs no other, and its figures as PNG; equal input gives equal bytes.

    A page names its ``template`` in this folder, its ``plots``, and what else the template reads.
    """
    (folder / PLOTS).mkdir(exist_ok=True)
    drawn = [_drawn(spec) for spec in page["plots"]]
    for plot in drawn:
        (folder / PLOTS / f"{plot['name']}.png").write_bytes(plot["png"])
    environment = Environment(
        loader=PackageLoader("dptext_spark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "form": _form, "marked": _marked, "command": _command}
    html = environment.get_template(page["template"]).render({**page, "plots": drawn})
    (folder / HTML).write_text(html, encoding="utf-8")


def number(value: float | None) -> str:
    """Write a number of three significant digits, from 1,000 on a whole one; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def _form(value: Any, form: str) -> str:
    return "–" if value is None else form.format(value)


def _marked(text: str) -> Markup:
    """Write N_w with its index, and what stands between backticks as code."""
    with_index = re.sub(r"\b([A-Z])_(w|eta|inf|0)\b", r"\1<sub>\2</sub>", str(escape(printable(text))))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", with_index))


def _command(line: str) -> Markup:
    """Write a command as code, whose options are not broken at their hyphens."""
    parts = (
        Markup("<span>{}</span>").format(p) if p.startswith("--") else escape(p)
        for p in printable(line).split(" ")
    )
    return Markup("<code>{}</code>").format(Markup(" ").join(parts))


# Figures; an axis has a ``label``, that of y may be ``log`` or have ``limits``


def _drawn(spec: Spec) -> dict[str, Any]:
    """Draw a figure that is data: its ``png`` with its size, and as ``address`` what a page shows."""
    draw = {"percentiles": _percentiles, "trade_off": _trade_off}[spec["kind"]]
    file = io.BytesIO()
    with style.context(["default", _STYLE]):  # not the user's own
        figure = draw(spec)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        look: dict[str, Any] = {"ncols": _legend_columns(labels), "handlelength": 2.8}
        figure.legend(handles, labels, loc="outside lower center", **look)
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    width, height = (round(side * _DPI) for side in figure.get_size_inches())
    address = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
    return {**spec, "png": file.getvalue(), "address": address, "width": width, "height": height}


def _panels(height: float, count: int) -> tuple[Figure, list[Axes]]:
    """A figure of panels below one another that share their axes."""
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI)
    return figure, list(figure.subplots(count, sharex=True, sharey=True, squeeze=False)[:, 0])


def _percentiles(spec: Spec) -> Figure:
    """Draw the median and the range of the middle 90% of words over ``x``.

    ``curves`` have, by label, ``x``, ascending, and ``p5``, ``p50`` and ``p95``. One curve has its range
    shaded; of several, each percentile has a panel of its own.
    """
    curves, title = spec["curves"], spec["y"]["label"]
    several = len(curves) > 1
    names = list(_PANELS) if several else ["p50"]
    figure, panels = _panels(1.1 + (1.9 if several else 2.4) * len(names), len(names))
    for axes, name in zip(panels, names, strict=True):
        for i, (label, curve) in enumerate(curves.items()):
            axes.plot(curve["x"], curve[name], label=_text(label) if several else "Median", **_look(i))
        axes.set_title(f"{_PANELS[name]} of {title}" if several else title)
    if not several:
        (only,) = curves.values()
        band = only["x"], only["p5"], only["p95"]
        panels[0].fill_between(*band, label="Middle 90% of words", **_SHADE)
        if len(only["x"]) == 1:  # a band without width
            panels[0].vlines(*band, color=_COLOURS[0], alpha=0.2, lw=12.0)
    _scales(panels, spec, np.concatenate([curve["x"] for curve in curves.values()]))
    return figure


def _trade_off(spec: Spec) -> Figure:
    """Draw what is gained over what is paid, a line of settings for each label, above a floor.

    ``lines`` have, by label, ``marks`` next to the spots, ``x`` with its ``low`` and ``high``, and ``y``;
    ``floor`` is what is paid, and what is gained, for nothing at all; ``chosen`` spots are circled.
    """
    lines = spec["lines"]
    labels = [*lines, *_LINES, *([_CHOSEN] if spec["chosen"] else [])]
    figure, (axes,) = _panels(3.2 + 0.19 * -(-len(labels) // _legend_columns(labels)), 1)
    for i, (label, line) in enumerate(lines.items()):
        at = np.array(line["x"])
        reach = np.abs(np.array([line["low"], line["high"]]) - at)
        look = {"capsize": 2.0, "elinewidth": 1.0, **_look(i)}
        axes.errorbar(at, line["y"], xerr=reach, label=_text(label), **look)
        for mark, along, up in zip(line["marks"], line["x"], line["y"], strict=True):
            offset: dict[str, Any] = {"xytext": (4, -11), "textcoords": "offset points", "fontsize": 8.0}
            axes.annotate(_text(mark), (along, up), **offset)
    axes.axvline(spec["floor"][0], color="#777777", lw=1.0, ls=":", label=_LINES[0])
    axes.axhline(spec["floor"][1], color="#777777", lw=1.0, ls=(0, (1, 3)), label=_LINES[1])
    if spec["chosen"]:
        place: dict[str, Any] = {"s": 220.0, "facecolors": "none", "edgecolors": "#000000", "zorder": 5}
        axes.scatter(*zip(*spec["chosen"], strict=True), label=_CHOSEN, **place)
    axes.set_title(spec["y"]["label"])
    _scales([axes], spec, np.concatenate([line["x"] for line in lines.values()]))
    return figure


def _look(i: int) -> dict[str, Any]:
    """Colours and dashes repeat after different numbers of lines: 35 lines differ."""
    marker = _MARKERS[i % len(_MARKERS)]
    return {"color": _COLOURS[i % len(_COLOURS)], "ls": _DASHES[i % len(_DASHES)], "marker": marker}


def _text(label: str) -> str:
    """A label in which nothing is mathematics."""
    return label.replace("$", r"\$")


def _scales(panels: Sequence[Axes], spec: Spec, values: Any) -> None:
    """Scale the axes, which are shared; ``values`` are all of x."""
    upper, lower = panels[0], panels[-1]
    if spec["y"].get("log"):
        upper.set_yscale("log")
        upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        upper.yaxis.set_minor_formatter(NullFormatter())
    if limits := spec["y"].get("limits"):
        margin = 0.03 * (limits[1] - limits[0])
        upper.set_ylim(limits[0] - margin, limits[1] + margin)
    lower.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    if len(np.unique(values)) == 1:
        lower.set_xticks(values[:1])
    lower.set_xlabel(spec["x"]["label"])


def _legend_columns(labels: Sequence[str]) -> int:
    return max(1, min(len(labels), _CHARACTERS // (max(map(len, labels)) + 8)))
