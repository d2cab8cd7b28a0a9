"""Pages as one HTML file each, of sections that are data, and their figures with findings in words.

Needs the extra ``[report]``, so it is imported only where a page is drawn.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

# Narrow, so that letters stay readable where a phone shows a figure 330 pixels wide.
_WIDTH: Final = 4.8
_CHARACTERS: Final = 58  # that fit in it
_DPI: Final = 200

# Okabe and Ito 2008, "Color Universal Design"; yellow is left out, too pale for a line on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHADE: Final[dict[str, Any]] = {"color": _COLOURS[0], "alpha": 0.2, "lw": 0.0}
_DASHES: Final = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)))
_MARKERS: Final = "os^Dv"

_STYLE: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same letters everywhere
    "font.size": 10.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 5.0,
    "legend.frameon": False,
    "mathtext.default": "regular",
    "figure.constrained_layout.use": True,
}

_LINES: Final = ("Without any output", "Random words")
_CHOSEN: Final = "Recommended"
_PANELS: Final = {"p95": "95th percentile", "p50": "Median", "p5": "5th percentile"}


def write_page(folder: Path, page: Mapping[str, Any], *, name: str, plots: str) -> None:
    """Write a page, one file that needs no other, and its figures as PNG; equal input gives equal bytes.

    Args:
        folder: Where to.
        page: The ``title``, and as lists of blocks the ``lead`` and the blocks of each of ``sections``. A
            block is a text, a list of texts, or has a ``text`` with its ``style``, ``plots``, the ``head``
            and ``rows`` of a table, ``facts`` by name, or a ``title`` and ``blocks`` that can be folded. In a
            table's cell, a mapping is a word with ``small`` remarks.
        name, plots: Of the page's file, and of the folder of its figures.
    """
    specs = [
        plot
        for section in page["sections"]
        for block in section["blocks"]
        for plot in (block.get("plots", ()) if isinstance(block, Mapping) else ())
    ]
    drawn = {spec["name"]: _drawn(spec) for spec in specs}
    (folder / plots).mkdir(exist_ok=True)
    for plot in drawn.values():
        (folder / plots / f"{plot.name}.png").write_bytes(plot.png)
    environment = Environment(
        loader=PackageLoader("dptext_spark.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "data_uri": data_uri, "marked": _marked}
    html = environment.get_template("page.html").render(page, plots=drawn)
    (folder / name).write_text(html, encoding="utf-8")


def data_uri(png: bytes) -> str:
    """Write an image as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def number(value: float | None) -> str:
    """Write a number of three significant digits, from 1,000 on a whole one; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def _marked(text: str) -> Markup:
    """Write N_w with its index, and what stands between backticks as code."""
    with_index = re.sub(r"\b([A-Z])_(w|eta|inf|0)\b", r"\1<sub>\2</sub>", str(escape(text)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", with_index))


# Figures


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A quantity that a figure shows.

    Attributes:
        name, label: As findings call it, and as the figure does, with its unit.
        log: Whether the axis is logarithmic.
        limits: Where the axis ends; None lets the figure decide.
        digits: Digits after the point in findings; None writes three significant ones.
    """

    name: str
    label: str
    log: bool = False
    limits: tuple[float, float] | None = None
    digits: int | None = None

    def write(self, value: float) -> str:
        """Write a value as findings do."""
        return number(value) if self.digits is None else f"{value:.{self.digits}f}"


_WORDS: Final = Axis(name="words", label="Words (log scale)", log=True)


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A figure.

    Attributes:
        name: Of its file, without ending.
        png: The image.
        width, height: In pixels.
        findings: What it shows, in words and numbers.
        caption: What stands below it.
    """

    name: str
    png: bytes
    width: int
    height: int
    findings: tuple[str, ...]
    caption: str = ""

    @property
    def alt(self) -> str:
        """The text that stands for the image."""
        return " ".join(self.findings)


def _drawn(spec: Mapping[str, Any]) -> Plot:
    """Draw a figure that is data."""
    name = spec["name"]
    if spec["kind"] == "percentiles":
        plot = percentile_plot(name, spec["curves"], Axis(**spec["x"]), Axis(**spec["y"]))
    else:
        plot = histogram_plot(name, spec["counts"], np.array(spec["edges"]), Axis(**spec["axis"]))
    return replace(plot, caption=spec["caption"])


def percentile_plot(name: str, curves: Mapping[str, Mapping[str, Sequence[float]]], x: Axis, y: Axis) -> Plot:
    """Draw the median and the range of the middle 90% of words over ``x``.

    One curve has its range shaded; of several, each percentile has a panel of its own.

    Args:
        name: Of the file.
        curves: One or more, by label: ``x``, ascending, and ``p5``, ``p50`` and ``p95``.
        x, y: What the curves' x and their percentiles are.
    """
    several = len(curves) > 1
    panels = list(_PANELS) if several else ["p50"]
    with _drawing(1.1 + (1.9 if several else 2.4) * len(panels)) as figure:
        all_axes = figure.subplots(len(panels), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, panel in zip(all_axes, panels, strict=True):
            for i, (label, curve) in enumerate(curves.items()):
                look = {"marker": _MARKERS[i % len(_MARKERS)], **_look(i)}
                axes.plot(curve["x"], curve[panel], label=_text(label) if several else "Median", **look)
            title = f"{_PANELS[panel]} of {y.label}" if several else y.label
            axes.set_title(title[0].upper() + title[1:])
        if not several:
            (only,) = curves.values()
            band = only["x"], only["p5"], only["p95"]
            all_axes[0].fill_between(*band, label="Middle 90% of words", **_SHADE)
            if len(only["x"]) == 1:  # a band without width
                all_axes[0].vlines(*band, color=_COLOURS[0], alpha=0.2, lw=12.0)
        _y_axis(all_axes[0], y)
        _x_axis(all_axes[-1], x, np.concatenate([curve["x"] for curve in curves.values()]))
        _legend(figure)
        return _finished(figure, name, _trends(curves, x, y))


def histogram_plot(
    name: str,
    counts: Mapping[float, Mapping[str, Sequence[int]]],
    edges: NDArray[np.float64],
    axis: Axis,
) -> Plot:
    """Draw how many words have which value, on a logarithmic scale, a panel for each epsilon.

    Args:
        name: Of the file.
        counts, edges: For each epsilon, (b,) by label; and float64 (b + 1,), where the bars end.
        axis: What is counted.
    """
    labels = list(dict.fromkeys(chain.from_iterable(counts.values())))
    bars = np.array([c for by_label in counts.values() for c in by_label.values()])
    used = np.flatnonzero(bars.sum(axis=0))
    shown = slice(used[0], used[-1] + 1) if axis.limits is None else slice(len(edges) - 1)
    ends = edges[shown.start : shown.stop + 1]
    with _drawing(1.1 + 1.6 * len(counts)) as figure:
        all_axes = figure.subplots(len(counts), sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (epsilon, by_label) in zip(all_axes, counts.items(), strict=True):
            for label, values in by_label.items():
                # Zero has no logarithm: the axis begins below one word.
                look = {"fill": len(labels) == 1, "baseline": 0.5, "lw": 1.6, **_look(labels.index(label))}
                axes.stairs(np.maximum(values[shown], 0.5), ends, label=_text(label), **look)
            axes.set_title(f"Words (log scale) at epsilon {epsilon:g}")
        all_axes[0].set_ylim(0.5, 2.0 * int(bars.max()))
        _y_axis(all_axes[0], _WORDS)
        _x_axis(all_axes[-1], axis, ends)
        if len(labels) > 1:
            _legend(figure)
        return _finished(figure, name, _peaks(counts, edges, axis))


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A setting in a plane: the number next to it, where it lies, and the interval across."""

    mark: str
    x: float
    y: float
    x_ends: tuple[float, float]


def trade_off_plot(
    name: str,
    lines: Mapping[str, Sequence[Spot]],
    x: Axis,
    y: Axis,
    *,
    floor: tuple[float, float],
    chosen: Spot | None = None,
) -> Plot:
    """Draw what is gained over what is paid, a line of settings for each label, between floor and ceiling.

    Args:
        name: Of the file.
        lines: One or more, by label; spots in their order along the line.
        x, y: What is paid, and what is gained.
        floor: What is paid, and what is gained, for nothing at all: dotted lines.
        chosen: The setting that is to be seen first.
    """
    labels = [*lines, *_LINES, *(() if chosen is None else (_CHOSEN,))]
    with _drawing(3.2 + 0.19 * -(-len(labels) // _legend_columns(labels))) as figure:
        axes = figure.subplots()
        for i, (label, spots) in enumerate(lines.items()):
            at, ends = np.array([(s.x, s.y) for s in spots]), np.array([s.x_ends for s in spots])
            reach = np.abs(ends - at[:, :1]).T
            look = {"marker": _MARKERS[i % len(_MARKERS)], "capsize": 2.0, "elinewidth": 1.0, **_look(i)}
            axes.errorbar(at[:, 0], at[:, 1], xerr=reach, label=_text(label), **look)
            for spot in spots:
                offset: dict[str, Any] = {"xytext": (4, -11), "textcoords": "offset points", "fontsize": 8.0}
                axes.annotate(_text(spot.mark), (spot.x, spot.y), **offset)
        axes.axvline(floor[0], color="#777777", lw=1.0, ls=":", label=_LINES[0])
        axes.axhline(floor[1], color="#777777", lw=1.0, ls=(0, (1, 3)), label=_LINES[1])
        if chosen is not None:
            place: dict[str, Any] = {"s": 220.0, "facecolors": "none", "edgecolors": "#000000", "zorder": 5}
            axes.scatter([chosen.x], [chosen.y], label=_CHOSEN, **place)
        axes.set_title(y.label)
        _y_axis(axes, y)
        _x_axis(axes, x, np.array([spot.x for spots in lines.values() for spot in spots]))
        _legend(figure)
        ends_of = {label: [spots[0], spots[-1]][: len(spots)] for label, spots in lines.items()}
        findings = [
            f"{label}: "
            + ", ".join(f"{s.mark}: {y.name} {y.write(s.y)} at {x.name} {x.write(s.x)}" for s in spots)
            + "."
            for label, spots in ends_of.items()
        ]
        return _finished(figure, name, findings)


@contextmanager
def _drawing(height: float) -> Iterator[Figure]:
    """A figure in a style that does not depend on the user's settings."""
    with style.context(["default", _STYLE]):
        yield Figure(figsize=(_WIDTH, height), dpi=_DPI)


def _finished(figure: Figure, name: str, findings: Iterable[str]) -> Plot:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    width, height = (round(side * _DPI) for side in figure.get_size_inches())
    return Plot(name=name, png=file.getvalue(), width=width, height=height, findings=tuple(findings))


def _look(i: int) -> dict[str, Any]:
    """Colours and dashes repeat after different numbers of lines: 35 lines differ."""
    return {"color": _COLOURS[i % len(_COLOURS)], "ls": _DASHES[i % len(_DASHES)]}


def _text(label: str) -> str:
    """A label in which nothing is mathematics."""
    return label.replace("$", r"\$")


def _y_axis(axes: Axes, y: Axis) -> None:
    if y.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if y.limits:
        low, high = y.limits
        axes.set_ylim(low - 0.03 * (high - low), high + 0.03 * (high - low))


def _x_axis(axes: Axes, x: Axis, values: NDArray[np.float64]) -> None:
    if x.log:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    if x.limits:
        axes.set_xlim(*x.limits)
    if len(np.unique(values)) == 1:
        axes.set_xticks(values[:1])
    axes.set_xlabel(x.label)


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    columns = _legend_columns(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.8)


def _legend_columns(labels: Sequence[str]) -> int:
    return max(1, min(len(labels), _CHARACTERS // (max(map(len, labels)) + 8)))


def _trends(curves: Mapping[str, Mapping[str, Sequence[float]]], x: Axis, y: Axis) -> Iterator[str]:
    """Say where each curve begins and ends."""
    for label, curve in curves.items():
        lead = f"{label}: median" if len(curves) > 1 else "Median"
        median = curve["p50"]
        first, last = y.write(median[0]), y.write(median[-1])
        start, end = (f"{x.name} {curve['x'][place]:g}" for place in (0, -1))
        if len(curve["x"]) == 1:
            way = f"is {first} at {start}"
        elif first == last:
            way = f"stays {first} from {start} to {end}"
        else:
            moves = "rises" if median[-1] > median[0] else "falls"
            way = f"{moves} from {first} at {start} to {last} at {end}"
        middle = f"from {y.write(curve['p5'][-1])} to {y.write(curve['p95'][-1])}"
        yield f"{lead} {y.name} {way}, where the middle 90% of words lie {middle}."


def _peaks(
    counts: Mapping[float, Mapping[str, Sequence[int]]], edges: NDArray[np.float64], axis: Axis
) -> Iterator[str]:
    """Say where most words are."""
    for epsilon, by_label in counts.items():
        for label, values in by_label.items():
            of = f", {label}" if len(by_label) > 1 else ""
            i = int(np.argmax(values))
            low, high = edges[i], edges[i + 1]
            if axis.digits is None:  # whole numbers, with edges between them
                low, high = low + 0.5, high - 0.5
            bar = axis.write(low) if low == high else f"{axis.write(low)} to {axis.write(high)}"
            words = f"{values[i]:,} of {sum(values):,} words"
            yield f"At epsilon {epsilon:g}{of}, the highest bar is {axis.name} {bar}: {words}."
